//! The server in process: store, lists, watches, deletion, definitions, fault injection and loopback rules.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test acts, and fails by panicking"
)]

mod account_tokens;
mod autoscalers;
mod definitions;
mod deletion;
mod endings;
mod hostile;
mod images;
mod knative;
mod lists;
mod logs;
mod loopback;
mod machine;
mod pod_parts;
mod pods;
mod process;
mod proxies;
mod services;
mod simulations;
mod streams;
mod unpacked;
mod watches;
#[expect(dead_code, reason = "the claims use more of it")]
#[path = "../webhook/mod.rs"]
mod webhook;
mod webhooks;
mod world;
mod writes;
