//! The parts of Mainstay's API that the measurement reads and writes, by their names on the wire.
//!
//! Deliberately absent: the specs, which are written as JSON, as users write them.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Label on managed objects: the GitSync that they belong to.
pub(crate) const SYNC_LABEL: &str = "mainstay.dev/sync";
/// Annotation that asks for a sync, or for a look at Git, now.
pub(crate) const REQUESTED_AT: &str = "mainstay.dev/requestedAt";
/// Label on every child of a Function: the Function's name.
pub(crate) const FUNCTION_NAME: &str = "serverless.kyma-project.io/function-name";
/// Label that tells the pods of builds from those that serve.
pub(crate) const RESOURCE: &str = "serverless.kyma-project.io/resource";
/// Value of [`RESOURCE`] on pods that serve.
pub(crate) const DEPLOYMENT: &str = "deployment";

/// The fields of a GitSync that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "mainstay.dev", version = "v1alpha1", kind = "GitSync", namespaced)]
#[kube(status = "GitSyncStatus", schema = "disabled")]
pub(crate) struct GitSyncSpec {}

/// The fields of a GitSync's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GitSyncStatus {
    /// The last value of [`REQUESTED_AT`] that was acted on.
    pub(crate) last_handled_request: Option<String>,
    /// The last commit that was applied in full.
    pub(crate) applied_commit: Option<String>,
    /// Ready and others.
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

/// A GitRepository, of which nothing is read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "serverless.kyma-project.io", version = "v1alpha1", kind = "GitRepository", namespaced)]
#[kube(schema = "disabled")]
pub(crate) struct GitRepositorySpec {}

/// The fields of a Receiver that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "mainstay.dev", version = "v1alpha1", kind = "Receiver", namespaced)]
#[kube(status = "ReceiverStatus", schema = "disabled")]
pub(crate) struct ReceiverSpec {}

/// The fields of a Receiver's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReceiverStatus {
    /// The path at which it receives deliveries.
    pub(crate) webhook_path: Option<String>,
}

/// The fields of a Function that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "serverless.kyma-project.io", version = "v1alpha1", kind = "Function", namespaced)]
#[kube(status = "FunctionStatus", schema = "disabled")]
pub(crate) struct FunctionSpec {}

/// The fields of a Function's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FunctionStatus {
    /// `metadata.generation` that the status speaks of.
    pub(crate) observed_generation: Option<i64>,
    /// ConfigurationReady, BuildReady and Running.
    pub(crate) conditions: Vec<Condition>,
    /// Git tree that the image was built from; absent when the source is inline.
    pub(crate) tree: Option<String>,
}

/// The fields of a condition that are read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// True, False or Unknown.
    pub(crate) status: String,
    /// One word that says why.
    pub(crate) reason: String,
}

/// A language runtime that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Node.js.
    NodeJs,
    /// Python.
    Python,
}

impl Runtime {
    /// As `spec.runtime` of a Function names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeJs => "nodejs22",
            Self::Python => "python312",
        }
    }

    /// As people name the language.
    pub(crate) fn language(self) -> &'static str {
        match self {
            Self::NodeJs => "Node.js",
            Self::Python => "Python",
        }
    }
}
