//! The conditions of a GitSync after an attempt: Ready, Reconciling, Stalled, Healthy, Contended, Drifted, Frozen and
//! Prevented.
//!
//! Not here: the other fields of the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::outcome::{Facts, Outcome};
use super::terminating;
use super::windows::{Freeze, is_in_part};
use mainstay_api::DriftPolicy;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_sync::{DriftReason, Drifted, Failure, GitSyncStatus};
use mainstay_engine::managed::Summary;
use mainstay_engine::prevention::State;
use mainstay_object::failure::Class;
use mainstay_object::{counted, is_event_subscriber, printable, printable_lines, unserved};

/// Message of Ready for a commit from `git://`.
const UNPROTECTED: &str = "git:// is neither encrypted nor authenticated, so use https:// or ssh://, or `verify`";
/// Maximum number of objects in the message of a condition.
const NAMED: usize = 3;

/// The state that remains while the Git server does not respond.
pub(super) struct Kept<'a> {
    /// The applied commit.
    pub(super) applied: Option<&'a str>,
    /// The time since which the repository has not responded, if that is long ago.
    pub(super) silent_since: Option<Timestamp>,
}

/// Whether a status has the condition `Ready` with the status `True`.
pub(super) fn is_ready(status: &GitSyncStatus) -> bool {
    let ready = conditions::status(&status.conditions, Type::Ready);
    ready.is_some_and(|ready| ready.status == "True")
}

/// Returns the message about a commit that waits: the reason, and the end of the wait.
pub(super) fn waits(commit: &str, freeze: &Freeze) -> String {
    let until = freeze.until.map_or_else(
        || "spec.windows never opens (correct it)".to_owned(),
        |until| format!("until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ")),
    );
    format!("commit {commit} is held back: {}, {until}", freeze.by)
}

/// Returns the message about a directory without objects.
pub(super) fn no_manifests(base_dir: &str, left_out: Option<&str>) -> String {
    let why = left_out.unwrap_or("no *.yaml, *.yml or *.json file with an object in it");
    format!("baseDir {} holds no manifest: {why}", printable(base_dir))
}

/// The progress of a commit; see [`Outcome::Applied`].
struct Progress<'a> {
    failures: &'a [(Class, Reason, Failure)],
    guard: Option<&'a str>,
    held: &'a [String],
    pruning: usize,
    note: Option<&'a str>,
    since: Timestamp,
}

impl Progress<'_> {
    /// Returns a progress without failures and held objects.
    fn at(since: Timestamp) -> Self {
        Self { failures: &[], guard: None, held: &[], pruning: 0, note: None, since }
    }
}

/// The next step of a reconciliation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// No further step.
    Done,
    /// The agent continues by itself.
    Retry,
    /// A user has to act.
    User,
}

impl Next {
    /// Returns the next step after a failure.
    fn after(is_final: bool) -> Self {
        if is_final { Self::User } else { Self::Retry }
    }
}

/// The conditions of a status while they are updated.
pub(super) struct Conditions<'a> {
    pub(super) all: &'a mut Vec<Condition>,
    pub(super) generation: Option<i64>,
    pub(super) now: Timestamp,
}

/// Returns the reason of objects that are not healthy in time: that of the first one, which the message names first.
fn timed_out(summary: &Summary) -> Reason {
    match summary.progressing.first.first() {
        Some((key, _)) if is_event_subscriber(key) => Reason::EventsNotDelivered,
        _ => Reason::HealthTimeout,
    }
}

impl Conditions<'_> {
    fn set(&mut self, kind: Type, status: &str, reason: Reason, message: &str) {
        conditions::set(self.all, kind, status, reason, &printable_lines(message), self.generation, self.now);
    }

    fn progress(&mut self, next: Next, reason: Reason, message: &str) {
        for (kind, of) in [(Type::Reconciling, Next::Retry), (Type::Stalled, Next::User)] {
            let (status, message) = if next == of { ("True", message) } else { ("False", "") };
            self.set(kind, status, reason, message);
        }
    }

    pub(super) fn health(&mut self, facts: &Facts<'_>) {
        let summary = facts.summary;
        if let Some((key, why)) = summary.broken.first.first() {
            let message = format!("{key}: {why}{}", and_more(summary.broken.count - 1));
            self.set(Type::Healthy, "False", Reason::ObjectFailed, &message);
        } else if let Some(key) = summary.absent.first.first() {
            let message = format!("{key}: it does not exist{}", and_more(summary.absent.count - 1));
            self.set(Type::Healthy, "False", Reason::ObjectMissing, &message);
        } else if let Some((key, why)) = summary.progressing.first.first() {
            let message = format!("{key}: {why}{}", and_more(summary.progressing.count - 1));
            self.set(Type::Healthy, "Unknown", Reason::Progressing, &message);
        } else {
            let verb = if summary.objects == 1 { "is" } else { "are" };
            let message = format!("{} {verb} healthy", counted(summary.objects, "object"));
            self.set(Type::Healthy, "True", Reason::Healthy, &message);
        }
    }

    pub(super) fn contention(&mut self, summary: &Summary) {
        match summary.contended.first.as_slice() {
            [] => self.set(Type::Contended, "False", Reason::NotContended, ""),
            fought => {
                let named = fought.iter().take(NAMED);
                let text = named
                    .map(|(key, fields, who)| format!("{who} keeps writing to {key}: {}", fields.join(", ")))
                    .collect::<Vec<_>>();
                let message = format!("{}{}", text.join("; "), and_more(summary.contended.count.saturating_sub(NAMED)));
                self.set(Type::Contended, "True", Reason::Contended, &message);
            }
        }
    }

    /// Sets Drifted. Drift that is not reverted does not make the GitSync unready, because the commit was applied.
    pub(super) fn drift(&mut self, facts: &Facts<'_>) {
        let drifted = &facts.summary.drifted;
        if matches!(facts.outcome, Outcome::Suspended { .. }) {
            self.set(
                Type::Drifted,
                "Unknown",
                Reason::Suspended,
                "drift is not detected while the GitSync is suspended",
            );
        } else if facts.drift == DriftPolicy::Ignore {
            self.set(Type::Drifted, "Unknown", Reason::DriftIgnored, "spec.drift is Ignore: drift is not detected");
        } else if drifted.count == 0 {
            self.set(Type::Drifted, "False", Reason::NotDrifted, "");
        } else {
            let named = drifted.first.iter().take(NAMED).map(drift).collect::<Vec<_>>().join("; ");
            let more = and_more(drifted.count.saturating_sub(NAMED));
            let message = format!("{}: {named}{more}", differ(drifted.count));
            self.set(Type::Drifted, "True", Reason::Drifted, &message);
        }
    }

    pub(super) fn freeze(&mut self, facts: &Facts<'_>) {
        if let Outcome::Frozen { commit, freeze, .. } = facts.outcome {
            let ((namespace, name), waits) = (facts.name, waits(commit, freeze));
            let message = format!("{waits}; `mainstay sync {name} -n {namespace} --override-window` applies it now");
            self.set(Type::Frozen, "True", Reason::WindowClosed, &message);
        } else if facts.windows || conditions::status(self.all, Type::Frozen).is_some() {
            self.set(Type::Frozen, "False", Reason::WindowOpen, "");
        }
    }

    /// Sets Prevented, the state of `spec.prevent`. Without that field, the condition is absent.
    pub(super) fn prevention(&mut self, facts: &Facts<'_>) {
        if !facts.prevent {
            self.all.retain(|condition| condition.type_ != Type::Prevented.as_str());
            return;
        }
        let is_suspended = matches!(facts.outcome, Outcome::Suspended { .. });
        let (status, reason, message) = match facts.prevention {
            None if is_suspended => {
                ("False", Reason::Suspended, "hand edits are not refused while the GitSync is suspended".to_owned())
            }
            None => ("Unknown", Reason::Progressing, "nothing was applied yet".to_owned()),
            // A new agent has not seen the policy yet, so True stays.
            Some(State::Pending)
                if conditions::status(self.all, Type::Prevented).is_some_and(|c| c.status == "True") =>
            {
                return;
            }
            Some(State::Pending) => {
                ("Unknown", Reason::Progressing, "the admission policy is being created".to_owned())
            }
            Some(State::Prevented(None)) => ("True", Reason::Prevented, "hand edits are refused".to_owned()),
            Some(State::Prevented(Some(person))) => {
                let what = format!("hand edits are refused, except those of {person}, the user of the agent");
                ("True", Reason::Prevented, what)
            }
            Some(State::NotServed) => {
                let what = "this API server has no ValidatingAdmissionPolicies (Kubernetes has them from 1.30 on)";
                ("False", Reason::NotSupported, format!("{what}, so hand edits are not refused; they are reverted"))
            }
            Some(State::Elsewhere) => {
                let what = "hand edits of objects in another cluster are not refused; they are reverted";
                ("False", Reason::NotSupported, what.to_owned())
            }
            Some(State::NameTaken(name)) => {
                let what =
                    format!("{name} already exists and does not belong to Mainstay, so hand edits are not refused");
                ("False", Reason::NameConflict, format!("{what}; delete it, or give this GitSync a different name"))
            }
            Some(State::Failed(why)) => ("False", Reason::ApplyFailed, format!("hand edits are not refused: {why}")),
        };
        self.set(Type::Prevented, status, reason, &message);
    }

    pub(super) fn suspension(&mut self, facts: &Facts<'_>) {
        if let Outcome::Suspended { until } = facts.outcome {
            let until = until.map(|until| format!(" until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ")));
            let message = format!("suspended{}: nothing is applied and nothing is reverted", until.unwrap_or_default());
            self.set(Type::Suspended, "True", Reason::Suspended, &message);
        } else {
            self.set(Type::Suspended, "False", Reason::NotSuspended, "");
        }
    }

    pub(super) fn ready(&mut self, facts: &Facts<'_>, kept: &Kept<'_>) {
        match facts.outcome {
            // Ready still describes the commit that was applied before.
            Outcome::Suspended { .. } => {
                if conditions::status(self.all, Type::Ready).is_none() {
                    self.set(Type::Ready, "Unknown", Reason::Suspended, "suspended before anything was applied");
                    self.set(Type::Stalled, "False", Reason::Suspended, "");
                }
                self.set(Type::Reconciling, "False", Reason::Suspended, "");
            }
            // Failures of the previous commit remain.
            Outcome::Frozen { .. } if is_in_part(self.all) => {}
            Outcome::Frozen { commit, freeze, since } => {
                let waits = waits(commit, freeze);
                if let Some(applied) = kept.applied {
                    self.applied(facts, applied, &Progress { note: Some(&waits), ..Progress::at(*since) });
                } else {
                    self.set(Type::Ready, "False", Reason::WindowClosed, &waits);
                    self.progress(Next::Done, Reason::WindowClosed, "");
                }
            }
            Outcome::Waiting { commit, on } => {
                let message = format!("commit {commit} waits for {on}");
                self.set(Type::Ready, "False", Reason::DependencyNotReady, &message);
                self.progress(Next::Retry, Reason::DependencyNotReady, &message);
            }
            Outcome::Refused { class, reason, message } => {
                if *class == Class::Unavailable && self.was_applied() {
                    self.while_git_is_away(facts, kept, *reason, message);
                } else {
                    self.set(Type::Ready, "False", *reason, message);
                }
                self.progress(Next::after(*class == Class::Invalid), *reason, message);
            }
            Outcome::Applied { failures, guard, held, pruning, note, since, .. } => {
                let part = Progress {
                    failures,
                    guard: guard.as_deref(),
                    held,
                    pruning: *pruning,
                    note: note.as_deref(),
                    since: *since,
                };
                self.applied(facts, facts.attempted.unwrap_or_default(), &part);
            }
        }
    }

    /// Whether Ready describes applied objects, not a failure to apply them.
    fn was_applied(&self) -> bool {
        conditions::status(self.all, Type::Ready).is_some_and(|ready| {
            ready.status == "True"
                || ready.reason == Reason::RevertFailed.as_str()
                || (ready.status == "Unknown" && ready.reason == Reason::SourceUnavailable.as_str())
        })
    }

    /// A temporary failure of Git does not invalidate applied objects, so Ready stays. After a long outage Ready
    /// becomes Unknown.
    fn while_git_is_away(&mut self, facts: &Facts<'_>, kept: &Kept<'_>, reason: Reason, message: &str) {
        let commit = kept.applied.unwrap_or_default();
        if let Some(message) = not_put_back(facts.summary) {
            self.set(Type::Ready, "False", Reason::RevertFailed, &message);
        } else if let Some(since) = kept.silent_since {
            let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
            let message =
                format!("the repository has not responded since {since}; commit {commit} is kept applied: {message}");
            self.set(Type::Ready, "Unknown", reason, &message);
        } else if conditions::status(self.all, Type::Ready).is_some_and(|ready| ready.status != "True") {
            self.set(Type::Ready, "True", Reason::Applied, &format!("applied commit {commit}"));
        }
    }

    fn applied(&mut self, facts: &Facts<'_>, commit: &str, part: &Progress<'_>) {
        if self.failed(facts, commit, part) {
            return;
        }
        let deleting = facts.terminating.and_then(terminating::named);
        let (applied_reason, message) = applied_text(facts, commit, part, deleting.as_deref());
        let Some(timeout) = facts.wait.filter(|_| facts.summary.waits_for_health()) else {
            self.set(Type::Ready, "True", applied_reason, &message);
            let waits = deleting.unwrap_or_else(|| "waiting for deletions to finish".to_owned());
            self.progress(if part.pruning > 0 { Next::Retry } else { Next::Done }, Reason::Applied, &waits);
            return;
        };
        if let Some((key, why)) = facts.summary.broken.first.first() {
            let message = format!("{message}; {key} failed: {why}");
            self.set(Type::Ready, "False", Reason::ObjectFailed, &message);
            self.progress(Next::Retry, Reason::ObjectFailed, &message);
        } else if self.now.duration_since(part.since).unsigned_abs() > timeout {
            let message = format!("{message}; not healthy within the timeout: {}", progressing(facts.summary));
            let reason = timed_out(facts.summary);
            self.set(Type::Ready, "False", reason, &message);
            self.progress(Next::Retry, reason, &message);
        } else {
            let message = format!("{message}; waiting for {}", progressing(facts.summary));
            self.set(Type::Ready, "Unknown", Reason::Progressing, &message);
            self.progress(Next::Retry, Reason::Progressing, &message);
        }
    }

    /// Sets the conditions of a commit that is not applied in full. Returns whether they are set.
    fn failed(&mut self, facts: &Facts<'_>, commit: &str, part: &Progress<'_>) -> bool {
        let failures = part.failures;
        if let Some((_, reason, _)) = failures.first() {
            let named = failures.iter().take(NAMED);
            let text = named.map(|(_, _, f)| format!("{}: {}", f.object, f.message)).collect::<Vec<_>>().join("; ");
            let more = and_more(failures.len().saturating_sub(NAMED));
            let message = format!("{} of the objects failed: {text}{more}", failures.len());
            let stalled = failures.iter().all(|(class, _, _)| *class == Class::Invalid);
            self.set(Type::Ready, "False", *reason, &message);
            self.progress(Next::after(stalled), *reason, &message);
            return true;
        }
        if let Some(message) = not_put_back(facts.summary) {
            self.set(Type::Ready, "False", Reason::RevertFailed, &message);
            self.progress(Next::after(facts.summary.needs_removal), Reason::RevertFailed, &message);
            return true;
        }
        if let Some(guard) = part.guard {
            let guard = match facts.refused_permission {
                Some(problem) => format!("{guard}. {problem}"),
                None => guard.to_owned(),
            };
            let guard = &*guard;
            self.set(Type::Ready, "False", Reason::PruneHeld, guard);
            self.progress(Next::User, Reason::PruneHeld, guard);
            return true;
        }
        if let Some((resource, why)) = facts.summary.unwatched.first() {
            let more = and_more(facts.summary.unwatched.len() - 1);
            let message = format!(
                "applied commit {commit}, but {resource} cannot be watched{more}, so changes to them are not seen: {why}"
            );
            self.set(Type::Ready, "False", Reason::WatchFailed, &message);
            // A kind of Flux is not served again after Flux was removed: a user removes the manifests.
            let is_gone = |(resource, why): &(String, String)| {
                unserved::is_of_flux(resource) && why.contains(unserved::NOT_SERVED)
            };
            let next = Next::after(facts.summary.unwatched.iter().all(is_gone));
            self.progress(next, Reason::WatchFailed, &message);
            return true;
        }
        false
    }
}

/// Returns reason and message of Ready for an applied commit.
fn applied_text(facts: &Facts<'_>, commit: &str, part: &Progress<'_>, deleting: Option<&str>) -> (Reason, String) {
    let Progress { held, pruning, note, .. } = *part;
    let is_empty = facts.summary.objects == 0 && held.is_empty() && pruning == 0;
    let kept = (!held.is_empty()).then(|| match held.len() {
        1 => "1 removed object is kept".to_owned(),
        held => format!("{held} removed objects are kept"),
    });
    let texts = [
        Some(format!("applied commit {commit}")),
        is_empty.then(|| no_manifests(facts.base_dir, facts.left_out)),
        note.map(str::to_owned),
        facts.unprotected.then(|| UNPROTECTED.to_owned()),
        kept,
        drifted(facts),
        deleting.map(str::to_owned),
        facts.refused_permission.map(str::to_owned),
    ];
    let reason = if is_empty { Reason::NoManifests } else { Reason::Applied };
    (reason, texts.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// Returns a text about changed objects that could not be reverted; `None` if there are none.
fn not_put_back(summary: &Summary) -> Option<String> {
    let all = &summary.not_put_back;
    let named = all.first.iter().take(NAMED).map(|(key, why)| format!("{key}: {why}")).collect::<Vec<_>>();
    let more = and_more(all.count.saturating_sub(NAMED));
    (all.count > 0).then(|| format!("{} of the objects cannot be reverted: {}{more}", all.count, named.join("; ")))
}

/// Returns the message of Ready about remaining drift.
fn drifted(facts: &Facts<'_>) -> Option<String> {
    let count = facts.summary.drifted.count;
    (count > 0 && facts.looks_for_drift()).then(|| differ(count))
}

fn differ(count: usize) -> String {
    let (objects, differ) = if count == 1 { ("object", "differs") } else { ("objects", "differ") };
    format!("{count} {objects} {differ} from the repository")
}

/// Returns the differences of an object, and why they remain.
fn drift(drifted: &Drifted) -> String {
    let Drifted { object, fields, reason, next_attempt, .. } = drifted;
    let what = match fields.as_slice() {
        _ if drifted.is_absent() => " does not exist".to_owned(),
        [] => String::new(),
        fields => format!(" in {}", fields.join(", ")),
    };
    let why = match reason {
        DriftReason::Report => "spec.drift is Report",
        DriftReason::Paused => "it is paused",
        DriftReason::Backoff => "another client keeps changing it",
        DriftReason::RevertFailed => "it could not be reverted",
        DriftReason::Unread => "the repository could not be read while this object was as in Git",
    };
    let next = next_attempt.as_ref().map(|at| format!(", next attempt at {}", at.0.strftime("%Y-%m-%dT%H:%M:%SZ")));
    format!("{object}{what} ({why}{})", next.unwrap_or_default())
}

fn progressing(summary: &Summary) -> String {
    let named = summary.progressing.first.iter().take(NAMED);
    let text = named.map(|(key, why)| format!("{key} ({why})")).collect::<Vec<_>>().join(", ");
    format!("{text}{}", and_more(summary.progressing.count.saturating_sub(NAMED)))
}

fn and_more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" and {count} more") }
}
