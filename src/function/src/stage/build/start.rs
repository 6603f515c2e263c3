//! Starts an attempt to build, or reports its position in the queue.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use super::failure::previous_failure;
use super::situation::{SUBJECT, Situation};
use crate::build_queue::{Admission, SHARED};
use crate::child_kind::ChildKind;
use crate::child_state::ChildIdentity;
use crate::children::job::{self, Build, Origin, Previous};
use crate::children::{self, build_job};
use crate::refusals::Write;
use crate::registry::Transport;
use crate::stage::apply::{desired, put};
use crate::stage::decision::{Decision, Record, one_of};
use crate::stage::observed::{Observed, Resolved};
use crate::stage::step::{ConditionUpdate, Step};
use mainstay_api::function_conditions::{Reason, Status};

/// Interval of queue reports: seconds per position, and the maximum.
const QUEUE_REPORT: (u64, u64) = (5, 600);

/// The effect of the previous attempt on the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The previous image is missing, so all dependencies are installed.
    PreviousGone,
    /// There is no effect.
    Other,
}

pub(super) fn start(situation: &Situation<'_>, decision: &mut Decision) {
    let Situation { resolved, observed, .. } = *situation;
    let status = observed.status;
    // The failed Job of an earlier attempt may be deleted already.
    let known = status.building.as_deref() == Some(&resolved.recipe.tag);
    let last = status.builds.filter(|_| known);
    if let Some(last) = last
        && is_put_back(resolved, observed, last)
    {
        decision.record.building = Some((resolved.recipe.tag.clone(), last));
        return;
    }
    decision.record.building = last.map(|last| (resolved.recipe.tag.clone(), last));
    let attempt = last.map_or(1, |last| last.max(0).saturating_add(1));
    start_after(situation, attempt, After::Other, decision);
}

/// Whether the drift loop will recreate the deleted Job of this attempt.
fn is_put_back(resolved: &Resolved<'_>, observed: &Observed<'_>, attempt: i64) -> bool {
    let build = Build {
        tag: &resolved.recipe.tag,
        attempt,
        causes: &[],
        repository: &resolved.repository.push,
        registry_secret: "",
        transport: Transport::default(),
        from: Origin::ConfigMap(""),
        previous: None,
    };
    let key = ChildKind::Job.kind().key(Some(&resolved.function.namespace), &job::name(resolved.function, &build));
    (observed.kept)(&key).is_some()
}

/// Returns the source that the build reads. `config_map` is the name of the ConfigMap with an inline source.
fn origin<'r>(resolved: &'r Resolved<'_>, config_map: &'r str) -> Origin<'r> {
    match resolved.git {
        Some((tree, access)) => Origin::Git {
            url: &access.url,
            commit: &tree.head,
            tree: &tree.tree,
            auth: access.secret.as_ref().map(|(kind, secret)| (*kind, secret.as_str())),
            proxy: access.proxy.as_deref(),
            known_hosts: access.known_hosts.as_deref(),
            submodules: access.submodules,
            lfs: access.lfs,
        },
        None => Origin::ConfigMap(config_map),
    }
}

pub(super) fn start_after(situation: &Situation<'_>, attempt: i64, after: After, decision: &mut Decision) {
    let Situation { resolved, observed, causes, .. } = *situation;
    let image = format!("{}:{}", resolved.repository.push, resolved.recipe.tag);
    let obsolete = observed.children.jobs.iter().filter(|job| job.image != image && !job.identity.terminating);
    let mut any = false;
    for job in obsolete {
        decision.delete(ChildKind::Job, &job.identity);
        any = true;
    }
    if any {
        decision.report_action(SUBJECT, Status::Unknown, Reason::JobsDeleted, "Old Jobs deleted");
    }
    let there = observed.children.jobs.iter().map(|job| &job.identity).collect::<Vec<_>>();
    let previous = previous(resolved, observed, after);
    let config_map = config_map_name(resolved, observed);
    let build = Build {
        tag: &resolved.recipe.tag,
        attempt,
        causes,
        repository: &resolved.repository.push,
        registry_secret: &resolved.repository.secret,
        transport: resolved.repository.transport,
        from: origin(resolved, &config_map),
        previous: previous.as_ref().map(|(image, dependencies)| Previous { image, dependencies }),
    };
    let document = build_job::build(resolved.function, &build, resolved.settings);
    let again = previous_failure(situation, attempt, decision);
    // A Function whose write has to wait is not queued.
    if !is_held(situation, &document) {
        decision.in_queue = true;
        match observed.admission {
            // The Function is enqueued after this decision, and the next reconcile sees its position.
            Admission::Absent => return,
            Admission::Queued { position } => {
                wait(situation, position, &again, decision);
                return;
            }
            Admission::Admitted => {}
        }
    }
    let building = Some((resolved.recipe.tag.clone(), attempt));
    let record = Record { building, retry_at: None, ..decision.record.clone() };
    decision.without_job = Some(Box::new(std::mem::replace(&mut decision.record, record)));
    let update = (SUBJECT, [Reason::JobCreated, Reason::JobUpdated]);
    put(decision, observed, resolved, ChildKind::Job, &document, &there, update);
    if let Some(Step::Put(put)) = decision.steps.last_mut() {
        put.note = again;
    }
}

/// Whether the Job was refused and is not retried yet.
fn is_held(situation: &Situation<'_>, document: &Value) -> bool {
    let Situation { resolved, observed, now, .. } = *situation;
    let Some(job) = desired(ChildKind::Job, resolved.function, document) else { return false };
    observed.state.refused.as_ref().is_some_and(|refused| refused.holds(&Write::apply(&job), now).is_some())
}

/// Returns the name of the ConfigMap from the source stage.
fn config_map_name(resolved: &Resolved<'_>, observed: &Observed<'_>) -> String {
    let there = observed.children.config_maps.iter().collect::<Vec<&ChildIdentity>>();
    one_of(&mut Decision::default(), ChildKind::ConfigMap, &there, children::name(resolved.function))
}

/// Returns the previous image if its dependencies may be reused.
fn previous(resolved: &Resolved<'_>, observed: &Observed<'_>, after: After) -> Option<(String, String)> {
    let built = observed.status.built.as_ref().filter(|_| after != After::PreviousGone)?;
    let (new, old) = (&resolved.recipe.inputs, &built.inputs);
    let same = built.repository == resolved.repository.push && new.runtime == old.runtime && new.base == old.base;
    let usable = same && !built.dependencies.is_empty() && new.requested == old.requested;
    usable.then(|| (format!("{}@{}", built.repository, built.digest), built.dependencies.clone()))
}

pub(super) fn wait(situation: &Situation<'_>, position: usize, again: &str, decision: &mut Decision) {
    let Situation { resolved, observed, now, .. } = *situation;
    let every = (position as u64).clamp(QUEUE_REPORT.0, QUEUE_REPORT.1);
    let every = SignedDuration::from_secs(i64::try_from(every).unwrap_or(i64::MAX));
    let reported = observed.state.queue_reported.filter(|_| observed.says(SUBJECT, Status::Unknown, Reason::JobQueued));
    let since = reported.map(|reported| now.duration_since(reported));
    if let (Some(since), Some(queue)) = (since.filter(|since| *since < every), observed.status.queue) {
        // Every finished build changes all positions, so they are reported at intervals.
        decision.state.queue_reported = reported;
        decision.record.queue = usize::try_from(queue).ok();
        decision.requeue_within(Duration::try_from(every - since).unwrap_or_default());
        return;
    }
    decision.state.queue_reported = Some(now);
    decision.record.queue = Some(position);
    let limit = resolved.settings.max_simultaneous_jobs;
    let share = if limit < SHARED { "" } else { ", and one namespace gets at most half of the free places" };
    let message =
        format!("waiting in the queue: at most {limit} builds run at the same time{share}; position {position}{again}");
    decision.steps.push(Step::SetCondition(ConditionUpdate::new(SUBJECT, Status::Unknown, Reason::JobQueued, message)));
    decision.requeue_within(Duration::try_from(every).unwrap_or_default());
}
