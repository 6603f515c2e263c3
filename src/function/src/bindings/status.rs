//! The status of a ServiceBindingUsage.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::Failure;
use super::usage::{Said, Usage};

/// Returns the number of attempts and the detail from a message.
fn parts(message: &str) -> Option<(u64, &str)> {
    let (number, detail) = message.strip_prefix("Process error during ")?.split_once(" attempt; ")?;
    Some((number.parse().ok()?, detail))
}

/// Returns the status after an attempt; `None` if it is unchanged. The number of attempts increases if the failure
/// differs from the last one.
pub(super) fn after(usage: &Usage, outcome: Result<(), &Failure>, now: Timestamp) -> Option<Value> {
    let said = usage.said.as_ref();
    let attempts = said.and_then(|said| parts(&said.message));
    let (status, reason, message) = match outcome {
        Ok(()) => ("True", "", String::new()),
        Err(failure) => {
            let is_same = |said: &&Said| said.reason == failure.reason && said.status == "False";
            if said.as_ref().is_some_and(is_same) && attempts.is_some_and(|(_, detail)| detail == failure.detail) {
                return None;
            }
            let attempt = attempts.map_or(0, |(number, _)| number).saturating_add(1);
            ("False", failure.reason, format!("Process error during {attempt} attempt; {}", failure.detail))
        }
    };
    if said.is_some_and(|said| said.status == status && said.reason == reason && said.message == message) {
        return None;
    }
    let now = format!("{now:.0}");
    let since = said.filter(|said| said.status == status && !said.since.is_empty()).map(|said| said.since.clone());
    let mut condition = json!({
        "type": "Ready", "status": status, "lastUpdateTime": now, "lastTransitionTime": since.unwrap_or_else(|| now.clone()),
    });
    if !reason.is_empty() {
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    Some(json!({ "conditions": [condition] }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00.7Z".parse().unwrap()
    }

    fn after_all(outcomes: &[Result<(), &Failure>]) -> (Usage, Vec<bool>) {
        let mut live = json!({"metadata": {"name": "a"}});
        let written = outcomes.iter().map(|outcome| match after(&Usage::of(&live), *outcome, now()) {
            Some(status) => {
                live["status"] = status;
                true
            }
            None => false,
        });
        let written = written.collect();
        (Usage::of(&live), written)
    }

    #[test]
    fn counts_the_attempts_that_fail_otherwise_and_writes_nothing_twice() {
        let (missing, refused) = (Failure::no_binding("ns", "redis"), Failure::refused("no"));
        let (usage, written) = after_all(&[Err(&missing), Err(&missing), Err(&refused), Err(&refused)]);
        assert_eq!(written, [true, false, true, false]);
        let said = usage.said.unwrap();
        assert_eq!((&*said.status, &*said.reason), ("False", "PodPresetUpsertError"));
        assert_eq!(said.message, "Process error during 2 attempt; no");
        let (_, written) = after_all(&[Err(&missing), Ok(()), Ok(())]);
        assert_eq!(written, [true, true, false]);
    }

    #[test]
    fn a_true_condition_has_no_reason_and_no_message() {
        let usage = Usage::of(&json!({}));
        let expected = json!({"conditions": [{
            "type": "Ready", "status": "True", "lastUpdateTime": "2026-01-01T00:01:00Z", "lastTransitionTime": "2026-01-01T00:01:00Z",
        }]});
        assert_eq!(after(&usage, Ok(()), now()), Some(expected));
    }
}
