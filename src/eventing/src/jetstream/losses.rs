//! Keeps the messages of a process over a short loss of its connection.
//!
//! The acknowledgement of a message is possible on each connection. So after a loss, the process confirms the messages
//! that it has taken, and continues to deliver them.

use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::AckKind;
use futures::future::join_all;
use tokio::time::Instant;

use super::election::{ATTEMPT, Patience};
use super::streams::JetStream;

/// Time after a loss within which taken messages must be confirmed. The last confirmation of a message is at most 6 s
/// older than the loss, and the server waits for 10 s. So until then, no other process gets the message.
const HOLD: Duration = Duration::from_secs(3);

impl JetStream {
    /// Confirms messages after a loss of the connection. Returns whether the servers have recorded all confirmations
    /// before they could deliver one of the messages to another process.
    pub(crate) async fn confirm_after_loss(&self, subjects: Vec<Subject>, lost: Instant) -> bool {
        let patience = Patience::of(HOLD.saturating_sub(lost.elapsed()));
        let all = subjects.into_iter().map(|subject| self.is_confirmed(subject, patience));
        join_all(all).await.into_iter().all(|is_confirmed| is_confirmed)
    }

    /// Confirms a message until a server responds. Returns false if none responds in time, such as without a leader of
    /// the consumer.
    async fn is_confirmed(&self, subject: Subject, mut patience: Patience) -> bool {
        let client = self.client();
        loop {
            // Without a connection, the client holds the request until it is back.
            let request = client.request(subject.clone(), AckKind::Progress.into());
            let response = self.response(ATTEMPT.min(patience.left()), request).await;
            if matches!(response, Some(Ok(_))) {
                return true;
            }
            if !patience.further().await {
                return false;
            }
        }
    }
}
