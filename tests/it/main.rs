//! Integration tests: one binary.

mod cli;
mod cluster;
mod manifests;
mod source;
mod support;
