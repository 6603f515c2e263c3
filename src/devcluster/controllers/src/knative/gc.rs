//! Garbage collection of Revisions that are unused for long or too many.
//!
//! Invariant: the latest ready Revision and Revisions with traffic are kept.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::REVISIONS;
use super::names;
use super::names::number;
use super::settings::Retention;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{is_terminating, text};

/// Annotation that exempts a Revision.
const KEPT: &str = "serving.knative.dev/no-gc";

/// Deletes unused Revisions of a Configuration.
pub(super) fn collect(client: &Client, configuration: &Value, retention: &Retention) {
    let namespace = text(configuration, "/metadata/namespace");
    let all = client.controlled(REVISIONS, namespace, configuration);
    let newest = text(configuration, "/status/latestReadyRevisionName");
    let all: Vec<&Value> = all.iter().map(|revision| &**revision).collect();
    for revision in doomed(&all, newest, retention, client.now()) {
        let subject = Subject::new(REVISIONS, namespace, text(revision, "/metadata/name"));
        client.delete(&subject, revision, None, None);
    }
}

/// Selects Revisions to delete, the longest unused first.
fn doomed<'r>(all: &[&'r Value], newest: &str, retention: &Retention, now: Timestamp) -> Vec<&'r Value> {
    let generation = all.iter().find(|one| text(one, "/metadata/name") == newest).map_or(0, |one| number(one));
    let is_idle = |one: &&&Value| {
        let metadata = &one["metadata"];
        number(one) < generation
            && metadata["labels"][names::ROUTING_STATE] != "active"
            && metadata["annotations"][KEPT] != "true"
            && !is_terminating(one)
    };
    let mut idle: Vec<&Value> = all.iter().filter(is_idle).copied().collect();
    idle.sort_by_key(|one| (last_routed(one), number(one)));
    let is_stale = |one: &Value| {
        let past = |limit: Option<Duration>, since: Option<Timestamp>| {
            limit.zip(since).is_some_and(|(limit, since)| {
                u64::try_from(now.as_second() - since.as_second()).is_ok_and(|age| age >= limit.as_secs())
            })
        };
        let created = text(one, "/metadata/creationTimestamp").parse().ok();
        past(retention.since_created, created) && past(retention.since_routed, last_routed(one))
    };
    let spare = idle.len().saturating_sub(retention.least);
    let stale = idle.iter().filter(|one| is_stale(one)).take(spare).count();
    let excess = retention.most.map_or(0, |most| idle.len().saturating_sub(most));
    let mut doomed: Vec<&Value> = idle.iter().filter(|one| is_stale(one)).take(stale).copied().collect();
    let rest: Vec<&Value> = idle.iter().filter(|one| !doomed.contains(one)).copied().collect();
    let more = excess.saturating_sub(doomed.len());
    doomed.extend(rest.into_iter().take(more));
    doomed
}

fn last_routed(revision: &Value) -> Option<Timestamp> {
    revision["metadata"]["annotations"][names::ROUTING_SINCE].as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Creates Revisions 1 to 6, each created and last routed so many hours ago; 6 is the latest ready Revision.
    /// Returns the deleted Revisions.
    fn check(hours: [i64; 6], change: impl Fn(i64, &mut Value), retention: &Retention) -> Vec<i64> {
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let made = hours.iter().zip(1..).map(|(hours, generation): (&i64, i64)| {
            let at = Timestamp::from_second(now.as_second() - hours * 3600).unwrap().to_string();
            let mut revision = json!({"metadata": {
                "name": format!("r{generation}"), "creationTimestamp": at,
                "labels": {names::GENERATION: generation.to_string(), names::ROUTING_STATE: "reserve"},
                "annotations": {names::ROUTING_SINCE: at},
            }});
            change(generation, &mut revision);
            revision
        });
        let made: Vec<Value> = made.collect();
        let all: Vec<&Value> = made.iter().collect();
        doomed(&all, "r6", retention, now).into_iter().map(number).collect()
    }

    fn retention(least: usize, most: Option<usize>) -> Retention {
        Retention {
            since_created: Some(Duration::from_hours(48)),
            since_routed: Some(Duration::from_hours(15)),
            least,
            most,
        }
    }

    #[test]
    fn the_oldest_beyond_those_that_stay_go_once_they_are_stale() {
        let hours = [90, 80, 70, 60, 1, 0];
        assert_eq!(check(hours, |_, _| {}, &retention(20, None)), [0; 0]);
        assert_eq!(check(hours, |_, _| {}, &retention(2, None)), [1, 2, 3]);
        assert_eq!(check(hours, |_, _| {}, &retention(0, None)), [1, 2, 3, 4]);
    }

    #[test]
    fn routed_and_retained_revisions_stay() {
        let change = |generation, revision: &mut Value| match generation {
            1 => revision["metadata"]["labels"][names::ROUTING_STATE] = json!("active"),
            2 => revision["metadata"]["annotations"][KEPT] = json!("true"),
            _ => {}
        };
        assert_eq!(check([90; 6], change, &retention(0, None)), [3, 4, 5]);
    }

    #[test]
    fn too_many_go_although_they_are_young() {
        assert_eq!(check([5, 4, 3, 2, 1, 0], |_, _| {}, &retention(0, Some(2))), [1, 2, 3]);
        let never = Retention { since_created: None, since_routed: None, least: 0, most: None };
        assert_eq!(check([900; 6], |_, _| {}, &never), [0; 0]);
    }
}
