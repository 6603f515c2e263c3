//! A Function becomes its children: ConfigMap, build Job, Deployment, Service and autoscaler.
//!
//! - [`resolve`]: the specification, the presets and the defaults become a [`ResolvedFunction`], or violations
//! - [`tag`]: what an image is built from, as one digest, and why the next one is built
//! - [`children`]: the objects, ready to be applied
//!
//! Invariant: only a change of source, dependencies, runtime or base image builds an image.
//! Invariant: the version that serves is not touched before the next one can be rolled out.

mod base;
pub mod children;
pub mod presets;
mod quantity;
pub mod resolve;
mod resources;
mod settings;
mod syntax;
pub mod tag;
mod variables;
mod violation;

pub use base::{BaseImage, NotABase};
pub use resolve::{Code, Replicas, ResolvedFunction, Warning, resolve};
pub use settings::{Least, Settings};
pub use variables::{Refused, VARIABLES};
pub use violation::{Violation, reason, text};
