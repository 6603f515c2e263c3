//! `OCIRepository` (`mainstay.dev/v1alpha1`): an artifact in an image registry, with the fields of Flux's `v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::schemas::{ConditionSchema, TimeSchema};

/// An artifact in an image registry: manifests that a GitSync with `spec.sourceRef` applies.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "OCIRepository",
    plural = "ocirepositories",
    singular = "ocirepository",
    shortname = "ocirepo",
    namespaced,
    status = "OciRepositoryStatus",
    derive = "PartialEq",
    root = "OciRepository",
    printcolumn(name = "URL", type_ = "string", json_path = ".spec.url"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct OciRepositorySpec {
    /// Address of the repository without a tag: `oci://HOST[:PORT]/PATH`.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// The followed tag, range of versions or digest; by default the tag `latest`.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<OciReference>,
    /// The layer that holds the files; by default the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_selector: Option<LayerSelector>,
    /// Secret of the type `kubernetes.io/dockerconfigjson` in the same namespace, with the login for the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `ca.crt`, `tls.crt` and `tls.key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_secret_ref: Option<OciSecretRef>,
    /// Secret in the same namespace with the keys `address`, `username` and `password` of a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_secret_ref: Option<OciSecretRef>,
    /// Whether the registry is read over HTTP without TLS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Time between two lookups of the tag; at least 10s.
    #[serde(default = "ten_minutes")]
    pub interval: Span,
    /// Maximum time of a lookup with its download; 60s by default, at most 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Patterns of files to leave out, in the format of `.gitignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub ignore: Option<String>,
    /// Look up nothing. The last artifact stays.
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
    /// The required signature. An artifact without it is not read, and the last one stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<OciVerify>,
}

/// The required signature of an artifact or a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciVerify {
    /// The tool that made the signature: `cosign` or `notation`, for artifacts and charts in image registries, or, for
    /// HelmCharts only, `helm`, for provenance files (`.prov`).
    #[serde(default = "cosign")]
    #[schemars(length(max = 63))]
    pub provider: String,
    /// Secret in the same namespace with the public keys. For `cosign`, the values whose names end in `.pub`, in PEM. For
    /// `notation`, the trust policy under the key `trustpolicy.json`, and the trusted certificates under names that end in
    /// `.crt` or `.pem`. For `helm`, all values: OpenPGP keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OciSecretRef>,
    /// Without `secretRef`: the identities whose keyless signatures by `cosign` are accepted. A certificate has to match both
    /// patterns of one entry.
    #[serde(rename = "matchOIDCIdentity", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub match_oidc_identity: Option<Vec<OidcIdentity>>,
    /// Secret in the same namespace with a trusted root of Sigstore under the key `trusted_root.json`. It takes the place of
    /// the root of the public instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_root_secret_ref: Option<OciSecretRef>,
}

/// Patterns for the identity in a certificate. A pattern may match a part of the text: begin it with `^`, and end it with `$`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OidcIdentity {
    /// Regular expression for the issuer of OpenID Connect, such as `^https://token\.actions\.githubusercontent\.com$`.
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: String,
    /// Regular expression for the subject: an email address or a URL, such as that of a workflow.
    #[schemars(length(min = 1, max = 1024))]
    pub subject: String,
}

/// The followed reference. `digest` wins over `semver`, and `semver` over `tag`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciReference {
    /// A digest: `sha256:` and 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 71))]
    pub digest: Option<String>,
    /// A range of versions, such as `>=1.2 <2`: follows the tag with the highest version in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub semver: Option<String>,
    /// A regular expression; `semver` chooses among the tags that match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub semver_filter: Option<String>,
    /// A tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub tag: Option<String>,
}

/// The layer that holds the files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LayerSelector {
    /// The media type of the layer; the first layer with it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub media_type: Option<String>,
    /// Accepted for compatibility; both values extract the layer, which must be a gzip-compressed tar archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<LayerOperation>,
}

/// The use of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LayerOperation {
    /// The files of the archive are read.
    Extract,
    /// The same.
    Copy,
}

/// A Secret of an OCIRepository or a HelmChart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OciSecretRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The observed state of an OCIRepository or a HelmChart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciRepositoryStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The last artifact or chart that was downloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<OciArtifact>,
    /// Ready, SourceVerified with `spec.verify`, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// A downloaded artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciArtifact {
    /// Tag or version, and the digest: of the manifest in a registry, or of the packed chart. Such as `v1.2.3@sha256:…`.
    pub revision: String,
    /// Digest of the layer, or of the packed chart, that holds the files.
    pub digest: String,
    /// Id of the commit that holds the files in the agent. GitSyncs show it.
    pub commit: String,
    /// Time of the download.
    #[schemars(with = "TimeSchema")]
    pub last_update_time: Time,
}

fn cosign() -> String {
    "cosign".to_owned()
}

pub(super) fn ten_minutes() -> Span {
    Span(std::time::Duration::from_secs(600))
}
