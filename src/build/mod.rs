//! What runs inside the build Job: the source is fetched, its dependencies are installed, the image is pushed.
//!
//! Three containers, so that code from packages never sees a credential: `fetch` has the Git Secret, `install` runs the
//! package manager and has no Secret but the package registry's, `push` has the registry's Secret and runs no user
//! code.
//!
//! Invariant: the same inputs give the same image, byte for byte.
//! Invariant: every container ends with one [`Termination`](crate::api::build::Termination), without any secret.

pub mod fetch;
pub mod image;
pub mod install;
pub mod push;
