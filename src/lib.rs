//! Mainstay keeps a Kubernetes cluster on its repository's main branch.
//!
//! Facts are gathered, a value is decided, the value is carried out, and the outcome is always reported. The modules
//! in reading order, from the ground up:
//!
//! - [`api`]: what users write and read, and every name that has a meaning
//! - [`failure`]: what a failure means
//! - [`object`]: words for any Kubernetes object
//! - [`cluster`]: our only hands on the Kubernetes API
//! - [`secrets`]: what a Secret holds, told to those who need it
//! - [`source`]: a Git remote becomes a snapshot
//! - [`manifest`]: a commit's files become desired objects
//! - [`notification`]: what is worth telling
//! - [`drift`]: what puts a managed object back
//! - [`runtimes`]: the languages that Functions are written in
//! - [`registry`]: where images are kept
//! - [`build`]: what runs inside a build Job
//! - [`function`]: a Function becomes its children
//! - [`agent`]: the long-running process
//! - [`cli`]: the commands
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod agent;
pub mod api;
pub mod build;
pub mod cli;
pub mod cluster;
pub mod drift;
pub mod failure;
pub mod function;
pub mod gitsync;
pub mod manifest;
pub mod notification;
pub mod object;
pub mod registry;
pub mod runtimes;
pub mod secrets;
pub mod source;
