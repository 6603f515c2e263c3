//! The GitSyncs that a member owns, for the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::member::{Member, Members};

/// The pin of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    /// The member; `None` if the pin was removed.
    pub(super) member: Option<Member>,
    /// GitSyncs of the namespace are not gained before this time.
    pub(super) settles: Option<Instant>,
}

/// The pins of namespaces.
pub(super) type Pins = BTreeMap<String, Pinned>;

/// The GitSyncs that a member owns, and those with which it may begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ownership {
    pub(super) me: Option<Member>,
    /// The number of the view.
    pub(super) number: u64,
    /// The members by which GitSyncs are kept.
    pub(super) members: Members,
    /// The other live members with their published members; `None` while the own view is not published.
    pub(super) others: Option<Vec<(Member, Members)>>,
    pub(super) pins: Arc<Pins>,
}

impl Ownership {
    /// Returns the number of the view. It changes whenever GitSyncs may be lost, whose work must then stop.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the members.
    pub fn members(&self) -> Members {
        self.members
    }

    /// Returns the member to which the GitSyncs of a namespace are pinned.
    pub fn pin(&self, namespace: &str) -> Option<Member> {
        self.pins.get(namespace).and_then(|pinned| pinned.member)
    }

    /// Returns the time before which no GitSync of the namespace is gained, because its pin has changed.
    pub fn settles(&self, namespace: &str) -> Option<Instant> {
        self.pins.get(namespace).and_then(|pinned| pinned.settles)
    }

    /// Returns the next time at which GitSyncs of a namespace may be gained, because its pin has changed.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.pins.values().filter_map(|pinned| pinned.settles).filter(|settles| *settles > now).min()
    }

    /// Whether GitSyncs may be gained.
    pub fn is_acting(&self) -> bool {
        self.others.is_some()
    }

    /// Whether a pin moves a GitSync to a member other than the one that hashing selects.
    pub fn is_moved(&self, namespace: &str, name: &str, pin: Option<Member>) -> bool {
        pin.is_some() && self.members.owner(namespace, name, pin) != self.members.owner(namespace, name, None)
    }

    /// Whether the work for a GitSync continues.
    pub fn keeps(&self, namespace: &str, name: &str, pin: Option<Member>) -> bool {
        self.me.is_some() && self.members.owner(namespace, name, pin) == self.me
    }

    /// Whether the work for a GitSync may begin: no other member has published a view in which it owns the GitSync.
    pub fn may_gain(&self, namespace: &str, name: &str, pin: Option<Member>) -> bool {
        let is_free = |(other, members): &(Member, Members)| {
            *members == self.members || members.owner(namespace, name, pin) != Some(*other)
        };
        self.keeps(namespace, name, pin) && self.others.as_ref().is_some_and(|others| others.iter().all(is_free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_to_the_member_that_hashing_selects_moves_nothing() {
        let members: Members = (0..3).filter_map(Member::new).collect();
        let ownership = Ownership { me: Member::new(0), members, ..Ownership::default() };
        let hashed = members.owner("shop", "app", None);
        for pin in (0..5).map(Member::new) {
            let is_other = pin != hashed && pin.is_some_and(|pin| members.has(pin));
            assert_eq!(ownership.is_moved("shop", "app", pin), is_other, "{pin:?}");
        }
        assert!(!ownership.is_moved("shop", "app", None));
    }
}
