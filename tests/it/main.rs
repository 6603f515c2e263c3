//! Integration tests: one binary.

mod cli;
mod cluster;
mod decode;
mod dev;
mod manifests;
mod source;
mod support;
