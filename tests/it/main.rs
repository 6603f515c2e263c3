//! Integration tests: one binary.
#![allow(clippy::unwrap_used, clippy::panic)]

mod cli;
mod cluster;
mod decode;
mod dev;
mod manifests;
mod source;
mod support;
