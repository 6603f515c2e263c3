//! `Provider` (`mainstay.dev/v1alpha1`): the address to which Alerts send, with the fields of Flux's `v1beta3`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::schemas::ConditionSchema;

/// An address outside of the cluster that receives messages: a chat, an incident service, or a webhook.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "Provider",
    plural = "providers",
    namespaced,
    status = "ProviderStatus",
    derive = "PartialEq",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSpec {
    /// The service that receives, such as `slack`. A type that is not supported is reported in the condition Ready.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// The URL of the service; of `googlepubsub` the project, of `azureeventhub` the hub. `address` of the Secret wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub address: Option<String>,
    /// The channel, room, chat, routing key or topic, by type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub channel: Option<String>,
    /// The name that the service shows as the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub username: Option<String>,
    /// Secret in the same namespace with the keys `address`, `token`, `username`, `password` or `headers`, by type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ProviderSecretRef>,
    /// Secret in the same namespace with the keys `ca.crt`, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<ProviderSecretRef>,
    /// Secret in the same namespace with the keys `address`, `username` and `password` of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<ProviderSecretRef>,
    /// URL of a proxy without a login. `proxySecretRef` takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub proxy: Option<String>,
    /// Maximum time of a request; 15s by default, at most 60s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// No effect. Flux has the field, too, without an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// CEL expression with the name of a commit status. Its variables are `event`, `provider` and `alert`. By default, the
    /// name is `gitsync/NAME/` and the beginning of the uid of the GitSync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub commit_status_expr: Option<String>,
    /// ServiceAccount in the same namespace whose identity at a cloud sends, for `azuredevops`, `azureeventhub` and
    /// `googlepubsub` without a login in the Secret. By default the agent's own identity, in namespaces that may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// Maximum number of messages in a minute; 20 by default. Further messages are counted and summed up in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 600))]
    pub messages_per_minute: Option<u32>,
    /// Send nothing. Messages are not kept meanwhile.
    #[serde(default)]
    pub suspend: bool,
}

/// A Secret of a Provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The observed state of a Provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}
