//! `ImageRepository` (`mainstay.dev/v1alpha1`): a repository in an image registry whose tags ImagePolicies choose from,
//! with the fields of Flux's `image.toolkit.fluxcd.io/v1`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::oci_repository::{OciSecretRef, ten_minutes};
use super::schemas::{ConditionSchema, TimeSchema};

/// A repository in an image registry. ImagePolicies choose from its tags.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "ImageRepository",
    plural = "imagerepositories",
    singular = "imagerepository",
    shortname = "imgrepo",
    namespaced,
    status = "ImageRepositoryStatus",
    derive = "PartialEq",
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "Tags", type_ = "integer", json_path = ".status.lastScanResult.tagCount"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositorySpec {
    /// Address of the repository without a tag: `[HOST[:PORT]/]PATH`. The default host is `docker.io`.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// Time between two listings of the tags; at least 10s.
    #[serde(default = "ten_minutes")]
    pub interval: Span,
    /// Maximum time of a listing; 60s by default, at most 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Secret of the type `kubernetes.io/dockerconfigjson` in the same namespace, with the login for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `ca.crt`, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `address`, `username` and `password` of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<OciSecretRef>,
    /// Regular expressions. Tags that match one of them are ignored. By default, tags of signatures: `^.*\.sig$`.
    #[serde(default = "signatures")]
    #[schemars(length(max = 25), inner(length(max = 255)))]
    pub exclusion_list: Vec<String>,
    /// Whether the registry is read over HTTP without TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Other namespaces whose ImagePolicies may name this repository; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_from: Option<AccessFrom>,
    /// List nothing. The last tags stay in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Who issues the login: `aws`, `azure` or `gcp` for a registry of this cloud; `generic`, the default, for the Secret in
    /// `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
    /// ServiceAccount in the same namespace whose identity at the cloud reads the registry. Without it, the identity of the
    /// agent is used; only namespaces that the operator lists may do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
}

/// Namespaces that may use an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccessFrom {
    /// A namespace has access if one of the selectors selects it.
    #[schemars(length(max = 25))]
    pub namespace_selectors: Vec<NamespaceSelector>,
}

/// Selects namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelector {
    /// Labels that the namespace must have. An empty map selects every namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 25))]
    pub match_labels: BTreeMap<String, String>,
}

/// The observed state of an ImageRepository.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositoryStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The image with its registry, such as `docker.io/library/nginx`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canonical_image_name: Option<String>,
    /// The last listing that differed from the one before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scan_result: Option<ScanResult>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// A listing of tags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanResult {
    /// SHA-256 digest of the sorted tags.
    pub revision: String,
    /// Number of tags without the excluded ones.
    pub tag_count: i64,
    /// Time of the listing. Listings with the same tags do not change it.
    #[schemars(with = "TimeSchema")]
    pub scan_time: Time,
    /// The last 10 tags in descending alphabetical order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latest_tags: Vec<String>,
}

fn signatures() -> Vec<String> {
    vec![r"^.*\.sig$".to_owned()]
}
