//! Builders of a Function's children, one file per kind. They return objects for server-side apply.
//!
//! Invariant: building cannot fail, and equal inputs result in equal objects. Objects contain only fields that the
//! agent owns. Invariant: every pod satisfies Pod Security `restricted`, except the pod of a build by Kaniko, which
//! satisfies `baseline`.
//!
//! Not here: when a child is written; the stage table decides that.

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
use mainstay_api::names::SECRETS_DIGEST;

pub use reserved::reserved;

/// Port of the runtime server in its pod.
pub const PORT: u16 = 8080;
/// Maximum length of a child's name, because the name becomes a label value.
const MAX_NAME: usize = 63;
/// Length and alphabet of the suffix. They equal those of generated names in Kubernetes: without vowels, so that no
/// words appear, and without ambiguous characters.
const SUFFIX: usize = 5;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Returns the name of a Function's ConfigMap, Deployment and autoscaler: `{function}-{5 characters}`. It is stable for
/// the lifetime of the Function.
pub fn name(function: &ResolvedFunction) -> String {
    named(&function.name, "", &[&function.uid])
}

/// Returns `{function}{middle}-{5 characters}`, with the Function's name cut to fit.
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

/// Returns the metadata of a child.
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

/// Returns the metadata of a child that runs the pods, with a record of the digests of its Secrets. Another record
/// restarts no pods, because it is not in the template.
fn serving_metadata(function: &ResolvedFunction, name: &str) -> Value {
    let mut metadata = metadata(function, name);
    if let Some(record) = function.secrets_digest.as_ref().and_then(|digest| digest.record.as_deref()) {
        metadata["annotations"] = json!({ SECRETS_DIGEST: record });
    }
    metadata
}

#[cfg(test)]
mod tests;
