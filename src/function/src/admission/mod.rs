//! Admission webhooks: validate a Function when it is written, with the same messages as its conditions.
//!
//! [`Admission`] responds to the API server in every replica; [`registration`] manages the certificates; `validate`
//! decides.
//!
//! Invariant: a stopped agent never blocks the cluster. Its webhooks have `failurePolicy: Ignore`, a short timeout and
//! narrow rules. [`function::resolve`](crate::resolve()) finds problems that the webhooks missed. Invariant: a response
//! depends only on the request and the agent's settings.
//!
//! Not here: permissions, which RBAC decides.

#[expect(clippy::disallowed_methods, reason = "it reads bodies, with deadlines")]
mod bodies;
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
