//! Counts requests by verb and resource, for metrics and for tests of the API cost.
//!
//! Invariant: a request is counted when it is sent, whether it succeeds or not. Opening a watch is one request.
//!
//! Not here: the metrics format. The agent reads [`Requests::snapshot`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// The verb of a request as in RBAC, except that `apply` differs from other patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object, or discovery.
    Get,
    /// Read one page of a collection.
    List,
    /// Open a watch.
    Watch,
    /// Create an object.
    Create,
    /// Server-side apply.
    Apply,
    /// Merge patch or JSON patch.
    Patch,
    /// Replace an object.
    Update,
    /// Delete an object.
    Delete,
}

impl Verb {
    /// The verb as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of requests with one verb to one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The verb.
    pub verb: Verb,
    /// Plural and group, such as `deployments.apps`; `discovery` for discovery.
    pub resource: Arc<str>,
    /// Requests since the process started.
    pub count: u64,
}

type Counts = BTreeMap<(Verb, Arc<str>), u64>;

/// The counter. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Counts>>);

impl Requests {
    pub(super) fn add(&self, verb: Verb, resource: &Arc<str>) {
        let mut counts = self.0.lock();
        *counts.entry((verb, Arc::clone(resource))).or_default() += 1;
    }

    /// All counts, ordered by verb and resource.
    pub fn snapshot(&self) -> Vec<Counted> {
        let counts = self.0.lock();
        counts
            .iter()
            .map(|((verb, resource), count)| Counted { verb: *verb, resource: Arc::clone(resource), count: *count })
            .collect()
    }

    /// Returns the sum of the counts for which `selected` returns true.
    pub fn total(&self, selected: impl Fn(Verb, &str) -> bool) -> u64 {
        let counts = self.0.lock();
        counts.iter().filter(|((verb, resource), _)| selected(*verb, resource)).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_counts() {
        let requests = Requests::default();
        let resource: Arc<str> = "configmaps".into();
        requests.clone().add(Verb::Apply, &resource);
        requests.add(Verb::Apply, &resource);
        requests.add(Verb::Watch, &resource);
        assert_eq!(requests.total(|verb, _| verb != Verb::Watch), 2);
        assert_eq!(requests.snapshot()[0], Counted { verb: Verb::Watch, resource: "configmaps".into(), count: 1 });
    }
}
