//! Our only hands on the Kubernetes API: discover, read, apply, delete, watch, record events, hold a lease.
//!
//! A [`Cluster`] turns a [`Kind`], a name and JSON into requests, and answers into JSON or an [`Error`] that says what
//! was attempted on what, and of which [`Class`](crate::failure::Class) the failure is. It works on raw bytes and
//! [`serde_json::Value`]: a kind is a row of discovery, never a Rust type.
//!
//! Invariant: every request has a deadline; a watch notices a dead connection by itself.
//! Invariant: nothing here repeats a write. Whoever asked for it decides whether to ask again ([`Error::retry_after`]
//! says how long the server wants to be left alone).
//! Invariant: no text of a server reaches an error without [`redact_server_text`](crate::object::redact_server_text).
//! Invariant: every request is counted, by verb and resource, in [`Requests`].
//!
//! The logging setup must keep the target `kube_client::client` below `WARN` out (`kube_client::client=error`): some of
//! its functions log whole answers, which may be Secrets. We call none of those, but what we link should not be able to.
//! `kube_client::client::builder` says at `ERROR` what is reported here as an [`Error`] anyway, and may be left out.
//!
//! Deliberately absent: any feature (GitSync, Function), any cache of objects, retries, and rate limits.

mod apply;
mod connect;
mod count;
mod delete;
mod discover;
mod error;
mod events;
#[cfg(test)]
mod fake;
mod happening;
mod kind;
mod lease;
mod line;
mod object;
mod read;
mod refusal;
mod request;
mod selection;
mod series;
mod served;
mod watch;

pub use apply::{Apply, Part, Persistence};
pub use connect::{Cluster, Origin, ProxySettings};
pub use count::{Counted, Requests, Verb};
pub use delete::{Guard, Propagation, Removal};
pub use error::{Attempt, Cause, Error, Subject};
pub use events::{EventWriter, Recorder};
pub use happening::{Event, EventType, Regarding};
pub use kind::{Kind, Scope};
pub use lease::{Elector, Leadership, Term, Timing};
pub use refusal::{Denial, FieldCause, FieldConflict, Refusal};
pub use selection::{Content, Selection};
pub use watch::WatchEvent;
