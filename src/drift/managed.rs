//! One managed object: what it must be, what was verified of it, and what was seen of it that waits to be acted on.
//!
//! Deliberately absent: which objects are managed, and for whom; that is the ledger's.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;
use tokio_util::sync::DropGuard;

use super::attempts::{Futile, Ground};
use super::autoscaler::{Autoscaler, is_at_zero};
use super::decide::{self, Reason, Verdict, Verified, decide, resource_version};
use super::desired::{Desired, Mark, Owner};
use super::heat::Heat;
use super::ledger::Policy;
use super::projection;
use crate::api::DriftPolicy;
use crate::object::{Digest, Health};

/// Largest state, in bytes, of which many may wait.
pub(super) const SMALL: usize = 8 << 10;

/// From which try on a revert that fails is told: what fails once only is over sooner than anybody can read of it.
pub(super) const REMARKABLE: u32 = 2;

/// Who watches an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// We do, by its label.
    ByUs,
    /// Its owner does.
    ByOwner,
}

impl Watched {
    pub(super) fn by(mark: &Mark) -> Self {
        match mark {
            Mark::Label(_) => Self::ByUs,
            Mark::Controller { .. } => Self::ByOwner,
        }
    }
}

/// Something that was seen of an object and waits to be acted on.
#[derive(Debug)]
pub(super) struct Seen {
    /// The object as it was seen; `None` when it vanished from the watch, or is to be read again.
    pub(super) live: Option<Sight>,
    /// At which resource version it was not there; `None` when it has to be read whatever is known of it by then.
    pub(super) gone_at: Option<Box<str>>,
    /// When.
    pub(super) at: Instant,
}

/// A live object that waits to be acted on. Hundreds of them may wait: one that is small, or next, is kept as it is; the
/// others as compact JSON, which is several times smaller.
pub(super) enum Sight {
    Whole(Value),
    Json(Box<[u8]>),
}

impl Sight {
    /// What is small stays as it is.
    pub(super) fn of(live: Value) -> Option<Self> {
        if is_light(&live, &mut { SMALL }) { Some(Self::Whole(live)) } else { Self::json(&live) }
    }

    fn json(live: &Value) -> Option<Self> {
        serde_json::to_vec(live).ok().map(|json| Self::Json(json.into()))
    }

    pub(super) fn value(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Whole(value) => Some(Cow::Borrowed(value)),
            Self::Json(json) => serde_json::from_slice(json).ok().map(Cow::Owned),
        }
    }

    pub(super) fn into_value(self) -> Option<Value> {
        match self {
            Self::Whole(value) => Some(value),
            Self::Json(json) => serde_json::from_slice(&json).ok(),
        }
    }

    /// The same as JSON, if it has at most so many bytes.
    pub(super) fn within(self, bytes: usize) -> Option<Self> {
        let sight = match self {
            Self::Whole(value) => Self::json(&value)?,
            json @ Self::Json(_) => json,
        };
        (sight.size() <= bytes).then_some(sight)
    }

    /// In bytes; what is kept as it is is small.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Whole(_) => SMALL,
            Self::Json(json) => json.len(),
        }
    }
}

/// Whether a value takes less than so much memory; what is left of it.
fn is_light(value: &Value, left: &mut usize) -> bool {
    let own = match value {
        Value::String(text) => text.len(),
        _ => 0,
    };
    let Some(rest) = left.checked_sub(own + size_of::<Value>()) else { return false };
    *left = rest;
    match value {
        Value::Array(items) => items.iter().all(|item| is_light(item, left)),
        Value::Object(fields) => fields.iter().all(|(name, field)| {
            *left = left.saturating_sub(name.len() + size_of::<String>());
            is_light(field, left)
        }),
        _ => true,
    }
}

/// It may be a Secret.
impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sight({} bytes)", self.size())
    }
}

impl Seen {
    pub(super) fn of(live: Value, at: Instant) -> Self {
        Self { live: Sight::of(live), gone_at: None, at }
    }
}

/// Why an object is not as it must be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NotPutBack {
    /// It was only to be reported.
    pub(super) reports: bool,
    /// The field paths.
    pub(super) fields: Vec<String>,
    /// What the server said, redacted.
    pub(super) cause: String,
    /// What is the same in it every time.
    pub(super) ground: Ground,
}

impl NotPutBack {
    /// Whether nobody would learn anything from it after the other.
    pub(super) fn is_the_same(&self, other: &Self) -> bool {
        self.reports == other.reports && self.fields == other.fields && self.ground == other.ground
    }
}

/// What the server's answer to an apply says, as far as it is remembered.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) verified: Verified,
    pub(super) health: Health,
    pub(super) is_at_zero: bool,
    /// `spec.replicas` was sent.
    pub(super) sent_replicas: bool,
    /// The document sets `spec.replicas`, and they were left out.
    pub(super) left_out_replicas: bool,
}

impl Answered {
    /// What `answer` says to `sent`.
    pub(super) fn of(desired: &Desired, answer: &Value, sent: &Value) -> Self {
        let emptied = projection::emptied(answer, sent);
        let sent_replicas = desired.sets_replicas(sent);
        Self {
            health: crate::object::health(&desired.key, answer),
            is_at_zero: is_at_zero(answer),
            sent_replicas,
            left_out_replicas: desired.is_scalable() && !sent_replicas && desired.sets_replicas(&desired.body()),
            verified: Verified {
                uid: decide::uid(answer).into(),
                resource_version: resource_version(answer).into(),
                digest: projection::digest(answer, &emptied),
                emptied,
            },
        }
    }

    /// Whether an inventory says the same of `desired` as it did of what was verified before.
    pub(super) fn says_the_same_of(&self, managed: &Managed, desired: &Desired) -> bool {
        let (before, now) = (&managed.verified, &self.verified);
        let same_document = managed.desired.source() == desired.source();
        let same_version = managed.desired.kind.version == desired.kind.version;
        before.uid == now.uid && before.digest == now.digest && same_document && same_version
    }
}

/// One managed object.
#[derive(Debug)]
pub(super) struct Managed {
    pub(super) owner: Owner,
    pub(super) desired: Arc<Desired>,
    pub(super) verified: Verified,
    pub(super) health: Health,
    pub(super) heat: Option<Box<Heat>>,
    pub(super) paused: Option<Option<Timestamp>>,
    pub(super) failure: Option<Box<NotPutBack>>,
    pub(super) attempts: u32,
    /// Attempts to make way for it that did not help.
    pub(super) futile: Option<Box<Futile>>,
    pub(super) tombstoned: bool,
    /// What was verified of it has not been shown to its owner since it was verified.
    pub(super) unnoted: bool,
    /// A write is under way.
    pub(super) in_flight: bool,
    /// A revert or a report is waiting its turn.
    pub(super) queued: bool,
    /// Which of the turns that were put on the queue counts; older ones have been overtaken.
    pub(super) ticket: u32,
    /// A revert that failed is not tried again before.
    pub(super) not_before: Option<Instant>,
    /// It was last seen scaled to 0.
    pub(super) is_at_zero: bool,
    /// What the object must be has not been applied yet: it is to be, whatever is seen of the object.
    pub(super) stale: bool,
    /// The object is watched by name, since it lost our label; that ends when this is dropped.
    pub(super) followed: Option<DropGuard>,
    pub(super) pending: Option<Box<Seen>>,
    /// Fields fought over and the other manager, while contended.
    pub(super) contended: Option<Box<(Vec<String>, String)>>,
    /// Digest of the drift that is reported and left.
    pub(super) reported: Option<Option<Digest>>,
}

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// Nothing.
    Nothing,
    /// Put the object on the queue, to be put back or reported when its turn comes.
    Queue,
    /// Break glass began; look again when it ends.
    Paused(Option<Timestamp>),
    /// Break glass ended and nothing else is to do.
    Resumed,
}

impl Verified {
    /// Whether a state with this resource version is the verified one or an older one.
    pub(super) fn has_seen(&self, version: &str) -> bool {
        match (self.resource_version.parse::<u64>(), version.parse::<u64>()) {
            (Ok(known), Ok(seen)) => seen < known,
            _ => false,
        }
    }
}

impl Managed {
    /// One that is kept from now on; reverts that were put on the queue with another ticket than this do not count.
    pub(super) fn new(owner: &Owner, desired: Arc<Desired>, verified: Verified, ticket: u32) -> Self {
        Self {
            owner: Arc::clone(owner),
            desired,
            verified,
            health: Health::Progressing("not seen yet".into()),
            heat: None,
            paused: None,
            failure: None,
            attempts: 0,
            futile: None,
            tombstoned: false,
            unnoted: true,
            in_flight: false,
            queued: false,
            ticket,
            not_before: None,
            is_at_zero: false,
            stale: false,
            followed: None,
            pending: None,
            contended: None,
            reported: None,
        }
    }

    /// Whether anything was ever verified of it, by us or by an agent before us.
    pub(super) fn is_applied(&self) -> bool {
        self.verified.digest.is_some() || !self.verified.resource_version.is_empty()
    }

    /// Whether it counts what is seen of it, now or once the first write of it is answered.
    pub(super) fn is_expected(&self) -> bool {
        !self.tombstoned && (self.is_applied() || self.in_flight)
    }

    pub(super) fn is_of(&self, kind: &crate::cluster::Kind) -> bool {
        let own = &self.desired.kind;
        own.kind == kind.kind && own.group == kind.group && own.version == kind.version
    }

    /// Forgets what has cooled down by now. When it is to be looked at again, if it has not all.
    pub(super) fn cool(&mut self, clock: f64) -> Option<f64> {
        if !self.heat.as_mut().is_some_and(|heat| heat.contended(clock)) {
            self.contended = None;
        }
        if self.heat.as_ref().is_some_and(|heat| heat.cold(clock)) {
            self.heat = None;
        }
        self.heat.as_ref().map(|heat| heat.next_change())
    }

    /// What failed before has not any more.
    pub(super) fn succeeded(&mut self) {
        self.failure = None;
        self.attempts = 0;
        self.futile = None;
        self.not_before = None;
    }

    fn enqueue(&mut self, mut seen: Seen) -> Next {
        if let Some(waiting) = self.pending.as_ref().filter(|_| self.queued) {
            // The first sight of a change is when its latency began; the newest state is what is compared.
            seen.at = waiting.at;
            // Whoever writes again and again while it waits must not make it larger.
            let room = waiting.live.as_ref().map_or(0, |live| live.size().max(SMALL));
            seen.live = seen.live.and_then(|live| live.within(room));
        }
        self.pending = Some(Box::new(seen));
        if std::mem::replace(&mut self.queued, true) { Next::Nothing } else { Next::Queue }
    }

    /// The object has to be read: nothing says what it is now.
    pub(super) fn lose_sight(&mut self, version: Option<&str>, at: Instant, policy: Policy) -> Next {
        let seen = Seen { live: None, gone_at: version.map(Into::into), at };
        if self.in_flight {
            self.pending = Some(Box::new(seen));
            return Next::Nothing;
        }
        match policy.drift {
            _ if policy.suspended => Next::Nothing,
            DriftPolicy::Ignore if !self.stale => Next::Nothing,
            _ => self.enqueue(seen),
        }
    }

    /// What to do about the object as it was seen, and what is known of it from then on.
    pub(super) fn judge(
        &mut self,
        live: &Value,
        policy: DriftPolicy,
        autoscaled: Option<Autoscaler>,
        now: Timestamp,
    ) -> Verdict {
        if self.verified.resource_version.is_empty() {
            // An earlier agent verified it and remembered only the digest.
            let mut sent = self.desired.body();
            if autoscaled.is_some() {
                super::desired::without_replicas(&mut sent);
            }
            self.verified.emptied = projection::emptied(live, &sent);
        }
        let is_news = !self.verified.has_seen(resource_version(live));
        let mut woken = None;
        if is_news {
            self.health = crate::object::health(&self.desired.key, live);
            self.is_at_zero = is_at_zero(live);
            let autoscaler = autoscaled.filter(|_| self.is_at_zero);
            woken = autoscaler.and_then(|autoscaler| autoscaler.woken(&self.desired.body(), live));
            if let Some(count) = woken {
                self.health = Health::Progressing(format!("0 of {count} replicas are wanted: its autoscaler is off"));
            }
        }
        let verdict = match decide(&self.verified, &self.desired.mark, live, policy, now) {
            Verdict::InSync if woken.is_some() && !decide::is_terminating(live) => match policy {
                DriftPolicy::Revert => Verdict::Revert,
                DriftPolicy::Report => Verdict::LeaveAlone(Reason::Report),
                DriftPolicy::Ignore => Verdict::LeaveAlone(Reason::Ignore),
            },
            Verdict::InSync | Verdict::LeaveAlone(Reason::Report | Reason::Ignore) if self.stale => Verdict::Revert,
            verdict => verdict,
        };
        match &verdict {
            Verdict::InSync => {
                if is_news {
                    self.unnoted |= *self.verified.uid != *decide::uid(live);
                    self.verified.resource_version = resource_version(live).into();
                    self.verified.uid = decide::uid(live).into();
                }
                self.reported = None;
                self.succeeded();
            }
            // The watch tells when it is gone.
            Verdict::AwaitDeletion => self.health = Health::Progressing("being deleted".into()),
            Verdict::Revert | Verdict::LeaveAlone(_) => {}
        }
        verdict
    }

    pub(super) fn look(
        &mut self,
        live: Value,
        at: Instant,
        policy: DriftPolicy,
        autoscaled: Option<Autoscaler>,
        now: Timestamp,
    ) -> Next {
        let is_known = decide::is_seen(&self.verified, resource_version(&live));
        match self.judge(&live, policy, autoscaled, now) {
            // What is known already says nothing about what was seen since.
            Verdict::InSync if self.queued && is_known => Next::Nothing,
            Verdict::InSync => {
                self.pending = None;
                if self.paused.take().is_some() { Next::Resumed } else { Next::Nothing }
            }
            Verdict::Revert => {
                self.paused = None;
                self.enqueue(Seen::of(live, at))
            }
            Verdict::LeaveAlone(Reason::BreakGlass(until)) => {
                self.pending = None;
                let new = self.paused.replace(until) != Some(until);
                if new { Next::Paused(until) } else { Next::Nothing }
            }
            Verdict::LeaveAlone(Reason::Report) => {
                let digest = projection::digest(&live, &self.verified.emptied);
                if self.reported.replace(digest) == Some(digest) {
                    return Next::Nothing;
                }
                self.enqueue(Seen::of(live, at))
            }
            Verdict::AwaitDeletion | Verdict::LeaveAlone(Reason::Controlled | Reason::Ignore) => {
                self.pending = None;
                Next::Nothing
            }
        }
    }
}
