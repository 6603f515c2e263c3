//! The task that writes the journal. Concurrent commands are written in one transaction.

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::shares::Held;
use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::command::{Command, Refused, Shared};
use super::index::OVER;
use super::recent::{Recent, name};
use super::tables::{Batch, Change, Mark, Put, Tables, io_error};

/// Capacity of the command queue. Further senders wait.
pub(super) const WAITING: usize = 256;
/// Maximum number of waiting events. Each event takes about 200 bytes of memory.
const MOST_EVENTS: usize = 100_000;
/// Delay before the database is opened again after a failure.
const AGAIN: Duration = Duration::from_secs(1);
/// This part of the size is for the pages that a transaction replaces, and for the names of recent events.
const RESERVED: u64 = 8;

/// The state of the writing task.
pub(super) struct Writer {
    pub(super) directory: PathBuf,
    pub(super) recent: Recent,
    /// The number of the next event. A number is not used again in the same process.
    pub(super) next: u64,
    pub(super) budget: u64,
    pub(super) shared: Arc<Shared>,
    /// The marks of a failed transaction. They are written again.
    pub(super) unwritten: Vec<Mark>,
    /// Whether the last transaction failed. The database has to be opened again.
    pub(super) is_broken: bool,
}

/// Executes commands until all handles are dropped.
pub(super) async fn run(mut writer: Writer, mut commands: mpsc::Receiver<Command>) {
    let mut batch = Vec::new();
    let mut again = Instant::now();
    loop {
        let received = tokio::select! {
            received = commands.recv_many(&mut batch, WAITING) => received,
            () = sleep_until(again), if writer.is_broken => usize::MAX,
        };
        if received == 0 {
            return;
        }
        let commands = mem::take(&mut batch);
        let was_broken = writer.is_broken;
        let working = move || {
            if commands.is_empty() {
                writer.reopen();
            }
            writer.commit(commands);
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
        if received == usize::MAX || !was_broken {
            again = Instant::now() + AGAIN;
        }
    }
}

impl Writer {
    fn commit(&mut self, commands: Vec<Command>) {
        let now = Timestamp::now().as_millisecond();
        let mut batch = Batch { marks: mem::take(&mut self.unwritten), puts: Vec::new() };
        let (mut replies, mut ended) = (Vec::new(), Vec::new());
        let mut room = self.room();
        for command in commands {
            match command {
                Command::Publish { routed, is_replay, reply } => {
                    let kept = self.accept(routed, is_replay, now, &mut room, &mut batch.puts);
                    replies.push((reply, kept));
                }
                Command::Ended { numbers, to, reply } => {
                    let mut index = self.shared.index.lock();
                    let marks = numbers.into_iter().filter_map(|number| {
                        let change = if index.end(number, &to)? {
                            self.shared.fresh.lock().remove(number);
                            Change::LastEnded
                        } else {
                            Change::Ended
                        };
                        Some(Mark { number, to: to.clone(), change })
                    });
                    batch.marks.extend(marks);
                    ended.push(reply);
                }
                Command::Tried { number, to, attempts } => {
                    let length = self.shared.index.lock().tried(number, &to, attempts);
                    let change = length.map(|length| Change::Tried { attempts, length });
                    batch.marks.extend(change.map(|change| Mark { number, to, change }));
                }
            }
        }
        match self.write(&batch, now) {
            Ok(()) => self.queue(&batch.puts, now),
            Err(error) => {
                tracing::error!(%error, "the journal could not be written");
                let error = Arc::new(error);
                for (_, kept) in &mut replies {
                    *kept = mem::replace(kept, Ok(())).and_then(|()| Err(refused(&error)));
                }
                self.undo(batch);
            }
        }
        for (reply, kept) in replies {
            // An error is ignored, because the caller may have been dropped.
            let _ = reply.send(kept);
        }
        for reply in ended {
            let _ = reply.send(());
        }
    }

    /// Adds the events of a request to a batch, or none of them.
    fn accept(
        &mut self,
        routed: Vec<Routed>,
        is_replay: bool,
        now: i64,
        room: &mut Held,
        puts: &mut Vec<Put>,
    ) -> Result<(), Refused> {
        let to = || routed.iter().flat_map(|one| &one.to);
        // If the shares of all subscribers are used up, the events are refused.
        if !routed.is_empty() && to().all(|to| self.is_over(to)) {
            return Err(Refused::share(to()));
        }
        let (before, mut needed, mut failed) = (puts.len(), Held::default(), None);
        for one in routed {
            match self.put(one, is_replay, now) {
                Ok(Some(put)) => {
                    needed = needed + Held { events: 1, bytes: put.length() };
                    puts.push(put);
                }
                Ok(None) => {}
                Err(error) => failed = Some(Refused::Io(Arc::new(error.into()))),
            }
        }
        let is_full = needed.events > room.events || needed.bytes > room.bytes;
        if let Some(why) = failed.or_else(|| (is_full && needed.events > 0).then_some(Refused::Full)) {
            self.forget(puts.drain(before..));
            return Err(why);
        }
        *room = room.without(needed);
        Ok(())
    }

    /// Returns an event for the subscribers that have not received it yet.
    fn put(&mut self, routed: Routed, is_replay: bool, now: i64) -> Result<Option<Put>, serde_json::Error> {
        let Routed { event, to, .. } = routed;
        let text = |name: &str| event.attribute(name).unwrap_or_default();
        let (mut names, mut recipients) = (Vec::new(), Vec::new());
        let attributes = serde_json::to_vec(&event.attributes)?;
        for id in to {
            let name = name(id.as_str(), text("source"), text("id"));
            let is_new = self.recent.insert(name, now);
            if is_new {
                names.push(name);
            }
            if is_new || is_replay {
                // For subscribers whose share is used up, the event becomes a dead letter.
                let attempts = if self.is_over(&id) { OVER } else { 0 };
                recipients.push((id, attempts));
            }
        }
        if recipients.is_empty() {
            return Ok(None);
        }
        let number = self.next;
        self.next += 1;
        Ok(Some(Put { number, event: Arc::new(event), attributes, to: recipients, names }))
    }

    /// Whether the share of a subscriber or its namespace is used up. Events of the current batch do not count yet.
    fn is_over(&self, id: &SubscriberId) -> bool {
        let capacity = Held { events: MOST_EVENTS, bytes: self.budget };
        !self.shared.index.lock().has_room(capacity, id)
    }

    /// Returns the remaining bytes and events.
    fn room(&self) -> Held {
        let index = self.shared.index.lock();
        let all = Held { events: MOST_EVENTS, bytes: self.budget - self.budget / RESERVED };
        all.without(Held { events: index.len(), bytes: index.bytes() })
    }

    fn write(&self, batch: &Batch, now: i64) -> io::Result<()> {
        if batch.puts.is_empty() && batch.marks.is_empty() {
            return Ok(());
        }
        let tables = self.shared.tables.read();
        let closed = || io::Error::other("it is opened again after a failure");
        let tables = tables.as_ref().filter(|_| !self.is_broken).ok_or_else(closed)?;
        tables.write(batch, &self.recent, now).map_err(io_error)
    }

    fn queue(&self, puts: &[Put], now: i64) {
        if puts.is_empty() {
            return;
        }
        let mut fresh = self.shared.fresh.lock();
        for put in puts {
            fresh.insert(put.number, &put.event, put.attributes.len(), now);
        }
        drop(fresh);
        let mut index = self.shared.index.lock();
        for put in puts {
            for (to, attempts) in &put.to {
                index.insert(put.number, put.length(), to, *attempts);
            }
        }
        drop(index);
        self.shared.stored.send_replace(());
    }

    /// Undoes a failed batch. It may be on disk, so its refused events are removed there.
    fn undo(&mut self, batch: Batch) {
        self.is_broken = true;
        self.unwritten = batch.marks;
        for Put { number, to, .. } in &batch.puts {
            let marks = to.iter().map(|(to, _)| Mark { number: *number, to: to.clone(), change: Change::LastEnded });
            self.unwritten.extend(marks);
        }
        self.forget(batch.puts.into_iter());
    }

    /// Forgets events that were not stored, so that they are new when they are published again.
    fn forget(&mut self, puts: impl Iterator<Item = Put>) {
        for name in puts.flat_map(|put| put.names) {
            self.recent.forget(name);
        }
    }

    /// Opens the database again after a failure. Until then, redb refuses transactions.
    fn reopen(&mut self) {
        let mut tables = self.shared.tables.write();
        // The file is locked until it is closed.
        *tables = None;
        match Tables::open(&self.directory) {
            Ok(opened) => {
                *tables = Some(opened);
                self.is_broken = false;
            }
            Err(error) => tracing::error!(why = mainstay_object::failure::chain(&error), "could not open the journal"),
        }
    }
}

fn refused(error: &Arc<io::Error>) -> Refused {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refused::Full,
        _ => Refused::Io(Arc::clone(error)),
    }
}
