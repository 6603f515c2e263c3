//! Accepts the word order of Kyma's CLI: `init function`, `apply function`, `sync function NAME`, `run function`.
//!
//! Invariant: `mainstay sync NAME` syncs the GitSync of that name, even if it is named `function`. Only `sync function
//! NAME`, with a name, refers to a Function.

use std::ffi::OsString;

/// The verbs that may precede `function`.
const VERBS: [&str; 4] = ["init", "apply", "sync", "run"];

/// Returns the command in Mainstay's word order, if it may be in Kyma's word order. Flags and `help` may precede it.
pub(in crate::cli) fn in_order(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (program, rest) = arguments.split_first()?;
    let (flags, rest) = rest.split_at_checked(flags(rest))?;
    let (help, rest) = rest.split_at(usize::from(rest.first().is_some_and(|word| word == "help")));
    let [verb, object, rest @ ..] = rest else { return None };
    let is_known = VERBS.iter().any(|known| verb == known) && object == "function";
    is_known
        .then(|| [program].into_iter().chain(flags).chain(help).chain([object, verb]).chain(rest).cloned().collect())
}

/// Returns the number of words before the command: flags and their values. Each flag of all commands has a value.
fn flags(words: &[OsString]) -> usize {
    let mut count = 0;
    while let Some(flag) = words.get(count).and_then(|word| word.to_str()).filter(|word| word.starts_with('-')) {
        let has_own_value = flag.contains('=') || flag.len() > 2 && !flag.starts_with("--");
        count += if has_own_value { 1 } else { 2 };
    }
    count
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
        check("mainstay help init function", Some("mainstay help function init"));
        check("mainstay --context a -n=b sync function shop", Some("mainstay --context a -n=b function sync shop"));
        check("mainstay -nb --as function run function", Some("mainstay -nb --as function function run"));
        check("mainstay sync shop", None);
        check("mainstay --as sync function", None);
        check("mainstay --help", None);
        check("mainstay help", None);
        check("mainstay sync -n function shop", None);
        check("mainstay function init", None);
        check("mainstay pause function shop", None);
        check("mainstay sync", None);
    }
}
