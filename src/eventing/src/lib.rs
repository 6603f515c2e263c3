//! Eventing: CloudEvents are accepted over HTTP, kept on disk, and delivered to the Services that Triggers and Subscriptions name.
//!
//! [`run`] is all of it: `server` accepts events, `table` says who gets them, `journal` keeps them, `deliver` sends them, and
//! `watch` follows Triggers, Subscriptions, Brokers and Services and writes statuses. It is a process of its own beside the agent, or a
//! task of `mainstay dev`.
//!
//! Invariant: an event that was accepted is delivered at least once to each subscriber that was there, or is a dead letter.
//! Invariant: events lead to Services of the namespace of whoever subscribes, and nowhere else.
//! Invariant: a subscriber receives events of other namespaces by the operator's word only (`grants`), and its namespace has a share of
//! the journal (`shares`).
//! Invariant: who publishes for a namespace has the token of a ServiceAccount of it, unless the operator permits more (`publishers`).
//! Invariant: an object whose status another controller writes is left to it.
//!
//! Deliberately absent: order; several processes for one journal; and sources of events other than HTTP.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod address;
mod cloud_event;
#[expect(clippy::disallowed_methods, reason = "it has a socket")]
mod control;
#[expect(clippy::disallowed_methods, reason = "it has files")]
mod dead_letters;
#[expect(clippy::disallowed_methods, reason = "it sends, and waits until that can be tried again")]
mod deliver;
mod event_type;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod grants;
mod journal;
mod json;
mod legacy;
mod not_an_event;
#[expect(clippy::disallowed_methods, reason = "it asks the API server, with a deadline")]
mod publishers;
mod request;
mod resolver;
mod retry;
mod run;
mod seen;
mod send;
#[expect(clippy::disallowed_methods, reason = "it answers requests, with deadlines")]
mod server;
mod services;
mod shares;
mod subscriber;
mod subscription;
mod table;
mod trigger;
#[expect(clippy::disallowed_methods, reason = "it writes statuses, and waits until that can be tried again")]
mod watch;

pub use control::{ReplayError, replay};
pub use dead_letters::{DeadLetter, dead_letters};
pub use grants::{Grant, InvalidGrant};
pub use journal::OpenError;
pub use publishers::PublisherAuth;
pub use run::{DEFINITIONS, Error, Settings, run};
pub use send::Resolve;
pub use subscriber::SubscriberId;
