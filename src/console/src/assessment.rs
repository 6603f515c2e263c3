//! Whether the status of a condition is good or bad: `True` is good for some conditions, and bad for others.

use crate::row::ConditionRow;

/// The meaning of the status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assessment {
    Good,
    Bad,
    /// Somebody should look at the object.
    Attention,
    /// Something is awaited.
    Waits,
    /// The user has stopped the object.
    Stopped,
    /// The status says nothing about the health of the object.
    Neutral,
}

impl ConditionRow {
    /// Returns the meaning of the status, for a condition of Mainstay's kinds.
    pub(crate) fn assessment(&self) -> Assessment {
        let is_wanted = matches!(
            self.kind.as_str(),
            "Ready"
                | "Healthy"
                | "Resolved"
                | "Authenticated"
                | "SourceVerified"
                | "Exposed"
                | "ConfigurationReady"
                | "BuildReady"
                | "Running"
        );
        match (self.kind.as_str(), self.status.as_str()) {
            ("Stalled", "True") => Assessment::Bad,
            ("Contended" | "Drifted", "True") => Assessment::Attention,
            ("Frozen" | "Reconciling", "True") => Assessment::Waits,
            ("Suspended", "True") => Assessment::Stopped,
            (_, "True") if is_wanted => Assessment::Good,
            (_, "False") if is_wanted && self.reason == "Suspended" => Assessment::Stopped,
            (_, "False") if is_wanted => Assessment::Bad,
            (_, "Unknown") if is_wanted => Assessment::Waits,
            _ => Assessment::Neutral,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::conditions_of;

    #[test]
    fn the_status_of_a_condition_is_good_or_bad_by_its_kind() {
        let of = |kind: &str, status: &str, reason: &str| {
            let condition = json!({"type": kind, "status": status, "reason": reason});
            conditions_of(&json!({"status": {"conditions": [condition]}}))[0].assessment()
        };
        assert_eq!(of("Ready", "True", "Applied"), Assessment::Good);
        assert_eq!(of("Ready", "False", "ApplyFailed"), Assessment::Bad);
        assert_eq!(of("Ready", "False", "Suspended"), Assessment::Stopped);
        assert_eq!(of("BuildReady", "Unknown", "JobQueued"), Assessment::Waits);
        assert_eq!(of("Drifted", "True", "Paused"), Assessment::Attention);
        assert_eq!(of("Drifted", "False", "NotDrifted"), Assessment::Neutral);
        assert_eq!(of("MemoryPressure", "False", ""), Assessment::Neutral);
    }
}
