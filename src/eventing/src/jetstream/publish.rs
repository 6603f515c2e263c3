//! Stores events: one message for each subscriber. The server confirms each message.

use std::sync::Arc;

use async_nats::jetstream::message::PublishMessage;
use futures::future::{BoxFuture, FutureExt as _};
use futures::{StreamExt as _, stream};

use super::super::cloud_event::CloudEvent;
use super::super::journal::Refused;
use super::super::ordering::SourceDigest;
use super::super::subscriber::SubscriberId;
use super::super::table::Routed;
use super::election::{self, Patience};
use super::message::{self, Unstored, unstored};
use super::names::{Contents, message_id};
use super::streams::{JetStream, Unmade};
use mainstay_object::failure::chain;

/// Maximum number of unconfirmed messages of one request.
const UNCONFIRMED: usize = 64;

/// Subscribers whose share is used up, each with the event that the subscriber does not receive.
pub(crate) type Over = Vec<(SubscriberId, CloudEvent)>;

/// The address of a message.
pub(super) struct Addressed {
    pub(super) to: SubscriberId,
    pub(super) subject: String,
    pub(super) id: String,
}

/// The result of storing an event for a subscriber.
struct Stored {
    to: SubscriberId,
    /// Index of the event among those that are published.
    event: usize,
    result: Result<(), Unstored>,
}

impl JetStream {
    /// Stores events for their subscribers, within 10 seconds in all. Returns the subscribers whose share is used up.
    /// Fails if this is the case for all subscribers.
    ///
    /// After an error, some subscribers may have the event. If the event is published again, these subscribers do not
    /// receive it twice.
    pub(crate) async fn publish(&self, routed: &[Routed], is_replay: bool) -> Result<Over, Refused> {
        let (mut storing, patience): (Vec<BoxFuture<'static, Stored>>, _) = (Vec::new(), Patience::default());
        for (number, Routed { event, to, ordered }) in routed.iter().enumerate() {
            // All messages of an event have the same headers, except for their IDs.
            let message = PublishMessage::build().payload(event.data.clone()).headers(message::headers(event));
            let message = Arc::new(message);
            storing.extend(to.iter().map(|to| {
                let address = Addressed {
                    id: self.id_for(to, event, is_replay),
                    subject: subject(to, event, ordered.contains(to)),
                    to: to.clone(),
                };
                self.clone().store(address, (number, Arc::clone(&message)), patience).boxed()
            }));
        }
        let stored = match storing.pop() {
            Some(only) if storing.is_empty() => vec![only.await],
            last => all(storing.into_iter().chain(last).collect()).await,
        };
        verdict(&stored)?;
        let over = stored.into_iter().filter(|stored| stored.result.is_err());
        Ok(over.map(|Stored { to, event, .. }| (to, routed[event].event.clone())).collect())
    }

    async fn store(self, to: Addressed, (event, message): (usize, Arc<PublishMessage>), patience: Patience) -> Stored {
        let result = self.put(&to, || PublishMessage::clone(&message), patience).await;
        Stored { to: to.to, event, result }
    }

    /// Returns the ID of the message of an event. A second message with the same ID is not stored.
    fn id_for(&self, to: &SubscriberId, event: &CloudEvent, is_replay: bool) -> String {
        let text = |name: &str| event.attribute(name).unwrap_or_default();
        if is_replay { self.unique_id() } else { message_id(to, text("source"), text("id")) }
    }

    /// Returns an ID for a message that is stored although an equal one may have been stored recently.
    pub(super) fn unique_id(&self) -> String {
        self.0.context.client().new_inbox()
    }

    /// Stores a message, after creating its stream if needed. The server stores one of several messages with the same
    /// ID, so the message may be sent again.
    pub(super) async fn put(
        &self,
        Addressed { to, subject, id }: &Addressed,
        message: impl Fn() -> PublishMessage,
        mut patience: Patience,
    ) -> Result<(), Unstored> {
        let namespace = to.parts().1;
        loop {
            let created = self.create(namespace, patience).await;
            created.map_err(|error| Unstored::Other(chain(&*error)))?;
            let sending = || async {
                let sent = self.0.context.send_publish(subject.clone(), message().message_id(id)).await?;
                Ok(sent.await?)
            };
            let Err(error) = self.repeat(patience, sending).await else { return Ok(()) };
            // The stream has no leader, or a different program has deleted it.
            if !election::has_no_stream(&*error) || !patience.further().await {
                return Err(refusal(&error));
            }
            self.forget(namespace);
        }
    }
}

/// Waits for all, a limited number at a time.
fn all(storing: Vec<BoxFuture<'static, Stored>>) -> BoxFuture<'static, Vec<Stored>> {
    stream::iter(storing).buffered(UNCONFIRMED).collect().boxed()
}

/// Returns the subject of an event for a subscriber.
fn subject(to: &SubscriberId, event: &CloudEvent, is_ordered: bool) -> String {
    let source = event.attribute("source").unwrap_or_default();
    if is_ordered {
        Contents::Events.partition(to, SourceDigest::of(source).partition())
    } else {
        Contents::Events.subject(to)
    }
}

fn refusal(error: &Unmade) -> Unstored {
    match election::server_error(&**error) {
        Some(error) => unstored(error.error_code().0, &error.to_string()),
        None => Unstored::Other(chain(&**error)),
    }
}

/// Decides whether events are accepted, from the results for each subscriber.
fn verdict(all: &[Stored]) -> Result<(), Refused> {
    let (mut is_stored, mut full) = (false, Vec::new());
    for Stored { to, result, .. } in all {
        match result {
            Ok(()) => is_stored = true,
            Err(Unstored::Full) => full.push(to),
            Err(Unstored::Other(why)) => return Err(Refused::Broker(why.clone())),
        }
    }
    if is_stored || full.is_empty() { Ok(()) } else { Err(Refused::share(full.into_iter())) }
}

#[cfg(test)]
mod tests {
    use super::super::super::subscriber::SubscriberKind;
    use super::*;

    #[test]
    fn an_event_is_refused_if_no_subscriber_has_room_or_a_message_is_not_stored() {
        let (one, two) = (
            SubscriberId::new(SubscriberKind::Trigger, "one", "a"),
            SubscriberId::new(SubscriberKind::Trigger, "two", "a"),
        );
        let check = |results: [Result<(), Unstored>; 2], expected: Option<&str>| {
            let stored =
                |(to, result): (&SubscriberId, Result<(), Unstored>)| Stored { to: to.clone(), event: 0, result };
            let stored: Vec<_> = [&one, &two].into_iter().zip(results).map(stored).collect();
            let refused = verdict(&stored).map_err(|refused| refused.to_string());
            assert_eq!(refused.err().as_deref(), expected);
        };
        let failed = || Err(Unstored::Other("timed out".to_owned()));
        check([Ok(()), Ok(())], None);
        check([Ok(()), Err(Unstored::Full)], None);
        let full = "the store is full for namespaces one, two: subscribers have not received earlier events";
        check([Err(Unstored::Full), Err(Unstored::Full)], Some(full));
        for results in [[Ok(()), failed()], [failed(), Err(Unstored::Full)]] {
            check(results, Some("NATS did not store the event: timed out"));
        }
    }
}
