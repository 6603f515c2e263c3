//! Integration tests: hand edits and other changes of managed objects.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod audit;
mod drift;
mod drift_collisions;
mod drift_fights;
mod drift_objects;
mod drift_pauses;
mod drift_remaining;
mod drift_restarts;
mod drift_storms;
mod drift_suspended;
mod edits;
mod prevent;
