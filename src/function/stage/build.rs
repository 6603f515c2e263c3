//! The build: one Job at a time for a Function, for its newest inputs, retried when it fails.
//!
//! Invariant: an image whose digest is recorded for the same inputs is never built again.
//! Invariant: a Job is made once. Another attempt, and other inputs, are another Job.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Decision, Image, Observed, Record, Said, Wanted, put};
use crate::api::build::{BuildFailure, BuildReport, FailureReason, Termination};
use crate::api::function::Built;
use crate::api::function_conditions::{Reason, Status, Type};
use crate::failure::Backoff;
use crate::function::build_queue::Turn;
use crate::function::children;
use crate::function::children::job::{self, Build, Origin, Previous};
use crate::function::facts::{End, Identity, Job, Pod, Progress, Role};
use crate::function::family::What;
use crate::function::log_tail::log_tail;
use crate::function::refusals::Write;
use crate::function::tag::{self, Cause};

const SUBJECT: Type = Type::BuildReady;
/// How long the report of a complete Job may take to arrive.
const REPORT_WITHIN: SignedDuration = SignedDuration::from_secs(15);
/// How long a Job may be without a pod before somebody asks why.
const POD_WITHIN: SignedDuration = SignedDuration::from_secs(3);
/// Longest wait before a failed build is tried again, and the wait where nothing but another input helps.
const LAST_RETRY: Duration = Duration::from_secs(3600);
/// Attempts that follow each other at once when the failure says that the next one will find something else.
const AT_ONCE: i64 = 5;
/// Reason of a Job whose deadline is over, and how its containers end because of that.
const DEADLINE: &str = "DeadlineExceeded";
const KILLED: [i64; 2] = [137, 143];
/// How often a position in the queue is told: every so many seconds for each position, within these bounds.
const TELL_QUEUE: (u64, u64) = (5, 600);

/// What there is to go by.
#[derive(Clone, Copy)]
struct Situation<'a> {
    wanted: &'a Wanted<'a>,
    observed: &'a Observed<'a>,
    now: Timestamp,
    /// Why the image has to be built.
    causes: &'a [Cause],
}

/// How an attempt failed.
struct Failure {
    reason: Option<FailureReason>,
    message: String,
    retry: bool,
}

/// The second stage.
pub(super) fn look(wanted: &Wanted<'_>, observed: &Observed<'_>, now: Timestamp, decision: &mut Decision) {
    let built = observed.status.built.as_ref().filter(|built| is_digest(&built.digest));
    let repository = &wanted.repository.push;
    let causes = tag::causes(wanted.recipe, repository, built);
    let image = format!("{repository}:{}", wanted.recipe.tag);
    if let Some(built) = built.filter(|_| causes.is_empty()) {
        for other in observed.family.jobs.iter().filter(|job| job.progress == Progress::Running) {
            decision.delete(What::Job, &other.identity);
        }
        if observed.holds(SUBJECT) {
            decision.steps.push(super::Step::Affirm(SUBJECT));
        } else {
            let message = format!("Image {} was built before", short(&built.digest));
            decision.say(SUBJECT, Status::True, Reason::JobFinished, message);
        }
        decision.image = Some(image_of(wanted, &built.digest));
        return;
    }
    let situation = &Situation { wanted, observed, now, causes: &causes };
    let jobs = observed.family.jobs.iter().filter(|job| job.image == image && !job.identity.terminating);
    let Some(job) = jobs.max_by_key(|job| job.attempt) else {
        start(situation, decision);
        return;
    };
    decision.record.building = Some((job.tag.clone(), job.attempt));
    let pods = observed.family.pods.iter().filter(|pod| pod.role == Role::Build(job.identity.uid.clone()));
    let end = pods.clone().find_map(|pod| pod.end.as_ref());
    let trouble = pods.clone().find_map(|pod| pod.trouble.clone());
    match &job.progress {
        Progress::Running => {
            if pods.count() == 0 && job.created.is_some_and(|created| now.duration_since(created) >= POD_WITHIN) {
                decision.podless = Some(job.clone());
            }
            if trouble.is_some() && observed.memory.retry_now.as_deref() == Some(&job.identity.name) {
                again_instead(situation, job, decision);
            } else {
                runs(situation, job, trouble, decision);
            }
        }
        Progress::Complete => match end.map(|end| &end.said) {
            Some(Termination::Built(report)) if is_digest(&report.digest) => {
                finished(wanted, job, report, decision);
            }
            Some(_) => {
                let failure = Failure::of("the build reported no image", true);
                failed(situation, job, &failure, decision);
            }
            None => await_report(situation, job, decision),
        },
        Progress::Failed { reason, message } => {
            let trouble = trouble.map(text).or_else(|| remembered(job, observed));
            // It is asked again as long as the status is not written.
            decision.memory.trouble = trouble.clone().map(|trouble| (job.identity.uid.clone(), trouble));
            failed(situation, job, &why_failed(job, (reason, message), trouble, observed), decision);
        }
    }
}

/// Why a Job failed, of which its condition says this; `trouble` is what kept its pod from its work.
fn why_failed(job: &Job, (reason, message): (&str, &str), trouble: Option<String>, observed: &Observed<'_>) -> Failure {
    let mut pods = observed.family.pods.iter().filter(|pod| pod.is_of(&job.identity.uid));
    let end = pods.clone().find_map(|pod| pod.end.as_ref());
    let stopped = pods.find_map(|pod| pod.trouble.clone().filter(|_| pod.over));
    match end {
        // Its containers were killed with it: what they say is not why.
        _ if stopped.is_some() => Failure::of(&stopped.map_or_else(String::new, text), true),
        Some(end) if end.code != 0 && !(reason == DEADLINE && KILLED.contains(&end.code)) => ended(end),
        _ => {
            let why = trouble.map_or_else(String::new, |trouble| format!("; {trouble}"));
            Failure::of(&format!("{reason}: {message}{why}"), true)
        }
    }
}

/// Why the attempt before this one failed, as it is said of this one; empty for the first one. The failed Job says it
/// for as long as it is there, and after that it is remembered.
fn why_again(situation: &Situation<'_>, attempt: i64, decision: &mut Decision) -> String {
    let Situation { wanted, observed, .. } = *situation;
    let tag = &wanted.recipe.tag;
    let image = format!("{}:{tag}", wanted.repository.push);
    let before = observed.family.jobs.iter().filter(|job| job.image == image && job.attempt < attempt);
    let seen = before.max_by_key(|job| job.attempt).and_then(|job| match &job.progress {
        Progress::Failed { reason, message } => {
            let failure = why_failed(job, (reason, message), remembered(job, observed), observed);
            Some((tag.clone(), format!("; attempt {} failed: {}", job.attempt, failure.message)))
        }
        Progress::Running | Progress::Complete => None,
    });
    let known = observed.memory.failed.clone().filter(|(of, _)| of == tag && attempt > 1);
    decision.memory.failed = seen.or(known);
    decision.memory.failed.clone().map(|(_, text)| text).unwrap_or_default()
}

fn text((reason, text): (String, String)) -> String {
    format!("{reason}: {text}")
}

impl Failure {
    fn of(message: &str, retry: bool) -> Self {
        Self { reason: None, message: message.to_owned(), retry }
    }
}

fn image_of(wanted: &Wanted<'_>, digest: &str) -> Image {
    Image { name: format!("{}:{}@{digest}", wanted.repository.pull, wanted.recipe.tag) }
}

/// Whether it is `sha256:` and 64 hexadecimal digits.
fn is_digest(text: &str) -> bool {
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

/// The first digits of a digest, tag or commit.
fn short(digest: &str) -> String {
    let digits = digest.strip_prefix("sha256:").unwrap_or(digest);
    format!("{}…", crate::api::conditions::cut(digits, 7))
}

fn runs(situation: &Situation<'_>, job: &Job, trouble: Option<(String, String)>, decision: &mut Decision) {
    let observed = situation.observed;
    let again = why_again(situation, job.attempt, decision);
    let name = &job.identity.name;
    let known = remembered(job, observed);
    let own = |pod: &&Pod| pod.role == Role::Build(job.identity.uid.clone());
    let works = observed.family.pods.iter().filter(own).any(|pod| !pod.over && pod.trouble.is_none());
    let podless = decision.podless.is_some();
    let trouble = trouble.map(text);
    let message = match trouble.as_ref().or(known.as_ref().filter(|_| podless)) {
        Some(trouble) => format!("Job {name} is still in progress: {trouble}{again}"),
        None => format!("Job {name} is still in progress{again}"),
    };
    // When its deadline is over, its pod is gone: then the last trouble was the reason.
    let last = trouble.or(known.filter(|_| !works));
    decision.memory.trouble = last.map(|trouble| (job.identity.uid.clone(), trouble));
    decision.say(SUBJECT, Status::Unknown, Reason::JobRunning, message);
    if !podless && !observed.family.pods.iter().any(|pod| own(&pod)) {
        decision.look_within(Duration::try_from(POD_WITHIN).unwrap_or_default() + Duration::from_millis(100));
    }
}

/// Begins another attempt in the place of one whose pod is kept from its work by what is put right by now: the cluster
/// would let it wait for minutes before it looks again.
fn again_instead(situation: &Situation<'_>, job: &Job, decision: &mut Decision) {
    decision.podless = None;
    decision.delete(What::Job, &job.identity);
    let causes = [situation.causes, &[Cause::Retry]].concat();
    let situation = &Situation { causes: &causes, ..*situation };
    start_after(situation, job.attempt.saturating_add(1), After::Other, decision);
}

/// What was last known to keep a Job's pod from its work.
fn remembered(job: &Job, observed: &Observed<'_>) -> Option<String> {
    let (uid, trouble) = observed.memory.trouble.as_ref()?;
    (*uid == job.identity.uid).then(|| trouble.clone())
}

fn await_report(situation: &Situation<'_>, job: &Job, decision: &mut Decision) {
    let Situation { observed, now, .. } = *situation;
    let awaited = observed.memory.report_awaited.as_ref().filter(|(uid, _)| *uid == job.identity.uid);
    let since = awaited.map_or(now, |(_, since)| *since);
    if now.duration_since(since) >= REPORT_WITHIN {
        let failure = Failure::of("the build's pod is gone, and with it the digest of the image", true);
        failed(situation, job, &failure, decision);
        return;
    }
    decision.memory.report_awaited = Some((job.identity.uid.clone(), since));
    decision.look_within(Duration::try_from(REPORT_WITHIN).unwrap_or_default());
    let message = format!("Job {} is still in progress", job.identity.name);
    decision.say(SUBJECT, Status::Unknown, Reason::JobRunning, message);
}

fn finished(wanted: &Wanted<'_>, job: &Job, report: &BuildReport, decision: &mut Decision) {
    let why = &job.causes;
    let from = match wanted.git {
        Some((tree, _)) => {
            let directory = tree.wanted.base_dir.trim_matches('/');
            format!(" {} in /{directory}", short(&tree.commit))
        }
        None => String::new(),
    };
    let message = format!("Job {} finished ({:.1} s: {why}{from})", job.identity.name, report.seconds.max(0.0));
    decision.done(SUBJECT, Status::True, Reason::JobFinished, message);
    decision.record.building = None;
    decision.record.built = Some(Built {
        repository: wanted.repository.push.clone(),
        tag: wanted.recipe.tag.clone(),
        digest: report.digest.clone(),
        dependencies: report.dependencies.clone(),
        inputs: wanted.recipe.inputs.clone(),
    });
    decision.image = Some(image_of(wanted, &report.digest));
}

/// What the container that failed says.
fn ended(end: &End) -> Failure {
    match &end.said {
        Termination::Failed(BuildFailure { reason, message, retry }) => {
            Failure { reason: Some(*reason), message: format!("{reason:?}: {message}"), retry: *retry }
        }
        Termination::Built(_) => Failure::of("the build reported an image and failed all the same", true),
        Termination::Other(log) => {
            let tail = log_tail(log);
            let lines = if tail.is_empty() { String::new() } else { format!("\n{tail}") };
            let (container, code, reason) = (&end.container, end.code, &end.reason);
            Failure::of(&format!("{container} ended with exit code {code} ({reason}){lines}"), true)
        }
    }
}

fn failed(situation: &Situation<'_>, job: &Job, failure: &Failure, decision: &mut Decision) {
    let Situation { wanted, observed, now, .. } = *situation;
    let status = observed.status;
    let known = status.building.as_deref() == Some(&job.tag) && status.builds == Some(job.attempt);
    let at_once = matches!(failure.reason, Some(FailureReason::BranchMoved | FailureReason::PreviousGone));
    let asked = observed.memory.retry_now.as_deref() == Some(&job.identity.name);
    let due = match status.retry_at.as_ref().filter(|_| known) {
        Some(at) => at.0,
        None => now + backoff(wanted.settings.requeue, job.attempt, failure.retry),
    };
    if asked || now >= due || (at_once && job.attempt < AT_ONCE) {
        decision.record.retry_at = status.retry_at.as_ref().filter(|_| known).map(|at| at.0);
        let mut causes = situation.causes.to_vec();
        if !at_once {
            causes.push(Cause::Retry);
        }
        let after =
            if failure.reason == Some(FailureReason::PreviousGone) { After::PreviousGone } else { After::Other };
        let situation = &Situation { causes: &causes, ..*situation };
        start_after(situation, job.attempt.saturating_add(1), after, decision);
        return;
    }
    decision.record.retry_at = Some(due);
    decision.look_within(Duration::try_from(due.duration_since(now)).unwrap_or_default());
    let message = format!(
        "Job {} failed, it will be re-run: {} (attempt {}, the next one at {:.0})",
        job.identity.name, failure.message, job.attempt, due
    );
    decision.say(SUBJECT, Status::False, Reason::JobFailed, message);
}

/// How long a failed build waits before it is tried again.
fn backoff(first: Duration, attempt: i64, retry: bool) -> Duration {
    if !retry {
        return LAST_RETRY;
    }
    Backoff::new(first, LAST_RETRY).delay(u32::try_from(attempt).unwrap_or(u32::MAX))
}

/// What came before an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// The last image was gone: its dependencies are installed anew.
    PreviousGone,
    /// Anything else, or nothing.
    Other,
}

fn start(situation: &Situation<'_>, decision: &mut Decision) {
    let Situation { wanted, observed, .. } = *situation;
    let status = observed.status;
    // The failed Job of an earlier attempt may be gone.
    let known = status.building.as_deref() == Some(&wanted.recipe.tag);
    let last = status.builds.filter(|_| known);
    if let Some(last) = last
        && is_put_back(wanted, observed, last)
    {
        decision.record.building = Some((wanted.recipe.tag.clone(), last));
        return;
    }
    decision.record.building = last.map(|last| (wanted.recipe.tag.clone(), last));
    let attempt = last.map_or(1, |last| last.max(0).saturating_add(1));
    start_after(situation, attempt, After::Other, decision);
}

/// Whether the backward loop is about to create the Job of this attempt again, which somebody deleted.
fn is_put_back(wanted: &Wanted<'_>, observed: &Observed<'_>, attempt: i64) -> bool {
    let build = Build {
        tag: &wanted.recipe.tag,
        attempt,
        causes: &[],
        repository: &wanted.repository.push,
        registry_secret: "",
        from: Origin::ConfigMap(""),
        previous: None,
    };
    let key = What::Job.kind().key(Some(&wanted.function.namespace), &job::name(wanted.function, &build));
    (observed.kept)(&key).is_some()
}

fn start_after(situation: &Situation<'_>, attempt: i64, after: After, decision: &mut Decision) {
    let Situation { wanted, observed, causes, .. } = *situation;
    let image = format!("{}:{}", wanted.repository.push, wanted.recipe.tag);
    let obsolete = observed.family.jobs.iter().filter(|job| job.image != image && !job.identity.terminating);
    let mut any = false;
    for job in obsolete {
        decision.delete(What::Job, &job.identity);
        any = true;
    }
    if any {
        decision.done(SUBJECT, Status::Unknown, Reason::JobsDeleted, "Old Jobs deleted");
    }
    let there = observed.family.jobs.iter().map(|job| &job.identity).collect::<Vec<_>>();
    let previous = previous(wanted, observed, after);
    let config_map = config_map_name(wanted, observed);
    let build = Build {
        tag: &wanted.recipe.tag,
        attempt,
        causes,
        repository: &wanted.repository.push,
        registry_secret: &wanted.repository.secret,
        from: match wanted.git {
            Some((tree, access)) => Origin::Git {
                url: &access.url,
                commit: &tree.head,
                tree: &tree.tree,
                auth: access.secret.as_ref().map(|(kind, secret)| (*kind, secret.as_str())),
            },
            None => Origin::ConfigMap(&config_map),
        },
        previous: previous.as_ref().map(|(image, dependencies)| Previous { image, dependencies }),
    };
    let document = job::build(wanted.function, &build, wanted.settings);
    let again = why_again(situation, attempt, decision);
    // Who may not try anyway takes nobody's place in the queue.
    if !is_held(situation, &document) {
        decision.in_queue = true;
        if let Turn::Wait { position } = (observed.turn)() {
            wait(situation, position, &again, decision);
            return;
        }
    }
    let building = Some((wanted.recipe.tag.clone(), attempt));
    let record = Record { building, retry_at: None, ..decision.record.clone() };
    decision.without_job = Some(Box::new(std::mem::replace(&mut decision.record, record)));
    let said = (SUBJECT, [Reason::JobCreated, Reason::JobUpdated]);
    put(decision, observed, wanted, What::Job, &document, &there, said);
    if let Some(super::Step::Put(put)) = decision.steps.last_mut() {
        put.note = again;
    }
}

/// Whether the Job was refused and is not to be tried yet.
fn is_held(situation: &Situation<'_>, document: &Value) -> bool {
    let Situation { wanted, observed, now, .. } = *situation;
    let Some(job) = super::desired(What::Job, wanted.function, document) else { return false };
    observed.memory.refused.as_ref().is_some_and(|refused| refused.holds(&Write::apply(&job), now).is_some())
}

/// The ConfigMap that the first stage keeps.
fn config_map_name(wanted: &Wanted<'_>, observed: &Observed<'_>) -> String {
    let there = observed.family.config_maps.iter().collect::<Vec<&Identity>>();
    super::one_of(&mut Decision::default(), What::ConfigMap, &there, children::name(wanted.function))
}

/// The last image, if its dependencies may be taken for the next one.
fn previous(wanted: &Wanted<'_>, observed: &Observed<'_>, after: After) -> Option<(String, String)> {
    let built = observed.status.built.as_ref().filter(|_| after != After::PreviousGone)?;
    let (new, old) = (&wanted.recipe.inputs, &built.inputs);
    let same = built.repository == wanted.repository.push && new.runtime == old.runtime && new.base == old.base;
    let usable = same && !built.dependencies.is_empty() && new.requested == old.requested;
    usable.then(|| (format!("{}@{}", built.repository, built.digest), built.dependencies.clone()))
}

fn wait(situation: &Situation<'_>, position: usize, again: &str, decision: &mut Decision) {
    let Situation { wanted, observed, now, .. } = *situation;
    let every = (position as u64).clamp(TELL_QUEUE.0, TELL_QUEUE.1);
    let every = SignedDuration::from_secs(i64::try_from(every).unwrap_or(i64::MAX));
    let told = observed.memory.queue_told.filter(|_| observed.says(SUBJECT, Status::Unknown, Reason::JobQueued));
    let since = told.map(|told| now.duration_since(told));
    if let (Some(since), Some(queue)) = (since.filter(|since| *since < every), observed.status.queue) {
        // Everyone's position changes whenever a build ends: it is told now and then.
        decision.memory.queue_told = told;
        decision.record.queue = usize::try_from(queue).ok();
        decision.look_within(Duration::try_from(every - since).unwrap_or_default());
        return;
    }
    decision.memory.queue_told = Some(now);
    decision.record.queue = Some(position);
    let limit = wanted.settings.max_simultaneous_jobs;
    let message =
        format!("waiting for one of the {limit} builds that may run at the same time; position {position}{again}");
    decision.steps.push(super::Step::Say(Said::new(SUBJECT, Status::Unknown, Reason::JobQueued, message)));
    decision.look_within(Duration::try_from(every).unwrap_or_default());
}
