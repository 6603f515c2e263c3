//! Mainstay keeps a Kubernetes cluster on its repository's main branch.
//!
//! Facts are gathered, a value is decided, the value is carried out, and the outcome is always reported. The modules
//! in reading order, from the ground up:
//!
//! - [`api`]: what users write and read, and every name that has a meaning
//! - [`failure`]: what a failure means
//! - [`pulse`]: whether work moves
//! - [`object`]: words for any Kubernetes object
//! - [`cluster`]: our only hands on the Kubernetes API
//! - [`secrets`]: what a Secret holds, told to those who need it
//! - [`source`]: a Git remote becomes a snapshot
//! - [`manifest`]: a commit's files become desired objects
//! - [`notification`]: what is worth telling
//! - [`drift`]: what puts a managed object back
//! - [`gitsync`]: a commit becomes the state of the cluster
//! - [`runtimes`]: the languages that Functions are written in
//! - [`registry`]: where images are kept
//! - [`build`]: what runs inside a build Job
//! - [`function`]: a Function becomes its children
//! - [`agent`]: the long-running process
//! - [`cli`]: the commands
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

#[expect(clippy::disallowed_methods, reason = "it is the process: its tasks, its listener and its deadlines")]
pub mod agent;
pub mod api;
#[expect(clippy::disallowed_methods, reason = "it works on files and with registries, in a container of its own")]
pub mod build;
#[expect(clippy::disallowed_methods, reason = "commands have arguments, an environment and a console")]
pub mod cli;
#[expect(clippy::disallowed_methods, reason = "it speaks to the API server, with deadlines")]
pub mod cluster;
pub mod drift;
pub mod failure;
pub mod function;
pub mod gitsync;
pub mod manifest;
pub mod notification;
pub mod object;
#[expect(clippy::disallowed_methods, reason = "it knows how long ago something moved")]
pub mod pulse;
pub mod registry;
pub mod runtimes;
pub mod secrets;
pub mod source;
