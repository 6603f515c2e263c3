//! The engine keeps objects in the cluster as they are desired, for whichever owner desires them.
//!
//! - [`notification`]: messages about what the agent did; the log, Events, metrics and the terminal are their sinks
//! - [`managed`]: the store of the objects that GitSyncs and Functions own: desired state, last apply, verdicts (what to do
//!   about a change), revert backoffs; in memory, and as an inventory in ConfigMaps
//! - [`apply`]: the one writer of managed objects: applies, adoption, reverts, prune
//! - [`drift`]: watches managed objects and decides what must be reverted
//! - [`propagation`]: copies registry and package logins of the agent's namespace to the others
//! - [`prevention`]: admission policies by which the API server refuses hand edits of managed objects
//!
//! Invariant: every write to a managed object is made by [`apply`], one at a time per object.
//!
//! Deliberately absent: what a commit or a Function desires; their controllers decide that.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod apply;
pub mod drift;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod managed;
pub mod notification;
pub mod prevention;
pub mod propagation;
