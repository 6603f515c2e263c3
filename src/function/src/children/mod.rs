//! Builders of a Function's children, one file for each kind: objects ready for server-side apply.
//!
//! Invariant: building cannot fail, and equal inputs give equal objects; they contain only fields that we own.
//! Invariant: every pod satisfies Pod Security `restricted`, except that of a build by Kaniko, which satisfies `baseline`.
//!
//! Deliberately absent: when a child is written. The stage table decides that.

pub mod autoscaler;
pub mod build_job;
pub mod config_map;
pub mod deployment;
pub mod job;
mod kaniko;
pub(crate) mod knative_service;
mod pod;
mod reserved;
pub mod service;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::ResolvedFunction;

pub use reserved::reserved;

/// Port on which the runtime server listens in its pod.
pub const PORT: u16 = 8080;
/// Maximum length of a child's name: it becomes a label value.
const MAX_NAME: usize = 63;
/// Length and alphabet of the suffix, the same as of names that the API generates: no vowels, so that no words appear,
/// and no ambiguous characters.
const SUFFIX: usize = 5;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Name of a Function's ConfigMap, Deployment and autoscaler: `{function}-{5 characters}`, stable for the life of the
/// Function.
pub fn name(function: &ResolvedFunction) -> String {
    named(&function.name, "", &[&function.uid])
}

/// `{function}{middle}-{5 characters}`, with the Function's name cut to fit.
fn named(function: &str, middle: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let suffix: String =
        digest.iter().take(SUFFIX).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect();
    let room = MAX_NAME - SUFFIX - 1 - middle.len();
    let prefix = mainstay_api::conditions::cut(function, room).trim_end_matches('-');
    format!("{prefix}{middle}-{suffix}")
}

/// The metadata of every child.
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
