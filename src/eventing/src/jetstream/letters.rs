//! The dead letters on JetStream.

use std::io;

use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use futures::TryStreamExt as _;

use super::super::dead_letters::DeadLetter;
use super::super::journal::Refused;
use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::connect::{ConnectError, Nats};
use super::election::Patience;
use super::message::Unstored;
use super::names::{self, Contents};
use super::publish::Addressed;
use super::streams::{JetStream, Unmade};

/// The reason why dead letters on NATS cannot be read or delivered again.
#[derive(Debug, thiserror::Error)]
pub enum LettersError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refuses a request.
    #[error("NATS does not respond, or rejects a request")]
    Read(#[source] Unmade),
    /// There is no such subscriber.
    #[error("there is no {0}")]
    NoSubscriber(SubscriberId),
    /// The server does not accept an event for redelivery.
    #[error("could not deliver again: {0}")]
    Again(String),
}

impl JetStream {
    /// Stores a dead letter.
    pub(crate) async fn bury(&self, to: &SubscriberId, letter: &DeadLetter) -> io::Result<()> {
        let text = serde_json::to_vec(letter)?;
        let message = || PublishMessage::build().payload(text.clone().into());
        let address = Addressed { to: to.clone(), subject: Contents::Letters.subject(to), id: self.unique_id() };
        let stored = self.put(&address, message, Patience::default()).await;
        stored.map_err(|unstored| match unstored {
            Unstored::Full => io::Error::from(io::ErrorKind::StorageFull),
            Unstored::Other(why) => io::Error::other(why),
        })
    }
}

/// Returns all dead letters on NATS, oldest first.
///
/// # Errors
/// Fails if the server does not respond.
pub async fn dead_letters_on(nats: &Nats) -> Result<Vec<DeadLetter>, LettersError> {
    let context = nats.connect(false).await?.context;
    let read = async {
        let names: Vec<String> = context.stream_names().try_collect().await?;
        let mut all = Vec::new();
        for name in &names {
            let Some(namespace) = Contents::Letters.namespace(name) else { continue };
            let stream = context.get_stream(name).await?;
            let letters = letters(&stream, &Contents::Letters.all_subjects(namespace)).await?;
            all.extend(letters.into_iter().map(|(_, letter)| letter));
        }
        Ok(all)
    };
    let mut all = read.await.map_err(LettersError::Read)?;
    all.sort_by_key(|letter| letter.time);
    Ok(all)
}

/// Delivers the dead letters of a subscriber again. Returns their number.
///
/// # Errors
/// Fails if the server does not respond, if there is no such subscriber, or if the subscriber's share is used up.
pub async fn replay_on(nats: &Nats, to: &SubscriberId) -> Result<usize, LettersError> {
    let connection = nats.connect(false).await?;
    let (context, namespace) = (&connection.context, to.parts().1);
    let read = async {
        let events = context.get_stream(Contents::Events.stream(namespace)).await;
        let Ok(events) = events else { return Ok(None) };
        if events.consumer_info(names::consumer(to)).await.is_err() {
            return Ok(None);
        }
        let stream = context.get_stream(Contents::Letters.stream(namespace)).await?;
        let letters = letters(&stream, &Contents::Letters.subject(to)).await?;
        Ok(Some((stream, letters)))
    };
    let found = read.await.map_err(LettersError::Read)?;
    let (stream, letters) = found.ok_or_else(|| LettersError::NoSubscriber(to.clone()))?;
    let (store, number) = (JetStream::with_streams_of(connection, namespace), letters.len());
    let is_partitioned = store.is_partitioned(to).await.map_err(LettersError::Read)?;
    let ordered: Vec<SubscriberId> = is_partitioned.then(|| to.clone()).into_iter().collect();
    for (sequence, letter) in letters {
        if let Some(event) = letter.event() {
            let routed = [Routed { event, to: vec![to.clone()], ordered: ordered.clone() }];
            let stored = store.publish(&routed, true).await;
            stored.map_err(|refused: Refused| LettersError::Again(refused.to_string()))?;
        }
        stream.delete_message(sequence).await.map_err(|error| LettersError::Read(error.into()))?;
    }
    Ok(number)
}

/// Returns the dead letters with this subject, each with its sequence number.
async fn letters(stream: &Stream, subject: &str) -> Result<Vec<(u64, DeadLetter)>, Unmade> {
    let (mut all, mut from) = (Vec::new(), 1);
    loop {
        let found = stream.get_first_raw_message_by_subject(subject, from).await;
        let message = match found {
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return Ok(all),
            found => found?,
        };
        from = message.sequence + 1;
        if let Ok(letter) = serde_json::from_slice(&message.payload) {
            all.push((message.sequence, letter));
        }
    }
}
