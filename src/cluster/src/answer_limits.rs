//! Limits of the responses of a cluster.
//!
//! The owner of a remote cluster controls its responses, and a JSON value of two bytes takes thirty bytes of memory.
//! The limits protect the agent. The agent's own cluster could harm it in simpler ways, so only the size of its
//! responses is limited. Users of the console choose the objects that it reads, so these responses have limits, too.

use bounded_json::Bounds;

use super::error::Cause;

/// The number of objects that a page counts for in the limit of a list, because pages may be empty.
pub(super) const PAGE: usize = 10;

/// The limits of one response, one event of a watch, or one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerLimits {
    /// Maximum bytes of a response or an event. The largest objects that servers store have 1.5 MiB.
    pub(super) bytes: usize,
    /// Maximum number of JSON values of a response or an event, as [`Bounds`] counts them.
    values: usize,
    /// Maximum number of objects of a list. Each page counts as ten.
    list: usize,
}

impl AnswerLimits {
    /// Limits of the agent's own cluster.
    pub(super) const OWN: Self = Self { bytes: 16 << 20, values: usize::MAX, list: usize::MAX };
    /// Limits of the console's connections, which read objects of many users in little memory.
    pub(super) const OF_USER: Self = Self { bytes: 4 << 20, values: 250_000, list: usize::MAX };
    /// Limits of a remote cluster.
    pub(super) const OTHER: Self = Self { bytes: 4 << 20, values: 500_000, list: 100_000 };

    /// Returns the limits of a discovery response, which may be long in any cluster.
    pub(super) fn of_discovery(self) -> Self {
        Self { values: self.values.max(Self::OTHER.values), ..self }
    }

    /// Refuses a response with too many values before it is parsed.
    pub(super) fn check(self, json: &[u8]) -> Result<(), Cause> {
        // A byte counts as at most five values, so short responses need no check. The parser limits the depth.
        let bounds = Bounds { bytes: usize::MAX, values: self.values, depth: usize::MAX };
        if json.len() <= self.values / 5 || bounds.check(json).is_ok() {
            return Ok(());
        }
        Err(Cause::TooManyValues(self.values))
    }

    /// Refuses a list of more objects than the limit. `length` includes [`PAGE`] for each page.
    pub(super) fn check_list(self, length: usize) -> Result<(), Cause> {
        if length > self.list { Err(Cause::TooLong) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn large_texts_of_another_cluster_are_taken_and_many_small_values_are_not() {
        let text = json!({"data": {"key": "1,2,3\n".repeat(200_000)}}).to_string();
        assert!(AnswerLimits::OTHER.check(text.as_bytes()).is_ok());
        let values = format!("[{}0]", "0,".repeat(500_000));
        let refused = AnswerLimits::OTHER.check(values.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), "the response has more than 500000 values");
        assert!(AnswerLimits::OWN.check(values.as_bytes()).is_ok());
        assert!(AnswerLimits::OF_USER.check(text.as_bytes()).is_ok());
        let many = format!("[{}0]", "0,".repeat(300_000));
        assert!(AnswerLimits::OF_USER.check(many.as_bytes()).is_err());
        assert!(AnswerLimits::OF_USER.of_discovery().check(many.as_bytes()).is_ok());
    }
}
