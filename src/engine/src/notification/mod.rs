//! Messages about what the agent did, and the stream on which they are emitted.
//!
//! A [`Message`] is a value that knows its severity, reason and text. The sinks (log, Kubernetes Events, metrics, the
//! terminal of `mainstay dev`) are wired in `agent`.
//!
//! Invariant: emitting never waits and never fails; a subscriber that is too slow misses messages and learns how many.
//! Invariant: no message holds a value of a Secret.
//!
//! Deliberately absent: sinks outside the cluster (chat, webhooks).

mod description;
mod emitter;
mod message;

pub use description::{Description, Severity, waits_for};
pub use emitter::Emitter;
pub use message::{Change, Message, WhyPruned};
