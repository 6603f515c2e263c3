//! What several integration tests need: a Git server over HTTP, repositories to serve, image registries, and a whole world,
//! on the embedded cluster or on another one.

pub(crate) mod admission;
pub(crate) mod build;
pub(crate) mod canary;
mod cpu_limit;
pub(crate) mod debuggers;
pub(crate) mod definitions;
pub(crate) mod dev;
pub(crate) mod docker_registry;
pub(crate) mod drift;
pub(crate) mod external;
pub(crate) mod files;
pub(crate) mod functions;
pub(crate) mod gate;
pub(crate) mod git_daemon;
pub(crate) mod git_server;
pub(crate) mod golden;
pub(crate) mod image;
pub(crate) mod knative;
pub(crate) mod kubectl;
pub(crate) mod large_files;
pub(crate) mod libraries;
pub(crate) mod limited_agent;
pub(crate) mod listener;
pub(crate) mod logs;
pub(crate) mod machine;
pub(crate) mod markdown;
#[path = "../../../benches/agent/src/memory_limit.rs"]
mod memory_limit;
pub(crate) mod npm_registry;
pub(crate) mod ownership;
pub(crate) mod pod_security;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod quotas;
pub(crate) mod registry;
pub(crate) mod remote;
pub(crate) mod server;
pub(crate) mod shell;
pub(crate) mod signers;
pub(crate) mod sops;
pub(crate) mod ssh_server;
pub(crate) mod tls;
pub(crate) mod webhooks;
pub(crate) mod world;
