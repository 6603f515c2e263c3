//! `HelmChart` (`mainstay.dev/v1alpha1`): a packed Helm chart in a chart repository or an image registry.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::oci_repository::{OciRepositoryStatus, OciSecretRef, OciVerify, ten_minutes};

/// A packed Helm chart in a chart repository or an image registry. A GitSync with `spec.sourceRef` renders and applies it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "HelmChart",
    plural = "helmcharts",
    singular = "helmchart",
    namespaced,
    status = "OciRepositoryStatus",
    derive = "PartialEq",
    printcolumn(name = "Chart", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct HelmChartSpec {
    /// URL of the chart repository: `https://HOST/PATH` of an `index.yaml`, or `oci://HOST[:PORT]/PATH` without the name of
    /// the chart.
    #[schemars(length(min = 1, max = 2048))]
    pub repository: String,
    /// Name of the chart.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// A version, or a range of versions such as `^1.2`. The highest version in the range is followed. By default, the
    /// highest version without pre-releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub version: Option<String>,
    /// Secret in the same namespace with the login: the keys `username` and `password`, or for `oci://` also
    /// `.dockerconfigjson`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `ca.crt`, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `address`, `username` and `password` of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<OciSecretRef>,
    /// Permit HTTP without TLS: `http://` in `repository`, or for `oci://` a registry without TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Time between two lookups of the version; at least 10s.
    #[serde(default = "ten_minutes")]
    pub interval: Span,
    /// Maximum time of a lookup with its download; 60s by default, at most 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Look up nothing. The last chart stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
    /// Who issues the login: `aws`, `azure` or `gcp` for a registry (`oci://`) of this cloud; `generic`, the default, for the Secret in
    /// `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider: Option<String>,
    /// ServiceAccount in the same namespace whose identity at the cloud reads the registry. Without it, the identity of the
    /// agent is used; only namespaces that the operator lists may do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service_account_name: Option<String>,
    /// The required signature. A chart without it is not read, and the last one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OciVerify>,
}
