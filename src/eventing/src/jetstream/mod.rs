//! The store on NATS JetStream: a stream of events and a stream of dead letters for each namespace with subscribers.
//!
//! `names` and `message` decide the form of names and messages, `connect` connects, `election` repeats requests while
//! servers elect a leader, `probe` checks that the server responds, `streams` creates streams, `sweep` deletes them,
//! `publish` stores events, `pull` takes them for delivery with `requests`, which wait for `memory`, `in_progress`
//! confirms that they are in progress, `attempts` counts their failed deliveries with the state in `counting`, `letters`
//! handles the dead letters, and `roll_call` asks publishers whether they know a subscriber.
//!
//! Any number of processes publish and deliver. They coordinate only through the server.
//!
//! An event is one message for each subscriber, on the subscriber's own subject. The acknowledgement removes the
//! message. So an event counts for the namespace of each subscriber that waits for it, as in the journal.
//!
//! Invariant: an event is accepted only after the server has confirmed all of its messages. Invariant: streams have
//! limits and refuse new events beyond them, so a namespace cannot exceed its share. Invariant: a message is
//! acknowledged when its subscriber has accepted it, or when its dead letter is stored. Invariant: messages
//! are deleted only for a subscriber that the API server does not know (`sweep`).

#[expect(clippy::disallowed_methods, reason = "it stops reading, storing and creating for a while after a failure")]
mod attempts;
#[expect(clippy::disallowed_methods, reason = "it reads the credentials")]
mod connect;
mod counting;
#[expect(clippy::disallowed_methods, reason = "it waits for servers")]
mod election;
#[expect(clippy::disallowed_methods, reason = "it confirms at intervals that deliveries are in progress")]
mod in_progress;
mod letters;
mod memory;
mod message;
mod names;
#[expect(clippy::disallowed_methods, reason = "it checks at intervals")]
mod probe;
mod publish;
#[expect(clippy::disallowed_methods, reason = "it waits for messages")]
mod pull;
#[expect(clippy::disallowed_methods, reason = "it limits the time of a request")]
mod requests;
#[expect(clippy::disallowed_methods, reason = "it waits for answers")]
mod roll_call;
#[expect(clippy::disallowed_methods, reason = "it reads the time of a mark")]
mod streams;
#[expect(clippy::disallowed_methods, reason = "it limits the time of a removal")]
mod sweep;
#[cfg(test)]
mod tests;

pub use connect::{ConnectError, Nats};
pub use letters::{LettersError, dead_letters_on, replay_on};
pub(super) use probe::Answers;
pub(super) use pull::{Held, Puller};
pub(super) use roll_call::RollCall;
pub(super) use streams::JetStream;
pub use streams::Limits;
pub(super) use sweep::Exists;
