//! The task that writes the journal: what comes at the same time is written and synced together.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::index::{Entry, Index, Place};
use super::recent::{MEMORY, Recent};
use super::record::{self, Head, Recipient};
use super::store::{self, Files, Found, OpenError, Store};

/// Commands that wait to be written; more wait outside.
const WAITING: usize = 256;
/// Events that somebody still has to get; each takes about 200 bytes of memory.
const MOST_EVENTS: usize = 100_000;
/// How long what was delivered may be on its way to the disk. If the machine dies within it, it is delivered again.
const TICK: Duration = Duration::from_secs(1);

/// Why an event is not kept.
#[derive(Debug, thiserror::Error)]
pub(in crate::eventing) enum Refused {
    #[error("the journal is full: subscribers have not taken what was published before")]
    Full,
    #[error("the journal cannot be written")]
    Io(#[source] Arc<io::Error>),
    #[error("it is ending")]
    Ending,
}

/// An event that a subscriber has to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::eventing) struct Queued {
    pub(in crate::eventing) number: u64,
    pub(in crate::eventing) to: SubscriberId,
    /// How often it was delivered in vain.
    pub(in crate::eventing) attempts: u32,
}

/// An event of the journal.
#[derive(Clone, Debug)]
pub(in crate::eventing) struct Kept {
    pub(in crate::eventing) event: CloudEvent,
    pub(in crate::eventing) published: Timestamp,
}

enum Command {
    Publish { routed: Vec<Routed>, is_replay: bool, reply: oneshot::Sender<Result<(), Refused>> },
    Ended { numbers: Vec<u64>, to: SubscriberId, reply: oneshot::Sender<()> },
    Tried { number: u64, to: SubscriberId, attempts: u32 },
}

#[derive(Debug)]
struct Shared {
    index: Mutex<Index>,
    files: Mutex<Files>,
}

/// The journal. Clones are the same one.
#[derive(Clone, Debug)]
pub(in crate::eventing) struct Journal {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

/// The task's own.
struct Writer {
    store: Store,
    recent: Recent,
    next: u64,
    budget: u64,
    shared: Arc<Shared>,
    queue: mpsc::UnboundedSender<Queued>,
    /// Something was written and not synced.
    is_dirty: bool,
    /// The last write or sync has failed.
    is_broken: bool,
}

impl Journal {
    /// Opens the journal of a directory, of at most so many bytes, and the task that writes it, which ends with the last clone.
    /// What is to be delivered, from earlier on and from now on, is queued.
    pub(in crate::eventing) fn open(
        directory: &Path,
        budget: u64,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Queued>, impl Future<Output = ()> + Send + use<>), OpenError> {
        let Found { store, index, recent, files, next } = Store::open(directory, now())?;
        let (queue, queued) = mpsc::unbounded_channel();
        for (number, entry) in index.entries() {
            for (to, attempts) in &entry.to {
                // Its other end is below.
                let _ = queue.send(Queued { number, to: to.clone(), attempts: *attempts });
            }
        }
        let shared = Arc::new(Shared { index: Mutex::new(index), files: Mutex::new(files) });
        let (commands, received) = mpsc::channel(WAITING);
        let writer = Writer {
            store,
            recent,
            next,
            budget,
            shared: Arc::clone(&shared),
            queue,
            is_dirty: false,
            is_broken: false,
        };
        Ok((Self { commands, shared }, queued, run(writer, received)))
    }

    /// Keeps events for their subscribers. When this returns they are on disk.
    pub(in crate::eventing) async fn publish(&self, routed: Vec<Routed>) -> Result<(), Refused> {
        self.keep(routed, false).await
    }

    /// The same, although they may have been published just now.
    pub(in crate::eventing) async fn publish_again(&self, routed: Vec<Routed>) -> Result<(), Refused> {
        self.keep(routed, true).await
    }

    async fn keep(&self, routed: Vec<Routed>, is_replay: bool) -> Result<(), Refused> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Publish { routed, is_replay, reply }).await;
        sent.map_err(|_| Refused::Ending)?;
        answer.await.unwrap_or(Err(Refused::Ending))
    }

    /// A subscriber has events, or never will. When this returns that is written, so that a process that is killed delivers no
    /// more of them again than are under way.
    pub(in crate::eventing) async fn ended(&self, numbers: Vec<u64>, to: &SubscriberId) {
        let (reply, written) = oneshot::channel();
        // If the task is gone, so is this process in a moment, and the events are delivered again.
        let _ = self.commands.send(Command::Ended { numbers, to: to.clone(), reply }).await;
        let _ = written.await;
    }

    /// An event was delivered in vain so often.
    pub(in crate::eventing) async fn tried(&self, number: u64, to: &SubscriberId, attempts: u32) {
        let _ = self.commands.send(Command::Tried { number, to: to.clone(), attempts }).await;
    }

    /// An event, if it still has to be delivered to somebody.
    pub(in crate::eventing) async fn read(&self, number: u64) -> io::Result<Option<Kept>> {
        let shared = Arc::clone(&self.shared);
        let reading = move || {
            // It may move between the two.
            for _ in 0..3 {
                let Some((place, published)) =
                    shared.index.lock().get(number).map(|entry| (entry.place, entry.published))
                else {
                    return Ok(None);
                };
                let file = shared.files.lock().get(&place.segment).cloned();
                let Some(file) = file else { continue };
                let published = Timestamp::from_millisecond(published).unwrap_or(Timestamp::UNIX_EPOCH);
                return store::read(&file, &place).map(|event| Some(Kept { event, published }));
            }
            Err(io::Error::new(io::ErrorKind::NotFound, "its segment is gone"))
        };
        tokio::task::spawn_blocking(reading).await.map_err(io::Error::other)?
    }

    /// The events that a subscriber still has to get.
    pub(in crate::eventing) fn pending_of(&self, to: &SubscriberId) -> Vec<u64> {
        let index = self.shared.index.lock();
        let of_this = index.entries().filter(|(_, entry)| entry.to.iter().any(|(id, _)| id == to));
        of_this.map(|(number, _)| number).collect()
    }

    /// Events that somebody still has to get, and bytes on disk.
    pub(in crate::eventing) fn size(&self) -> (usize, u64) {
        let index = self.shared.index.lock();
        (index.len(), index.bytes())
    }
}

async fn run(mut writer: Writer, mut commands: mpsc::Receiver<Command>) {
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
        // It cannot be cancelled; a panic of it ends this task, and with it the process.
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

/// An event of a batch, before it is on disk.
struct Pending {
    number: u64,
    entry: Entry,
    source: String,
    id: String,
}

impl Writer {
    /// Whether a tick has something to do.
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
                    let mut kept = Ok(());
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
            // Whoever asked may be gone.
            let _ = reply.send(kept);
        }
        for reply in ended {
            let _ = reply.send(());
        }
        self.remove_old(now);
    }

    /// Adds an event to a batch, for those who do not have it.
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
        let recipients = to.iter().map(|id| Recipient { id: id.to_string(), attempts: 0 }).collect();
        let number = self.next;
        self.next += 1;
        let head = Head::Event { number, published: now, to: recipients, attributes: event.attributes };
        let from = bytes.len();
        let encoded = record::encode(&head, &event.data, bytes);
        let length = bytes.len() - from;
        let place = Place { segment, offset: begin + from as u64, length };
        let entry = Entry { place, published: now, to: to.into_iter().map(|id| (id, 0)).collect() };
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

    /// Bytes and events that fit.
    fn room(&self) -> (u64, usize) {
        let index = self.shared.index.lock();
        (self.budget.saturating_sub(index.bytes()), MOST_EVENTS.saturating_sub(index.len()))
    }

    fn queue(&self, pending: Vec<Pending>) {
        for Pending { number, entry, .. } in pending {
            let to = entry.to.clone();
            self.shared.index.lock().insert(number, entry);
            for (to, attempts) in to {
                // Nobody delivers any more only when everything ends.
                let _ = self.queue.send(Queued { number, to, attempts });
            }
        }
    }

    /// Events were not kept, so that they are new when they come again.
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

    /// Begins another segment where that is due.
    fn prepare(&mut self) {
        match self.store.roll(self.is_broken) {
            Ok(Some((number, file))) => {
                self.is_broken = false;
                self.shared.files.lock().insert(number, file);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "the journal could not be continued"),
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

    /// Removes what nobody needs any more, and moves the rest of an old segment where space is short.
    fn remove_old(&mut self, now: i64) {
        let is_short = self.shared.index.lock().bytes() > self.budget / 2;
        let since = if is_short { i64::MAX } else { now - MEMORY };
        loop {
            let removable = self.shared.index.lock().removable(self.store.current(), since);
            let Some(number) = removable else { break };
            if !self.remove(number) {
                return;
            }
        }
        if is_short {
            let sparse = self.shared.index.lock().sparse(self.store.current());
            if let Some((number, events)) = sparse
                && let Err(error) = self.rewrite(&events, now)
            {
                tracing::warn!(segment = number, %error, "a segment of the journal could not be made smaller");
            }
        }
    }

    fn remove(&self, number: u64) -> bool {
        if let Err(error) = self.store.remove(number) {
            tracing::warn!(segment = number, %error, "a segment of the journal could not be removed");
            return false;
        }
        self.shared.files.lock().remove(&number);
        self.shared.index.lock().forget(number);
        true
    }

    /// Writes events again, at the end, for those who still have to get them. Their segment can go then.
    fn rewrite(&mut self, events: &[u64], now: i64) -> io::Result<()> {
        let (segment, begin) = self.store.end();
        let (mut bytes, mut moved) = (Vec::new(), Vec::new());
        for number in events {
            let entry = self.shared.index.lock().get(*number).cloned();
            let Some(mut entry) = entry else { continue };
            let file = self.shared.files.lock().get(&entry.place.segment).cloned();
            let file = file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let event = store::read(&file, &entry.place)?;
            let to = entry.to.iter().map(|(id, attempts)| Recipient { id: id.to_string(), attempts: *attempts });
            let (published, to) = (entry.published, to.collect());
            let from = bytes.len();
            let head = Head::Event { number: *number, published, to, attributes: event.attributes };
            record::encode(&head, &event.data, &mut bytes)?;
            entry.place = Place { segment, offset: begin + from as u64, length: bytes.len() - from };
            moved.push((*number, entry));
        }
        self.store.append(&bytes)?;
        self.store.sync()?;
        let mut index = self.shared.index.lock();
        index.wrote(segment, bytes.len() as u64, now);
        for (number, entry) in moved {
            index.insert(number, entry);
        }
        Ok(())
    }
}

fn refused(error: &Arc<io::Error>) -> Refused {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Refused::Full,
        _ => Refused::Io(Arc::clone(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::subscriber::SubscriberKind;
    use super::*;

    fn id(name: &str) -> SubscriberId {
        SubscriberId::new(SubscriberKind::Trigger, "default", name)
    }

    fn event(number: usize, data: &str, to: &[&str]) -> Vec<Routed> {
        let attributes = [("id", number.to_string()), ("source", "s".to_owned()), ("type", "t".to_owned())];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        let event = CloudEvent { attributes, data: data.to_owned().into() };
        vec![Routed { event, to: to.iter().map(|name| id(name)).collect() }]
    }

    struct Opened {
        journal: Journal,
        queued: mpsc::UnboundedReceiver<Queued>,
        task: tokio::task::JoinHandle<()>,
    }

    impl Opened {
        fn at(directory: &Path, budget: u64) -> Self {
            let (journal, queued, task) = Journal::open(directory, budget).unwrap();
            Self { journal, queued, task: tokio::spawn(task) }
        }

        /// Everything that is queued now, as `number name attempts`.
        fn all(&mut self) -> Vec<String> {
            let mut all = Vec::new();
            while let Ok(Queued { number, to, attempts }) = self.queued.try_recv() {
                all.push(format!("{number} {} {attempts}", to.parts().2));
            }
            all
        }

        async fn close(self) {
            drop(self.journal);
            self.task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_was_not_delivered_is_queued_again() {
        let room = tempfile::tempdir().unwrap();
        let mut opened = Opened::at(room.path(), 1 << 20);
        opened.journal.publish(event(1, "one", &["a", "b"])).await.unwrap();
        opened.journal.publish(event(2, "two", &["a"])).await.unwrap();
        assert_eq!(opened.all(), ["1 a 0", "1 b 0", "2 a 0"]);
        opened.journal.ended(vec![1], &id("a")).await;
        opened.journal.tried(2, &id("a"), 3).await;
        opened.close().await;
        let mut opened = Opened::at(room.path(), 1 << 20);
        assert_eq!(opened.all(), ["1 b 0", "2 a 3"]);
        assert_eq!(opened.journal.read(2).await.unwrap().unwrap().event.data, "two");
        opened.journal.ended(vec![2], &id("a")).await;
        opened.journal.publish(event(3, "three", &["a"])).await.unwrap();
        assert_eq!(opened.all(), ["3 a 0"], "numbers go on");
        assert!(opened.journal.read(2).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn an_event_that_comes_again_is_queued_once_for_each_subscriber() {
        let room = tempfile::tempdir().unwrap();
        let mut opened = Opened::at(room.path(), 1 << 20);
        for to in [&["a"][..], &["a", "b"]] {
            opened.journal.publish(event(1, "one", to)).await.unwrap();
        }
        assert_eq!(opened.all(), ["1 a 0", "2 b 0"]);
        opened.close().await;
        let mut opened = Opened::at(room.path(), 1 << 20);
        opened.all();
        opened.journal.publish(event(1, "one", &["a"])).await.unwrap();
        assert_eq!(opened.all(), [""; 0], "also after a restart");
        opened.journal.publish_again(event(1, "one", &["a"])).await.unwrap();
        assert_eq!(opened.all(), ["3 a 0"]);
    }

    #[tokio::test]
    async fn a_torn_end_is_left_out_and_what_follows_is_kept() {
        let room = tempfile::tempdir().unwrap();
        let opened = Opened::at(room.path(), 1 << 20);
        opened.journal.publish(event(1, "one", &["a"])).await.unwrap();
        opened.journal.publish(event(2, "two", &["a"])).await.unwrap();
        opened.close().await;
        let path = room.path().join("000000000001.segment");
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 5]).unwrap();
        let mut opened = Opened::at(room.path(), 1 << 20);
        assert_eq!(opened.all(), ["1 a 0"]);
        opened.journal.publish(event(3, "three", &["a"])).await.unwrap();
        opened.close().await;
        assert_eq!(Opened::at(room.path(), 1 << 20).all(), ["1 a 0", "2 a 0"]);
    }

    #[tokio::test]
    async fn it_is_full_until_something_is_delivered() {
        let (room, large) = (tempfile::tempdir().unwrap(), "x".repeat(60_000));
        let mut opened = Opened::at(room.path(), 10 << 20);
        let mut kept = 0;
        let refused = loop {
            match opened.journal.publish(event(kept, &large, &["a"])).await {
                Ok(()) => kept += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, Refused::Full) && (150..180).contains(&kept), "{kept}: {refused}");
        assert_eq!(opened.all().len(), kept);
        // One of each ten stays: what is left of old segments moves, so that they can go.
        for number in (1..=kept as u64).filter(|number| number % 10 != 0) {
            opened.journal.ended(vec![number], &id("a")).await;
        }
        let publishing = async {
            while opened.journal.publish(event(kept, &large, &["a"])).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), publishing).await.unwrap();
        let (events, bytes) = opened.journal.size();
        assert!(events == kept / 10 + 1 && bytes < 10 << 20, "{events} events, {bytes} bytes");
        for number in (1..=kept as u64).filter(|number| number % 10 == 0) {
            assert_eq!(opened.journal.read(number).await.unwrap().unwrap().event.data, large, "{number}");
        }
    }

    #[tokio::test]
    async fn only_one_process_writes() {
        let room = tempfile::tempdir().unwrap();
        let _opened = Opened::at(room.path(), 1 << 20);
        assert!(matches!(Journal::open(room.path(), 1 << 20).map(drop), Err(OpenError::InUse { .. })));
    }
}
