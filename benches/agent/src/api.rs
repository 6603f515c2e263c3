//! The parts of Mainstay's API that the benchmark reads and writes, by their JSON names.
//!
//! Not here: specs, which are written as JSON like by users.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Label of managed objects: their GitSync.
pub(crate) const SYNC_LABEL: &str = "mainstay.dev/sync";
/// Annotation that requests a sync or a lookup.
pub(crate) const REQUESTED_AT: &str = "mainstay.dev/requestedAt";
/// Label of a Function's children: the Function's name.
pub(crate) const FUNCTION_NAME: &str = "serverless.kyma-project.io/function-name";
/// Label that separates the pods of builds from serving pods.
pub(crate) const RESOURCE: &str = "serverless.kyma-project.io/resource";
/// Value of [`RESOURCE`] on serving pods.
pub(crate) const DEPLOYMENT: &str = "deployment";

/// The fields of a GitSync that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "mainstay.dev", version = "v1alpha1", kind = "GitSync", namespaced)]
#[kube(status = "GitSyncStatus", schema = "disabled")]
pub(crate) struct GitSyncSpec {}

/// The status fields of a GitSync that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GitSyncStatus {
    /// The last handled value of [`REQUESTED_AT`].
    pub(crate) last_handled_request: Option<String>,
    /// The last completely applied commit.
    pub(crate) applied_commit: Option<String>,
    /// Ready and others.
    #[serde(default)]
    pub(crate) conditions: Vec<Condition>,
}

/// A GitRepository. The benchmark reads none of its fields.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "serverless.kyma-project.io", version = "v1alpha1", kind = "GitRepository", namespaced)]
#[kube(schema = "disabled")]
pub(crate) struct GitRepositorySpec {}

/// The fields of a Receiver that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "mainstay.dev", version = "v1alpha1", kind = "Receiver", namespaced)]
#[kube(status = "ReceiverStatus", schema = "disabled")]
pub(crate) struct ReceiverSpec {}

/// The status fields of a Receiver that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReceiverStatus {
    /// URL path of the Receiver's deliveries.
    pub(crate) webhook_path: Option<String>,
}

/// The fields of a Function that are read.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "serverless.kyma-project.io", version = "v1alpha1", kind = "Function", namespaced)]
#[kube(status = "FunctionStatus", schema = "disabled")]
pub(crate) struct FunctionSpec {}

/// The status fields of a Function that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FunctionStatus {
    /// The `metadata.generation` that the status reflects.
    pub(crate) observed_generation: Option<i64>,
    /// ConfigurationReady, BuildReady and Running.
    pub(crate) conditions: Vec<Condition>,
    /// Git tree of the image's source; absent for inline source.
    pub(crate) tree: Option<String>,
}

/// The fields of a condition that are read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// True, False or Unknown.
    pub(crate) status: String,
    /// Reason in one word.
    pub(crate) reason: String,
}

/// A measured language runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// Node.js.
    NodeJs,
    /// Python.
    Python,
}

impl Runtime {
    /// Returns the value of `spec.runtime`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeJs => "nodejs22",
            Self::Python => "python312",
        }
    }

    /// Returns the name of the language.
    pub(crate) fn language(self) -> &'static str {
        match self {
            Self::NodeJs => "Node.js",
            Self::Python => "Python",
        }
    }
}
