//! `ImageUpdateAutomation` (`mainstay.dev/v1alpha1`): commits the choices of ImagePolicies to a branch, with the fields of
//! Flux's `image.toolkit.fluxcd.io/v1`, and a Secret with write access.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::image_policy::ChosenImage;
use super::oci_repository::{OciSecretRef, ten_minutes};
use super::schemas::{ConditionSchema, TimeSchema};

/// Commits the choices of ImagePolicies to a branch, at the markers of its files. Pushes nothing unless
/// `spec.git.push.secretRef` names a Secret with write access.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "ImageUpdateAutomation",
    plural = "imageupdateautomations",
    singular = "imageupdateautomation",
    shortname = "iua",
    namespaced,
    status = "ImageUpdateAutomationStatus",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Pushed", type_ = "date", json_path = ".status.lastPushTime"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationSpec {
    /// The GitRepository whose branch is updated. It is read with its own credentials.
    pub source_ref: UpdateSource,
    /// The branch and the commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<UpdateGit>,
    /// Time between two lookups of the branch; at least 10s.
    #[serde(default = "ten_minutes")]
    pub interval: Span,
    /// Labels of the considered ImagePolicies of the same namespace; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_selector: Option<PolicySelector>,
    /// The files with markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateFiles>,
    /// Push nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// The GitRepository of an ImageUpdateAutomation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateSource {
    /// `GitRepository`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace, which must be that of the ImageUpdateAutomation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// No effect: Flux has the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub api_version: Option<String>,
}

/// The branch and the commits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateGit {
    /// The branch that is read; by default the default branch of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkout: Option<UpdateCheckout>,
    /// The commits.
    pub commit: UpdateCommit,
    /// The branch that is pushed, and the Secret with write access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<UpdatePush>,
}

/// The branch that is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateCheckout {
    /// The branch.
    #[serde(rename = "ref")]
    pub reference: UpdateReference,
}

/// A branch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateReference {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub branch: Option<String>,
    /// Not supported: only a branch can be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub tag: Option<String>,
    /// Not supported: only a branch can be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub semver: Option<String>,
    /// Not supported: only a branch can be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// Not supported: only a branch can be updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub commit: Option<String>,
}

/// The commits of an ImageUpdateAutomation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateCommit {
    /// Author and committer.
    pub author: UpdateAuthor,
    /// The message, with `{{ .AutomationObject }}`, `{{ .Values.NAME }}`, and lists of the changes. By default it lists the
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub message_template: Option<String>,
    /// The values of `.Values` in the message.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub message_template_values: BTreeMap<String, String>,
    /// The private key that signs the commits. By default, they are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<UpdateSigningKey>,
}

/// The private key that signs commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateSigningKey {
    /// The kind of key.
    #[serde(rename = "type", default)]
    pub kind: SigningKeyType,
    /// Secret in the same namespace with the key. It must not be the Secret of a repository. For `gpg`, it has the armored
    /// OpenPGP key in `git.asc` and its passphrase in `passphrase`; for `ssh`, the key in `identity` and its passphrase in
    /// `password`.
    pub secret_ref: OciSecretRef,
}

/// The kind of a key that signs commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SigningKeyType {
    /// An OpenPGP key.
    #[default]
    Gpg,
    /// An SSH key.
    Ssh,
}

/// The author of commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateAuthor {
    /// Name; by default that of the ImageUpdateAutomation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub name: Option<String>,
    /// E-mail address.
    #[schemars(length(min = 1, max = 255))]
    pub email: String,
}

/// The branch that is pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdatePush {
    /// The branch; by default the one that is read. If it does not exist, it is created from the one that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub branch: Option<String>,
    /// Secret in the same namespace with write access to the repository, with the keys of a GitRepository's Secret. Without
    /// it, nothing is pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<OciSecretRef>,
    /// `SOURCE:DESTINATION`. The source is the branch of the commits or `HEAD`. The destination is a branch
    /// (`refs/heads/auto`) or a reference for reviews in Gerrit (`refs/for/main`). With `branch`, commits are pushed to both;
    /// without it, to the destination only. `+`, deletions and patterns are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub refspec: Option<String>,
    /// Options for the server, as `git push --push-option` sends them: `NAME=VALUE`, or `NAME` if the value is empty. A name
    /// has at most 255 characters, a value at most 1024 bytes in one line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub options: BTreeMap<String, String>,
}

/// Selects ImagePolicies by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySelector {
    /// Labels that the ImagePolicy must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 50))]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that the labels must meet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub match_expressions: Vec<PolicyRequirement>,
}

/// A requirement for a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRequirement {
    /// Name of the label.
    #[schemars(length(max = 317))]
    pub key: String,
    /// How the label is compared.
    pub operator: PolicyOperator,
    /// The values of `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyOperator {
    /// The label has one of the values.
    In,
    /// The label is absent, or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

/// The files with markers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UpdateFiles {
    /// How files are updated.
    #[serde(default)]
    pub strategy: UpdateStrategy,
    /// The directory with the files; by default the whole repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub path: Option<String>,
}

/// How files are updated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategy {
    /// At the markers.
    #[default]
    Setters,
}

/// The observed state of an ImageUpdateAutomation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageUpdateAutomationStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The commit that was last compared with the choices, such as `main@sha1:…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_source_revision: Option<String>,
    /// `metadata.generation` of the spec with which the commit was compared for a review, and with which an update was
    /// pushed for one. A destination without reviews does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_generation: Option<i64>,
    /// The choices that the branch has, by the names of their ImagePolicies.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub observed_policies: BTreeMap<String, ChosenImage>,
    /// Id of the last pushed commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_push_commit: Option<String>,
    /// Time of the last push.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_push_time: Option<Time>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}
