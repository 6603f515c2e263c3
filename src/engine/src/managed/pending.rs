//! The write of an object, and the seen state that waits for this write.
//!
//! Invariant: a waiting state belongs to the write that will handle it.
//! Invariant: only the newest queued revert of an object is carried out.
//! Invariant: a waiting state is not replaced by an older one. A list may show an object after the watch has shown a newer
//! state of it. The newest version of all merged states counts.
//! Invariant: an object that must be read in any case is read. No state that is seen in the meantime cancels this.
//! Invariant: hundreds of states may wait, so the memory of each one and of all together is limited.

use std::borrow::Cow;
use std::mem;
use std::time::Instant;

use serde_json::Value;

use super::pause_end::PauseEnd;
use super::verdict::resource_version;

/// Maximum size in bytes of a small state. Many of them may wait.
pub(crate) const SMALL: usize = 8 << 10;

/// Maximum number of waiting states of any size.
const WAITING_WHOLE: usize = 32;
/// Maximum number of queued objects whose small states are stored as values. Later ones are stored as compact JSON.
const WAITING_WITH_VALUE: usize = 128;
/// Maximum number of queued objects whose small states are stored. Later ones are dropped, and the object is read when
/// its revert begins.
const WAITING_WITH_STATE: usize = 1000;

/// The consequence of an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// No action.
    Nothing,
    /// Queue the object, to be reverted or reported.
    Queue,
    /// A pause began; check the object when it ends.
    Paused(PauseEnd),
    /// A pause ended; no further action.
    Resumed,
}

/// The write of an object.
#[derive(Debug)]
pub(crate) struct Write {
    state: State,
    /// The generation of the newest queued revert. Reverts of earlier generations are outdated.
    generation: u32,
}

#[derive(Debug, Default)]
enum State {
    /// No write.
    #[default]
    Idle,
    /// A revert or report is queued because of this state.
    Queued(Option<Box<Seen>>),
    /// A write is in flight. This state is handled when it ends.
    InFlight(Option<Box<Seen>>),
}

impl Write {
    /// Returns the state without a write.
    pub(crate) fn idle(generation: u32) -> Self {
        Self { state: State::Idle, generation }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the generation of a write that supersedes queued reverts.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1)
    }

    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued(_))
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight(_))
    }

    /// Returns the waiting state.
    pub(crate) fn pending(&self) -> Option<&Seen> {
        match &self.state {
            State::Idle => None,
            State::Queued(seen) | State::InFlight(seen) => seen.as_deref(),
        }
    }

    /// Whether the waiting state is newer than one with this resource version.
    pub(crate) fn needs_newer_than(&self, version: &str) -> bool {
        self.pending().is_some_and(|waiting| waiting.is_newer_than(number(version)))
    }

    /// Replaces the waiting state by a request to read the object, because its version is not comparable any more. After a
    /// write in flight, the object is always read: the write may restore a state from before.
    pub(crate) fn forget_versions(&mut self, at: Instant) {
        match &mut self.state {
            State::Idle | State::Queued(None) => {}
            State::Queued(Some(seen)) => **seen = Seen::gone(None, seen.at),
            State::InFlight(seen) => {
                let since = seen.as_ref().map_or(at, |seen| seen.at);
                *seen = Some(Box::new(Seen::gone(None, since)));
            }
        }
    }

    /// Drops the waiting state.
    pub(crate) fn clear_pending(&mut self) {
        if let State::Queued(seen) | State::InFlight(seen) = &mut self.state {
            *seen = None;
        }
    }

    /// Drops the waiting state because the object is in sync, unless the object must be read in any case: the state in
    /// sync may be older than the reason for the read.
    pub(crate) fn clear_in_sync(&mut self) {
        if self.pending().is_some_and(|waiting| !waiting.must_read) {
            self.clear_pending();
        }
    }

    /// Queues a revert or report because of a state, while `others` objects are queued. Ignores an older state than the
    /// queued one.
    pub(crate) fn enqueue(&mut self, mut seen: Seen, others: usize) -> Next {
        let was_queued = self.is_queued();
        if was_queued && let Some(waiting) = self.pending() {
            if waiting.is_newer_than(seen.version) {
                return Next::Nothing;
            }
            // The latency is measured from the first event of a change, but the newest state is compared.
            seen.at = waiting.at;
            seen.version = seen.version.max(waiting.version);
            seen.must_read |= waiting.must_read;
            // Repeated changes of a waiting object must not increase its memory.
            let room = waiting.live.as_ref().map_or(0, |live| live.size().max(SMALL));
            seen.live = seen.live.and_then(|live| live.within(room));
        } else {
            seen.live = seen.live.and_then(|live| live.beside(others));
        }
        self.state = State::Queued(Some(Box::new(seen)));
        if was_queued { Next::Nothing } else { Next::Queue }
    }

    /// Stores a state until the current write ends, unless a newer one waits or the object must be read. Returns it if
    /// there is no write.
    pub(crate) fn defer(&mut self, mut seen: Seen) -> Option<Seen> {
        let State::InFlight(pending) = &mut self.state else { return Some(seen) };
        match pending {
            Some(waiting) if waiting.must_read => waiting.version = waiting.version.max(seen.version),
            Some(waiting) if waiting.is_newer_than(seen.version) => {}
            Some(waiting) => {
                seen.version = seen.version.max(waiting.version);
                **waiting = seen;
            }
            None => *pending = Some(Box::new(seen)),
        }
        None
    }

    /// Restores the waiting state after a failed write, unless a newer state was seen. It is handled when the write
    /// ends, even if the object was inserted again in the meantime. A state that must be read takes precedence.
    pub(crate) fn restore_pending(&mut self, mut seen: Box<Seen>) {
        match &mut self.state {
            State::Idle => self.state = State::InFlight(Some(seen)),
            State::Queued(pending) | State::InFlight(pending) => {
                if let Some(waiting) = pending {
                    if seen.must_read || (!waiting.must_read && seen.is_newer_than(waiting.version)) {
                        mem::swap(waiting, &mut seen);
                    }
                    waiting.version = waiting.version.max(seen.version);
                } else {
                    *pending = Some(seen);
                }
            }
        }
    }

    /// Begins the queued revert. Returns the waiting state.
    pub(crate) fn begin_revert(&mut self) -> Option<Box<Seen>> {
        mem::replace(&mut self.state, State::InFlight(None)).into_pending()
    }

    /// Begins an apply, which supersedes queued reverts. Returns the waiting state.
    pub(crate) fn begin_put(&mut self) -> Option<Box<Seen>> {
        self.generation = self.next_generation();
        self.begin_revert()
    }

    /// Makes the queued revert outdated. Returns whether a new one must be queued.
    pub(crate) fn requeue(&mut self) -> bool {
        self.generation = self.next_generation();
        if matches!(self.state, State::Queued(None)) {
            self.state = State::Idle;
        }
        self.is_queued()
    }

    /// Ends the write. Returns the waiting state.
    pub(crate) fn end(&mut self) -> Option<Box<Seen>> {
        mem::take(&mut self.state).into_pending()
    }
}

impl State {
    fn into_pending(self) -> Option<Box<Seen>> {
        match self {
            Self::Idle => None,
            Self::Queued(seen) | Self::InFlight(seen) => seen,
        }
    }
}

/// A state of an object that a watch showed and that waits to be handled.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The live object; `None` if the object vanished from the watch or must be read again.
    pub(crate) live: Option<Sight>,
    /// The resource version at which the object was gone; `None` if the object must be read in any case.
    pub(crate) gone_at: Option<Box<str>>,
    /// The resource version of the state, or that of a newer one that this state replaced, if they are numbers.
    version: Option<u64>,
    /// Whether the object must be read in any case. Then `live` is `None`.
    must_read: bool,
    /// The time of the event.
    pub(crate) at: Instant,
}

/// A live object that waits. The first ones are stored as values if they are small. The others are stored as compact
/// JSON, which is several times smaller.
pub(crate) enum Sight {
    Whole(Value),
    Json(Box<[u8]>),
}

impl Sight {
    /// Stores a small object as a value, and others as JSON.
    pub(crate) fn of(live: Value) -> Option<Self> {
        if is_light(&live, &mut { SMALL }) { Some(Self::Whole(live)) } else { Self::json(&live) }
    }

    fn json(live: &Value) -> Option<Self> {
        serde_json::to_vec(live).ok().map(|json| Self::Json(json.into()))
    }

    pub(crate) fn value(&self) -> Option<Cow<'_, Value>> {
        match self {
            Self::Whole(value) => Some(Cow::Borrowed(value)),
            Self::Json(json) => serde_json::from_slice(json).ok().map(Cow::Owned),
        }
    }

    pub(crate) fn into_value(self) -> Option<Value> {
        match self {
            Self::Whole(value) => Some(value),
            Self::Json(json) => serde_json::from_slice(&json).ok(),
        }
    }

    /// Returns the object as JSON if that has at most this many bytes.
    pub(crate) fn within(self, bytes: usize) -> Option<Self> {
        let sight = match self {
            Self::Whole(value) => Self::json(&value)?,
            json @ Self::Json(_) => json,
        };
        (sight.size() <= bytes).then_some(sight)
    }

    /// Returns the object in the form that is allowed while `others` objects wait, if any.
    pub(crate) fn beside(self, others: usize) -> Option<Self> {
        match others {
            ..WAITING_WHOLE => Some(self),
            WAITING_WHOLE..WAITING_WITH_VALUE => (self.size() <= SMALL).then_some(self),
            WAITING_WITH_VALUE..WAITING_WITH_STATE => self.within(SMALL),
            _ => None,
        }
    }

    /// Returns the size of the object in bytes. A value counts as [`SMALL`].
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Whole(_) => SMALL,
            Self::Json(json) => json.len(),
        }
    }
}

/// Whether a value takes at most `left` bytes of memory. Subtracts its size from `left`.
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

/// Omits the content, which may be a Secret.
impl std::fmt::Debug for Sight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sight({} bytes)", self.size())
    }
}

impl Seen {
    pub(crate) fn of(live: Value, at: Instant) -> Self {
        let version = number(resource_version(&live));
        Self { live: Sight::of(live), gone_at: None, version, must_read: false, at }
    }

    /// Returns the state of an object that is gone at this resource version; without one, the object must be read.
    pub(crate) fn gone(gone_at: Option<&str>, at: Instant) -> Self {
        let (version, must_read) = (gone_at.and_then(number), gone_at.is_none());
        Self { live: None, gone_at: gone_at.map(Into::into), version, must_read, at }
    }

    /// Whether this state is newer than one with the other version. Unknown versions cannot be compared.
    fn is_newer_than(&self, other: Option<u64>) -> bool {
        matches!((self.version, other), (Some(own), Some(other)) if other < own)
    }
}

/// Returns a resource version as a number.
pub(super) fn number(version: &str) -> Option<u64> {
    version.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(version: u64) -> Seen {
        Seen::of(json!({"metadata": {"resourceVersion": version.to_string()}}), Instant::now())
    }

    #[test]
    fn an_older_state_replaces_no_newer_one() {
        let mut write = Write::idle(0);
        let version = |write: &Write| write.pending().and_then(|seen| seen.version);
        assert_eq!(write.enqueue(Seen::gone(Some("105"), Instant::now()), 0), Next::Queue);
        assert!(write.needs_newer_than("90") && !write.needs_newer_than("105") && !write.needs_newer_than("v1"));
        assert_eq!(write.enqueue(at(90), 0), Next::Nothing);
        assert_eq!((version(&write), write.pending().unwrap().live.is_none()), (Some(105), true));
        let begun = write.begin_revert().unwrap();
        for (seen, waits) in
            [(at(110), 110), (at(90), 110), (Seen::gone(Some("100"), Instant::now()), 110), (at(111), 111)]
        {
            assert!(write.defer(seen).is_none());
            assert_eq!(version(&write), Some(waits));
        }
        write.restore_pending(begun);
        assert_eq!(version(&write), Some(111));
        let mut write = Write::idle(0);
        write.begin_revert();
        assert!(write.defer(at(90)).is_none());
        write.restore_pending(Box::new(at(105)));
        assert_eq!(version(&write), Some(105), "an older state of a list does not hide it");
        assert!(write.defer(Seen::gone(None, Instant::now())).is_none());
        let is_read = |write: &Write| write.pending().is_some_and(|seen| seen.must_read && seen.live.is_none());
        assert!(is_read(&write), "a request to read the object replaces any state");
        assert_eq!(version(&write), Some(105), "and an older state does not replace it");
    }

    #[test]
    fn a_request_to_read_an_object_outlasts_all_states() {
        let is_read = |write: &Write| write.pending().is_some_and(|seen| seen.must_read && seen.live.is_none());
        let forced = || Seen::gone(None, Instant::now());
        let mut write = Write::idle(0);
        assert_eq!(write.enqueue(forced(), 0), Next::Queue);
        write.enqueue(at(90), 0);
        assert!(is_read(&write));
        write.clear_in_sync();
        assert!(is_read(&write) && write.needs_newer_than("80"));
        write.begin_revert();
        write.defer(forced());
        write.defer(at(110));
        assert!(is_read(&write) && write.needs_newer_than("109"));
        write.restore_pending(Box::new(at(120)));
        assert!(is_read(&write) && write.needs_newer_than("119"));
        let mut write = Write::idle(0);
        write.begin_revert();
        write.defer(at(110));
        write.restore_pending(Box::new(forced()));
        assert!(is_read(&write) && write.needs_newer_than("109"));
        let mut write = Write::idle(0);
        write.enqueue(at(110), 0);
        write.clear_in_sync();
        assert!(write.pending().is_none(), "it is in sync");
    }

    #[test]
    fn more_waiting_states_have_lower_limits() {
        let (small, large) = (Value::from("a"), Value::from("a".repeat(2 * SMALL)));
        let kept = |live: &Value, others: usize| match Sight::of(live.clone()).unwrap().beside(others) {
            Some(Sight::Whole(_)) => "whole",
            Some(Sight::Json(_)) => "JSON",
            None => "nothing",
        };
        let at = [0, WAITING_WHOLE, WAITING_WITH_VALUE, WAITING_WITH_STATE];
        assert_eq!(at.map(|others| kept(&small, others)), ["whole", "whole", "JSON", "nothing"]);
        assert_eq!(at.map(|others| kept(&large, others)), ["JSON", "nothing", "nothing", "nothing"]);
    }
}
