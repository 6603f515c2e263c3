//! Tells the server that taken messages are in progress.
//!
//! One task does this for all messages of a process, because most messages are acknowledged before their first turn.
//!
//! Invariant: a taken message is confirmed as in progress until it is acknowledged or dropped. After a crash, the
//! server delivers it again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::{Client, PublishError, Subject};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// Interval of confirmations. A message is confirmed for the first time after one to two intervals, and the server waits
/// for 10 s.
const BEAT: Duration = Duration::from_secs(3);

/// The taken messages of a process.
#[derive(Debug)]
pub(super) struct InProgress {
    client: Client,
    taken: Arc<Mutex<Taken>>,
    _confirming: AbortOnDropHandle<()>,
}

/// The subjects for acknowledgements, by the order in which the messages were taken.
#[derive(Debug, Default)]
struct Taken {
    next: u64,
    subjects: BTreeMap<u64, Subject>,
}

/// A taken message.
pub(super) struct Unacknowledged {
    of: Arc<InProgress>,
    number: u64,
    subject: Subject,
}

impl Taken {
    fn add(&mut self, subject: Subject) -> u64 {
        let number = self.next;
        self.next += 1;
        self.subjects.insert(number, subject);
        number
    }

    /// Returns the numbers of the messages that were taken before `number`.
    fn before(&self, number: u64) -> Vec<u64> {
        self.subjects.range(..number).map(|(number, _)| *number).collect()
    }
}

impl InProgress {
    /// Starts the task, which ends with the last reference.
    pub(super) fn start(client: Client) -> Arc<Self> {
        let taken = Arc::<Mutex<Taken>>::default();
        let confirming = tokio::spawn(confirm(client.clone(), Arc::clone(&taken)));
        Arc::new(Self { client, taken, _confirming: AbortOnDropHandle::new(confirming) })
    }

    /// Adds a message by the subject of its acknowledgement.
    pub(super) fn add(self: &Arc<Self>, subject: Subject) -> Unacknowledged {
        let number = self.taken.lock().add(subject.clone());
        Unacknowledged { of: Arc::clone(self), number, subject }
    }

    /// Returns the number of messages that are confirmed as in progress.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.taken.lock().subjects.len()
    }
}

/// Confirms each message that was taken before the last turn.
async fn confirm(client: Client, taken: Arc<Mutex<Taken>>) {
    loop {
        let until = taken.lock().next;
        tokio::time::sleep(BEAT).await;
        let numbers = taken.lock().before(until);
        for number in numbers {
            // It may have been acknowledged in the meantime.
            let subject = taken.lock().subjects.get(&number).cloned();
            if let Some(subject) = subject {
                // A lost confirmation only causes a further delivery.
                let _ = client.publish(subject, AckKind::Progress.into()).await;
            }
        }
    }
}

impl Unacknowledged {
    /// Sends the acknowledgement. The message is no longer confirmed as in progress.
    pub(super) async fn acknowledge(&self, kind: AckKind) -> Result<(), PublishError> {
        self.remove();
        self.of.client.publish(self.subject.clone(), kind.into()).await
    }

    fn remove(&self) {
        self.of.taken.lock().subjects.remove(&self.number);
    }
}

impl Drop for Unacknowledged {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_that_are_still_taken_are_confirmed() {
        let mut taken = Taken::default();
        let numbers = ["a", "b", "c"].map(|subject| taken.add(Subject::from(subject)));
        let until = taken.next;
        taken.add(Subject::from("d"));
        taken.subjects.remove(&numbers[1]);
        assert_eq!(taken.before(until), [numbers[0], numbers[2]]);
        assert!(taken.before(0).is_empty());
    }
}
