//! Writes the status of an object of Mainstay's kinds, and reads it before the first write of a new leader.
//!
//! Invariant: after a refused write, the next one waits, regardless of the number of changes. The delay is that of the
//! class of the refusal, and grows with each one.
//!
//! Not here: GitSyncs, Functions, Receivers and APIRules, which write their statuses in their crates.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::kept::Name;
use mainstay_cluster::{Cluster, Error, Kind, Part};
use mainstay_object::failure::{Class, chain};

/// The outcome of a write of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusWrite {
    Written,
    /// The object does not exist any more.
    Gone,
    /// The write was refused, or waits after a refusal.
    Refused,
}

/// The consecutive refused writes of one object or its status.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Refusals {
    count: u32,
    /// When the next write may begin, after a refused one.
    until: Option<Instant>,
}

impl Refusals {
    /// Writes a status, unless an earlier refusal delays it.
    pub(super) async fn write(
        &mut self,
        (cluster, kind): (&Cluster, &Kind),
        (namespace, name): &Name,
        patch: &Value,
    ) -> StatusWrite {
        if self.waits() {
            return StatusWrite::Refused;
        }
        match cluster.patch_merge(kind, Some(namespace), name, Part::Status, patch).await {
            Err(error) if !error.is_not_found() => {
                self.record(&error);
                if self.count == 1 {
                    tracing::warn!(namespace, name, why = chain(&error), "status of this {} not written", kind.kind);
                } else {
                    tracing::debug!(namespace, name, why = chain(&error), "status of this {} not written", kind.kind);
                }
                StatusWrite::Refused
            }
            outcome => {
                self.end();
                if outcome.is_ok() { StatusWrite::Written } else { StatusWrite::Gone }
            }
        }
    }

    /// Reads an object before the first write of its status, unless an earlier refusal delays it. Returns `None` if the
    /// object was not read; then another attempt is due [after a delay](Self::until).
    pub(super) async fn read(&mut self, (cluster, kind): (&Cluster, &Kind), (namespace, name): &Name) -> Option<Value> {
        if self.waits() {
            return None;
        }
        match cluster.get(kind, Some(namespace), name).await {
            Ok(Some(live)) => Some(live),
            // The watch has not shown the deletion yet.
            Ok(None) => {
                self.delay(Class::Unavailable, None);
                None
            }
            Err(error) => {
                tracing::debug!(namespace, name, why = chain(&error), "status of this {} not read", kind.kind);
                self.record(&error);
                None
            }
        }
    }

    /// Whether the next write has to wait.
    pub(super) fn waits(self) -> bool {
        self.until.is_some_and(|until| until > Instant::now())
    }

    /// Records a refused write, and delays the next one.
    pub(super) fn record(&mut self, error: &Error) {
        self.delay(error.class(), error.retry_after());
    }

    /// Delays the next write as after a refusal of this class.
    pub(super) fn delay(&mut self, class: Class, retry_after: Option<Duration>) {
        let delay = self.refuse(class, retry_after, fastrand::f64());
        self.until = Some(Instant::now() + delay);
    }

    /// Counts a refusal. Returns the delay until the next write.
    fn refuse(&mut self, class: Class, retry_after: Option<Duration>, chance: f64) -> Duration {
        self.count = self.count.saturating_add(1);
        class.status_delay(self.count, retry_after, chance)
    }

    /// Records that there is nothing to write.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Returns when the next write may begin, after a refused one.
    pub(super) const fn until(self) -> Option<Instant> {
        self.until
    }

    /// Waits until a refused write may be repeated; for ever if none was refused.
    pub(super) async fn passed(self) {
        match self.until {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the refusals whose delay ends first.
pub(super) fn first(refusals: &BTreeMap<Name, Refusals>) -> Refusals {
    refusals.values().copied().min_by_key(|refused| refused.until()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_with_each_refusal_and_begin_again_after_a_write() {
        let mut refusals = Refusals::default();
        let mut delays = |class: Class| [(); 6].map(|()| refusals.refuse(class, None, 0.5).as_secs());
        assert_eq!(delays(Class::Unavailable), [5, 5, 5, 8, 16, 30]);
        refusals.end();
        assert!(refusals.until().is_none());
        let mut delays = |class: Class| [(); 4].map(|()| refusals.refuse(class, None, 0.5).as_secs());
        assert_eq!(delays(Class::Denied), [10, 20, 40, 60]);
        let asked = refusals.refuse(Class::Unavailable, Some(Duration::from_secs(300)), 0.5);
        assert_eq!(asked.as_secs(), 300, "the server asks for more");
    }

    #[test]
    fn the_first_delay_of_many_objects_is_found() {
        let name = |name: &str| ("shop".to_owned(), name.to_owned());
        let now = Instant::now();
        let until = |seconds| Refusals { count: 1, until: Some(now + Duration::from_secs(seconds)) };
        let mut refusals = BTreeMap::from([(name("a"), until(60)), (name("b"), until(5))]);
        assert_eq!(first(&refusals).until(), Some(now + Duration::from_secs(5)));
        refusals.remove(&name("b"));
        assert_eq!(first(&refusals).until(), Some(now + Duration::from_secs(60)));
        assert_eq!(first(&BTreeMap::new()).until(), None);
    }
}
