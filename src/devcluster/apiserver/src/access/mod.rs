//! Authentication and authorization.
//!
//! [`authenticate`] turns a request's credentials into a [`User`]. [`tokens`] signs and checks ServiceAccount tokens.
//! [`rules`] evaluates RBAC rules, [`rbac`] reads the roles in the store, and [`escalation`] prevents privilege
//! escalation.
//!
//! Invariant: a server without RBAC never refuses a request for missing permission.
//!
//! Not here: the verification of other issuers' tokens, which a setting adds, and authorisers other than RBAC.

pub mod authenticate;
pub mod escalation;
pub mod rbac;
pub mod rules;
pub mod signer;
pub mod tokens;
pub mod user;

pub use rules::{Place, Request};
pub use user::User;
