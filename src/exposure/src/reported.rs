//! The last reported status of one APIRule, and whether another controller reports it.
//!
//! Invariant: neither a status from this agent nor a delayed older state counts as the status of another controller.

use jiff::Timestamp;

use super::status::{self, Outcome};
use mainstay_api::ApiRule;
use mainstay_api::api_rule::ApiRuleStatus;
use mainstay_api::conditions::{self, Type};

/// The known status of an APIRule.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// The status that was last written, or the current one if no write was needed.
    written: Option<ApiRuleStatus>,
    /// The generation whose status another controller wrote, and the time in that status.
    elsewhere: Option<(Option<i64>, Timestamp)>,
}

impl Reported {
    /// Whether another controller wrote the status after this agent. A new generation resets this.
    pub(super) fn is_elsewhere(&mut self, rule: &ApiRule) -> bool {
        let time = |status: Option<&ApiRuleStatus>| status?.last_processed_time.as_ref().map(|at| at.0);
        let (written, known) = (time(self.written.as_ref()), self.elsewhere.map(|(_, at)| at));
        // The watch may still deliver an older state. An older state contains the time that was known before, whatever
        // the clock of the other controller shows.
        let is_new = |live: &Timestamp| written.is_some_and(|written| *live > written) && known != Some(*live);
        if let Some(at) = time(rule.status.as_ref()).filter(is_new) {
            self.elsewhere = Some((rule.metadata.generation, at));
            // Further comparisons use this status.
            self.written.clone_from(&rule.status);
        }
        self.elsewhere.is_some_and(|(generation, _)| generation == rule.metadata.generation)
    }

    /// Returns the known status and the new one.
    pub(super) fn next(&self, rule: &ApiRule, outcome: &Outcome, now: Timestamp) -> (ApiRuleStatus, ApiRuleStatus) {
        let old = self.written.clone().or_else(|| rule.status.clone()).unwrap_or_default();
        let new = status::after(&old, outcome, rule.metadata.generation, now);
        (old, new)
    }

    /// Records the current status.
    pub(super) fn set(&mut self, written: ApiRuleStatus) {
        self.written = Some(written);
    }
}

/// Returns status, reason and message of the condition if they changed.
pub(super) fn worth_telling(old: &ApiRuleStatus, new: &ApiRuleStatus) -> Option<(String, String, String)> {
    let said = |status: &ApiRuleStatus| {
        let said = conditions::status(&status.conditions, Type::Exposed)?;
        Some((said.status.clone(), said.reason.clone(), said.message.clone()))
    };
    said(new).filter(|new| said(old).as_ref() != Some(new))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::super::fixtures;
    use super::*;

    fn processed(second: i64) -> ApiRuleStatus {
        let at = Timestamp::from_second(second).unwrap();
        ApiRuleStatus { last_processed_time: Some(Time(at)), ..ApiRuleStatus::default() }
    }

    fn rule(generation: i64, status: Option<ApiRuleStatus>) -> ApiRule {
        let mut rule = fixtures::rule(json!({}));
        (rule.metadata.generation, rule.status) = (Some(generation), status);
        rule
    }

    #[test]
    fn a_later_time_than_the_written_one_is_another_controllers_until_the_api_rule_changes() {
        let mut reported = Reported::default();
        assert!(!reported.is_elsewhere(&rule(1, Some(processed(9)))), "nothing was written yet: it may be gone");
        reported.set(processed(10));
        for mine in [Some(processed(10)), Some(processed(9)), None] {
            assert!(!reported.is_elsewhere(&rule(1, mine)));
        }
        assert!(reported.is_elsewhere(&rule(1, Some(processed(11)))));
        assert!(reported.is_elsewhere(&rule(1, Some(processed(11)))));
        assert!(!reported.is_elsewhere(&rule(2, Some(processed(11)))));
        assert!(reported.is_elsewhere(&rule(2, Some(processed(12)))), "it goes on");
    }

    #[test]
    fn a_state_from_before_a_write_is_not_taken_for_a_new_one_although_their_clock_is_ahead() {
        let mut reported = Reported::default();
        reported.set(processed(10));
        assert!(reported.is_elsewhere(&rule(1, Some(processed(99)))));
        assert!(!reported.is_elsewhere(&rule(2, Some(processed(99)))));
        reported.set(processed(11));
        assert!(!reported.is_elsewhere(&rule(2, Some(processed(99)))));
    }

    #[test]
    fn an_outcome_is_reported_once() {
        let (mut reported, outcome) = (Reported::default(), Outcome::Served("a.b".to_owned()));
        let (old, new) = reported.next(&rule(1, None), &outcome, Timestamp::UNIX_EPOCH);
        let said = ("True".to_owned(), "Served".to_owned(), "served at a.b".to_owned());
        assert_eq!(worth_telling(&old, &new), Some(said));
        reported.set(new);
        // The watch delivers an older state.
        let (old, new) = reported.next(&rule(1, None), &outcome, Timestamp::MAX);
        assert_eq!((worth_telling(&old, &new), old == new), (None, true));
    }
}
