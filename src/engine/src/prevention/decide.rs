//! Decides which policies and bindings have to be written or deleted.
//!
//! Invariant: a binding exists only with its policy: it is created after the policy and deleted before it.
//!
//! Not here: retries after a failure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::seen::{Part, Seen};
use mainstay_object::Digest;

/// Live objects by kind and name.
pub(super) type AllSeen = BTreeMap<(Part, String), Seen>;
/// Digests of the last write and of the response, by kind and name. They differ if the server adds defaults.
pub(super) type Answered = HashMap<(Part, String), (Digest, Digest)>;

/// A write or deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Replace an object of Mainstay.
    Replace(Part, String),
    /// Create an object, unless one of that name exists.
    Create(Part, String),
    /// Delete an object of Mainstay that is not desired.
    Delete(Part, String),
    /// Do nothing, because the object belongs to another client.
    LeaveAlone(Part, String),
}

/// Returns the actions in order. `wanted` are the digests of policy and binding by name. `undecided` are the names of
/// GitSyncs that have not been reconciled yet.
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

/// Whether an object is as desired, apart from defaults that the server added.
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

    /// Checks the actions for the objects of `web`, whose desired content is `right`.
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
