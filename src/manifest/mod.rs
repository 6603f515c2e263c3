//! A Git commit's files become desired objects, each with its file, document and line.
//!
//! [`decode`] reads YAML and JSON manifests as `kubectl` would, leaves out what `.mainstayignore` names, and returns
//! everything that is wrong at once. What a file decoded to is remembered by its blob id in [`Memory`].
//!
//! Invariant: no byte string makes it panic or take more than the [`Limits`].
//! Invariant: no problem quotes a value, only keys and positions: any file may hold a Secret.
//!
//! Deliberately absent: whether a kind exists (the planner asks the server), and building a kustomization.

mod decode;
mod document;
mod file;
mod ignore;
mod json;
mod kustomize;
mod limits;
mod load;
mod memory;
mod normalise;
mod problem;
mod scalar;
mod tokens;

#[cfg(test)]
mod tests;

pub use decode::{Decoded, decode, duplicates};
pub use limits::Limits;
pub use memory::Memory;
pub use problem::Problem;
