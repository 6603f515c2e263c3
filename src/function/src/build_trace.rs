//! The trace of a build, made when the build has ended, from the times in the status and of the Job.
//!
//! Invariant: one trace per attempt, because the status that reports the end was just written.

use std::time::SystemTime;

use super::child_state::Job;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{self, Status, Type};
use mainstay_object::Owner;
use mainstay_traces::{KeyValue, Span, is_on};

/// Makes the trace of a build if the change of the status, from the first to the second, reports its end.
pub(super) fn ended(owner: &Owner, (old, new): (&FunctionStatus, &FunctionStatus), jobs: impl FnOnce() -> Vec<Job>) {
    if !is_on() {
        return;
    }
    let is_built = new.built.is_some() && new.built != old.built;
    let has_failed = new.retry_at.is_some() && new.retry_at != old.retry_at;
    let tag = match &new.built {
        Some(built) if is_built => Some(&built.tag),
        _ => new.building.as_ref().filter(|_| has_failed),
    };
    let Some(tag) = tag else { return };
    let Some(job) = jobs().into_iter().filter(|job| job.tag == *tag).max_by_key(|job| job.attempt) else { return };
    let created = job.created.map_or_else(SystemTime::now, SystemTime::from);
    // The condition is unknown from the moment in which the build was queued.
    let queued = function_conditions::find(&old.conditions, Type::BuildReady)
        .filter(|condition| condition.status == Status::Unknown.as_str())
        .map(|condition| SystemTime::from(condition.last_transition_time.0))
        .filter(|queued| *queued < created);
    let attributes = || {
        vec![
            KeyValue::new("mainstay.owner", owner.to_string()),
            KeyValue::new("mainstay.attempt", job.attempt),
            KeyValue::new("mainstay.causes", job.causes.clone()),
        ]
    };
    let Some(mut root) = Span::root("build", queued.unwrap_or(created), None, attributes) else { return };
    let parent = root.as_parent();
    if let Some(queue) = queued.and_then(|queued| Span::child("queue", queued, &parent, Vec::new)) {
        queue.end_at(created);
    }
    let name = || vec![KeyValue::new("mainstay.job", job.identity.name.clone())];
    let mut part = Span::child("job", created, &parent, name);
    if !is_built {
        root.fail("JobFailed");
        if let Some(part) = &mut part {
            part.fail("JobFailed");
        }
    }
}
