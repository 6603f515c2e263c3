//! The remote cluster of a GitSync's objects (`spec.kubeConfig`), in Flux's format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// A Secret in the namespace of the GitSync with a kubeconfig. Its current context is used. Everything has to be in it: the
    /// server's URL (https), its CA, and a token or a client certificate with its key; whatever names a file, a program or a proxy is
    /// refused. A change takes effect immediately.
    pub secret_ref: KubeConfigSecret,
}

/// The Secret with a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfigSecret {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key of its data with the kubeconfig; by default `value`, or else `value.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}
