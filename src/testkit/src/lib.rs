//! Helpers for integration tests: a Git server over HTTP, repositories, image registries, and a whole world on the
//! embedded or an external cluster.

#![allow(clippy::unwrap_used, clippy::panic, clippy::new_without_default, clippy::return_self_not_must_use)]
#![expect(missing_docs, reason = "most helpers say by their name what they do")]

mod access;
pub mod admission;
pub mod build;
pub mod canary;
pub mod collector;
mod cpu_limit;
pub mod debuggers;
pub mod definitions;
pub mod dev;
pub mod docker_registry;
pub mod drift;
pub mod external;
pub mod files;
pub mod foreign;
pub mod functions;
pub mod gate;
pub mod git_daemon;
pub mod git_server;
pub mod golden;
pub mod image;
pub mod knative;
pub mod kubectl;
pub mod large_files;
pub mod libraries;
pub mod limited_agent;
pub mod limited_process;
pub mod listener;
pub mod logs;
pub mod machine;
pub mod markdown;
#[path = "../../../benches/agent/src/memory_limit.rs"]
mod memory_limit;
pub mod nats_server;
pub mod npm_registry;
pub mod ownership;
pub mod pod_security;
pub mod process;
pub mod program;
pub mod proxy;
pub mod quotas;
pub mod random;
pub mod registry;
pub mod remote;
pub mod server;
pub mod shell;
pub mod signers;
pub mod sops;
pub mod ssh_server;
pub mod tls;
pub mod webhooks;
pub mod world;

pub use process::{isolated, isolated_async, rsa_key};

/// How long a wait for an event may take on a machine with other work. A test that passes waits only for the event.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_mins(3);

/// The root directory of the repository.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
