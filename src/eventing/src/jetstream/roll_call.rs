//! Asks all processes that accept events whether they know a subscriber, before its status says that it is ready.
//!
//! A process that accepts events announces itself at intervals, and before it is ready. Questions and announcements are
//! messages without storage.
//!
//! Invariant: after `knows`, no present process accepts an event without storing it for that subscriber.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber as Subscription;
use bytes::Bytes;
use futures::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::super::subscriber::Version;
use super::super::table::Table;
use super::streams::{JetStream, Unmade};

/// Subjects of announcements, of the end of a process, and of questions.
const HERE: &str = "mainstay.publishers.here";
const GONE: &str = "mainstay.publishers.gone";
const ASKED: &str = "mainstay.publishers.asked";
const PRESENCE: &str = "mainstay.publishers.*";
/// Time after which a silent process counts as ended. It announces itself more often.
const SILENCE: Duration = Duration::from_secs(12);
/// Time in which the answers to the first question after a connection name the processes.
const FIRST: Duration = Duration::from_secs(1);
/// Time for the answers to further questions.
const FURTHER: Duration = Duration::from_millis(500);
/// The first pause between two questions. Each further pause is twice as long, up to the maximum.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of processes that are remembered, and the maximum length of a name in bytes.
const MOST: usize = 1000;
const LONGEST: usize = 200;
/// Maximum length of the first part of a name.
const MOST_OF_INSTANCE: usize = 100;
/// Timeout of a question with all of its repetitions.
const WHOLE: Duration = Duration::from_secs(3);
/// Timeout of the last message of a process.
const FAREWELL: Duration = Duration::from_secs(1);
/// The words after the name in an answer.
const KNOWS: &str = "knows";
const LACKS: &str = "lacks";

/// The announcement of a process that accepts events.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    store: JetStream,
    name: String,
}

impl Announcement {
    /// Announces the process.
    pub(super) async fn send(&self) -> Result<(), Unmade> {
        Ok(self.store.client().publish(HERE, Bytes::from(self.name.clone())).await?)
    }
}

/// The questions to a process that accepts events.
pub(crate) struct Questions {
    announcement: Announcement,
    asked: Subscription,
}

impl Questions {
    /// Answers from the table, until `stop`.
    pub(crate) async fn answer(mut self, table: watch::Receiver<Option<Arc<Table>>>, stop: CancellationToken) {
        let client = self.announcement.store.client();
        while let Some(Some(question)) = stop.run_until_cancelled(self.asked.next()).await {
            let asked = std::str::from_utf8(&question.payload).ok().and_then(Version::parse);
            let (Some(version), Some(reply)) = (asked, question.reply) else { continue };
            let knows = table.borrow().as_ref().is_some_and(|table| table.knows(&version));
            let answer = format!("{} {}", self.announcement.name, if knows { KNOWS } else { LACKS });
            // A lost answer is asked for again.
            let _ = client.publish(reply, answer.into()).await;
        }
        // Without this message, the process counts as present for some seconds.
        let farewell = async {
            client.publish(GONE, Bytes::from(self.announcement.name)).await.ok()?;
            client.flush().await.ok()
        };
        let _ = timeout(FAREWELL, farewell).await;
    }
}

/// The processes that accept events, as a process that writes statuses knows them.
#[derive(Clone, Debug)]
pub(crate) struct RollCall {
    store: JetStream,
    present: Arc<Mutex<Present>>,
}

/// The processes, with the time of their last message.
#[derive(Debug, Default)]
struct Present {
    all: BTreeMap<String, Instant>,
    /// The connection for which the processes are complete, as the number of earlier ones.
    complete: Option<u64>,
}

impl Present {
    fn here(&mut self, name: &str, now: Instant) {
        if name.len() <= LONGEST && (self.all.len() < MOST || self.all.contains_key(name)) {
            self.all.insert(name.to_owned(), now);
        }
    }

    /// Returns a process that has not answered that it knows the subscriber.
    fn lacking(&mut self, knowing: &BTreeSet<String>, now: Instant) -> Option<String> {
        self.all.retain(|_, last| now.duration_since(*last) < SILENCE);
        self.all.keys().find(|name| !knowing.contains(*name)).cloned()
    }
}

impl JetStream {
    /// Returns the questions to this process, and its announcement. `instance` is the name of the process in messages.
    pub(crate) async fn questions(&self, instance: &str) -> Result<(Questions, Announcement), Unmade> {
        let instance: String = instance.chars().filter(char::is_ascii_graphic).take(MOST_OF_INSTANCE).collect();
        let name = format!("{instance}/{}", self.unique_id());
        let announcement = Announcement { store: self.clone(), name };
        let asked = self.client().subscribe(ASKED).await?;
        Ok((Questions { announcement: announcement.clone(), asked }, announcement))
    }

    /// Returns the processes that accept events, and the task that follows them.
    pub(crate) async fn roll_call(&self) -> Result<(RollCall, impl Future<Output = ()> + Send + use<>), Unmade> {
        let mut presence = self.client().subscribe(PRESENCE).await?;
        let present = Arc::<Mutex<Present>>::default();
        let roll_call = RollCall { store: self.clone(), present: Arc::clone(&present) };
        let following = async move {
            while let Some(message) = presence.next().await {
                let Ok(name) = std::str::from_utf8(&message.payload) else { continue };
                match message.subject.as_str() {
                    HERE => present.lock().here(name, Instant::now()),
                    GONE => drop(present.lock().all.remove(name)),
                    _ => {}
                }
            }
        };
        Ok((roll_call, following))
    }
}

impl RollCall {
    /// Asks whether all processes that accept events know this version of a subscriber. Waits briefly for those that do
    /// not know it yet. Fails with a reason.
    pub(crate) async fn knows(&self, version: &Version) -> Result<(), String> {
        let asked = timeout(WHOLE, self.ask(version)).await;
        asked.unwrap_or_else(|_| Err("NATS does not respond".into())).map_err(|error| error.to_string())
    }

    async fn ask(&self, version: &Version) -> Result<(), Unmade> {
        let connection = *self.store.losses().borrow();
        let is_complete = self.present.lock().complete == Some(connection);
        if !is_complete {
            // A question before the connection would have no answers, and would find no processes.
            self.store.0.context.query_account().await?;
        }
        let end = Instant::now() + if is_complete { FURTHER } else { FIRST };
        let (client, inbox, question) = (self.store.client(), self.store.unique_id(), version.to_string());
        let mut answers = client.subscribe(inbox.clone()).await?;
        let (mut knowing, mut pause) = (BTreeSet::new(), PAUSE);
        loop {
            client.publish_with_reply(ASKED, inbox.clone(), question.clone().into()).await?;
            let next = (Instant::now() + pause).min(end);
            pause = (pause * 2).min(LONGEST_PAUSE);
            loop {
                if is_complete && self.present.lock().lacking(&knowing, Instant::now()).is_none() {
                    return Ok(());
                }
                let Ok(Some(message)) = timeout_at(next, answers.next()).await else { break };
                let answer = std::str::from_utf8(&message.payload).ok().and_then(|answer| answer.split_once(' '));
                let Some((name, word)) = answer else { continue };
                self.present.lock().here(name, Instant::now());
                if word == KNOWS {
                    knowing.insert(name.to_owned());
                }
            }
            if Instant::now() >= end {
                return self.ended(connection, &knowing);
            }
        }
    }

    /// Returns the result when the time for answers is over.
    fn ended(&self, connection: u64, knowing: &BTreeSet<String>) -> Result<(), Unmade> {
        if *self.store.losses().borrow() != connection {
            return Err("NATS was disconnected".into());
        }
        let mut present = self.present.lock();
        present.complete = Some(connection);
        let Some(lacking) = present.lacking(knowing, Instant::now()) else { return Ok(()) };
        let instance = lacking.split_once('/').map_or("", |(instance, _)| instance);
        Err(format!("the publisher {instance} does not know the subscriber yet").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_processes_count_as_ended() {
        let (mut present, now) = (Present::default(), Instant::now());
        let knowing = BTreeSet::from(["one".to_owned()]);
        assert_eq!(present.lacking(&knowing, now), None);
        present.here("one", now);
        present.here("two", now);
        assert_eq!(present.lacking(&knowing, now), Some("two".to_owned()));
        present.here("one", now + SILENCE);
        assert_eq!(present.lacking(&knowing, now + SILENCE), None);
        assert_eq!(present.all.len(), 1);
        present.here(&"n".repeat(LONGEST + 1), now);
        assert_eq!(present.all.len(), 1);
    }
}
