//! Whether an object is being written, and what was seen of it that waits to be acted on.
//!
//! Invariant: a state that waits to be acted on is part of the write that will look at it.
//! Invariant: of the reverts that were queued for an object, the newest counts.
//! Invariant: hundreds of states may wait, so each takes little memory, and all of them take no more than so much.

use std::borrow::Cow;
use std::mem;
use std::time::Instant;

use serde_json::Value;

use super::pause_end::PauseEnd;

/// Largest state, in bytes, of which many may wait.
pub(crate) const SMALL: usize = 8 << 10;

/// States of any size that wait, at most.
const WAITING_WHOLE: usize = 32;
/// Queued objects of which the small states are kept as they are, not as compact JSON.
const WAITING_WITH_VALUE: usize = 128;
/// Queued objects of which the small states are kept. Beyond that number the state is dropped, and the object is read again
/// when its revert begins.
const WAITING_WITH_STATE: usize = 1000;

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Nothing.
    Nothing,
    /// Put the object on the queue, to be reverted or reported.
    Queue,
    /// Break glass began; look again when it ends.
    Paused(PauseEnd),
    /// Break glass ended and nothing else is to do.
    Resumed,
}

/// Whether an object is being written.
#[derive(Debug)]
pub(crate) struct Write {
    state: State,
    /// The queued revert of this generation counts; those before it were overtaken.
    generation: u32,
}

#[derive(Debug, Default)]
enum State {
    /// It is not.
    #[default]
    Idle,
    /// A revert or a report waits until it may begin, because of what was seen.
    Queued(Option<Box<Seen>>),
    /// A write is under way. What is seen meanwhile is looked at when it ends.
    InFlight(Option<Box<Seen>>),
}

impl Write {
    /// Of an object that is not being written.
    pub(crate) fn idle(generation: u32) -> Self {
        Self { state: State::Idle, generation }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The generation of a write that overtakes the reverts that are queued.
    pub(crate) fn next_generation(&self) -> u32 {
        self.generation.wrapping_add(1)
    }

    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued(_))
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight(_))
    }

    /// What waits to be acted on.
    pub(crate) fn pending(&self) -> Option<&Seen> {
        match &self.state {
            State::Idle => None,
            State::Queued(seen) | State::InFlight(seen) => seen.as_deref(),
        }
    }

    /// What waits to be acted on does not count any more.
    pub(crate) fn clear_pending(&mut self) {
        if let State::Queued(seen) | State::InFlight(seen) = &mut self.state {
            *seen = None;
        }
    }

    /// Queues a revert or report because of what was seen, where so many others are queued.
    pub(crate) fn enqueue(&mut self, mut seen: Seen, others: usize) -> Next {
        let was_queued = self.is_queued();
        if was_queued && let Some(waiting) = self.pending() {
            // The first sight of a change is when its latency began; the newest state is what is compared.
            seen.at = waiting.at;
            // Whoever writes again and again while it waits must not make it larger.
            let room = waiting.live.as_ref().map_or(0, |live| live.size().max(SMALL));
            seen.live = seen.live.and_then(|live| live.within(room));
        } else {
            seen.live = seen.live.and_then(|live| live.beside(others));
        }
        self.state = State::Queued(Some(Box::new(seen)));
        if was_queued { Next::Nothing } else { Next::Queue }
    }

    /// Keeps what was seen until the write that is under way ends; hands it back when none is.
    pub(crate) fn defer(&mut self, seen: Seen) -> Option<Seen> {
        let State::InFlight(pending) = &mut self.state else { return Some(seen) };
        *pending = Some(Box::new(seen));
        None
    }

    /// A write that is under way failed: this counts again, unless something was seen since. It is looked at when the
    /// write ends, which is also so if the object was inserted anew meanwhile.
    pub(crate) fn restore_pending(&mut self, seen: Box<Seen>) {
        match &mut self.state {
            State::Idle => self.state = State::InFlight(Some(seen)),
            State::Queued(pending) | State::InFlight(pending) => _ = pending.get_or_insert(seen),
        }
    }

    /// The revert that is queued begins. What waited for it.
    pub(crate) fn begin_revert(&mut self) -> Option<Box<Seen>> {
        mem::replace(&mut self.state, State::InFlight(None)).into_pending()
    }

    /// An apply begins, and overtakes the reverts that are queued. What waited for them.
    pub(crate) fn begin_put(&mut self) -> Option<Box<Seen>> {
        self.generation = self.next_generation();
        self.begin_revert()
    }

    /// The revert that is queued has to be queued anew. Whether one is.
    pub(crate) fn requeue(&mut self) -> bool {
        self.generation = self.next_generation();
        if matches!(self.state, State::Queued(None)) {
            self.state = State::Idle;
        }
        self.is_queued()
    }

    /// The write has ended. What waits to be looked at.
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

/// Something that was seen of an object and waits to be acted on.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The object as it was seen; `None` when it vanished from the watch, or is to be read again.
    pub(crate) live: Option<Sight>,
    /// At which resource version it was not there; `None` when it has to be read whatever is known of it by then.
    pub(crate) gone_at: Option<Box<str>>,
    /// When.
    pub(crate) at: Instant,
}

/// A live object that waits to be acted on. Hundreds of them may wait: one that is small, or next, is kept as it is; the
/// others as compact JSON, which is several times smaller.
pub(crate) enum Sight {
    Whole(Value),
    Json(Box<[u8]>),
}

impl Sight {
    /// What is small stays as it is.
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

    /// The same as JSON, if it has at most so many bytes.
    pub(crate) fn within(self, bytes: usize) -> Option<Self> {
        let sight = match self {
            Self::Whole(value) => Self::json(&value)?,
            json @ Self::Json(_) => json,
        };
        (sight.size() <= bytes).then_some(sight)
    }

    /// As much of it as may wait where so many others do.
    pub(crate) fn beside(self, others: usize) -> Option<Self> {
        match others {
            ..WAITING_WHOLE => Some(self),
            WAITING_WHOLE..WAITING_WITH_VALUE => (self.size() <= SMALL).then_some(self),
            WAITING_WITH_VALUE..WAITING_WITH_STATE => self.within(SMALL),
            _ => None,
        }
    }

    /// In bytes; what is kept as it is is small.
    pub(crate) fn size(&self) -> usize {
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
    pub(crate) fn of(live: Value, at: Instant) -> Self {
        Self { live: Sight::of(live), gone_at: None, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_states_wait_the_less_of_each_may() {
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
