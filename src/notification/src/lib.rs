//! Messages for chats, incident services and Git hosts.
//!
//! A [`Notice`] is a message of the agent with what a receiver must know. A [`Selection`] is a valid Alert: it selects
//! notices. A [`Queue`] belongs to one Provider: it sums up storms, drops repetitions and tries again. A [`Target`] is a
//! valid Provider: it turns a notice into a [`Request`], and an answer into an [`Outcome`].
//!
//! Invariant: everything here is pure. Time is an argument.
//! Invariant: no text of this crate holds a value of a Secret. A [`Request`] does not show its address and its headers.
//!
//! Not here: watches, Secrets and connections. They are in the agent.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod alert;
mod format;
mod notice;
mod outcome;
mod provider_type;
mod queue;
mod request;
mod target;

pub use alert::Selection;
pub use notice::{CommitState, Notice, Priority, Severity};
pub use outcome::Outcome;
pub use provider_type::ProviderType;
pub use queue::{Next, Queue};
pub use request::Request;
pub use target::Target;
