//! When the agent looks a repository up again, as far as the GitSyncs that follow it say.
//!
//! The agent writes no status for a lookup that finds nothing new, so the time of the last one is not known. The
//! interval of a GitSync bounds the time until the next one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{text_at, time_at};
use crate::text::SHORT;
use mainstay_api::duration::Span;

/// When a repository is looked up for a GitSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lookup {
    /// Within this time, or at a push.
    Within(Duration),
    /// Repeatedly since this time, because it cannot be reached.
    Retried(Timestamp),
    /// After the GitSync is resumed.
    Suspended,
}

impl Lookup {
    /// Returns the next lookup for a GitSync; `None` if it does not follow a GitRepository.
    pub(crate) fn of(git_sync: &Value, is_suspended: bool) -> Option<Self> {
        if text_at(git_sync, "/spec/gitRepository", SHORT).is_empty() {
            return None;
        }
        if is_suspended {
            return Some(Self::Suspended);
        }
        if let Some(since) = time_at(git_sync, "/status/unreachableSince") {
            return Some(Self::Retried(since));
        }
        // Intervals have a jitter of 10 %.
        let interval = text_at(git_sync, "/spec/interval", SHORT).parse::<Span>().ok()?.0.max(Duration::from_secs(1));
        Some(Self::Within(interval + interval / 10))
    }

    /// Returns the next lookup in few words, for a table.
    pub(crate) fn short(self) -> String {
        match self {
            Self::Within(most) => format!("within {}", Span(rounded(most))),
            Self::Retried(_) => "retried".to_owned(),
            Self::Suspended => "suspended".to_owned(),
        }
    }

    /// Returns the next lookup in words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Within(most) => format!("within {}, or at a push", Span(rounded(most))),
            Self::Retried(_) => "repeated with growing delays, because the repository cannot be reached".to_owned(),
            Self::Suspended => "after it is resumed".to_owned(),
        }
    }
}

/// Rounds a duration up to whole seconds, and a long one to whole minutes.
fn rounded(length: Duration) -> Duration {
    let seconds = length.as_secs() + u64::from(length.subsec_nanos() > 0);
    Duration::from_secs(if seconds > 120 { seconds.div_ceil(60) * 60 } else { seconds })
}

/// The next lookup of each GitRepository, by namespace and name: the first one for any of its GitSyncs.
pub(crate) type Lookups<'r> = BTreeMap<(&'r str, &'r str), Lookup>;

/// Returns the next lookups of GitRepositories from those for their GitSyncs.
pub(crate) fn lookups<'r>(for_git_syncs: impl Iterator<Item = ((&'r str, &'r str), Lookup)>) -> Lookups<'r> {
    let mut all = Lookups::new();
    for (repository, lookup) in for_git_syncs {
        all.entry(repository).and_modify(|first| *first = lookup.min(*first)).or_insert(lookup);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(interval: &Value, status: &Value, is_suspended: bool) -> Option<String> {
        let sync = json!({"spec": {"gitRepository": "repo", "interval": interval}, "status": status});
        Lookup::of(&sync, is_suspended).map(Lookup::words)
    }

    #[test]
    fn the_interval_with_its_jitter_bounds_the_next_lookup() {
        for (interval, expected) in [("10m", "11m"), ("7m", "8m"), ("1m", "1m6s"), ("1s", "2s"), ("1ms", "2s")] {
            let expected = format!("within {expected}, or at a push");
            assert_eq!(words(&json!(interval), &json!({}), false), Some(expected));
        }
        for strange in [json!(null), json!(7), json!("soon"), json!("99999999999h")] {
            assert_eq!(words(&strange, &json!({}), false), None);
        }
        assert_eq!(words(&json!("10m"), &json!({}), true).as_deref(), Some("after it is resumed"));
        let away = json!({"unreachableSince": "2026-01-01T00:00:00Z"});
        assert!(words(&json!("10m"), &away, false).unwrap().starts_with("repeated"));
        let of_chart = json!({"spec": {"sourceRef": {"kind": "HelmChart", "name": "web"}, "interval": "10m"}});
        assert_eq!(Lookup::of(&of_chart, false), None);
    }

    #[test]
    fn the_first_lookup_for_any_git_sync_is_that_of_the_repository() {
        let minutes = |number| Lookup::Within(Duration::from_mins(number));
        let all = [Lookup::Suspended, minutes(60), minutes(20)].map(|lookup| (("shop", "repo"), lookup));
        assert_eq!(lookups(all.into_iter())[&("shop", "repo")], minutes(20));
    }
}
