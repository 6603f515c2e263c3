//! The label on everything that a GitSync manages.

use std::sync::Arc;

use crate::api::conditions::cut;
use crate::object::Digest;

/// Longest value of a label.
const LONGEST: usize = 63;

/// Value of the label on everything that a GitSync manages: `<namespace>.<name>`, or, when that is too long, the
/// beginning of the name and a hash. No name contains the `_` between the two, so no GitSync has another one's label.
pub fn label(namespace: &str, name: &str) -> Arc<str> {
    let plain = format!("{namespace}.{name}");
    if plain.len() <= LONGEST {
        return plain.into();
    }
    format!("{}_{}", cut(name, 30), Digest::of(plain.as_bytes())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_git_syncs_have_one_label() {
        assert_eq!(&*label("shop", "web"), "shop.web");
        let long = label("shop", &"a".repeat(60));
        assert!(long.len() <= LONGEST && long.ends_with(char::is_alphanumeric), "{long}");
        let (beginning, hash) = long.split_once('_').unwrap();
        assert_ne!(label(beginning, hash), long, "a name that is made up to be the same");
        assert_ne!(label("other", &"a".repeat(60)), long);
    }
}
