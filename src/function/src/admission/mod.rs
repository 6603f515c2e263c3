//! Admission webhooks: a Function is judged when it is written, in the words that its conditions would have.
//!
//! [`Admission`] answers the API server in every replica; [`registration`] keeps its certificates. `validate` decides.
//!
//! Invariant: an agent that is down never stops the cluster: its webhooks are registered with `failurePolicy: Ignore`, a short
//! timeout and narrow rules. What they missed is found by [`function::resolve`](crate::resolve()).
//! Invariant: no answer depends on anything but the request and the agent's settings.
//!
//! Deliberately absent: who may write what; that is RBAC.

mod conversion_review;
mod convert;
mod default;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod hook;
#[expect(clippy::disallowed_methods, reason = "certificates end at a time")]
mod registration;
mod registry_secret;
mod review;
#[expect(clippy::disallowed_methods, reason = "it answers, with deadlines")]
mod server;
mod validate;

pub use convert::{Version, convert};
pub use registration::{Registration, follow, lead};
pub use server::{Admission, Count};

#[cfg(test)]
mod tests;
