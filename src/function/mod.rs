//! A Function becomes its children: ConfigMap, build Job, Deployment, Service and autoscaler.
//!
//! - [`mod@resolve`]: the specification, the presets and the defaults become a [`ResolvedFunction`], or violations
//! - [`tag`]: what an image is built from, as one digest, and why the next one is built
//! - [`children`]: the objects, ready to be applied
//! - [`stage`]: what is to be done next, for what was [observed](observe)
//! - [`build_queue`]: who may build now
//! - [`refusals`]: when a write that was refused is tried again
//! - [`status`]: what is said of it
//!
//! One task per Function ([`run`]) goes through that whenever something may have changed.
//!
//! Invariant: only a change of source, dependencies, runtime or base image builds an image.
//! Invariant: the version that serves is not touched before the next one can be rolled out.
//!
//! Deliberately absent: keeping children as they are; that is [`drift`](crate::drift)'s.

mod base;
pub mod build_queue;
pub mod children;
#[expect(clippy::disallowed_methods, reason = "the clock of all Functions is here")]
mod context;
pub mod facts;
pub mod family;
pub mod git;
mod in_the_way;
mod log_tail;
pub mod observe;
#[expect(clippy::disallowed_methods, reason = "what failed is tried again after a while")]
mod perform;
#[expect(clippy::disallowed_methods, reason = "it waits until Git is to be asked again")]
mod polling;
pub mod presets;
mod quantity;
mod quota;
#[expect(clippy::disallowed_methods, reason = "whoever was told is left alone for a while")]
mod quotas;
#[expect(clippy::disallowed_methods, reason = "it waits for whatever comes first")]
mod reconcile;
pub mod refusals;
mod report;
mod repository;
pub mod resolve;
mod resources;
mod retry;
mod settings;
pub mod stage;
pub mod status;
mod syntax;
pub mod tag;
mod variables;
mod violation;

pub use base::{BaseImage, NotABase};
pub use context::{Context, Facts, Input, owner};
pub use reconcile::{functions, run};
pub use resolve::{Code, Replicas, ResolvedFunction, Warning, resolve};
pub use settings::{Least, Settings};
pub use variables::{Refused, VARIABLES};
pub use violation::{Violation, reason, text};
