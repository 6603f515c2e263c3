//! The task that writes the journal. Concurrent commands are written and synced together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::shares::Held;
use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::command::{Command, Refused, Shared};
use super::index::{Entry, OVER, Place};
use super::recent::Recent;
use super::record::{self, Head, Recipient};
use super::store::Store;

/// Capacity of the command queue. Further senders wait.
pub(super) const WAITING: usize = 256;
/// Maximum number of waiting events. Each event takes about 200 bytes of memory.
const MOST_EVENTS: usize = 100_000;
/// Maximum delay before records of deliveries are synced. After a crash of the machine, events with unsynced records
/// are delivered again.
const TICK: Duration = Duration::from_secs(1);

/// The state of the writing task.
pub(super) struct Writer {
    pub(super) store: Store,
    recent: Recent,
    next: u64,
    pub(super) budget: u64,
    pub(super) shared: Arc<Shared>,
    /// Whether there are unsynced writes.
    is_dirty: bool,
    /// Whether the last write or sync failed.
    is_broken: bool,
}

/// Executes commands until all handles are dropped.
pub(super) async fn run(mut writer: Writer, mut commands: mpsc::Receiver<Command>) {
    let mut batch = Vec::new();
    let mut tick = Instant::now() + TICK;
    loop {
        let received = tokio::select! {
            received = commands.recv_many(&mut batch, WAITING) => received,
            () = sleep_until(tick), if writer.has_work() => usize::MAX,
        };
        if received == 0 {
            return;
        }
        if received == usize::MAX {
            tick = Instant::now() + TICK;
        }
        let commands = std::mem::take(&mut batch);
        let is_tick = commands.is_empty();
        let working = move || {
            if is_tick {
                writer.tick();
            } else {
                writer.commit(commands);
            }
            writer
        };
        // The blocking task cannot be cancelled. A panic in it ends this task, and therefore the process.
        match tokio::task::spawn_blocking(working).await {
            Ok(same) => writer = same,
            Err(error) => {
                tracing::error!(%error, "the journal is not written any more");
                return;
            }
        }
    }
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// An event of a batch that is not on disk yet.
struct Pending {
    number: u64,
    entry: Entry,
    source: String,
    id: String,
}

impl Writer {
    pub(super) fn new(store: Store, recent: Recent, next: u64, budget: u64, shared: Arc<Shared>) -> Self {
        Self { store, recent, next, budget, shared, is_dirty: false, is_broken: false }
    }

    /// Whether a tick has work to do.
    fn has_work(&self) -> bool {
        self.is_dirty || self.is_broken || self.shared.index.lock().removable(self.store.current(), i64::MAX).is_some()
    }

    fn commit(&mut self, commands: Vec<Command>) {
        let now = now();
        self.prepare();
        let (segment, begin) = self.store.end();
        let (mut bytes, mut pending, mut replies, mut ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut room = self.room();
        for command in commands {
            match command {
                Command::Publish { routed, is_replay, reply } => {
                    let from = (bytes.len(), pending.len());
                    // If the shares of all subscribers are used up, the events are refused.
                    let is_over =
                        !routed.is_empty() && routed.iter().flat_map(|one| &one.to).all(|to| self.is_over(to));
                    let to = routed.iter().flat_map(|one| &one.to);
                    let mut kept = if is_over { Err(Refused::share(to)) } else { Ok(()) };
                    for one in routed {
                        kept = kept
                            .and_then(|()| self.add(one, is_replay, now, (segment, begin), &mut bytes, &mut pending));
                    }
                    let events = pending.len() - from.1;
                    if kept.is_ok() && events > 0 && ((bytes.len() - from.0) as u64 > room.0 || events > room.1) {
                        kept = Err(Refused::Full);
                    }
                    if kept.is_ok() {
                        room = (room.0.saturating_sub((bytes.len() - from.0) as u64), room.1.saturating_sub(events));
                    } else {
                        bytes.truncate(from.0);
                        self.forget(pending.drain(from.1..), is_replay);
                    }
                    replies.push((reply, kept, is_replay));
                }
                Command::Ended { numbers, to, reply } => {
                    for number in numbers {
                        if self.shared.index.lock().end(number, &to) {
                            let to = to.to_string();
                            Self::note(&Head::Ended { number, to }, &mut bytes);
                        }
                    }
                    ended.push(reply);
                }
                Command::Tried { number, to, attempts } => {
                    self.shared.index.lock().tried(number, &to, attempts);
                    let to = to.to_string();
                    Self::note(&Head::Tried { number, to, attempts }, &mut bytes);
                }
            }
        }
        let mut written = self.store.append(&bytes);
        if written.is_ok() {
            self.shared.index.lock().wrote(segment, bytes.len() as u64, now);
            self.is_dirty |= !bytes.is_empty();
            if replies.iter().any(|(_, kept, _)| kept.is_ok()) {
                written = self.store.sync();
                self.is_dirty &= written.is_err();
            }
        }
        match written {
            Ok(()) => self.queue(pending),
            Err(error) => {
                tracing::error!(%error, "the journal could not be written");
                self.is_broken = true;
                self.forget(pending.into_iter(), false);
                let error = Arc::new(error);
                for (_, kept, _) in &mut replies {
                    if kept.is_ok() {
                        *kept = Err(refused(&error));
                    }
                }
            }
        }
        for (reply, kept, _) in replies {
            // An error is ignored, because the caller may have been dropped.
            let _ = reply.send(kept);
        }
        for reply in ended {
            let _ = reply.send(());
        }
        self.remove_old(now);
    }

    /// Adds an event to a batch, for subscribers that have not received it yet.
    fn add(
        &mut self,
        Routed { event, to }: Routed,
        is_replay: bool,
        now: i64,
        (segment, begin): (u64, u64),
        bytes: &mut Vec<u8>,
        pending: &mut Vec<Pending>,
    ) -> Result<(), Refused> {
        let text = |name: &str| event.attribute(name).unwrap_or_default().to_owned();
        let (source, id) = (text("source"), text("id"));
        let to: Vec<SubscriberId> =
            to.into_iter().filter(|to| self.recent.insert(to.as_str(), &source, &id, now) || is_replay).collect();
        if to.is_empty() {
            return Ok(());
        }
        // For subscribers whose share is used up, the event becomes a dead letter.
        let attempts = |id: &SubscriberId| if self.is_over(id) { OVER } else { 0 };
        let to: Vec<(SubscriberId, u32)> =
            to.into_iter().map(|id| (attempts(&id), id)).map(|(n, id)| (id, n)).collect();
        let recipients =
            to.iter().map(|(id, attempts)| Recipient { id: id.to_string(), attempts: *attempts }).collect();
        let number = self.next;
        self.next += 1;
        let head = Head::Event { number, published: now, to: recipients, attributes: event.attributes };
        let from = bytes.len();
        let encoded = record::encode(&head, &event.data, bytes);
        let length = bytes.len() - from;
        let place = Place { segment, offset: begin + from as u64, length };
        let entry = Entry { place, published: now, to };
        pending.push(Pending { number, entry, source, id });
        match encoded {
            Ok(()) if record::is_readable(length) => Ok(()),
            Ok(()) => Err(Refused::Full),
            Err(error) => Err(Refused::Io(Arc::new(error.into()))),
        }
    }

    /// Adds a record that may be lost.
    fn note(head: &Head, bytes: &mut Vec<u8>) {
        let from = bytes.len();
        if record::encode(head, &[], bytes).is_err() {
            bytes.truncate(from);
        }
    }

    /// Whether the share of a subscriber or its namespace is used up. Events of the current batch do not count yet.
    fn is_over(&self, id: &SubscriberId) -> bool {
        let capacity = Held { events: MOST_EVENTS, bytes: self.budget };
        !self.shared.index.lock().has_room(capacity, id)
    }

    /// Returns the remaining bytes and events.
    fn room(&self) -> (u64, usize) {
        let index = self.shared.index.lock();
        (self.budget.saturating_sub(index.bytes()), MOST_EVENTS.saturating_sub(index.len()))
    }

    fn queue(&self, pending: Vec<Pending>) {
        if pending.is_empty() {
            return;
        }
        let mut index = self.shared.index.lock();
        for Pending { number, entry, .. } in pending {
            index.insert(number, entry);
        }
        drop(index);
        self.shared.stored.send_replace(());
    }

    /// Forgets events that were not stored, so that they are new when they are published again.
    fn forget(&mut self, pending: impl Iterator<Item = Pending>, is_replay: bool) {
        if is_replay {
            return;
        }
        for Pending { entry, source, id, .. } in pending {
            for (to, _) in entry.to {
                self.recent.forget(&to, &source, &id);
            }
        }
    }

    /// Starts a new segment if needed.
    fn prepare(&mut self) {
        match self.store.roll(self.is_broken) {
            Ok(Some((number, file))) => {
                self.is_broken = false;
                self.shared.files.lock().insert(number, file);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "could not open the next journal segment"),
        }
    }

    fn tick(&mut self) {
        if self.is_broken {
            self.prepare();
        }
        if self.is_dirty
            && let Err(error) = self.store.sync()
        {
            tracing::warn!(%error, "the journal could not be synced");
        }
        self.is_dirty = false;
        self.remove_old(now());
    }
}

fn refused(error: &Arc<io::Error>) -> Refused {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refused::Full,
        _ => Refused::Io(Arc::clone(error)),
    }
}
