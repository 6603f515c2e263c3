//! Integration tests: one binary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod build_chain;
mod build_fetch;
mod cli;
mod cluster;
mod decode;
mod dev;
mod drift;
mod drift_fights;
mod drift_objects;
mod drift_pauses;
mod drift_restarts;
mod forgeries;
mod functions;
mod functions_drift;
mod hosting;
mod kills;
mod manifests;
mod ownership;
mod prune;
mod real;
mod schedules;
mod source;
mod support;
mod sync;
mod sync_faults;
