//! What users write and read: one file per kind, the condition types and reasons, and every well-known name.
//!
//! Invariant: nothing here uses a client, a clock or a file; the CRDs in `manifests/` are generated from these types.
//!
//! Deliberately absent: validation. It is in the feature that implements the spec.

pub mod amount;
pub mod build;
pub mod conditions;
pub mod duration;
pub mod function;
pub mod function_conditions;
pub mod git_repository;
pub mod git_sync;
pub mod names;
pub mod receiver;
mod schemas;

pub use amount::Amount;
pub use duration::{NotADuration, Span};
pub use function::{Function, FunctionSpec, FunctionStatus};
pub use git_repository::{GitRepository, GitRepositorySpec, GitRepositoryStatus};
pub use git_sync::{DriftPolicy, GitSync, GitSyncSpec, GitSyncStatus};
pub use receiver::{Receiver, ReceiverSpec, ReceiverStatus, ReceiverType};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every CRD that Mainstay needs, in the order to apply them.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    vec![GitRepository::crd(), GitSync::crd(), Receiver::crd(), Function::crd()]
}
