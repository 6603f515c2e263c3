//! `ImagePolicy` (`mainstay.dev/v1alpha1`): the choice of a tag of an ImageRepository, with the fields of Flux's
//! `image.toolkit.fluxcd.io/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::schemas::ConditionSchema;

/// Chooses a tag of an ImageRepository.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "ImagePolicy",
    plural = "imagepolicies",
    singular = "imagepolicy",
    shortname = "imgpol",
    namespaced,
    status = "ImagePolicyStatus",
    derive = "PartialEq",
    printcolumn(name = "Image", type_ = "string", json_path = ".status.latestRef.name"),
    printcolumn(name = "Tag", type_ = "string", json_path = ".status.latestRef.tag"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicySpec {
    /// The ImageRepository whose tags are considered.
    pub image_repository_ref: ImageRepositoryRef,
    /// The order of the tags.
    pub policy: ImageChoice,
    /// Considers only tags that match, or parts of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_tags: Option<TagFilter>,
    /// Whether `status.latestRef` has the digest of the tag: `Never`, `IfNotPresent` for the digest at the time of the
    /// choice, or `Always` for the present digest.
    #[serde(default)]
    pub digest_reflection_policy: DigestReflection,
    /// Time between two lookups of the digest; 10m by default, at least 10s. Only for
    /// `digestReflectionPolicy: Always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
    /// Choose nothing. The last choice stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,
}

/// Names an ImageRepository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRepositoryRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; by default the same one. The ImageRepository must permit others in `spec.accessFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// The order of tags. Exactly one field is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageChoice {
    /// Chooses the highest version in a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semver: Option<SemverChoice>,
    /// Chooses the last or the first tag in the order of their bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alphabetical: Option<OrderedChoice>,
    /// Chooses the highest or the lowest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numerical: Option<OrderedChoice>,
}

/// A range of versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SemverChoice {
    /// Such as `^1.0` or `>=1.2 <2`.
    #[schemars(length(min = 1, max = 255))]
    pub range: String,
}

/// An order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderedChoice {
    /// `asc` chooses the last tag or the highest number, and `desc` the first tag or the lowest number.
    #[serde(default)]
    pub order: TagOrder,
}

/// The direction of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TagOrder {
    /// The last is chosen.
    #[default]
    Asc,
    /// The first is chosen.
    Desc,
}

/// Selects tags, and the parts that are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TagFilter {
    /// A regular expression that the tag must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub pattern: Option<String>,
    /// The text that is compared instead of the tag, with groups of the pattern such as `$ts` or `$1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub extract: Option<String>,
}

/// Whether the digest of a tag is looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DigestReflection {
    /// No digest.
    #[default]
    Never,
    /// The digest at the time of the choice.
    IfNotPresent,
    /// The present digest.
    Always,
}

/// The observed state of an ImagePolicy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePolicyStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The chosen image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ref: Option<ChosenImage>,
    /// The image that was chosen before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_previous_ref: Option<ChosenImage>,
    /// Ready, and Stalled while only a change of the spec helps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// An image with a tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenImage {
    /// The image without a tag, as the ImageRepository names it.
    pub name: String,
    /// The tag.
    pub tag: String,
    /// The digest that the tag resolved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}
