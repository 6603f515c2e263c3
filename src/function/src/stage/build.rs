//! The build stage. The stage runs one Job at a time for a Function's newest inputs, and retries a failed build.
//!
//! Invariant: an image with a recorded digest is never rebuilt for the same inputs. Invariant: a Job is created once. A
//! new attempt or different inputs get a new Job.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{ConditionUpdate, Decision, Image, Observed, Record, Resolved, RetryCause, kaniko, put, suspension};
use crate::BaseImage;
use crate::build_queue::{Admission, SHARED};
use crate::child_kind::ChildKind;
use crate::child_state::{ChildIdentity, End, Job, Pod, Progress, Role, Suspension, sizes};
use crate::children;
use crate::children::build_job;
use crate::children::job::{self, Build, EXECUTOR, INSTALL, Origin, PUSH, Previous};
use crate::log_tail::log_tail;
use crate::refusals::Write;
use crate::registry::{Digest, Transport};
use crate::syntax_error;
use crate::tag::{self, BuildCause};
use mainstay_api::build::{BuildFailure, BuildReport, FailureReason, Termination};
use mainstay_api::function::Built;
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_api::function_failure::BUILD_FAILED;
use mainstay_object::failure::Backoff;

const SUBJECT: Type = Type::BuildReady;
/// How long to wait for the report of a complete Job.
const REPORT_TIMEOUT: SignedDuration = SignedDuration::from_secs(15);
/// How long a Job may have no pod before its Events are read.
const POD_TIMEOUT: SignedDuration = SignedDuration::from_secs(3);
/// Maximum backoff between attempts. This is also the delay after a failure that only different inputs can fix.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3600);
/// Maximum number of attempts without delay, after failures whose cause the next attempt removes.
const MAX_IMMEDIATE: i64 = 5;
/// Reason of a Job that exceeded its deadline, and the exit codes of its killed containers.
const DEADLINE: &str = "DeadlineExceeded";
const KILLED: [i64; 2] = [137, 143];
/// Interval of queue reports: seconds per position, and the maximum.
const QUEUE_REPORT: (u64, u64) = (5, 600);

/// The inputs of this stage.
#[derive(Clone, Copy)]
struct Situation<'a> {
    resolved: &'a Resolved<'a>,
    observed: &'a Observed<'a>,
    now: Timestamp,
    /// Why the image has to be built.
    causes: &'a [BuildCause],
}

/// A failed attempt.
struct Failure {
    reason: Option<FailureReason>,
    message: String,
    retry: bool,
    /// Whether the failure lasts until the registry accepts an upload.
    waits_for_registry: bool,
}

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
            decision.steps.push(super::Step::ConfirmCondition(SUBJECT));
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
        Progress::Running if let Some(report) = reported(job, observed) => finished(situation, job, report, decision),
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

/// Returns why a Job failed, from its condition and its pods. `problem` is the last problem of the Job's pod.
fn why_failed(job: &Job, (reason, message): (&str, &str), problem: Option<String>, observed: &Observed<'_>) -> Failure {
    let mut pods = observed.children.pods.iter().filter(|pod| pod.is_of(&job.identity.uid));
    let end = pods.clone().find_map(|pod| pod.end.as_ref());
    let stopped = pods.find_map(|pod| pod.problem.clone().filter(|_| pod.over));
    match end {
        // The containers were killed with the pod, so their exit codes are not the cause.
        _ if stopped.is_some() => Failure::of(&stopped.map_or_else(String::new, text), true),
        Some(end) if end.code != 0 && !(reason == DEADLINE && KILLED.contains(&end.code)) => ended(end),
        _ => {
            let why = problem.map_or_else(String::new, |problem| format!("; {problem}"));
            Failure::of(&format!("{reason}: {message}{why}"), true)
        }
    }
}

/// Returns why the previous attempt failed, as a suffix for messages; empty for the first attempt. The message comes
/// from the failed Job while it exists, then from the kept state.
fn previous_failure(situation: &Situation<'_>, attempt: i64, decision: &mut Decision) -> String {
    let Situation { resolved, observed, .. } = *situation;
    let tag = &resolved.recipe.tag;
    let image = format!("{}:{tag}", resolved.repository.push);
    let before = observed.children.jobs.iter().filter(|job| job.image == image && job.attempt < attempt);
    let seen = before.max_by_key(|job| job.attempt).and_then(|job| match &job.progress {
        Progress::Failed { reason, message } => {
            let failure = why_failed(job, (reason, message), last_problem(job, observed), observed);
            Some((tag.clone(), format!("; attempt {} failed: {}", job.attempt, failure.message)))
        }
        Progress::Running | Progress::Complete => None,
    });
    let known = observed.state.failed.clone().filter(|(of, _)| of == tag && attempt > 1);
    decision.state.failed = seen.or(known);
    decision.state.failed.clone().map(|(_, text)| text).unwrap_or_default()
}

fn text((reason, text): (String, String)) -> String {
    format!("{reason}: {text}")
}

impl Failure {
    fn of(message: &str, retry: bool) -> Self {
        Self { reason: None, message: message.to_owned(), retry, waits_for_registry: false }
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

/// Returns the last problem of a Job's pod.
fn last_problem(job: &Job, observed: &Observed<'_>) -> Option<String> {
    let (uid, problem) = observed.state.problem.as_ref()?;
    (*uid == job.identity.uid).then(|| problem.clone())
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

/// Converts a container's termination into a failure.
fn ended(end: &End) -> Failure {
    match &end.termination {
        Termination::Failed(BuildFailure { reason, message, retry, waits_for_registry }) => Failure {
            reason: Some(*reason),
            message: format!("{reason:?}: {message}"),
            retry: *retry,
            // Only this container has the registry's credentials.
            waits_for_registry: *waits_for_registry && end.container == PUSH,
        },
        Termination::Built(_) => Failure::of("the build reported an image and failed all the same", true),
        Termination::Other(log) => {
            let how = format!("{} ended with exit code {} ({})", end.container, end.code, end.reason);
            let known = Some(log).filter(|_| end.container == EXECUTOR).and_then(|log| kaniko::why_failed(&how, log));
            if let Some((reason, message, retry)) = known {
                return Failure { reason: Some(reason), message, retry, waits_for_registry: false };
            }
            if let Some(error) =
                Some(log).filter(|_| end.container == INSTALL).and_then(|log| syntax_error::of_log(log))
            {
                return source_invalid(&error);
            }
            let tail = log_tail(log);
            let lines = if tail.is_empty() { String::new() } else { format!("\n{tail}") };
            if end.container == INSTALL {
                let reason = FailureReason::InstallFailed;
                let message = format!("{reason:?}: {how}{lines}");
                return Failure { reason: Some(reason), message, retry: true, waits_for_registry: false };
            }
            Failure::of(&format!("{how}{lines}"), true)
        }
    }
}

/// Returns the failure for a source that no further attempt can build.
fn source_invalid(error: &str) -> Failure {
    let reason = FailureReason::SourceInvalid;
    Failure { reason: Some(reason), message: format!("{reason:?}: {error}"), retry: false, waits_for_registry: false }
}

fn failed(situation: &Situation<'_>, job: &Job, failure: &Failure, decision: &mut Decision) {
    let Situation { resolved, observed, now, .. } = *situation;
    let status = observed.status;
    let known = status.building.as_deref() == Some(&job.tag) && status.builds == Some(job.attempt);
    let at_once = matches!(failure.reason, Some(FailureReason::BranchMoved | FailureReason::PreviousGone));
    let may_pass = |cause: RetryCause| cause == RetryCause::Credentials || failure.retry;
    let asked = observed.state.retry_cause(&job.identity.name).is_some_and(may_pass)
        || kaniko::is_of_another_builder(job, resolved.settings);
    let due = match status.retry_at.as_ref().filter(|_| known) {
        Some(at) => at.0,
        None => now + backoff(resolved.settings.requeue, job.attempt, failure.retry),
    };
    if asked || now >= due || (at_once && job.attempt < MAX_IMMEDIATE) {
        decision.record.retry_at = status.retry_at.as_ref().filter(|_| known).map(|at| at.0);
        let mut causes = situation.causes.to_vec();
        if !at_once {
            causes.push(BuildCause::Retry);
        }
        let after =
            if failure.reason == Some(FailureReason::PreviousGone) { After::PreviousGone } else { After::Other };
        let situation = &Situation { causes: &causes, ..*situation };
        start_after(situation, job.attempt.saturating_add(1), after, decision);
        return;
    }
    decision.record.retry_at = Some(due);
    decision.waits_for_registry = failure.waits_for_registry.then(|| job.identity.name.clone());
    decision.requeue_within(Duration::try_from(due.duration_since(now)).unwrap_or_default());
    let message = format!(
        "Job {} {BUILD_FAILED}{} (attempt {}, the next one at {:.0})",
        job.identity.name, failure.message, job.attempt, due
    );
    decision.set_condition(SUBJECT, Status::False, Reason::JobFailed, message);
}

/// Returns the delay before a failed build is retried.
fn backoff(first: Duration, attempt: i64, retry: bool) -> Duration {
    if !retry {
        return MAX_RETRY_DELAY;
    }
    Backoff::new(first, MAX_RETRY_DELAY).delay(u32::try_from(attempt).unwrap_or(u32::MAX))
}

/// The effect of the previous attempt on the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The previous image is missing, so all dependencies are installed.
    PreviousGone,
    /// There is no effect.
    Other,
}

fn start(situation: &Situation<'_>, decision: &mut Decision) {
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

fn start_after(situation: &Situation<'_>, attempt: i64, after: After, decision: &mut Decision) {
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
    if let Some(super::Step::Put(put)) = decision.steps.last_mut() {
        put.note = again;
    }
}

/// Whether the Job was refused and is not retried yet.
fn is_held(situation: &Situation<'_>, document: &Value) -> bool {
    let Situation { resolved, observed, now, .. } = *situation;
    let Some(job) = super::desired(ChildKind::Job, resolved.function, document) else { return false };
    observed.state.refused.as_ref().is_some_and(|refused| refused.holds(&Write::apply(&job), now).is_some())
}

/// Returns the name of the ConfigMap from the source stage.
fn config_map_name(resolved: &Resolved<'_>, observed: &Observed<'_>) -> String {
    let there = observed.children.config_maps.iter().collect::<Vec<&ChildIdentity>>();
    super::one_of(&mut Decision::default(), ChildKind::ConfigMap, &there, children::name(resolved.function))
}

/// Returns the previous image if its dependencies may be reused.
fn previous(resolved: &Resolved<'_>, observed: &Observed<'_>, after: After) -> Option<(String, String)> {
    let built = observed.status.built.as_ref().filter(|_| after != After::PreviousGone)?;
    let (new, old) = (&resolved.recipe.inputs, &built.inputs);
    let same = built.repository == resolved.repository.push && new.runtime == old.runtime && new.base == old.base;
    let usable = same && !built.dependencies.is_empty() && new.requested == old.requested;
    usable.then(|| (format!("{}@{}", built.repository, built.digest), built.dependencies.clone()))
}

fn wait(situation: &Situation<'_>, position: usize, again: &str, decision: &mut Decision) {
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
    decision.steps.push(super::Step::SetCondition(ConditionUpdate::new(
        SUBJECT,
        Status::Unknown,
        Reason::JobQueued,
        message,
    )));
    decision.requeue_within(Duration::try_from(every).unwrap_or_default());
}
