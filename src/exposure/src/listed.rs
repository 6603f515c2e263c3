//! The kinds that APIRules need, and which of their lists are complete.

use std::collections::{HashMap, HashSet};

use super::child::ChildKind;

pub(super) use mainstay_cluster::reflector::Name;

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Definition(ChildKind),
    Children(ChildKind),
    Services,
    /// EndpointSlices that a user wrote.
    Written,
    Namespaces,
}

impl Watched {
    /// Returns the kinds that are needed if these kinds are served.
    fn needed(serves: impl Fn(ChildKind) -> bool) -> impl Iterator<Item = Self> {
        let kinds = ChildKind::ALL.into_iter();
        let all = kinds.flat_map(|kind| [Self::Definition(kind), Self::Children(kind)]);
        all.chain([Self::Services, Self::Written, Self::Namespaces]).filter(move |watched| match watched {
            Self::Children(kind) => serves(*kind),
            Self::Namespaces => serves(ChildKind::AuthorizationPolicy),
            Self::Definition(_) | Self::Services | Self::Written => true,
        })
    }
}

/// Why a decision is not possible yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lacking {
    /// A list is not complete yet.
    NotYet,
    /// A list fails, for this reason.
    Failing(String),
}

/// The state of all lists.
#[derive(Debug, Default)]
pub(super) struct Listed {
    complete: HashSet<Watched>,
    failing: HashMap<Watched, String>,
}

impl Listed {
    /// Records a complete list. Returns whether this is new.
    pub(super) fn complete(&mut self, watched: Watched) -> bool {
        let was_failing = self.failing.remove(&watched).is_some();
        self.complete.insert(watched) || was_failing
    }

    /// Records a failed watch. Returns whether its list is not complete and did not fail before.
    pub(super) fn fail(&mut self, watched: Watched, why: String) -> bool {
        self.failing.insert(watched, why).is_none() && !self.complete.contains(&watched)
    }

    /// Forgets the state of a list.
    pub(super) fn forget(&mut self, watched: Watched) {
        self.complete.remove(&watched);
        self.failing.remove(&watched);
    }

    /// Returns what is missing if these kinds are served.
    pub(super) fn lacks(&self, serves: impl Fn(ChildKind) -> bool) -> Option<Lacking> {
        let unknown: Vec<Watched> = Watched::needed(serves).filter(|one| !self.complete.contains(one)).collect();
        let why = unknown.iter().find_map(|one| self.failing.get(one));
        match why {
            Some(why) => Some(Lacking::Failing(why.clone())),
            None => (!unknown.is_empty()).then_some(Lacking::NotYet),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_served_is_waited_for_and_a_failure_counts_until_the_list_has_come() {
        let (mut listed, routes) = (Listed::default(), ChildKind::VirtualService);
        let lacks = |listed: &Listed| listed.lacks(|kind| kind == routes);
        for kind in ChildKind::ALL {
            listed.complete(Watched::Definition(kind));
        }
        listed.complete(Watched::Services);
        listed.complete(Watched::Written);
        assert_eq!((lacks(&listed), listed.lacks(|_| false)), (Some(Lacking::NotYet), None));
        assert!(listed.fail(Watched::Children(routes), "no".into()));
        assert!(!listed.fail(Watched::Children(routes), "no, again".into()), "it is said once");
        assert_eq!(lacks(&listed), Some(Lacking::Failing("no, again".into())));
        assert!(listed.complete(Watched::Children(routes)));
        assert!(!listed.fail(Watched::Children(routes), "no".into()), "what was listed stays known");
        assert_eq!(lacks(&listed), None);
        assert!(listed.complete(Watched::Children(routes)) && !listed.complete(Watched::Children(routes)));
        listed.forget(Watched::Children(routes));
        assert_eq!(lacks(&listed), Some(Lacking::NotYet));
    }
}
