//! Decodes the files of a Git commit into desired objects, each with its file, document and line.
//!
//! [`decode`] reads YAML and JSON manifests as `kubectl` does. It skips files matched by `.mainstayignore`, hidden
//! files and files of other tools, and returns all problems together. [`DecodeCache`] caches decoded files by their
//! blob id. [`report()`] shows how each file is used.
//!
//! [`render`] builds kustomizations and renders charts with the official tools. [`sops`] decrypts files.
//!
//! Invariant: no input causes a panic or exceeds the [`Limits`].
//! Invariant: no problem quotes a value, only keys and positions, because any file may contain a Secret.
//!
//! SOPS-encrypted files are verified if the [`Limits`] contain keys. Their objects stay encrypted until all other
//! changes are made ([`decrypted()`]).
//!
//! Not here: whether a kind exists (the plan asks the API server), and building kustomizations and charts (`render`).
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

mod chart_index;
mod chunks;
mod decode;
mod decode_cache;
mod decrypted;
mod decryption;
mod directories;
mod document;
mod encrypted;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod ignore;
mod image_markers;
mod json;
mod kustomize;
mod limits;
mod links;
mod load;
mod normalise;
mod other_files;
mod problem;
mod recognise;
pub mod render;
mod report;
mod scalar;
mod single;
pub mod sops;
mod substituted;
mod tokens;
mod verified;

#[cfg(test)]
mod tests;

pub use chart_index::{CHART_INDEX_BYTES, ChartVersion, chart_versions};
pub(crate) use decode::decode_manifests;
pub use decode::{Decoded, decode, decode_rendered, duplicates, not_ignored, reads, too_many};
pub use decode_cache::DecodeCache;
pub use decrypted::{Decrypted, decrypted};
pub use decryption::Decryption;
pub use encrypted::{encrypted_values, holds_any, mac};
pub use image_markers::{MarkedChange, MarkedFile, MarkedImage, holds_marker, set_images};
pub use limits::{Form, Limits, memory};
pub use problem::Problem;
pub(crate) use recognise::is_in_lfs;
pub use report::{FileReport, FileState, report};
pub(crate) use single::{read_documents, read_fields};
pub use substituted::{read_object, read_value};
pub use verified::verified;
