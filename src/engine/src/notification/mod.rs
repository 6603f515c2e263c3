//! Messages about actions of the agent, and the stream on which they are emitted.
//!
//! A [`Message`] has a severity, a reason and a text. Its sinks (log, Kubernetes Events, metrics, and the terminal of
//! `mainstay dev`) are connected in `agent`.
//!
//! Invariant: an emit never waits and never fails. A slow subscriber misses messages and learns their number.
//! Invariant: no message contains a value of a Secret.
//!
//! Not here: sinks outside the cluster (chat, webhooks).

mod description;
mod emitter;
mod message;
mod text;

pub use description::{Description, Severity};
pub use emitter::Emitter;
pub use message::{Change, Message, WhyPruned};
pub use text::waits_for;
