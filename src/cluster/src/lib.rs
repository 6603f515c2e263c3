//! The client for the Kubernetes API: discovery, reads, applies, deletes, watches, Events and leader election.
//!
//! A [`Cluster`] turns a [`Kind`], a name and JSON into requests, and responses into JSON or an [`Error`]. An error
//! contains the attempt and its subject, and has a [`Class`](mainstay_object::failure::Class). The client works on raw
//! bytes and [`serde_json::Value`]: a kind is a row of discovery, never a Rust type.
//!
//! [`reflector`] turns a watch into a typed cache that says what changed, what is gone, and when it is complete. [`shards`]
//! divides GitSyncs among several agents.
//!
//! In addition to the client, the crate has [`secrets`] (watches of single Secrets and ConfigMaps), [`listener`] (an
//! HTTP server with bounded cost), [`certificate`] (certificates of webhooks) and [`liveness`] (detection of stuck
//! tasks).
//!
//! Invariant: every request has a deadline; a watch detects a dead connection by itself.
//! Invariant: a write is never repeated here. Callers retry; [`Error::retry_after`] is the server's `Retry-After`.
//! Invariant: a text from a server gets into an error only through
//! [`redact_server_text`](mainstay_object::redact_server_text).
//! Invariant: every request is counted, by verb and resource, in [`Requests`].
//! Invariant: an impersonated [`ServiceAccount`] applies to every request except discovery, which all share.
//!
//! The logging setup must filter out the target `kube_client::client` below `ERROR`: some of its functions log whole
//! responses, which may be Secrets. This crate calls none of those, but a dependency might.
//! `kube_client::client::builder` logs at `ERROR` what is reported here as an [`Error`] anyway.
//!
//! Not here: features (GitSync, Function), retries, and rate limits.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod absent;
mod allowed_addresses;
mod answer_limits;
mod api_server;
mod apply;
pub mod body;
mod capabilities;
pub mod certificate;
mod connect;
mod count;
mod delete;
mod discover;
mod error;
mod event;
mod event_aggregation;
mod event_bucket;
mod event_queue;
mod event_recorder;
mod event_sum;
#[cfg(test)]
mod fake;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod kind;
mod kubeconfig;
mod lease;
mod limited;
pub mod listener;
pub mod liveness;
mod memory_budget;
mod object;
mod origin;
mod pod_log;
mod printed;
mod read;
pub mod reflector;
mod refusal;
mod remote;
mod request;
pub mod requests;
mod resolver;
mod scope;
pub mod secrets;
mod selection;
mod served;
mod served_certificate;
mod service_account;
mod service_account_token;
mod service_call;
pub mod shards;
mod turns;
mod version;
mod watch;
mod watch_decoder;
mod whoami;

pub use allowed_addresses::{Addresses, AllowedAddresses};
pub use api_server::ApiServer;
pub use apply::{Apply, Part, Persistence};
pub use capabilities::Capabilities;
pub use connect::{Cluster, ProxySettings};
pub use count::{Counted, Requests, Verb};
pub use delete::{Guard, Propagation, Removal, Terminating};
pub use error::{Attempt, Cause, Error, Target};
pub use event::{Event, EventType, Priority, Regarding};
pub use event_recorder::{EventRecorder, EventWriter};
pub use kind::{Kind, KindId, Scope};
pub use kubeconfig::{Kubeconfig, PlainHttp};
pub use lease::{Elector, Leadership, Term, Timing};
pub use memory_budget::MemoryBudget;
pub use origin::Origin;
pub use pod_log::LogOptions;
pub use printed::{Printed, PrintedColumn, PrintedRow};
pub use refusal::{Denial, FieldCause, FieldConflict, Refusal};
pub use selection::{FieldSelector, LabelSelector, Selection};
pub use served_certificate::ServedCertificate;
pub use service_account::ServiceAccount;
pub use service_call::{ServiceAnswer, ServiceCall, ServicePath};
pub use turns::Turns;
pub use watch::WatchEvent;
