//! The controller of Functions. It turns a Function into its children: a ConfigMap, a build Job, and then either a
//! Deployment with Service and autoscaler, or a Knative Service.
//!
//! One task per Function ([`run`]) reconciles it after every event that may concern it:
//!
//! - observe: [`observe`] caches the children of all Functions; `polling` and [`git`] read the source; [`mod@resolve`]
//!   validates the spec
//! - decide: [`stage`] is the table of stages; [`build_queue`], [`tag`] and [`refusals`] are its inputs
//! - perform: `perform` writes the [`children`]
//! - report: `report` writes the [`status`]
//!
//! Other modules: [`runtimes`] (the language runtimes), [`registry`] (image names, registry choice, credentials,
//! client), [`build`] (the programs inside a build Job), [`bindings`] (ServiceBindingUsages become environment
//! variables) and [`admission`] (webhooks that default and validate Functions and GitRepositories).
//!
//! Invariant: only a change of source, dependencies, runtime or base image builds an image. Invariant: the running
//! version is not touched before the next version can be rolled out.
//!
//! Not here: reverting changed children; see [`drift`](mainstay_engine::drift).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod admission;
mod base;
pub mod bindings;
#[expect(clippy::disallowed_methods, reason = "it works on files and with registries, in a container of its own")]
pub mod build;
pub mod build_queue;
#[expect(clippy::disallowed_methods, reason = "the span of a build ends now")]
mod build_trace;
pub(crate) mod child_kind;
pub(crate) mod child_set;
pub(crate) mod child_state;
pub mod children;
#[expect(clippy::disallowed_methods, reason = "it is the clock of all Functions")]
mod context;
mod credentials;
mod defaults;
mod executor;
mod flavour;
pub mod git;
mod knative;
mod knative_owner;
pub(crate) mod knative_presence;
mod knative_revisions;
pub(crate) mod knative_state;
mod log_tail;
mod name_conflict;
#[expect(clippy::disallowed_methods, reason = "what Secrets say counts for a while")]
mod named_secrets;
pub mod observe;
#[expect(clippy::disallowed_methods, reason = "failures are retried after a while")]
mod perform;
mod pod_keys;
mod pod_secrets;
#[expect(clippy::disallowed_methods, reason = "it waits for the next poll")]
mod polling;
pub mod presets;
mod quantity;
mod quota;
#[expect(clippy::disallowed_methods, reason = "wake-ups are limited in time")]
mod quotas;
#[expect(clippy::disallowed_methods, reason = "it waits for the first of several events")]
mod reconcile;
pub mod refusals;
pub mod registry;
#[expect(clippy::disallowed_methods, reason = "it asks registries, now and then")]
mod registry_waits;
mod report;
mod repository;
pub mod resolve;
mod resources;
mod retry;
pub mod runtimes;
mod secret_digests;
mod settings;
pub mod stage;
pub mod status;
mod syntax_error;
pub mod tag;
mod variables;
mod violation;

pub use base::{BaseImage, InvalidBaseImage};
pub use context::{Context, FunctionMetrics, Input};
pub use credentials::Credentials;
pub(crate) use defaults::same_input;
pub use defaults::{authored, complete};
pub use executor::Builder;
pub use flavour::Flavour;
pub use pod_keys::PodKeys;
pub use reconcile::{functions, run};
pub use resolve::{BoundSecret, Code, Origin, Replicas, ResolvedFunction, Warning, resolve};
pub use settings::{MinResources, NodePrograms, Retention, Settings};
pub use variables::{InvalidVariable, VARIABLES, Variable, WithoutEffect};
pub use violation::{Violation, reason, text};
