//! The event log: what changed, in one total order, as long as it is remembered.
//!
//! Every write appends one [`Event`]; watches, snapshots of the past and controllers all read from here, so there is
//! no buffer per reader: a reader that falls behind what is remembered has lost its place.
//!
//! Invariant: the resource versions of the log grow strictly. Invariant: an event is serialised at most once per
//! form, however many watches it goes to.
//!
//! Deliberately absent: which events a watch may see (`verbs::watch` filters).

use crate::stored::{Key, Stored};
use bytes::{BufMut, Bytes, BytesMut};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Events that are remembered at most.
const MAX_EVENTS: usize = 100_000;
/// Serialised size of the remembered events at most, in bytes.
const MAX_BYTES: usize = 96 << 20;
/// How long events are remembered at most.
const MAX_AGE: Duration = Duration::from_mins(10);

/// An event of an object, before any selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It appeared.
    Added,
    /// It was written again.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One write.
#[derive(Debug)]
pub struct Event {
    /// Its resource version.
    pub rv: u64,
    /// Name of the storage.
    pub storage: Arc<str>,
    /// The author of the write.
    pub key: Key,
    /// The object before, absent when it is new.
    pub old: Option<Arc<Stored>>,
    /// The object after, absent when it is gone.
    pub new: Option<Arc<Stored>>,
    pub(crate) at: Instant,
    farewell: OnceLock<Arc<Stored>>,
    line: OnceLock<Bytes>,
}

impl Event {
    /// A write of an object, with the object before and after.
    pub fn new(
        rv: u64,
        storage: Arc<str>,
        key: Key,
        old: Option<Arc<Stored>>,
        new: Option<Arc<Stored>>,
        at: Instant,
    ) -> Self {
        Self { rv, storage, key, old, new, at, farewell: OnceLock::new(), line: OnceLock::new() }
    }

    /// The type of the event.
    pub fn change(&self) -> Change {
        match (&self.old, &self.new) {
            (None, _) => Change::Added,
            (Some(_), Some(_)) => Change::Modified,
            (Some(_), None) => Change::Deleted,
        }
    }

    /// The object after it, or, when it is gone, before.
    pub fn latest(&self) -> Option<&Stored> {
        self.new.as_deref().or(self.old.as_deref())
    }

    /// The object as a watch shows it with this change: for [`Change::Deleted`] the state before, under the resource
    /// version of this event.
    pub fn shown(&self, change: Change) -> Option<Arc<Stored>> {
        match (change, &self.old) {
            (Change::Deleted, Some(old)) => {
                Some(self.farewell.get_or_init(|| Arc::new(old.at_version(self.rv))).clone())
            }
            (Change::Deleted, None) => None,
            _ => self.new.clone(),
        }
    }

    /// The line of a watch without selector, serialised once.
    pub fn line(&self) -> Option<Bytes> {
        let change = self.change();
        let stored = self.shown(change)?;
        Some(self.line.get_or_init(|| watch_line(change.word(), &stored.json())).clone())
    }

    fn size(&self) -> usize {
        self.new.as_ref().or(self.old.as_ref()).map_or(0, |s| s.size()) + 200
    }
}

/// `{"type":…,"object":…}` and the end of the line.
pub fn watch_line(word: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + word.len() + 24);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(word.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// A place in the log that is no longer, or a moment that is no longer known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The oldest resource version from which one can still follow.
    pub floor: u64,
}

/// The remembered events, all together and by storage.
#[derive(Debug, Default)]
pub struct History {
    all: VecDeque<Arc<Event>>,
    by_storage: HashMap<Arc<str>, VecDeque<Arc<Event>>>,
    bytes: usize,
    floor: u64,
    lost: u64,
}

impl History {
    /// Appends an event and forgets what is too old or too much.
    pub fn push(&mut self, event: Arc<Event>) {
        let now = event.at;
        self.bytes += event.size();
        self.by_storage.entry(event.storage.clone()).or_default().push_back(event.clone());
        self.all.push_back(event);
        while let Some(first) = self.all.front() {
            let too_old = now.saturating_duration_since(first.at) > MAX_AGE;
            if !too_old && self.all.len() <= MAX_EVENTS && self.bytes <= MAX_BYTES {
                break;
            }
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.all.pop_front() {
            self.floor = self.floor.max(first.rv);
            self.lost = first.rv;
            self.bytes -= first.size();
            if let Some(log) = self.by_storage.get_mut(&first.storage) {
                log.pop_front();
            }
        }
    }

    /// Forgets everything up to and including a resource version.
    pub fn compact(&mut self, rv: u64) {
        while self.all.front().is_some_and(|e| e.rv <= rv) {
            self.forget_first();
        }
        self.floor = self.floor.max(rv);
    }

    /// The oldest resource version from which one can still follow.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// At most `limit` events after a resource version, of one storage or of all.
    ///
    /// For readers that follow: they have lost their place only when an event they have not seen is gone, whatever
    /// [`History::floor`] says to those who begin.
    pub fn after(&self, storage: Option<&str>, rv: u64, limit: usize) -> Result<Vec<Arc<Event>>, Forgotten> {
        if rv < self.lost {
            return Err(Forgotten { floor: self.floor });
        }
        let log = match storage {
            None => &self.all,
            Some(storage) => match self.by_storage.get(storage) {
                Some(log) => log,
                None => return Ok(Vec::new()),
            },
        };
        let start = log.partition_point(|e| e.rv <= rv);
        Ok(log.range(start..).take(limit).cloned().collect())
    }

    /// The events after a resource version, newest first: undone in this order they lead back to it.
    pub fn back_to(&self, storage: &str, rv: u64) -> Result<impl Iterator<Item = &Arc<Event>>, Forgotten> {
        if rv < self.floor {
            return Err(Forgotten { floor: self.floor });
        }
        Ok(self.by_storage.get(storage).into_iter().flat_map(|log| log.iter().rev()).take_while(move |e| e.rv > rv))
    }
}
