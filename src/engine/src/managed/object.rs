//! One managed object: its desired state, its last apply, its seen state, and its phase.
//!
//! Some fields are not part of the phase, because they change independently of it. Failures and the revert backoff
//! outlast a pause. Drift may be reported before a later report fails. Drift remains during a pause as well as during a
//! backoff. An object without Mainstay's label is watched by name while it is paused or terminating, or while its drift
//! is only reported.
//!
//! Not here: the set of managed objects and their owners (`store`), and the consequences of events (`events`).

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use tokio_util::sync::DropGuard;

use super::account::Policy;
use super::adoption::Taken;
use super::apply_state::ApplyState;
use super::attempts::{Futile, Ground};
use super::autoscaler::is_at_zero;
use super::desired::{Desired, Mark};
use super::health_rules::{self, HealthRules};
use super::pending::{Next, Seen, Write};
use super::phase::Phase;
use super::projection;
use super::remaining::RemainingDrift;
use super::revert_backoff::RevertBackoff;
use super::verdict::{self, LastApplied, resource_version};
use mainstay_api::DriftPolicy;
use mainstay_object::{Digest, Ended, Health, Owner};

/// Number of failed attempts from which on a failing revert is reported. Most single failures are over before a user
/// reads them.
pub(crate) const REMARKABLE: u32 = 2;

/// The task that watches an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// The drift loop, by the object's label.
    ByUs,
    /// The owner of the object.
    ByOwner,
}

impl Watched {
    pub(crate) fn by(mark: &Mark) -> Self {
        match mark {
            Mark::Label(_) => Self::ByUs,
            Mark::Controller { .. } => Self::ByOwner,
        }
    }
}

/// A failed revert or report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotPutBack {
    /// Whether a report failed, not a revert.
    pub(crate) reports: bool,
    /// Paths of the fields that were not reverted.
    pub(crate) fields: Vec<String>,
    /// The error of the server, redacted.
    pub(crate) cause: String,
    /// The remedy, if it is known.
    pub(crate) advice: Option<String>,
    /// The stable part of the error.
    pub(crate) ground: Ground,
}

impl NotPutBack {
    /// Whether this is the same failure as `other` and is not reported again.
    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        let is_same_advice = self.advice == other.advice;
        is_same_advice && self.reports == other.reports && self.fields == other.fields && self.ground == other.ground
    }

    /// Returns the remedy and the error of the server.
    pub(crate) fn text(&self) -> String {
        self.advice.as_ref().map_or_else(|| self.cause.clone(), |advice| format!("{advice}: {}", self.cause))
    }
}

/// The stored part of the server's response to an apply.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) last_applied: LastApplied,
    pub(crate) health: Health,
    pub(crate) is_at_zero: bool,
    pub(crate) ended: Option<Ended>,
    /// Whether `spec.replicas` was sent.
    pub(crate) sent_replicas: bool,
    /// Whether `spec.replicas` of the document was omitted.
    pub(crate) left_out_replicas: bool,
}

impl Answered {
    /// Reads the response to an apply of `sent`. The owner's health rules take precedence, if there are any.
    pub(crate) fn of(desired: &Desired, answer: &Value, sent: &Value, rules: Option<&HealthRules>) -> Self {
        let (view, sent) = (desired.view(answer), desired.without_ignored(sent));
        let empty_containers = projection::empty_containers(&view, &sent);
        let sent_replicas = desired.sets_replicas(&sent);
        Self {
            health: health_rules::health(rules, &desired.key, &desired.object, answer),
            is_at_zero: is_at_zero(answer),
            ended: desired.ended(answer),
            sent_replicas,
            left_out_replicas: desired.is_scalable() && !sent_replicas && desired.sets_replicas(&desired.body()),
            last_applied: LastApplied {
                uid: verdict::uid(answer).into(),
                resource_version: resource_version(answer).into(),
                digest: projection::digest(&view, &empty_containers),
                empty_containers,
            },
        }
    }
}

/// Failed writes of an object since the last success.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) reverts: Option<FailedReverts>,
    /// Attempts to resolve a collision that were futile.
    pub(crate) futile: Option<Futile>,
}

/// Consecutive failed reverts and reports.
#[derive(Debug)]
pub(crate) struct FailedReverts {
    /// The last failure.
    pub(crate) failure: NotPutBack,
    /// Number of failures.
    pub(crate) attempts: u32,
    /// Earliest time of the next attempt.
    pub(crate) not_before: Option<Instant>,
}

/// The damping of an object that was reverted recently.
#[derive(Debug, Default)]
pub(crate) struct Damping {
    /// The backoff of the next revert.
    pub(crate) backoff: RevertBackoff,
    /// The fields that another manager keeps changing, and the name of that manager.
    pub(crate) contended: Option<(Vec<String>, String)>,
}

/// One managed object.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) owner: Owner,
    pub(crate) desired: Arc<Desired>,
    pub(crate) applied: ApplyState,
    /// The desired state with which the object is recreated when it is gone, if it differs from `desired`: an update to
    /// it was refused because of an immutable field.
    pub(crate) successor: Option<Arc<Desired>>,
    pub(crate) health: Health,
    /// Whether the object was last seen scaled to 0.
    pub(crate) is_at_zero: bool,
    /// How the object ended after its last apply. Such an object is not recreated when it is gone.
    pub(crate) ended: Option<Ended>,
    /// The UID of an object that ended during a write, and how it ended.
    pub(crate) ended_meanwhile: Option<(Box<str>, Ended)>,
    pub(crate) phase: Phase,
    /// The entry of a confined owner that has the object applied, until an apply for this unconfined owner succeeds. After
    /// a refusal, it takes its place in the store again.
    pub(crate) outranked: Option<Box<Managed>>,
    /// Watches the object by name because it lost Mainstay's label. The watch ends when this guard is dropped.
    pub(crate) followed: Option<DropGuard>,
    pub(crate) write: Write,
    /// Fields of former appliers that Mainstay took over and that no apply has removed yet.
    pub(crate) takeover: Option<Arc<Taken>>,
    pub(crate) failing: Option<Box<Failing>>,
    pub(crate) damping: Option<Box<Damping>>,
    /// Digest of the drift that was only reported.
    pub(crate) reported: Option<Option<Digest>>,
    /// Drift that is not reverted immediately.
    pub(crate) drift: Option<Box<RemainingDrift>>,
    /// Whether the object was read and did not exist.
    pub(crate) is_absent: bool,
    /// The resource version at which the object was gone, if that is a number. Until a newer state or a response, older
    /// states are ignored: a list may be older than the deletion.
    ///
    /// Invariant: it does not outlast a complete list with which the server's versions went back (`restored`).
    pub(crate) gone_at: Option<u64>,
    /// The resource version of the last state that could not be parsed and was announced.
    pub(crate) unreadable: Option<Box<str>>,
    /// Whether a watch, a list or a response has shown the object since the agent manages it, also a state whose check
    /// panicked, that waits for a write, or that cannot be parsed. Changes of its owner's policy or health rules, and a
    /// restored server, require it to be shown again.
    pub(crate) is_shown: bool,
    /// Whether the pause or the reported drift of the object may be that of the recalled status.
    pub(crate) may_be_recalled: bool,
}

/// The health of an object that no watch has shown since the agent started.
const UNSEEN: &str = "not seen yet";

impl Managed {
    /// Whether no watch has shown the health of the object since the agent started.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(&self.health, Health::Progressing(why) if why == UNSEEN)
    }

    /// Returns a new object. Queued reverts of another generation are outdated.
    pub(crate) fn new(owner: &Owner, desired: Arc<Desired>, last_applied: LastApplied, generation: u32) -> Self {
        Self {
            owner: owner.clone(),
            desired,
            applied: ApplyState::known(last_applied),
            successor: None,
            health: Health::Progressing(UNSEEN.into()),
            is_at_zero: false,
            ended: None,
            ended_meanwhile: None,
            phase: Phase::Kept,
            outranked: None,
            followed: None,
            write: Write::idle(generation),
            takeover: None,
            failing: None,
            damping: None,
            reported: None,
            drift: None,
            is_absent: false,
            gone_at: None,
            unreadable: None,
            is_shown: false,
            may_be_recalled: true,
        }
    }

    /// Whether the object is gone and is recreated with a different desired state. A commit caused this, so the drift
    /// policy does not apply. It applies to an object that only has to be read.
    pub(crate) fn is_to_succeed(&self) -> bool {
        self.successor.is_some() && self.write.pending().is_some_and(|seen| seen.gone_at.is_some())
    }

    /// Whether the object is its own owner: a GitSync that manages itself. Its health is not awaited, because its
    /// condition would wait for itself forever.
    pub(crate) fn is_owner(&self) -> bool {
        let key = &self.desired.key;
        key.is("mainstay.dev", "GitSync") && *key == self.owner.key()
    }

    /// Records how the object ended, if it did. Returns whether that is new. An end is final, so later states do not
    /// change it.
    pub(crate) fn note_end(&mut self, live: &Value) -> bool {
        let Some(ended) = self.desired.ended(live) else { return false };
        if self.write.is_in_flight() {
            // The state may be the result of the write in flight; then the response to the write shows the end, too.
            self.ended_meanwhile = Some((verdict::uid(live).into(), ended));
        }
        let is_of_another = !self.last_uid().is_empty() && self.last_uid() != verdict::uid(live);
        if !self.is_applied() || is_of_another || self.applied.is_newer_than(resource_version(live)) {
            return false;
        }
        self.ended.replace(ended) != Some(ended)
    }

    /// Handles the deletion of the object. Returns whether it is not recreated, because it had ended in its desired
    /// state.
    pub(crate) fn stays_absent(&mut self) -> bool {
        let is_desired = !self.applied.is_outdated() && self.successor.is_none();
        let Some(ended) = self.ended.filter(|_| is_desired) else { return false };
        self.health = match (ended, &self.health) {
            (Ended::Succeeded, _) => Health::Healthy,
            (Ended::Failed, Health::Failed(why)) => Health::Failed(why.clone()),
            (Ended::Failed, _) => Health::Failed("it failed, and is gone".into()),
        };
        self.reported = None;
        self.drift = None;
        self.succeeded();
        true
    }

    /// Whether the object was ever applied, by this agent or an earlier one.
    pub(crate) fn is_applied(&self) -> bool {
        self.applied.last().is_some()
    }

    /// Whether the last apply may differ from `desired`: an earlier agent made it, or a later write got no response.
    pub(crate) fn may_differ_from_desired(&self) -> bool {
        self.applied.is_outdated() || self.applied.last().is_none_or(|last| last.uid.is_empty())
    }

    /// Returns the UID of the live object if it differs from that of the last apply.
    pub(crate) fn other_uid(&self, live: &Value) -> Option<String> {
        let uid = verdict::uid(live);
        (self.last_uid() != uid).then(|| uid.to_owned())
    }

    /// Returns the UID of the last apply; empty if unknown.
    pub(crate) fn last_uid(&self) -> &str {
        self.applied.last().map_or("", |last| &*last.uid)
    }

    /// Whether live states of the object matter, now or after the response to its first write.
    pub(crate) fn is_expected(&self) -> bool {
        !self.phase.is_leaving() && (self.is_applied() || self.write.is_in_flight())
    }

    pub(crate) fn is_of(&self, kind: &mainstay_cluster::Kind) -> bool {
        let own = &self.desired.kind;
        own.kind == kind.kind && own.group == kind.group && own.version == kind.version
    }

    /// Removes an expired revert backoff. Otherwise returns the time of its next change.
    pub(crate) fn expire_backoff(&mut self, clock: f64) -> Option<f64> {
        let damping = self.damping.as_mut()?;
        if !damping.backoff.update_contended(clock) {
            damping.contended = None;
        }
        if damping.backoff.is_expired(clock) {
            self.damping = None;
        }
        self.damping.as_ref().map(|damping| damping.backoff.next_change())
    }

    /// Returns the last failed revert or report, if none has succeeded since.
    pub(crate) fn failure(&self) -> Option<&NotPutBack> {
        Some(&self.failing.as_ref()?.reverts.as_ref()?.failure)
    }

    /// Returns the number of consecutive failed reverts or reports.
    pub(crate) fn attempts(&self) -> u32 {
        self.failing.as_ref().and_then(|failing| failing.reverts.as_ref()).map_or(0, |reverts| reverts.attempts)
    }

    /// Returns the failures, mutable.
    pub(crate) fn failing(&mut self) -> &mut Failing {
        self.failing.get_or_insert_default()
    }

    /// Removes the failures after a successful write.
    pub(crate) fn succeeded(&mut self) {
        self.failing = None;
    }

    /// Queues the object to be read, because its state is unknown.
    pub(crate) fn lose_sight(&mut self, version: Option<&str>, at: Instant, policy: &Policy) -> Next {
        let seen = Seen::gone(version, at);
        let Some(seen) = self.write.defer(seen) else { return Next::Nothing };
        match policy.drift {
            _ if policy.suspended => Next::Nothing,
            // A paused object is read, because its pause may be over.
            DriftPolicy::Ignore
                if !self.applied.is_outdated() && self.successor.is_none() && self.phase.pause().is_none() =>
            {
                Next::Nothing
            }
            _ => self.write.enqueue(seen, 0),
        }
    }

    /// Ends the pause of an object that may have drifted. Drift that was reported before the pause is reported again.
    /// Returns whether there was a pause.
    pub(crate) fn resume(&mut self) -> bool {
        let was_paused = self.phase.end_pause();
        if was_paused {
            self.reported = None;
        }
        was_paused
    }
}
