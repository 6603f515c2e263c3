//! A Kubernetes API server in memory, for local work and tests.
//!
//! One generic store driven by a type table ([`kinds`]), with a schema for every kind ([`schema`]), real server-side
//! apply ([`patch`]) and one totally ordered event log ([`history`]). It serves HTTP on loopback ([`listen`]) and, in
//! process, as a `tower::Service` ([`Server::client_service`]) and by typed calls ([`call`], [`client`]).
//!
//! ```
//! use devcluster_apiserver::{Action, Call, Caller, Options, Server};
//! use serde_json::json;
//!
//! let server = Server::new(Options::default());
//! let map = json!({"metadata": {"name": "greeting"}, "data": {"text": "hello"}});
//! let call = Call::new("v1", "configmaps", "default", "", Action::Create(map));
//! let made = server.call(&Caller::new("docs"), call).unwrap();
//! assert!(made["metadata"]["uid"].is_string());
//! ```
//!
//! [`route`] parses a request, and [`service`] authenticates and authorises it ([`access`]). The [`verbs`] decode it,
//! call webhooks ([`admission`]) and write to the [`store`]. [`present`] builds the response. Tests use
//! [`fault_injection`] to fail, delay and count requests, and to compact the event log.
//!
//! Invariant: resource versions, ownership, events and error bodies are those of a real API server. Unsupported
//! features are refused, not faked.
//!
//! Not here: controllers and node agents. Both are ordinary clients; the server only asks a [`kubelet`] for logs
//! and commands. Also absent: client certificates and persistence.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod access;
mod addresses;
pub mod admission;
pub mod body;
mod bootstrap;
pub mod call;
mod certificate;
pub mod client;
pub mod columns;
pub mod discovery;
mod expression;
pub mod extension;
pub mod fault_injection;
pub mod history;
pub mod kinds;
pub mod kubelet;
#[expect(clippy::disallowed_methods, reason = "it is the listener")]
pub mod listen;
mod media;
pub mod object;
pub mod openapi;
pub mod patch;
mod pod_security;
pub mod present;
pub mod protobuf;
pub mod quota;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
mod registration;
#[expect(clippy::disallowed_methods, reason = "a request ends when its answer is dropped")]
pub mod requests;
pub mod route;
pub mod schema;
pub mod selector;
#[expect(clippy::disallowed_methods, reason = "the clock of the cluster is here")]
pub mod server;
pub mod service;
mod spdy;
pub mod status;
pub mod store;
pub mod stored;
pub mod verbs;

pub use call::{Action, Call, Caller, Subscription};
pub use fault_injection::Simulation;
pub use listen::Serving;
pub use server::{Options, Server};
