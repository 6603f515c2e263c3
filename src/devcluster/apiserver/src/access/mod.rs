//! Authentication and authorization.
//!
//! [`authenticate`] turns a request's credentials into a [`User`], [`tokens`] signs and checks the tokens of
//! ServiceAccounts, [`rules`] is the arithmetic of RBAC rules, [`rbac`] asks the roles in the store, and [`escalation`]
//! keeps people from granting what they do not have.
//!
//! Invariant: only a server that was started with RBAC refuses anything for want of permission.
//!
//! Deliberately absent: other ways to authenticate than the server's own tokens, and other authorisers than RBAC.

pub mod authenticate;
pub mod escalation;
pub mod rbac;
pub mod rules;
pub mod signer;
pub mod tokens;
pub mod user;

pub use rules::{Place, Request};
pub use user::User;
