//! What is worth telling: the messages of both loops, and the stream on which they go out.
//!
//! A message is a value; who listens (Kubernetes Events, metrics, the terminal of `mainstay dev`) is wired in `agent`.
//!
//! Invariant: telling never waits and never fails; a listener that is too slow misses messages and is told how many.
//! Invariant: no message holds a value of a Secret.
//!
//! Deliberately absent: channels to the outside world (chat, webhooks).

mod message;

pub use message::{Change, Message, Teller};
