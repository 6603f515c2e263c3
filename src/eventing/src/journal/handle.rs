//! The handle of the journal. The handle sends commands to the writing task.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::command::{Command, Refused, Shared};
use super::index::{Queued, Which};
use super::tables::{Found, Kept, OpenError, Tables};
use super::writer::{WAITING, Writer, run};

/// A handle of the journal. Clones share the same journal.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
}

impl Journal {
    /// Opens the journal of a directory with a maximum size in bytes. Also returns its writing task, which ends when
    /// the last handle is dropped.
    pub(crate) fn open(
        directory: &Path,
        budget: u64,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), OpenError> {
        let tables = Tables::open(directory)?;
        let Found { index, recent, next } = tables.load(Timestamp::now().as_millisecond())?;
        let (stored, tables) = (watch::Sender::new(()), RwLock::new(Some(tables)));
        let shared = Arc::new(Shared { index: Mutex::new(index), fresh: Mutex::default(), tables, stored });
        let (commands, received) = mpsc::channel(WAITING);
        let (directory, writers, unwritten) = (directory.to_owned(), Arc::clone(&shared), Vec::new());
        let writer = Writer { directory, recent, next, budget, shared: writers, unwritten, is_broken: false };
        Ok((Self { commands, shared }, run(writer, received)))
    }

    /// Whether a directory contains a journal.
    pub(crate) fn is_at(directory: &Path) -> bool {
        directory.is_dir()
    }

    /// Stores events for their subscribers. The events are on disk when this returns.
    pub(crate) async fn publish(&self, routed: Vec<Routed>) -> Result<(), Refused> {
        self.keep(routed, false).await
    }

    /// Stores events even if they were published recently.
    pub(crate) async fn publish_again(&self, routed: Vec<Routed>) -> Result<(), Refused> {
        self.keep(routed, true).await
    }

    async fn keep(&self, routed: Vec<Routed>, is_replay: bool) -> Result<(), Refused> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Publish { routed, is_replay, reply }).await;
        sent.map_err(|_| Refused::Ending)?;
        answer.await.unwrap_or(Err(Refused::Ending))
    }

    /// Records that a subscriber has accepted or will never receive events. The record is written when this returns.
    pub(crate) async fn ended(&self, numbers: Vec<u64>, to: &SubscriberId) {
        let (reply, written) = oneshot::channel();
        // If the writing task has ended, the process will end soon, and the events are delivered again.
        let _ = self.commands.send(Command::Ended { numbers, to: to.clone(), reply }).await;
        let _ = written.await;
    }

    /// Records the number of failed deliveries of an event.
    pub(crate) async fn tried(&self, number: u64, to: &SubscriberId, attempts: u32) {
        let _ = self.commands.send(Command::Tried { number, to: to.clone(), attempts }).await;
    }

    /// Reads an event, if a subscriber still waits for it.
    pub(crate) async fn read(&self, number: u64) -> io::Result<Option<Kept>> {
        let fresh = self.shared.fresh.lock().get(number);
        if fresh.is_some() {
            return Ok(fresh);
        }
        let shared = Arc::clone(&self.shared);
        let reading = move || {
            let tables = shared.tables.read();
            tables.as_ref().ok_or_else(|| io::Error::other("the journal is closed after a failure"))?.read(number)
        };
        tokio::task::spawn_blocking(reading).await.map_err(io::Error::other)?
    }

    /// Returns the next events of a subscriber after `number`, oldest first, at most `most`.
    pub(crate) fn after(&self, to: &SubscriberId, which: Which, number: u64, most: usize) -> Vec<Queued> {
        self.shared.index.lock().after(to, which, number, most)
    }

    /// Returns a receiver that changes after each batch of stored events.
    pub(crate) fn stored(&self) -> watch::Receiver<()> {
        self.shared.stored.subscribe()
    }

    /// Returns the subscribers with waiting events.
    pub(crate) fn subscribers(&self) -> Vec<SubscriberId> {
        self.shared.index.lock().subscribers().cloned().collect()
    }

    /// Returns the events that a subscriber still waits for.
    pub(crate) fn pending_of(&self, to: &SubscriberId) -> Vec<u64> {
        let all = [Which::Deliverable, Which::Over].map(|which| self.after(to, which, 0, usize::MAX));
        all.into_iter().flatten().map(|queued| queued.number).collect()
    }

    /// Returns the number of events that subscribers wait for, and the bytes on disk.
    pub(crate) fn size(&self) -> (usize, u64) {
        let bytes = self.shared.tables.read().as_ref().map_or(0, Tables::size);
        (self.shared.index.lock().len(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::cloud_event::CloudEvent;
    use super::super::super::subscriber::SubscriberKind;
    use super::super::index::OVER;
    use super::*;

    fn id(name: &str) -> SubscriberId {
        SubscriberId::new(SubscriberKind::Trigger, "default", name)
    }

    fn event(number: usize, data: &str, to: &[&str]) -> Vec<Routed> {
        let attributes = [("id", number.to_string()), ("source", "s".to_owned()), ("type", "t".to_owned())];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        let event = CloudEvent { attributes, data: data.to_owned().into() };
        vec![Routed { event, to: to.iter().map(|name| id(name)).collect(), ordered: Vec::new() }]
    }

    struct Opened {
        journal: Journal,
        /// The number of the last event that [`all`](Self::all) returned.
        last: u64,
        task: tokio::task::JoinHandle<()>,
    }

    impl Opened {
        fn at(directory: &Path, budget: u64) -> Self {
            let (journal, task) = Journal::open(directory, budget).unwrap();
            Self { journal, last: 0, task: tokio::spawn(task) }
        }

        /// Returns all new waiting events in the form `number name attempts`.
        fn all(&mut self) -> Vec<String> {
            let mut all = Vec::new();
            for to in self.journal.subscribers() {
                for which in [Which::Deliverable, Which::Over] {
                    // Two events are taken at a time, as by a worker with few free slots.
                    let mut from = self.last;
                    loop {
                        let next = self.journal.after(&to, which, from, 2);
                        let Some(last) = next.last() else { break };
                        from = last.number;
                        all.extend(next.into_iter().map(|one| (one.number, to.parts().2.to_owned(), one.attempts)));
                    }
                }
            }
            all.sort();
            self.last = all.last().map_or(self.last, |(number, ..)| *number);
            all.into_iter().map(|(number, name, attempts)| format!("{number} {name} {attempts}")).collect()
        }

        async fn close(self) {
            drop(self.journal);
            self.task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn undelivered_events_are_queued_again() {
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
    async fn recent_events_are_read_from_memory_until_no_subscriber_waits() {
        let room = tempfile::tempdir().unwrap();
        let opened = Opened::at(room.path(), 1 << 20);
        opened.journal.publish(event(1, "one", &["a", "b"])).await.unwrap();
        *opened.journal.shared.tables.write() = None;
        assert_eq!(opened.journal.read(1).await.unwrap().unwrap().event.data, "one");
        opened.journal.ended(vec![1], &id("a")).await;
        assert!(opened.journal.read(1).await.is_ok_and(|kept| kept.is_some()), "b waits");
        opened.journal.ended(vec![1], &id("b")).await;
        assert!(opened.journal.read(1).await.is_err(), "the journal is closed");
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

    /// Returns the directory that the next process finds if this process is killed now.
    fn killed(room: &Path) -> tempfile::TempDir {
        let next = tempfile::tempdir().unwrap();
        std::fs::copy(room.join("events.redb"), next.path().join("events.redb")).unwrap();
        next
    }

    #[tokio::test]
    async fn accepted_events_and_ended_deliveries_survive_a_kill() {
        let room = tempfile::tempdir().unwrap();
        let mut opened = Opened::at(room.path(), 1 << 20);
        for number in 1..=20 {
            opened.journal.publish(event(number, "data", &["a"])).await.unwrap();
            if number % 2 == 0 {
                opened.journal.ended(vec![number as u64], &id("a")).await;
            }
            let next = killed(room.path());
            let mut next = Opened::at(next.path(), 1 << 20);
            opened.last = 0;
            assert_eq!(next.all(), opened.all(), "after event {number}");
            assert_eq!(next.journal.read(1).await.unwrap().unwrap().event.data, "data");
        }
    }

    /// Changes a byte in the data of an event.
    fn damage(room: &Path, data: &str) {
        let path = room.join("events.redb");
        let mut whole = std::fs::read(&path).unwrap();
        let found: Vec<usize> =
            (0..whole.len() - data.len()).filter(|at| whole[*at..].starts_with(data.as_bytes())).collect();
        assert!(!found.is_empty());
        // Replaced pages keep earlier copies.
        for at in found {
            whole[at] ^= 1;
        }
        std::fs::write(&path, whole).unwrap();
    }

    #[tokio::test]
    async fn records_after_a_damaged_one_are_not_lost() {
        let room = tempfile::tempdir().unwrap();
        let opened = Opened::at(room.path(), 1 << 20);
        for (number, data) in [(1, "first"), (2, "second"), (3, "third")] {
            opened.journal.publish(event(number, data, &["a"])).await.unwrap();
        }
        opened.close().await;
        damage(room.path(), "second");
        let opened = Opened::at(room.path(), 1 << 20);
        let error = opened.journal.read(2).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        for (number, data) in [(1, "first"), (3, "third")] {
            assert_eq!(opened.journal.read(number).await.unwrap().unwrap().event.data, data);
        }
    }

    #[tokio::test]
    async fn a_damaged_file_and_one_of_an_earlier_version_are_refused() {
        let room = tempfile::tempdir().unwrap();
        let refused = || Journal::open(room.path(), 1 << 20).map(drop).unwrap_err().to_string();
        std::fs::write(room.path().join("events.redb"), "x".repeat(10_000)).unwrap();
        assert!(refused().contains("events.redb is damaged; restore it, or move it away"), "{}", refused());
        std::fs::write(room.path().join("000000000001.segment"), "").unwrap();
        assert!(
            refused().contains("has events of an earlier version; deliver them with that version"),
            "{}",
            refused()
        );
    }

    #[tokio::test]
    async fn a_failed_database_is_opened_again_with_the_deliveries_that_it_missed() {
        let room = tempfile::tempdir().unwrap();
        let opened = Opened::at(room.path(), 1 << 20);
        for number in [1, 2] {
            opened.journal.publish(event(number, "data", &["a"])).await.unwrap();
        }
        opened.close().await;
        let mut opened = Opened::at(room.path(), 1 << 20);
        *opened.journal.shared.tables.write() = None;
        let refused = opened.journal.publish(event(3, "data", &["a"])).await;
        assert!(matches!(refused, Err(Refused::Io(_))), "{refused:?}");
        opened.journal.ended(vec![1], &id("a")).await;
        assert!(opened.journal.read(2).await.is_err());
        let publishing = async {
            while opened.journal.publish(event(3, "data", &["a"])).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), publishing).await.unwrap();
        // Each refused attempt has taken a number.
        let expected = opened.all();
        assert_eq!((expected.len(), &*expected[0]), (2, "2 a 0"));
        opened.close().await;
        assert_eq!(Opened::at(room.path(), 1 << 20).all(), expected, "the next process knows it");
    }

    #[tokio::test]
    async fn events_that_come_and_go_do_not_fill_the_file() {
        let (room, large) = (tempfile::tempdir().unwrap(), "x".repeat(60_000));
        let opened = Opened::at(room.path(), 10 << 20);
        // The events written here are six times as large as the budget.
        for number in 1..=1000 {
            opened.journal.publish(event(number, &large, &["a"])).await.unwrap();
            opened.journal.ended(vec![number as u64], &id("a")).await;
        }
        let (events, bytes) = opened.journal.size();
        assert!(events == 0 && bytes < 10 << 20, "{events} events, {bytes} bytes");
    }

    #[tokio::test]
    async fn a_full_journal_is_not_larger_than_its_limit() {
        for length in [100, 1_000, 2_100, 4_200, 33_000, 60_000] {
            let (room, data) = (tempfile::tempdir().unwrap(), "x".repeat(length));
            let opened = Opened::at(room.path(), 8 << 20);
            let of = |number: usize, namespace: usize| {
                let to = SubscriberId::new(SubscriberKind::Trigger, &format!("of-{namespace}"), "one");
                Routed { to: vec![to], ..event(number, &data, &[]).remove(0) }
            };
            // Eight requests at a time, for eight namespaces.
            let mut kept = 0;
            loop {
                let requests = (0..8)
                    .map(|namespace| opened.journal.publish((0..20).map(|n| of(kept * 20 + n, namespace)).collect()));
                if futures::future::join_all(requests).await.iter().all(Result::is_err) {
                    break;
                }
                kept += 1;
            }
            let (events, bytes) = opened.journal.size();
            assert!(
                events * (length + 512) > 2 << 20 && bytes <= 8 << 20,
                "{events} events of {length}: {bytes} bytes"
            );
            println!("{events} events of {length} bytes: {bytes} bytes");
        }
    }

    #[tokio::test]
    async fn it_is_full_until_something_is_delivered() {
        let (room, large) = (tempfile::tempdir().unwrap(), "x".repeat(60_000));
        let who = |number: usize| ["a", "b"][number % 2];
        let mut opened = Opened::at(room.path(), 10 << 20);
        let mut kept = 0;
        let refused = loop {
            match opened.journal.publish(event(kept, &large, &[who(kept)])).await {
                Ok(()) => kept += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, Refused::Share { .. }) && (80..95).contains(&kept), "{kept}: {refused}");
        assert_eq!(opened.all().len(), kept);
        // Every tenth event stays.
        for number in (1..=kept as u64).filter(|number| number % 10 != 0) {
            opened.journal.ended(vec![number], &id(who(usize::try_from(number).unwrap() - 1))).await;
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
    async fn a_subscriber_that_takes_nothing_leaves_room_for_others() {
        let (room, large) = (tempfile::tempdir().unwrap(), "x".repeat(60_000));
        let mut opened = Opened::at(room.path(), 10 << 20);
        let mut kept = 0;
        while opened.journal.publish(event(kept, &large, &["slow"])).await.is_ok() {
            kept += 1;
        }
        opened.all();
        // Other subscribers still receive their events. A shared event becomes a dead letter for the slow subscriber.
        opened.journal.publish(event(1000, &large, &["fast"])).await.unwrap();
        opened.journal.publish(event(1001, &large, &["slow", "fast"])).await.unwrap();
        let over =
            [format!("{} fast 0", kept + 1), format!("{} fast 0", kept + 2), format!("{} slow {OVER}", kept + 2)];
        assert_eq!(opened.all(), over);
        // A refused event counts as new when it is published again with enough space.
        let refused = opened.journal.publish(event(1002, &large, &["slow"])).await;
        assert!(matches!(refused, Err(Refused::Share { .. })));
        opened.journal.ended((1..=kept as u64).collect(), &id("slow")).await;
        opened.journal.publish(event(1002, &large, &["slow"])).await.unwrap();
        assert_eq!(opened.all(), [format!("{} slow 0", kept + 3)]);
        opened.close().await;
        let mut opened = Opened::at(room.path(), 10 << 20);
        assert!(opened.all().contains(&over[2]), "the next process knows it");
    }

    #[tokio::test]
    async fn a_namespace_whose_subscribers_take_nothing_leaves_room_for_other_namespaces() {
        let (room, large) = (tempfile::tempdir().unwrap(), "x".repeat(60_000));
        let mut opened = Opened::at(room.path(), 10 << 20);
        let nowhere: Vec<String> = (0..8).map(|number| format!("nowhere-{number}")).collect();
        let mut kept = 0;
        for name in &nowhere {
            while opened.journal.publish(event(kept, &large, &[name])).await.is_ok() {
                kept += 1;
            }
        }
        let refused = opened.journal.publish(event(kept, &large, &["nowhere-9"])).await;
        let why = refused.unwrap_err().to_string();
        let expected = "the store is full for namespace default: subscribers have not received earlier events";
        assert_eq!(why, expected, "a subscriber of the same namespace has no other share");
        opened.all();
        let of = |id: &SubscriberId, number| Routed { to: vec![id.clone()], ..event(number, &large, &[]).remove(0) };
        let other = SubscriberId::new(SubscriberKind::Trigger, "other", "good");
        for number in 1000..1020 {
            opened.journal.publish(vec![of(&other, number)]).await.unwrap();
        }
        assert_eq!(opened.all().len(), 20);
    }

    #[tokio::test]
    async fn only_one_process_writes() {
        let room = tempfile::tempdir().unwrap();
        let _opened = Opened::at(room.path(), 1 << 20);
        assert!(matches!(Journal::open(room.path(), 1 << 20).map(drop), Err(OpenError::InUse { .. })));
    }
}
