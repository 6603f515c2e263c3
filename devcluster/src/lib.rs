//! An embedded Kubernetes API server for local work and tests.
//!
//! One generic store driven by a type table ([`kinds`]), with a schema for every kind ([`schema`]), real
//! server-side apply ([`patch`]), one totally ordered event log, and small controllers that write through the same
//! paths as any client. Images are kept in a [`registry`], and a [`node`] can run pods as processes. It serves HTTP on
//! loopback and, in process, as a `tower::Service`.
//!
//! Invariant: everything that a client can observe (resource versions, ownership, events, error bodies) is what a
//! real API server would have shown; where it is less than a real one, it refuses instead of pretending.
//!
//! [`access`] knows who asks, and with [`Options::rbac`] lets the roles in the store decide.
//!
//! Deliberately absent: client certificates, persistence, and any knowledge of the programs that are tried on it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod access;
mod addresses;
pub mod admission;
pub mod body;
mod bootstrap;
pub mod call;
pub mod client;
mod cluster;
pub mod columns;
#[expect(clippy::disallowed_methods, reason = "controllers are tasks, with a clock")]
pub mod controllers;
pub mod discovery;
mod expression;
pub mod extension;
pub mod history;
pub mod kinds;
pub mod kubelet;
pub mod levers;
#[expect(clippy::disallowed_methods, reason = "it is the listener")]
pub mod listen;
mod media;
#[expect(clippy::disallowed_methods, reason = "pods are processes, with files")]
pub mod node;
pub mod object;
pub mod openapi;
pub mod patch;
pub mod present;
pub mod protobuf;
pub mod quota;
#[expect(clippy::disallowed_methods, reason = "a write has a time")]
mod registration;
pub mod registry;
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
pub use cluster::{Cluster, Options};
pub use levers::Simulation;
pub use listen::Serving;
pub use node::{HostImage, NodeOptions};
pub use registry::RegistryOptions;
pub use server::Server;
