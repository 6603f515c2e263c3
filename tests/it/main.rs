//! Integration tests: one binary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;
mod cluster;
mod decode;
mod dev;
mod drift;
mod hosting;
mod manifests;
mod ownership;
mod prune;
mod real;
mod source;
mod support;
mod sync;
mod sync_faults;
