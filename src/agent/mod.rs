//! The long-running process: what it is configured with, how its parts are wired, its health and its metrics.

pub mod health;
pub mod metrics;
