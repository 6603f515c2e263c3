//! Whether an object is being written, and what waits to be acted on.
//!
//! Invariant: a state that waits to be acted on is part of the write that will look at it.
//! Invariant: of the reverts that were queued for an object, the newest counts.

use std::mem;

use jiff::Timestamp;

use super::seen::{SMALL, Seen};

/// What to do after an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Nothing.
    Nothing,
    /// Put the object on the queue, to be reverted or reported.
    Queue,
    /// Break glass began; look again when it ends.
    Paused(Option<Timestamp>),
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
    /// A revert or a report waits for its permit, because of what was seen.
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
