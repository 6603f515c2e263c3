//! Integration tests: one binary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;
mod cluster;
mod decode;
mod dev;
mod drift;
mod manifests;
mod source;
mod support;
mod sync;
