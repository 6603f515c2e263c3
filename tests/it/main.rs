//! Integration tests: one binary.

mod cli;
mod manifests;
