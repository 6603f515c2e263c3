//! The long-running process: what it is configured with, how its parts are wired, its health and its metrics.
//!
//! Invariant: all long tasks live in one set; any of them ending ends the process with its reason.
//! Invariant: only the holder of the Lease writes; what it knew is built anew for every term.

mod announce;
mod functions;
pub mod health;
mod inputs;
pub mod metrics;
mod run;
mod tasks;

pub use run::{Error, Nudge, Settings, run};
