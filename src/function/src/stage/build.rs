//! The build stage. The stage runs one Job at a time for a Function's newest inputs, and retries a failed build.
//!
//! Invariant: an image with a recorded digest is never rebuilt for the same inputs. Invariant: a Job is created once. A
//! new attempt or different inputs get a new Job.

mod failure;
mod retry;
mod situation;
mod start;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use self::failure::{Failure, last_problem, previous_failure, text, why_failed};
use self::retry::failed;
use self::situation::{SUBJECT, Situation};
use self::start::{After, start, start_after, wait};
use super::decision::{Decision, Image};
use super::observed::{Observed, Resolved};
use super::step::Step;
use super::{kaniko, suspension};
use crate::BaseImage;
use crate::build_queue::Admission;
use crate::child_kind::ChildKind;
use crate::child_state::{Job, Pod, Progress, Role, Suspension, sizes};
use crate::registry::Digest;
use crate::tag::{self, BuildCause};
use mainstay_api::build::{BuildReport, Termination};
use mainstay_api::function::Built;
use mainstay_api::function_conditions::{Reason, Status};

/// How long to wait for the report of a complete Job.
const REPORT_TIMEOUT: SignedDuration = SignedDuration::from_secs(15);
/// How long a Job may have no pod before its Events are read.
const POD_TIMEOUT: SignedDuration = SignedDuration::from_secs(3);

/// The second stage: builds the image.
pub(super) fn image(resolved: &Resolved<'_>, observed: &Observed<'_>, now: Timestamp, decision: &mut Decision) {
    let built = observed.status.built.as_ref().filter(|built| is_digest(&built.digest));
    let repository = &resolved.repository.push;
    let causes = tag::causes(resolved.recipe, repository, built);
    let image = format!("{repository}:{}", resolved.recipe.tag);
    tag_is_resolved_again(resolved, now, decision);
    let wait = until_move(resolved, observed, &causes, now, decision);
    if let (Some(built), Some(at)) = (built, wait) {
        let digest = short(&built.digest);
        let message = format!("Image {digest} is up to date; it will be rebuilt on the new base image at {at:.0}");
        decision.set_condition(SUBJECT, Status::True, Reason::JobFinished, message);
        let name = format!("{}:{}@{}", resolved.repository.pull, built.tag, built.digest);
        decision.image = Some(Image { name });
        decision.requeue_within(Duration::try_from(at.duration_since(now)).unwrap_or_default());
        return;
    }
    if let Some(built) = built.filter(|_| causes.is_empty()) {
        let runs = |job: &&Job| job.progress == Progress::Running && reported(job, observed).is_none();
        for other in observed.children.jobs.iter().filter(runs) {
            decision.delete(ChildKind::Job, &other.identity);
        }
        if observed.holds(SUBJECT) {
            decision.steps.push(Step::ConfirmCondition(SUBJECT));
        } else {
            let message = format!("Image {} is up to date", short(&built.digest));
            decision.set_condition(SUBJECT, Status::True, Reason::JobFinished, message);
        }
        decision.image = Some(image_of(resolved, observed, &built.digest));
        return;
    }
    let situation = &Situation { resolved, observed, now, causes: &causes };
    let jobs = observed.children.jobs.iter().filter(|job| job.image == image && !job.identity.terminating);
    let Some(job) = jobs.max_by_key(|job| job.attempt) else {
        start(situation, decision);
        return;
    };
    decision.record.building = Some((job.tag.clone(), job.attempt));
    follow(situation, job, decision);
}

/// Follows the newest Job of the image.
fn follow(situation: &Situation<'_>, job: &Job, decision: &mut Decision) {
    let Situation { resolved, observed, now, .. } = *situation;
    let pods = observed.children.pods.iter().filter(|pod| pod.role == Role::Build(job.identity.uid.clone()));
    let end = pods.clone().find_map(|pod| pod.end.as_ref());
    let problem = pods.clone().find_map(|pod| pod.problem.clone());
    match &job.progress {
        // The Job becomes complete one or two seconds after its pod.
        Progress::Running if let Some(report) = reported(job, observed) => {
            decision.reported = Some([job.identity.name.clone(), job.identity.uid.clone()]);
            finished(situation, job, report, decision);
        }
        Progress::Running if let Some(suspension) = &job.suspension => {
            suspended(situation, job, suspension, decision);
        }
        Progress::Running => {
            if pods.count() == 0 && job.created.is_some_and(|created| now.duration_since(created) >= POD_TIMEOUT) {
                decision.without_pod = Some(job.clone());
            }
            let is_held_up = problem.is_some() || decision.without_pod.is_some();
            let is_asked = problem.is_some() && observed.state.retry_cause(&job.identity.name).is_some();
            if is_asked || (is_held_up && is_made_otherwise(job, resolved)) {
                replace_held_up(situation, job, decision);
            } else if let Some(why) = problem.clone().filter(|_| (observed.must_yield)(job)) {
                suspension::suspend(job, text(why), now, decision);
            } else {
                runs(situation, job, problem, decision);
            }
        }
        Progress::Complete => match end.map(|end| &end.termination) {
            Some(Termination::Built(report)) if is_digest(&report.digest) => {
                finished(situation, job, report, decision);
            }
            Some(_) => {
                let failure = Failure::of("the build reported no image", true);
                failed(situation, job, &failure, decision);
            }
            None => await_report(situation, job, decision),
        },
        Progress::Failed { reason, message } => {
            let problem = problem.map(text).or_else(|| last_problem(job, observed));
            // The problem is kept in memory until the status that contains it is written.
            decision.state.problem = problem.clone().map(|problem| (job.identity.uid.clone(), problem));
            failed(situation, job, &why_failed(job, (reason, message), problem, observed), decision);
        }
    }
}

/// Returns the report from the ended pod of a Job.
fn reported<'a>(job: &Job, observed: &Observed<'a>) -> Option<&'a BuildReport> {
    let own = observed.children.pods.iter().filter(|pod| pod.is_of(&job.identity.uid));
    own.filter_map(Pod::report).find(|report| is_digest(&report.digest))
}

/// Handles a suspended build. The build waits for its retry time, then for its turn in the queue.
fn suspended(situation: &Situation<'_>, job: &Job, suspension: &Suspension, decision: &mut Decision) {
    let Situation { resolved, observed, now, .. } = *situation;
    let is_asked = observed.state.retry_cause(&job.identity.name).is_some();
    if is_asked || is_made_otherwise(job, resolved) {
        replace_held_up(situation, job, decision);
    } else if !suspension::is_due(suspension, now) {
        suspension::report(job, suspension, now, decision);
    } else {
        decision.in_queue = true;
        match observed.admission {
            // The Function is enqueued after this decision, and the next reconcile sees its position.
            Admission::Absent => {}
            Admission::Queued { position } => {
                let why = format!("; Job {} is suspended: {}", job.identity.name, suspension.why);
                wait(situation, position, &why, decision);
            }
            Admission::Admitted => suspension::resume(job, decision),
        }
    }
}

/// Returns the image with this digest, with the name under which it already serves requests, if any. If a new build
/// results in the same image, the pods need not be replaced.
fn image_of(resolved: &Resolved<'_>, observed: &Observed<'_>, digest: &str) -> Image {
    let (pull, tag) = (&resolved.repository.pull, &resolved.recipe.tag);
    let is_same = |name: &&String| {
        let rest = name.strip_prefix(pull.as_str()).and_then(|rest| rest.strip_prefix(':'));
        rest.is_some_and(|rest| rest.split_once('@').is_some_and(|(_, of)| of == digest))
    };
    let known = observed.status.image.as_ref().filter(is_same).cloned();
    Image { name: known.unwrap_or_else(|| format!("{pull}:{tag}@{digest}")) }
}

/// Returns when a Function may be built whose only change is the base image; `None` means now. A base image from the
/// Function's spec takes effect immediately.
fn until_move(
    resolved: &Resolved<'_>,
    observed: &Observed<'_>,
    causes: &[BuildCause],
    now: Timestamp,
    decision: &mut Decision,
) -> Option<Timestamp> {
    let schedule = resolved.settings.base_schedule.as_ref()?;
    if *causes != [BuildCause::Base] || resolved.function.has_own_base {
        return None;
    }
    let next = schedule.next(now)?;
    let at = observed.status.moves_at.as_ref().map_or(next, |known| known.0.min(next));
    // A move time in the past is kept until the image is built.
    decision.record.moves_at = Some(at);
    let is_building = observed.status.building.as_deref() == Some(&resolved.recipe.tag);
    (at > now && !is_building).then_some(at)
}

/// Requeues a Function with a base image tag for the schedule's next time, when a build resolves the tag again.
fn tag_is_resolved_again(resolved: &Resolved<'_>, now: Timestamp, decision: &mut Decision) {
    let is_tagged = matches!(resolved.function.base, BaseImage::Tagged(_));
    let schedule = resolved.settings.base_schedule.as_ref().filter(|_| is_tagged);
    if let Some(next) = schedule.and_then(|schedule| schedule.next(now)) {
        decision.requeue_within(Duration::try_from(next.duration_since(now)).unwrap_or_default());
    }
}

fn is_digest(text: &str) -> bool {
    text.parse::<Digest>().is_ok()
}

/// Returns the first 7 digits of a digest, tag or commit.
fn short(digest: &str) -> String {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("{}…", mainstay_api::conditions::cut(digits, 7))
}

fn runs(situation: &Situation<'_>, job: &Job, problem: Option<(String, String)>, decision: &mut Decision) {
    let observed = situation.observed;
    let again = previous_failure(situation, job.attempt, decision);
    let name = &job.identity.name;
    let known = last_problem(job, observed);
    let own = |pod: &&Pod| pod.role == Role::Build(job.identity.uid.clone());
    let works = observed.children.pods.iter().filter(own).any(|pod| !pod.over && pod.problem.is_none());
    let without_pod = decision.without_pod.is_some();
    let problem = problem.map(text);
    let message = match problem.as_ref().or(known.as_ref().filter(|_| without_pod)) {
        Some(problem) => format!("Job {name} is still in progress: {problem}{again}"),
        None => format!("Job {name} is still in progress{again}"),
    };
    let refused = known.as_ref().filter(|_| without_pod && problem.is_none());
    let refused = refused.and_then(|why| kaniko::pod_security(job, why, situation.resolved.function));
    // The pod is deleted at the Job's deadline, and its last problem is then reported as the cause.
    let last = problem.or(known.filter(|_| !works));
    decision.state.problem = last.map(|problem| (job.identity.uid.clone(), problem));
    match refused {
        Some(refused) => decision.set_condition(SUBJECT, Status::False, Reason::ApplyFailed, refused + &again),
        None => decision.set_condition(SUBJECT, Status::Unknown, Reason::JobRunning, message),
    }
    if !without_pod && !observed.children.pods.iter().any(|pod| own(&pod)) {
        decision.requeue_within(Duration::try_from(POD_TIMEOUT).unwrap_or_default() + Duration::from_millis(100));
    }
}

/// Whether a new Job would have different resources or a different builder. A working Job continues unchanged.
fn is_made_otherwise(job: &Job, resolved: &Resolved<'_>) -> bool {
    if kaniko::is_of_another_builder(job, resolved.settings) {
        return true;
    }
    let wanted = serde_json::to_value(&resolved.function.build_resources).unwrap_or_default();
    job.resources.as_ref().is_some_and(|resources| *resources != sizes(&wanted))
}

/// Replaces a held-up attempt after the cause of the hold is fixed. The kubelet would take minutes to retry, and the
/// resources of a Job are immutable.
fn replace_held_up(situation: &Situation<'_>, job: &Job, decision: &mut Decision) {
    decision.without_pod = None;
    decision.delete(ChildKind::Job, &job.identity);
    let causes = [situation.causes, &[BuildCause::Retry]].concat();
    let situation = &Situation { causes: &causes, ..*situation };
    start_after(situation, job.attempt.saturating_add(1), After::Other, decision);
}

fn await_report(situation: &Situation<'_>, job: &Job, decision: &mut Decision) {
    let Situation { observed, now, .. } = *situation;
    let awaited = observed.state.report_awaited.as_ref().filter(|(uid, _)| *uid == job.identity.uid);
    let since = awaited.map_or(now, |(_, since)| *since);
    if now.duration_since(since) >= REPORT_TIMEOUT {
        let failure = Failure::of("the build's pod is gone, and with it the digest of the image", true);
        failed(situation, job, &failure, decision);
        return;
    }
    decision.state.report_awaited = Some((job.identity.uid.clone(), since));
    decision.requeue_within(Duration::try_from(REPORT_TIMEOUT).unwrap_or_default());
    let message = format!("Job {} is still in progress", job.identity.name);
    decision.set_condition(SUBJECT, Status::Unknown, Reason::JobRunning, message);
}

fn finished(situation: &Situation<'_>, job: &Job, report: &BuildReport, decision: &mut Decision) {
    let Situation { resolved, observed, .. } = *situation;
    let why = &job.causes;
    let from = match resolved.git {
        Some((tree, _)) => {
            let directory = tree.location.base_dir.trim_matches('/');
            format!(" {} in /{directory}", short(&tree.commit))
        }
        None => String::new(),
    };
    let message = format!("Job {} finished ({:.1} s: {why}{from})", job.identity.name, report.seconds.max(0.0));
    decision.report_action(SUBJECT, Status::True, Reason::JobFinished, message);
    (decision.record.building, decision.record.moves_at) = (None, None);
    decision.record.built = Some(Built {
        repository: resolved.repository.push.clone(),
        tag: resolved.recipe.tag.clone(),
        digest: report.digest.clone(),
        dependencies: report.dependencies.clone(),
        // The digest in a report is not trusted, because the reporting container shares a workspace with third-party
        // code.
        base: if is_name(&report.base) { report.base.clone() } else { String::new() },
        inputs: resolved.recipe.inputs.clone(),
    });
    decision.image = Some(image_of(resolved, observed, &report.digest));
}

/// Whether a reported base image is a name with a digest.
fn is_name(base: &str) -> bool {
    matches!(BaseImage::chosen(base), Ok(BaseImage::Image(_)))
}
