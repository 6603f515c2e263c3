//! Directories that are not plain manifests become documents.
//!
//! A directory with a kustomization is built by the official tool, `kustomize`, or `kubectl kustomize` where only that is
//! there. [`closure`] finds out what the tool will read; [`kustomize`] copies exactly that into an empty directory, runs the
//! tool there ([`tool`]) and says in our words what it refused.
//!
//! Invariant: the tool sees no file that the commit does not hold, no variable, and no credential; it has a deadline, and
//! bounds on time, memory and output. What would make it use the network is a problem before it runs.
//! Invariant: nothing that the tool says is shown but names: its words quote values.
//!
//! Deliberately absent: reading the documents (`manifest`), Helm, substitution and SOPS.

mod closure;
#[expect(clippy::disallowed_methods, reason = "it copies files and runs the tool")]
mod kustomize;
mod refusal;
#[expect(clippy::disallowed_methods, reason = "it looks for programs and runs them")]
mod tool;

pub use closure::{Closure, closure};
pub use kustomize::{Kustomize, Rendered};
