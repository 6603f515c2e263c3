//! The event log: all recent changes in one total order.
//!
//! Every write appends one [`Event`]. Watches, snapshots of the past and controllers all read this log. Readers have no
//! buffers: a reader that falls behind the oldest kept event must list again.
//!
//! Invariant: resource versions in the log increase strictly.
//! Invariant: an event is serialised at most once per form, regardless of the number of watches.
//!
//! Not here: the events that a watch receives (`verbs::watch` filters).

use crate::stored::{Key, Stored};
use bytes::{BufMut, Bytes, BytesMut};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

/// Maximum number of kept events.
const MAX_EVENTS: usize = 100_000;
/// Maximum serialised size of the kept events, in bytes.
const MAX_BYTES: usize = 96 << 20;
/// Maximum age of a kept event.
const MAX_AGE: Duration = Duration::from_mins(10);

/// The type of an event, before any selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object is new.
    Added,
    /// The object existed before.
    Modified,
    /// The object was removed.
    Deleted,
}

impl Change {
    /// Returns the type as watches send it.
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
    /// Resource version of the write.
    pub rv: u64,
    /// Name of the storage.
    pub storage: Arc<str>,
    /// Key of the object.
    pub key: Key,
    /// The previous object; `None` when it is new.
    pub old: Option<Arc<Stored>>,
    /// The new object; `None` when it was removed.
    pub new: Option<Arc<Stored>>,
    pub(crate) at: Instant,
    farewell: OnceLock<Arc<Stored>>,
    line: OnceLock<Bytes>,
}

impl Event {
    /// Creates an event from the object before and after a write.
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

    /// Returns the type of the event.
    pub fn change(&self) -> Change {
        match (&self.old, &self.new) {
            (None, _) => Change::Added,
            (Some(_), Some(_)) => Change::Modified,
            (Some(_), None) => Change::Deleted,
        }
    }

    /// Returns the new object or, after a removal, the last one.
    pub fn latest(&self) -> Option<&Stored> {
        self.new.as_deref().or(self.old.as_deref())
    }

    /// Returns the object as a watch shows it for this change. [`Change::Deleted`] shows the previous state with the
    /// resource version of this event.
    pub fn shown(&self, change: Change) -> Option<Arc<Stored>> {
        match (change, &self.old) {
            (Change::Deleted, Some(old)) => {
                Some(self.farewell.get_or_init(|| Arc::new(old.at_version(self.rv))).clone())
            }
            (Change::Deleted, None) => None,
            _ => self.new.clone(),
        }
    }

    /// Returns the line for watches without a selector. The line is serialised once.
    pub fn line(&self) -> Option<Bytes> {
        let change = self.change();
        let stored = self.shown(change)?;
        Some(self.line.get_or_init(|| watch_line(change.word(), &stored.json())).clone())
    }

    fn size(&self) -> usize {
        self.new.as_ref().or(self.old.as_ref()).map_or(0, |s| s.size()) + 200
    }
}

/// Returns a watch event as a line: `{"type":…,"object":…}` and a newline.
pub fn watch_line(word: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + word.len() + 24);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(word.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// The log no longer holds the events after the requested resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The oldest resource version that a new reader can start from.
    pub floor: u64,
}

/// The kept events, all together and by storage.
#[derive(Debug, Default)]
pub struct History {
    all: VecDeque<Arc<Event>>,
    by_storage: HashMap<Arc<str>, VecDeque<Arc<Event>>>,
    bytes: usize,
    floor: u64,
    lost: u64,
}

impl History {
    /// Appends an event, then drops the oldest ones while a limit is exceeded.
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

    /// Drops all events up to and including a resource version.
    pub fn compact(&mut self, rv: u64) {
        while self.all.front().is_some_and(|e| e.rv <= rv) {
            self.forget_first();
        }
        self.floor = self.floor.max(rv);
    }

    /// Returns the oldest resource version that a new reader can start from.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns at most `limit` events after a resource version, from one storage or from all.
    ///
    /// For readers that already follow the log. Fails only if an unread event was dropped, even below
    /// [`History::floor`].
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

    /// Returns the events after a resource version, newest first. Undone in this order, they restore the state at that
    /// version.
    pub fn back_to(&self, storage: &str, rv: u64) -> Result<impl Iterator<Item = &Arc<Event>>, Forgotten> {
        if rv < self.floor {
            return Err(Forgotten { floor: self.floor });
        }
        Ok(self.by_storage.get(storage).into_iter().flat_map(|log| log.iter().rev()).take_while(move |e| e.rv > rv))
    }
}
