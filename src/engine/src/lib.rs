//! The engine keeps the objects of GitSyncs and Functions in their desired state.
//!
//! - [`notification`]: messages about what the agent did; the log, Events, metrics and the terminal are their sinks
//! - [`managed`]: the store of the objects that GitSyncs and Functions own: desired state, last apply, verdicts
//!   about changes and revert backoffs; in memory, and as an inventory in ConfigMaps
//! - [`apply`]: the one writer of managed objects: applies, adoption, reverts, prune
//! - [`drift`]: watches managed objects and decides what must be reverted
//! - [`propagation`]: copies registry and package logins of the agent's namespace to the others
//! - [`prevention`]: admission policies with which the API server rejects manual changes of managed objects
//!
//! Invariant: only [`apply`] writes managed objects, one write at a time per object.
//!
//! Not here: the desired state of a commit or a Function. Their controllers decide it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod apply;
pub mod drift;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod managed;
pub mod notification;
pub mod prevention;
pub mod propagation;
