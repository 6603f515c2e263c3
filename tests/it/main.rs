//! Integration tests: one binary.

mod cli;
