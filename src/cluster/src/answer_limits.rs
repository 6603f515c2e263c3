//! Limits on the answers of a cluster.
//!
//! The owner of another cluster chooses its answers, and all tenants share the agent's memory: a value of two bytes takes
//! up thirty. The agent's own cluster could harm it in simpler ways.

use bounded_json::Bounds;

use super::error::Cause;

/// Counted size of a page in a list: pages may be empty.
pub(super) const PAGE: usize = 10;

/// Limits of one answer, one event of a watch and one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerLimits {
    /// Bytes of an answer or an event. The largest objects that servers store have 1.5 MiB.
    pub(super) bytes: usize,
    /// JSON values of an answer or an event, as [`Bounds`] count them.
    values: usize,
    /// Objects of a list, and ten for each of its pages.
    list: usize,
}

impl AnswerLimits {
    /// The limits for the agent's own cluster.
    pub(super) const OWN: Self = Self { bytes: 16 << 20, values: usize::MAX, list: usize::MAX };
    /// Of another cluster.
    pub(super) const OTHER: Self = Self { bytes: 4 << 20, values: 500_000, list: 100_000 };

    /// Refuses an answer with too many values, before it is parsed.
    pub(super) fn check(self, json: &[u8]) -> Result<(), Cause> {
        // A byte weighs five at most. The parser judges the depth.
        let bounds = Bounds { bytes: usize::MAX, values: self.values, depth: usize::MAX };
        if json.len() <= self.values / 5 || bounds.check(json).is_ok() {
            return Ok(());
        }
        Err(Cause::TooManyValues(self.values))
    }

    /// Refuses a list of so many objects, with [`PAGE`] for each page.
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
        assert_eq!(refused.to_string(), "the answer has more than 500000 values");
        assert!(AnswerLimits::OWN.check(values.as_bytes()).is_ok());
    }
}
