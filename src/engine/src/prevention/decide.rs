//! What to do about the policies and bindings that are there, and about those that must be.
//!
//! Invariant: a binding counts only where its policy is there: it is created after it and deleted before it.
//!
//! Deliberately absent: when something that failed is tried again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::seen::{Part, Seen};
use mainstay_object::Digest;

/// What is there, by kind and name.
pub(super) type AllSeen = BTreeMap<(Part, String), Seen>;
/// What the server has made of what was written last, by kind and name: the digest of what was written, and that of the
/// answer. They are the same, unless a server adds something of its own.
pub(super) type Answered = HashMap<(Part, String), (Digest, Digest)>;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Write one that is ours anew.
    Replace(Part, String),
    /// Create one that was not seen, if there is none of somebody else.
    Create(Part, String),
    /// Delete one that is ours and not wanted.
    Delete(Part, String),
    /// Nothing: this is somebody else's.
    LeaveAlone(Part, String),
}

/// What to do, in this order. `wanted` are digests of the two objects of every name, `undecided` names of objects of which it
/// is not known whether they are wanted.
pub(super) fn decide(
    wanted: &BTreeMap<String, [Digest; 2]>,
    undecided: &BTreeSet<String>,
    seen: &AllSeen,
    answered: &Answered,
) -> Vec<Action> {
    let unwanted = |name: &String| !wanted.contains_key(name) && !undecided.contains(name);
    let deleted = seen.iter().rev().filter(|((_, name), seen)| seen.is_ours && !seen.is_terminating && unwanted(name));
    let mut actions = deleted.map(|((part, name), _)| Action::Delete(*part, name.clone())).collect::<Vec<_>>();
    for (name, digests) in wanted {
        for (part, digest) in Part::ALL.into_iter().zip(digests) {
            let key = (part, name.clone());
            let Some(live) = seen.get(&key) else {
                actions.push(Action::Create(part, name.clone()));
                continue;
            };
            if !live.is_ours {
                actions.push(Action::LeaveAlone(part, name.clone()));
            } else if !is_as_wanted(live, *digest, answered.get(&key)) && !live.is_terminating {
                actions.push(Action::Replace(part, name.clone()));
            }
        }
    }
    actions
}

/// Whether an object is as it must be, or as the server makes that.
pub(super) fn is_as_wanted(live: &Seen, wanted: Digest, answered: Option<&(Digest, Digest)>) -> bool {
    live.digest == wanted || answered == Some(&(wanted, live.digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(says: &str) -> Seen {
        Seen {
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            digest: Digest::of(says.as_bytes()),
            is_ours: true,
            is_terminating: false,
        }
    }

    /// What is done about the objects of `web`, which must say `right`.
    fn check(seen: &[(Part, &str, Seen)], undecided: &[&str], expected: &[Action]) {
        let right = Digest::of(b"right");
        let wanted = BTreeMap::from([("web".to_owned(), [right, right])]);
        let undecided = undecided.iter().map(ToString::to_string).collect();
        let seen = seen.iter().map(|(part, name, seen)| ((*part, (*name).to_owned()), seen.clone())).collect();
        assert_eq!(decide(&wanted, &undecided, &seen, &Answered::default()), expected);
    }

    fn both(name: &'static str, says: &str) -> [(Part, &'static str, Seen); 2] {
        Part::ALL.map(|part| (part, name, seen(says)))
    }

    #[test]
    fn a_missing_policy_is_created_and_a_different_one_replaced() {
        let web = || "web".to_owned();
        check(&[], &[], &[Action::Create(Part::Policy, web()), Action::Create(Part::Binding, web())]);
        check(&both("web", "right"), &[], &[]);
        check(
            &both("web", "wrong"),
            &[],
            &[Action::Replace(Part::Policy, web()), Action::Replace(Part::Binding, web())],
        );
    }

    #[test]
    fn an_unwanted_policy_is_deleted_unless_a_git_sync_may_want_it() {
        let old = || "old".to_owned();
        let all = [both("web", "right"), both("old", "right")].concat();
        check(&all, &[], &[Action::Delete(Part::Binding, old()), Action::Delete(Part::Policy, old())]);
        check(&all, &["old"], &[]);
    }

    #[test]
    fn policies_of_others_are_left_alone() {
        let foreign = |name| (Part::Policy, name, Seen { is_ours: false, ..seen("right") });
        let web = || "web".to_owned();
        let expected = [Action::LeaveAlone(Part::Policy, web()), Action::Create(Part::Binding, web())];
        check(&[foreign("web"), foreign("old")], &[], &expected);
    }

    #[test]
    fn defaults_of_the_server_cause_no_writes() {
        let (right, more) = (Digest::of(b"right"), Digest::of(b"more"));
        assert!(!is_as_wanted(&seen("more"), right, None));
        assert!(is_as_wanted(&seen("more"), right, Some(&(right, more))));
        assert!(!is_as_wanted(&seen("more"), right, Some(&(Digest::of(b"older"), more))));
    }
}
