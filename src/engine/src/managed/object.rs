//! One managed object: what it must be, what was last applied to it, what was seen of it, and what is done about it.
//!
//! Five fields stay beside the phase, because each changes independently of it and of the others: failures and the revert
//! backoff outlast a break glass, drift may have been reported whether or not a later report fails, drift remains under
//! break glass as well as in a backoff, and an object that lost
//! our label is followed by name under break glass as well as while it is being deleted.
//!
//! Deliberately absent: which objects are managed, and for whom (the store's), and which event leads to what (`events`).

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

/// Failed attempts from which on a revert that fails is reported: a single failure is over before anybody reads of it.
pub(crate) const REMARKABLE: u32 = 2;

/// Who watches an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// We do, by its label.
    ByUs,
    /// Its owner does.
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

/// Why an object is not as it must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NotPutBack {
    /// It was only to be reported.
    pub(crate) reports: bool,
    /// The field paths.
    pub(crate) fields: Vec<String>,
    /// What the server said, redacted.
    pub(crate) cause: String,
    /// What to do about it, where that is known.
    pub(crate) advice: Option<String>,
    /// What is the same in it every time.
    pub(crate) ground: Ground,
}

impl NotPutBack {
    /// Whether nobody would learn anything from it after the other.
    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        let is_same_advice = self.advice == other.advice;
        is_same_advice && self.reports == other.reports && self.fields == other.fields && self.ground == other.ground
    }

    /// What to do about it, and what the server said.
    pub(crate) fn text(&self) -> String {
        self.advice.as_ref().map_or_else(|| self.cause.clone(), |advice| format!("{advice}: {}", self.cause))
    }
}

/// What the server's answer to an apply says, as far as it is remembered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) last_applied: LastApplied,
    pub(crate) health: Health,
    pub(crate) is_at_zero: bool,
    pub(crate) ended: Option<Ended>,
    /// `spec.replicas` was sent.
    pub(crate) sent_replicas: bool,
    /// The document sets `spec.replicas`, and they were left out.
    pub(crate) left_out_replicas: bool,
}

impl Answered {
    /// What `answer` says to `sent`; how healthy the object is, by the rules of its owner, if that has any.
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

/// What is known of writes to an object that failed, until one succeeds.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pub(crate) reverts: Option<FailedReverts>,
    /// Attempts to make way for it that did not help.
    pub(crate) futile: Option<Futile>,
}

/// Reverts and reports in a row that failed.
#[derive(Debug)]
pub(crate) struct FailedReverts {
    /// The last one.
    pub(crate) failure: NotPutBack,
    /// How many.
    pub(crate) attempts: u32,
    /// The next one does not begin before.
    pub(crate) not_before: Option<Instant>,
}

/// An object that was reverted lately.
#[derive(Debug, Default)]
pub(crate) struct Damping {
    /// How long the next revert waits.
    pub(crate) backoff: RevertBackoff,
    /// The fields that somebody keeps writing to, and who.
    pub(crate) contended: Option<(Vec<String>, String)>,
}

/// One managed object.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) owner: Owner,
    pub(crate) desired: Arc<Desired>,
    pub(crate) applied: ApplyState,
    /// What is created when the object is gone, where that is something else than it was last applied as: its update was
    /// refused because of a field that cannot be changed.
    pub(crate) successor: Option<Arc<Desired>>,
    pub(crate) health: Health,
    /// The object was last seen scaled to 0.
    pub(crate) is_at_zero: bool,
    /// How the object ended with what was last applied to it: it is not reverted when it is gone.
    pub(crate) ended: Option<Ended>,
    /// An object, by its UID, that was seen at its end while a write was under way.
    pub(crate) ended_meanwhile: Option<(Box<str>, Ended)>,
    /// What is done about it.
    pub(crate) phase: Phase,
    /// The object is watched by name, since it lost our label; that ends when this is dropped.
    pub(crate) followed: Option<DropGuard>,
    pub(crate) write: Write,
    /// Fields of former appliers that became ours and that no apply has removed yet.
    pub(crate) takeover: Option<Arc<Taken>>,
    pub(crate) failing: Option<Box<Failing>>,
    pub(crate) damping: Option<Box<Damping>>,
    /// Digest of the drift that was reported and left.
    pub(crate) reported: Option<Option<Digest>>,
    /// How it differs, where that is not reverted at once.
    pub(crate) drift: Option<Box<RemainingDrift>>,
    /// It was read, and was not there.
    pub(crate) is_absent: bool,
}

/// Why an object is not known to be healthy that no watch has shown since the agent started.
const UNSEEN: &str = "not seen yet";

impl Managed {
    /// Whether nothing is known of its health, because no watch has shown it since the agent started.
    pub(super) fn is_unseen(&self) -> bool {
        matches!(&self.health, Health::Progressing(why) if why == UNSEEN)
    }

    /// One that is kept from now on; reverts that were put on the queue with another generation than this do not count.
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
            followed: None,
            write: Write::idle(generation),
            takeover: None,
            failing: None,
            damping: None,
            reported: None,
            drift: None,
            is_absent: false,
        }
    }

    /// Whether it was last seen to be gone, and is to be created as something else than it was: for a commit, whatever is
    /// done about drift.
    pub(crate) fn is_to_succeed(&self) -> bool {
        self.successor.is_some() && self.write.pending().is_some_and(|seen| seen.live.is_none())
    }

    /// Whether it is its own owner: a GitSync that manages itself. It does not wait for itself to be healthy: its own
    /// condition says that it waits, and would for ever.
    pub(crate) fn is_owner(&self) -> bool {
        let key = &self.desired.key;
        key.is("mainstay.dev", "GitSync") && *key == self.owner.key()
    }

    /// What is seen of the object may say how it ended. Whether that is new.
    /// What ended once does not go on, so nothing that is seen later takes that back.
    pub(crate) fn note_end(&mut self, live: &Value) -> bool {
        let Some(ended) = self.desired.ended(live) else { return false };
        if self.write.is_in_flight() {
            // It may be what the write makes of it, which its answer says.
            self.ended_meanwhile = Some((verdict::uid(live).into(), ended));
        }
        let is_of_another = !self.last_uid().is_empty() && self.last_uid() != verdict::uid(live);
        if !self.is_applied() || is_of_another || self.applied.is_newer_than(resource_version(live)) {
            return false;
        }
        self.ended.replace(ended) != Some(ended)
    }

    /// The object is gone. Whether it stays so, for it had ended with what is desired.
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

    /// Whether it was ever applied, by this agent or an earlier one.
    pub(crate) fn is_applied(&self) -> bool {
        self.applied.last().is_some()
    }

    /// Whether something else than `desired` may have been applied last: by an earlier agent, or by a write without an
    /// answer.
    pub(crate) fn may_differ_from_desired(&self) -> bool {
        self.applied.is_outdated() || self.applied.last().is_none_or(|last| last.uid.is_empty())
    }

    /// The UID of the live object, if it is another one than was last applied to.
    pub(crate) fn other_uid(&self, live: &Value) -> Option<String> {
        let uid = verdict::uid(live);
        (self.last_uid() != uid).then(|| uid.to_owned())
    }

    /// The UID of the object that was last applied to; empty when not known.
    pub(crate) fn last_uid(&self) -> &str {
        self.applied.last().map_or("", |last| &*last.uid)
    }

    /// Whether it counts what is seen of it, now or once the first write of it is answered.
    pub(crate) fn is_expected(&self) -> bool {
        !self.phase.is_leaving() && (self.is_applied() || self.write.is_in_flight())
    }

    pub(crate) fn is_of(&self, kind: &mainstay_cluster::Kind) -> bool {
        let own = &self.desired.kind;
        own.kind == kind.kind && own.group == kind.group && own.version == kind.version
    }

    /// Forgets the revert backoff if it has expired; when to look at it again, if it has not.
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

    /// The last revert or report that failed, if none has succeeded since.
    pub(crate) fn failure(&self) -> Option<&NotPutBack> {
        Some(&self.failing.as_ref()?.reverts.as_ref()?.failure)
    }

    /// How many reverts or reports failed in a row.
    pub(crate) fn attempts(&self) -> u32 {
        self.failing.as_ref().and_then(|failing| failing.reverts.as_ref()).map_or(0, |reverts| reverts.attempts)
    }

    /// What is known of failed writes, to be changed.
    pub(crate) fn failing(&mut self) -> &mut Failing {
        self.failing.get_or_insert_default()
    }

    /// A write succeeded: what failed before does not count any more.
    pub(crate) fn succeeded(&mut self) {
        self.failing = None;
    }

    /// The object has to be read: nothing says what it is now.
    pub(crate) fn lose_sight(&mut self, version: Option<&str>, at: Instant, policy: &Policy) -> Next {
        let seen = Seen { live: None, gone_at: version.map(Into::into), at };
        let Some(seen) = self.write.defer(seen) else { return Next::Nothing };
        match policy.drift {
            _ if policy.suspended => Next::Nothing,
            DriftPolicy::Ignore if !self.applied.is_outdated() && self.successor.is_none() => Next::Nothing,
            _ => self.write.enqueue(seen, 0),
        }
    }
}
