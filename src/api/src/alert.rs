//! `Alert` (`mainstay.dev/v1alpha1`): selects which messages are sent to a Provider. Has the fields of Flux's
//! `v1beta3`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schemas::ConditionSchema;

/// Selects messages about objects and sends them to a Provider.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "Alert",
    plural = "alerts",
    namespaced,
    status = "AlertStatus",
    derive = "PartialEq",
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.providerRef.name"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AlertSpec {
    /// The Provider in the same namespace.
    pub provider_ref: ProviderRef,
    /// The objects whose messages are sent.
    #[schemars(length(min = 1, max = 100))]
    pub event_sources: Vec<EventSource>,
    /// `info` sends all messages, `error` only failures.
    #[serde(default)]
    pub event_severity: EventSeverity,
    /// Regular expressions. A message is sent only if one of them matches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub inclusion_list: Vec<String>,
    /// Regular expressions. A message is not sent if one of them matches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub exclusion_list: Vec<String>,
    /// Fields that are added to each message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub event_metadata: BTreeMap<String, String>,
    /// A string that is added to each message, such as the purpose of the cluster. Wins over `summary` of `eventMetadata`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub summary: Option<String>,
    /// Send nothing.
    #[serde(default)]
    pub suspend: bool,
}

/// The Provider of an Alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Objects whose messages are sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventSource {
    /// `GitSync`, `Function`, `GitRepository`, `OCIRepository`, `HelmChart`, `ImageRepository`, `ImagePolicy`, `ImageUpdateAutomation`,
    /// `Receiver` or `APIRule`. `Kustomization` and `HelmRelease` mean `GitSync`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its name, or `*` for all objects of the kind.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; by default that of the Alert. Only an Alert in a namespace of the operator may name another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Labels that the object must have. Only with the name `*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub match_labels: BTreeMap<String, String>,
    /// No effect: Flux has the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_version: Option<String>,
}

/// The least severity that an Alert sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventSeverity {
    /// All messages.
    #[default]
    Info,
    /// Failures.
    Error,
}

/// The observed state of an Alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}
