//! Providers and Alerts: messages for services outside of the cluster.
//!
//! [`follow()`] keeps the [`Outbox`](super::notify::Outbox) and the statuses of Alerts. `slices` matches messages with the
//! expressions of Alerts, on threads of its own. `provider` is the task of one Provider, `deliver` sends a notice, by `nats`
//! if it is for a server of NATS and with one of the `logins` if its service belongs to a cloud, and `status` is the
//! condition of both.
//!
//! Invariant: a Provider that cannot be reached delays neither other Providers nor reconciles.

mod alert;
mod context;
mod deliver;
mod follow;
mod logins;
mod nats;
mod provider;
mod slices;
mod status;

pub(super) use context::Context;
pub(super) use follow::follow;
