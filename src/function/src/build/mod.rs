//! The programs in the build Job: fetch the source, install its dependencies, push the image.
//!
//! The programs run in three containers, so that code from packages never sees a credential. `fetch` has the Git
//! Secret. `install` runs the package manager with only the package registry's Secret. `push` has the registry's Secret
//! and runs no user code.
//!
//! Invariant: the same inputs result in the same image, byte for byte. Invariant: every container ends with one
//! [`Termination`](mainstay_api::build::Termination) without secrets.

mod context;
pub mod fetch;
pub mod image;
pub mod install;
pub mod push;
