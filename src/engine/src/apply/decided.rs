//! Decisions of the writer and the drift loop, as the status of a GitSync lists them.
//!
//! Invariant: a decision contains no value and no field of an object.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::managed::PauseEnd;
use crate::notification::Message;
use mainstay_api::git_sync::{Decided, Decision, UNKNOWN};
use mainstay_cluster::Error;
use mainstay_object::Key;

/// Maximum length of the name of a field manager, in characters. A remote cluster may send any name.
const LONGEST: usize = 128;

/// Returns the decision that a message about an object reports. Returns `None` if it is recorded elsewhere, or if it
/// concerns no single object.
pub(super) fn of_message(message: &Message, key: &Key, now: Timestamp) -> Option<Decision> {
    let (decided, who) = match message {
        Message::Contended { who, .. } => (Decided::SlowedDown, who.as_str()),
        Message::DriftSeen { who, .. } => (Decided::Reported, who.as_str()),
        Message::DriftMissed { who, .. } => (Decided::Missed, who.as_str()),
        _ => return None,
    };
    let who = (who != UNKNOWN).then(|| who.chars().take(LONGEST).collect());
    Some(Decision { who, ..decision(decided, key, now) })
}

/// Returns the decision to try a failed revert again at `again`, after this number of attempts.
pub(super) fn revert_failed(key: &Key, attempts: u32, code: Option<u16>, again: Timestamp, now: Timestamp) -> Decision {
    let (code, times, until) = (code.map(i32::from), i64::from(attempts), Some(Time(again)));
    Decision { code, times, until, ..decision(Decided::RevertFailed, key, now) }
}

/// Returns the decision to leave an object to a later attempt, because an apply failed.
pub(super) fn apply_failed(key: &Key, error: &Error, now: Timestamp) -> Decision {
    Decision { code: error.code().map(i32::from), ..decision(Decided::ApplyFailed, key, now) }
}

/// Returns the decision to leave a paused object as it is.
pub(super) fn paused(key: &Key, until: PauseEnd, now: Timestamp) -> Decision {
    // A status has times in seconds. With a fraction, the recalled pause would differ from the same pause seen again.
    let until = until.time().map(|time| Time(Timestamp::from_second(time.as_second()).unwrap_or(time)));
    Decision { until, ..decision(Decided::Paused, key, now) }
}

/// Returns the decision to reconcile an object after its pause.
pub(super) fn resumed(key: &Key, now: Timestamp) -> Decision {
    decision(Decided::Resumed, key, now)
}

fn decision(decided: Decided, key: &Key, now: Timestamp) -> Decision {
    Decision { object: key.to_string(), decided, who: None, code: None, until: None, times: 1, when: Time(now) }
}

#[cfg(test)]
mod tests {
    use mainstay_object::Owner;

    use super::*;

    #[test]
    fn a_message_is_recorded_with_its_field_manager_and_without_its_fields() {
        let (key, now) = (Key::new("", "Secret", Some("shop"), "key"), Timestamp::UNIX_EPOCH);
        let seen = |who: &str| {
            let (subject, fields) = (Owner::git_sync("shop", "demo"), vec!["data.hunter2".to_owned()]);
            let message = Message::DriftSeen { subject, object: key.to_string(), fields, who: who.to_owned() };
            of_message(&message, &key, now).unwrap()
        };
        let reported = seen("kubectl-edit");
        assert_eq!((&*reported.object, reported.decided), ("Secret shop/key", Decided::Reported));
        assert_eq!(reported.who.as_deref(), Some("kubectl-edit"));
        assert_eq!(seen(UNKNOWN).who, None);
        assert_eq!(seen(&"ü".repeat(1000)).who, Some("ü".repeat(LONGEST)));
        let (subject, object) = (Owner::git_sync("shop", "demo"), key.to_string());
        let message = Message::Paused { subject, object, paused: true, problem: None };
        assert_eq!(of_message(&message, &key, now), None, "it is recorded with its end");
    }

    #[test]
    fn the_same_pause_is_the_same_decision_after_a_restart() {
        let key = Key::new("", "ConfigMap", Some("shop"), "a");
        let end = PauseEnd::At("2030-01-01T00:00:00.5Z".parse().unwrap());
        let before = paused(&key, end, Timestamp::UNIX_EPOCH);
        let read: Decision = serde_json::from_value(serde_json::to_value(&before).unwrap()).unwrap();
        assert!(paused(&key, end, "2029-01-01T00:00:00Z".parse().unwrap()).repeats(&read), "{read:?}");
        assert!(!paused(&key, PauseEnd::Open, Timestamp::UNIX_EPOCH).repeats(&read));
    }
}
