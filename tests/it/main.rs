//! Integration tests: one binary.

mod cli;
mod manifests;
mod source;
mod support;
