//! Messages for chats, incident services and Git hosts.
//!
//! A [`Notice`] is a message of the agent with everything that a receiver needs to know. An [`Inbox`] keeps the notices
//! that wait to be matched. A [`Selection`] is a valid Alert, which selects notices. A [`Queue`] belongs to one Provider.
//! It sums up notices beyond the budget, drops repetitions, and retries. A [`Target`] is a valid Provider. It turns a
//! notice into a [`Delivery`]: a [`Request`], a request after a [`Login`] at a cloud or after a [`LookUp`], a [`Comment`]
//! on a pull request, or a [`Publication`] at a server of NATS. A response becomes an [`Outcome`].
//!
//! Invariant: everything here is pure. Time is an argument.
//! Invariant: no message of this crate contains a value of a Secret. The `Debug` output of a [`Request`] contains
//! neither its address nor its headers.
//!
//! Not here: watches, Secrets and connections, which are in the agent.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod address;
mod alert;
mod cloud_address;
mod comment;
mod delivery;
mod format;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod identity;
mod inbox;
mod login;
mod nats;
mod notice;
mod outcome;
mod provider_type;
mod queue;
mod request;
mod status_name;
mod target;

pub use alert::{Expressions, Selection};
pub use comment::Comment;
pub use delivery::{Delivery, LookUp};
pub use identity::Identity;
pub use inbox::{Inbox, LeftOut, Unmatched};
pub use login::{Login, Service, SharedKey};
pub use nats::{Publication, Reply, Security};
pub use notice::{CommitState, Notice, Priority, Severity};
pub use outcome::Outcome;
pub use provider_type::ProviderType;
pub use queue::{Next, Queue};
pub use request::Request;
pub use target::{Target, proxy_of};
