//! Merge patches by which users send requests to the agent. The command line and the web page use the same patches.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::names;

/// Requests a sync of a GitSync. `token` is a new value for each request.
pub fn sync(token: &str) -> Value {
    json!({ "metadata": { "annotations": { names::REQUESTED_AT: token } } })
}

/// Requests a sync of a GitSync that applies this commit although a window holds it back. `user` is the claimed author of
/// the request. Without a user, an earlier claim is removed.
pub fn sync_overriding(token: &str, commit: &str, user: Option<&str>) -> Value {
    let mut patch = sync(token);
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[names::OVERRIDE_WINDOW] = json!(commit);
    annotations[names::OVERRIDE_WINDOW_BY] = json!(user.map(|user| format!("{commit} {user}")));
    patch
}

/// Requests another run of a Job or Pod of a GitSync. `token` is a new value for each request.
pub fn run_again(token: &str, namespace: &str, name: &str) -> Value {
    json!({ "metadata": { "annotations": { names::RERUN: format!("{namespace}/{name} {token}") } } })
}

/// Requests a lookup of a source. `token` is a new value for each request.
pub fn look_up(token: &str) -> Value {
    sync(token)
}

/// Requests another build of a Function. `token` is a new value for each request.
pub fn rebuild(token: &str) -> Value {
    json!({ "metadata": { "annotations": { names::REBUILD: token } } })
}

/// Suspends an object that is not a GitSync, or resumes it.
pub fn set_suspended(is_suspended: bool) -> Value {
    json!({ "spec": { "suspend": is_suspended } })
}

/// Suspends a GitSync, until a time or until it is resumed.
pub fn suspend(until: Option<&str>) -> Value {
    json!({ "spec": { "suspend": until.is_none(), "suspendUntil": until } })
}

/// Ends the suspension and the pause of a GitSync.
pub fn resume() -> Value {
    let annotations = json!({ names::RECONCILE: null, names::UNTIL: null });
    json!({ "metadata": { "annotations": annotations }, "spec": { "suspend": false, "suspendUntil": null } })
}

/// Pauses an object, until a time or until it is resumed.
pub fn pause(until: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { names::RECONCILE: names::DISABLED, names::UNTIL: until } } })
}

/// Ends the pause of an object.
pub fn end_pause() -> Value {
    json!({ "metadata": { "annotations": { names::RECONCILE: null, names::UNTIL: null } } })
}

/// Allows the deletions of a commit that prune guards prevent.
pub fn allow_prune(commit: &str) -> Value {
    json!({ "metadata": { "annotations": { names::ALLOW_PRUNE: commit } } })
}

/// Returns the time after `length`, rounded up to whole seconds.
pub fn end_of(now: Timestamp, length: Duration) -> String {
    let end = now.saturating_add(length).and_then(|end| end.saturating_add(Duration::from_nanos(999_999_999)));
    end.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_ends_in_whole_seconds_and_not_sooner() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(end_of(at(0), Duration::from_secs(60)), "1970-01-01T00:01:00Z");
        assert_eq!(end_of(at(900), Duration::from_secs(1)), "1970-01-01T00:00:02Z");
    }

    #[test]
    fn an_overridden_window_has_its_commit_and_the_user_of_this_request_only() {
        let annotations = |user| sync_overriding("t", "abc", user)["metadata"]["annotations"].clone();
        let of_alice = annotations(Some("alice"));
        assert_eq!((&of_alice[names::REQUESTED_AT], &of_alice[names::OVERRIDE_WINDOW]), (&json!("t"), &json!("abc")));
        assert_eq!(of_alice[names::OVERRIDE_WINDOW_BY], "abc alice");
        // A merge patch removes a field by null.
        assert_eq!(annotations(None).get(names::OVERRIDE_WINDOW_BY), Some(&Value::Null));
        assert_eq!(run_again("t", "shop", "migrate")["metadata"]["annotations"][names::RERUN], "shop/migrate t");
    }

    #[test]
    fn a_suspension_with_an_end_does_not_stay() {
        assert_eq!(suspend(None), json!({"spec": {"suspend": true, "suspendUntil": null}}));
        assert_eq!(suspend(Some("2030-01-01T00:00:00Z"))["spec"]["suspend"], false);
    }
}
