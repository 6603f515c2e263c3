//! Tracks ResourceQuotas, and finds the namespaces whose quotas allow more than before.
//!
//! Invariant: a change that only increases the used amounts is not reported.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::Quantity;
use mainstay_cluster::WatchEvent;
use mainstay_cluster::reflector::{Cache, Change};

/// The ResourceQuotas as observed by their watch.
#[derive(Debug, Default)]
pub(super) struct Quotas(Cache<Quota>);

/// One ResourceQuota.
#[derive(Debug, Default, PartialEq)]
struct Quota {
    /// `spec.hard` and `status.hard`.
    hard: [Amounts; 2],
    used: Amounts,
}

type Amounts = BTreeMap<String, Quantity>;

impl Quotas {
    /// Applies an event of the watch. Returns the namespaces whose quotas allow more than before.
    pub(super) fn observe(&mut self, event: WatchEvent) -> Vec<String> {
        let changes = self.0.take(event, |live| Ok(Some(Quota::of(live))));
        let eased = changes.filter_map(|change| match change {
            Change::Changed { name, before, .. } => {
                let now = self.0.get(&name.0, &name.1)?;
                now.leaves_more_than(&before?).then_some(name.0)
            }
            Change::Gone { name, .. } => Some(name.0),
            Change::Unreadable { .. } | Change::Complete { .. } | Change::Failed(_) | Change::Resumed => None,
        });
        eased.collect()
    }
}

impl Quota {
    fn of(live: &Value) -> Self {
        let amounts = |path: &str| {
            let given = live.pointer(path).and_then(Value::as_object).into_iter().flatten();
            given.filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?)?))).collect()
        };
        Self { hard: [amounts("/spec/hard"), amounts("/status/hard")], used: amounts("/status/used") }
    }

    fn leaves_more_than(&self, before: &Self) -> bool {
        let is_raised = |now: &Amounts, before: &Amounts| {
            before.iter().any(|(name, amount)| now.get(name).is_none_or(|now| now > amount))
        };
        let is_freed = || self.used.iter().any(|(name, now)| before.used.get(name).is_some_and(|used| now < used));
        self.hard.iter().zip(&before.hard).any(|(now, before)| is_raised(now, before)) || is_freed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WatchEvent::{Applied, Begin, Deleted, Initial, Resumed, Synced};
    use serde_json::json;

    fn quota(namespace: &str, hard: &str, used: &str) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": "q"}, "spec": {"hard": {"pods": hard}},
            "status": {"hard": {"pods": hard}, "used": {"pods": used}},
        })
    }

    /// Returns the namespaces that allow more after the last of these events.
    fn raised(events: impl IntoIterator<Item = WatchEvent>) -> Vec<String> {
        let mut quotas = Quotas::default();
        events.into_iter().map(|event| quotas.observe(event)).last().unwrap_or_default()
    }

    fn after_first(event: WatchEvent) -> Vec<String> {
        raised([Begin, Initial(quota("a", "1", "1")), Synced(String::new()), event])
    }

    #[test]
    fn there_is_more_room_when_a_quota_is_raised_used_less_or_gone() {
        assert_eq!(after_first(Applied(quota("a", "2", "1"))), ["a"]);
        assert_eq!(after_first(Applied(quota("a", "1", "0"))), ["a"]);
        assert_eq!(after_first(Applied(quota("a", "1500m", "1"))), ["a"]);
        assert_eq!(after_first(Deleted(quota("a", "1", "1"))), ["a"]);
        let mut other = quota("a", "1", "1");
        other["spec"]["hard"] = json!({"count/jobs.batch": "1"});
        assert_eq!(after_first(Applied(other)), ["a"], "what was limited is not any more");
        let missed = [Begin, Initial(quota("a", "1", "1")), Synced(String::new()), Begin, Synced(String::new())];
        assert_eq!(raised(missed), ["a"], "deleted while nobody watched");
        let missed =
            [Begin, Initial(quota("a", "1", "1")), Synced(String::new()), Begin, Initial(quota("a", "2", "1"))];
        assert_eq!(raised(missed), ["a"], "raised while nobody watched");
    }

    #[test]
    fn there_is_no_more_room_when_it_is_lowered_used_up_new_or_the_same() {
        let none: [&str; 0] = [];
        assert_eq!(after_first(Applied(quota("a", "1", "1"))), none);
        assert_eq!(after_first(Applied(quota("a", "1000m", "1"))), none);
        assert_eq!(after_first(Applied(quota("a", "0", "1"))), none);
        assert_eq!(after_first(Applied(quota("a", "1", "2"))), none);
        assert_eq!(after_first(Applied(quota("b", "9", "0"))), none);
        assert_eq!(after_first(Resumed), none);
        assert_eq!(raised([Begin, Initial(quota("a", "1", "1")), Synced(String::new())]), none);
    }
}
