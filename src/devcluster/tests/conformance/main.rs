//! Claims about the behaviour of the Kubernetes API. Each test is a claim, and its name states it.
//!
//! The claims run over HTTP against the embedded server, or against a real cluster if `MAINSTAY_TEST_KUBECONFIG` names
//! its kubeconfig. They describe an empty cluster of version 1.36 with a running controller manager. Every claim works
//! in its own namespace and removes its objects.
//!
//! Not here: fault injection, which a real cluster lacks (`tests/fault_injection.rs`).
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test acts, and has failed where it cannot")]

mod cluster;
mod world;

mod accounts;
mod apply;
mod apply_refusals;
mod autoscalers;
mod bindings;
mod conditions;
mod connections;
mod controllers;
mod cron_jobs;
mod defaults;
mod definitions;
mod deployments;
mod discovery;
mod disruptions;
mod drift;
mod endpoints;
mod events;
mod garbage;
mod generations;
mod health;
mod hooks;
mod kinds;
mod lists;
mod namespaces;
mod numbers;
mod objects;
mod patches;
mod permissions;
mod pod_parts;
mod pod_security;
mod policies;
mod proxies;
mod quotas;
mod refusals;
mod reviews;
mod rules;
mod scales;
mod selectors;
mod specification;
mod strictness;
mod unions;
mod validation;
mod watches;
#[path = "../webhook/mod.rs"]
mod webhook;
mod webhooks;
mod workloads;
mod yaml;
