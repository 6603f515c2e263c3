//! The children of a Function, one file for each kind: objects that are ready to be applied server-side.
//!
//! Invariant: building cannot fail, and equal inputs give equal objects; only fields that are ours are in them.
//! Invariant: every pod keeps the rules of Pod Security `restricted`.
//!
//! Deliberately absent: when a child is written. That is the stage table's.

pub mod autoscaler;
pub mod config_map;
pub mod deployment;
pub mod job;
mod pod;
mod reserved;
pub mod service;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ResolvedFunction;

pub use reserved::reserved;

/// Port on which the runtime server listens in its pod.
pub const PORT: u16 = 8080;
/// Longest name of a child: it becomes the value of a label.
const LONGEST_NAME: usize = 63;
/// As many characters tell two children apart as the API gives to generated names, from the same alphabet: without
/// vowels, so that no words appear, and without what can be misread.
const SUFFIX: usize = 5;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Name of a Function's ConfigMap, Deployment and autoscaler: `{function}-{5 characters}`, the same for the life of the
/// Function.
pub fn name(function: &ResolvedFunction) -> String {
    named(&function.name, "", &[&function.uid])
}

/// `{function}{middle}-{5 characters}`, the Function's name cut so that the whole fits.
fn named(function: &str, middle: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let suffix: String =
        digest.iter().take(SUFFIX).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect();
    let room = LONGEST_NAME - SUFFIX - 1 - middle.len();
    let prefix = crate::api::conditions::cut(function, room).trim_end_matches('-');
    format!("{prefix}{middle}-{suffix}")
}

/// The metadata that every child has.
fn metadata(function: &ResolvedFunction, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": function.namespace,
        "labels": function.labels,
        "ownerReferences": [{
            "apiVersion": "serverless.kyma-project.io/v1alpha1",
            "kind": "Function",
            "name": function.name,
            "uid": function.uid,
            "controller": true,
            "blockOwnerDeletion": true
        }]
    })
}

#[cfg(test)]
mod tests;
