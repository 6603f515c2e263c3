//! The store on NATS JetStream: a stream of events and a stream of dead letters for each namespace with subscribers.
//!
//! `names` and `message` decide the form of names and messages, `connect` connects, `streams` creates and deletes
//! streams, `publish` stores events, `pull` takes them for delivery, and `letters` handles the dead letters.
//!
//! An event is one message for each subscriber, on the subscriber's own subject. The acknowledgement removes the
//! message. So an event counts for the namespace of each subscriber that waits for it, as in the journal.
//!
//! Invariant: an event is accepted only after the server has confirmed all of its messages. Invariant: streams have
//! limits and refuse new events beyond them, so a namespace cannot exceed its share. Invariant: a message is
//! acknowledged when its subscriber has accepted it, or when its dead letter is stored.
//!
//! Not here: several processes that deliver. The module `streams` deletes streams and consumers that this process does
//! not know.

#[expect(clippy::disallowed_methods, reason = "it reads the credentials")]
mod connect;
mod letters;
mod message;
mod names;
mod publish;
#[expect(clippy::disallowed_methods, reason = "it waits, and confirms that deliveries are in progress")]
mod pull;
mod streams;
#[cfg(test)]
mod tests;

pub use connect::{ConnectError, Nats};
pub use letters::{LettersError, dead_letters_on, replay_on};
pub(super) use pull::{Held, Puller};
pub(super) use streams::JetStream;
pub use streams::Limits;
