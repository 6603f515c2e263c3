//! Accepts the word order of Kyma's CLI: `init function`, `apply function`, `sync function NAME`, `run function`.
//!
//! Invariant: `mainstay sync NAME` syncs the GitSync of that name, even if it is named `function`. Only `sync function
//! NAME`, with a name, refers to a Function.

use std::ffi::OsString;

/// The verbs that may precede `function`.
const VERBS: [&str; 4] = ["init", "apply", "sync", "run"];

/// Returns the command in Mainstay's word order, if it may be in Kyma's word order.
pub(in crate::cli) fn in_order(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let [program, verb, object, rest @ ..] = arguments else { return None };
    let is_known = VERBS.iter().any(|known| verb == known) && object == "function";
    is_known.then(|| [program, object, verb].into_iter().chain(rest).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<&str>) {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(in_order(&words(line)), expected.map(words), "{line}");
    }

    #[test]
    fn the_verb_may_stand_before_what_it_is_about() {
        check("mainstay init function --runtime python38", Some("mainstay function init --runtime python38"));
        check("mainstay apply function --dry-run", Some("mainstay function apply --dry-run"));
        check("mainstay sync function shop", Some("mainstay function sync shop"));
        check("mainstay run function -p 0", Some("mainstay function run -p 0"));
        check("mainstay sync shop", None);
        check("mainstay sync -n function shop", None);
        check("mainstay function init", None);
        check("mainstay pause function shop", None);
        check("mainstay sync", None);
    }
}
