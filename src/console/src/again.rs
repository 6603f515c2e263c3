//! The request by which a user has a managed object applied again, or a Job or a Pod run again.
//!
//! The GitSync of the object takes the request. A sync makes all of its failed objects due, and no request makes one object
//! due. Another run is requested for one Job or Pod.

use serde_json::{Value, json};

use crate::action::Action;
use crate::asked::Asked;
use crate::row::conditions_of;
use crate::sync_options::SyncOptions;
use crate::trace::Trace;
use mainstay_object::{Key, can_end, ended};

/// Reasons of objects that the agent tries again by a request.
const RETRIED: [&str; 4] = ["ApplyFailed", "Immutable", "OwnershipConflict", "PruneFailed"];

/// A request for an object, with the label of its button.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    pub(crate) asked: Asked,
    pub(crate) label: &'static str,
}

/// Returns the request that an object offers: another run if it ended, or another attempt if it failed.
pub(crate) fn again(key: &Key, live: Option<&Value>, trace: &Trace) -> Option<Again> {
    let manager = trace.manager.as_ref().filter(|_| trace.owners.is_empty())?;
    let conditions = conditions_of(&json!({ "status": manager.status }));
    if conditions.iter().any(|one| one.kind == "Suspended" && one.status == "True") {
        return None;
    }
    let of = |action: Action, label: &'static str| {
        let options = SyncOptions::about(key);
        Again { asked: Asked { options, ..Asked::plain(action, manager.git_sync.clone()) }, label }
    };
    let has_ended = live.is_none_or(|live| ended(key, live).is_some());
    let run = of(Action::RunAgain, Action::RunAgain.label());
    if can_end(key) && has_ended && run.asked.options.ended_kind().is_some() {
        return Some(run);
    }
    let name = key.to_string();
    let mut failures = manager.status.get("failures").and_then(Value::as_array).into_iter().flatten();
    let is_retried = |one: &Value| one["reason"].as_str().is_some_and(|reason| RETRIED.contains(&reason));
    let has_failed = failures.any(|one| one["object"] == name.as_str() && is_retried(one));
    has_failed.then(|| of(Action::Sync, "Apply again now"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Manager;

    /// Returns the label of the button, and the address of its page.
    fn of(key: &Key, live: Option<&Value>, status: Value, owners: Vec<Key>) -> Option<(&'static str, String)> {
        let manager = Manager {
            git_sync: Key::new("mainstay.dev", "GitSync", Some("team"), "shop"),
            repository: String::new(),
            commit: None,
            file: String::new(),
            path: None,
            applied: None,
            part: None,
            status,
        };
        let trace = Trace {
            owners,
            manager: Some(manager),
            field_managers: Vec::new(),
            health: None,
            next: String::new(),
            decisions: Vec::new(),
            moments: Vec::new(),
            notes: Vec::new(),
        };
        let again = again(key, live, &trace)?;
        Some((again.label, crate::address::with_query("/act", &again.asked.pairs())))
    }

    #[test]
    fn a_failed_object_is_applied_again_by_a_sync_of_its_git_sync() {
        let key = Key::new("", "Service", Some("shop"), "web");
        let failed =
            |reason: &str| json!({"failures": [{"object": "Service shop/web", "reason": reason, "message": "m"}]});
        let live = json!({});
        let (label, page) = of(&key, Some(&live), failed("ApplyFailed"), Vec::new()).unwrap();
        assert_eq!(label, "Apply again now");
        assert!(
            page.starts_with("/act?action=sync&group=mainstay.dev&kind=GitSync&namespace=team&name=shop"),
            "{page}"
        );
        assert!(page.ends_with("&object=Service+shop%2Fweb"), "{page}");
        for reason in ["Progressing", "Unhealthy", ""] {
            assert_eq!(of(&key, Some(&live), failed(reason), Vec::new()), None, "{reason}");
        }
        assert_eq!(of(&key, Some(&live), failed("ApplyFailed"), vec![key.clone()]), None, "it is a child");
        let mut suspended = failed("ApplyFailed");
        suspended["conditions"] = json!([{"type": "Suspended", "status": "True"}]);
        assert_eq!(of(&key, Some(&live), suspended, Vec::new()), None);
    }

    #[test]
    fn an_ended_job_runs_again() {
        let key = Key::new("batch", "Job", Some("shop"), "migrate");
        let complete = json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}});
        let (label, page) = of(&key, Some(&complete), json!({}), Vec::new()).unwrap();
        assert!(label == "Run again" && page.contains("action=run-again") && page.contains("migrate"), "{page}");
        assert!(of(&key, None, json!({}), Vec::new()).is_some(), "it was collected");
        assert_eq!(of(&key, Some(&json!({"status": {}})), json!({}), Vec::new()), None, "it runs");
    }
}
