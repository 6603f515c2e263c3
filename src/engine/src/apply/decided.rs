//! Decisions of the writer and the drift loop that a message reports.

use jiff::Timestamp;

use crate::managed::decisions::caused_by;
use crate::notification::Message;
use mainstay_api::git_sync::{Decided, Decision};
use mainstay_object::Key;

/// Returns the decision that a message about an object reports. Returns `None` if it is recorded elsewhere, or if it
/// concerns no single object.
pub(super) fn of_message(message: &Message, key: &Key, now: Timestamp) -> Option<Decision> {
    let (decided, who) = match message {
        Message::Contended { who, .. } => (Decided::SlowedDown, who),
        Message::DriftMissed { who, .. } => (Decided::Missed, who),
        _ => return None,
    };
    Some(caused_by(decided, who, key, now))
}

#[cfg(test)]
mod tests {
    use mainstay_object::Owner;

    use super::*;

    #[test]
    fn a_message_is_recorded_with_its_field_manager_and_without_its_fields() {
        let (key, now) = (Key::new("", "Secret", Some("shop"), "key"), Timestamp::UNIX_EPOCH);
        let (subject, fields) = (Owner::git_sync("shop", "demo"), vec!["data.hunter2".to_owned()]);
        let (object, who) = (key.to_string(), "kubectl-edit".to_owned());
        let message = Message::DriftMissed { subject, object, fields, who };
        let missed = of_message(&message, &key, now).unwrap();
        assert_eq!((&*missed.object, missed.decided), ("Secret shop/key", Decided::Missed));
        assert_eq!(missed.who.as_deref(), Some("kubectl-edit"));
        assert!(!format!("{missed:?}").contains("hunter2"));
        let (subject, object) = (Owner::git_sync("shop", "demo"), key.to_string());
        let message = Message::Paused { subject, object, paused: true, problem: None };
        assert_eq!(of_message(&message, &key, now), None, "it is recorded with its end");
    }
}
