//! Eventing: accepts CloudEvents over HTTP, stores them on disk or in NATS, and delivers them to the Services of
//! Triggers and Subscriptions.
//!
//! [`run`] starts everything: `server` accepts events, `table` finds their subscribers, `store` stores them in
//! `journal` or `jetstream`, `deliver` delivers them. `watch` watches Triggers, Subscriptions, Brokers and Services,
//! and `writer` writes statuses. Eventing is a separate process beside the agent, or a task of `mainstay dev`.
//!
//! Invariant: an accepted event is delivered at least once to each subscriber that existed at that time, or becomes a
//! dead letter. Invariant: events are delivered only to Services in the subscriber's namespace. Invariant: a subscriber
//! receives events of other namespaces only with a grant (`grants`), and the subscriber's namespace has a limited share
//! of the journal (`shares`). Invariant: a client publishes for a namespace only with the token of one of its
//! ServiceAccounts, or with a grant (`publishers`). Invariant: an object whose status another controller writes is left
//! to that controller.
//!
//! With NATS, any number of processes accept events, and any number deliver them (`role`).
//!
//! Out of scope: a guaranteed order of events, several processes for one journal, and sources of events other than
//! HTTP.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod address;
#[expect(clippy::disallowed_methods, reason = "it sends, and measures the time")]
mod attempt;
mod cloud_event;
#[expect(clippy::disallowed_methods, reason = "it has a socket")]
mod control;
#[expect(clippy::disallowed_methods, reason = "it has files")]
mod dead_letters;
#[expect(clippy::disallowed_methods, reason = "it starts tasks, and waits until a step can be tried again")]
mod deliver;
mod event_type;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod grants;
mod header;
mod jetstream;
mod journal;
mod json;
mod legacy;
mod metrics;
mod not_an_event;
mod ordering;
#[expect(clippy::disallowed_methods, reason = "it asks the API server, with a deadline")]
mod publishers;
mod request;
mod resolver;
mod retry;
mod role;
mod run;
mod seen;
mod send;
#[expect(clippy::disallowed_methods, reason = "it answers requests, with deadlines")]
mod server;
mod services;
mod shares;
#[expect(clippy::disallowed_methods, reason = "it writes dead letters, with the time")]
mod store;
mod subscribed_types;
mod subscriber;
mod subscription;
mod table;
mod trigger;
#[expect(clippy::disallowed_methods, reason = "it reads the time of conditions")]
mod watch;
#[expect(clippy::disallowed_methods, reason = "it waits until deliveries are due")]
mod work;
#[expect(clippy::disallowed_methods, reason = "it writes statuses, and waits until that can be tried again")]
mod writer;

pub use control::{ReplayError, replay};
pub use dead_letters::{DeadLetter, dead_letters};
pub use grants::{Grant, InvalidGrant};
pub use jetstream::{ConnectError, LettersError, Limits, Nats, dead_letters_on, replay_on};
pub use journal::OpenError;
pub use metrics::{InFlight, Metrics, Subscribed};
pub use publishers::PublisherAuth;
pub use role::Role;
pub use run::{DEFINITIONS, Error, OnNats, Settings, run};
pub use send::Resolve;
pub use subscriber::SubscriberId;
