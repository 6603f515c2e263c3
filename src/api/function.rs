//! `Function` (`serverless.kyma-project.io/v1alpha1`): code that answers HTTP requests, built and run by the cluster.
//!
//! Invariant: every object that the schema admits can be read. What makes no sense is told in the Function's
//! conditions; it is never a reason not to see the object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::Amount;
use super::schemas::TimeSchema;

/// A Function: source and dependencies become an image, the image is run, scaled and reached by its name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "serverless.kyma-project.io",
    version = "v1alpha1",
    kind = "Function",
    plural = "functions",
    namespaced,
    status = "FunctionStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Configured",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='ConfigurationReady')].status"
    ),
    printcolumn(name = "Built", type_ = "string", json_path = ".status.conditions[?(@.type=='BuildReady')].status"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.conditions[?(@.type=='Running')].status"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".status.runtime"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".metadata.generation"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct FunctionSpec {
    /// The source text; with `type: git` the name of a GitRepository in the same namespace.
    pub source: String,
    /// `inline` (the default) when source and dependencies stand here; `git` when they are in a Git repository.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Text of `package.json` or `requirements.txt`. With `type: git` the file in the repository is used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deps: Option<String>,
    /// Language and version: `nodejs10` to `nodejs22` (even numbers), `python38` to `python313`. By default `nodejs22`;
    /// a Function that was built without `runtime` keeps the one in `status.runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Image to build on instead of the runtime's own, by its digest: `repository@sha256:…`. It must hold the language
    /// in the version of `runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_image_override: Option<String>,
    /// With `type: git`: branch, tag or commit to follow, or the first 7 or more digits of a commit's id. Or `semver:` and a
    /// range of versions, such as `semver:>=1.2 <2`: the tag with the highest version in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// With `type: git`: directory of the repository that holds the handler and dependency files; `/` is its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<String>,
    /// Environment variables of the running code. Of two with the same name the last one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// CPU and memory of one running pod. Missing values come from the preset that the label
    /// `serverless.kyma-project.io/function-resources-preset` names, by default `M`. Of other resources, such as
    /// `ephemeral-storage`, a missing request is the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// CPU and memory of the build. Missing values come from the preset that the label
    /// `serverless.kyma-project.io/build-resources-preset` names, by default `normal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_resources: Option<Resources>,
    /// Fewest pods, at least 1. By default that of the preset that the label
    /// `serverless.kyma-project.io/replicas-preset` names, by default `S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i64>,
    /// Most pods. When it is more than `minReplicas`, the number follows the CPU utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i64>,
    /// Additional labels of the running pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// One environment variable: a value, or where the value is found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// Its value; `$(NAME)` stands for a variable that is defined before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where the value is found, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Where the value of an environment variable is found; exactly one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVarSource {
    /// A key of a ConfigMap in the Function's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A key of a Secret in the Function's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// A field of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// A resource of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
}

/// A key of a ConfigMap or Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyRef {
    /// Name of the ConfigMap or Secret.
    #[serde(default)]
    pub name: String,
    /// Key in its data.
    pub key: String,
    /// Whether the pod starts without it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// Version of the schema that the path is written for; `v1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Path of the field, such as `metadata.name`.
    pub field_path: String,
}

/// A resource of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFieldRef {
    /// Name of the container; by default the one that the variable is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Unit of the value; `1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Amount>,
    /// Resource, such as `limits.memory`.
    pub resource: String,
}

/// Requests and limits of a container, by resource: `cpu`, `memory`, and whatever else the cluster knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Most that the container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, Amount>>,
    /// What is reserved for the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, Amount>>,
}

/// What is known of a Function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// ConfigurationReady, BuildReady and Running; the one that was written last stands first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// The `spec.source` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The runtime that the Function has, also when `spec.runtime` is left to the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// With `type: git`: the commit in which the present content of `baseDir` first appeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// With `type: git`: Git tree of `baseDir` in that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// With `type: git`: the `spec.reference` that was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// With `type: git`: the `spec.baseDir` that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<String>,
    /// The `spec.runtimeImageOverride` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_image_override: Option<String>,
    /// What works, but perhaps not as it was meant: an unknown preset, a deprecated runtime, a variable that is ignored.
    /// Each is also an Event when it is found for the first time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The image that serves now, by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Position among the builds that wait, counted from 1; absent when this Function does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<i64>,
    /// Builds that were started for the inputs in `building`; more than 1 when some of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<i64>,
    /// Tag of the image that is being built, or whose build failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<String>,
    /// When a failed build is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub retry_at: Option<Time>,
    /// The last image that was built, and what it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Built>,
}

/// An image that was built, and digests of what it was built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Built {
    /// Repository that the image was pushed to, without tag and digest.
    pub repository: String,
    /// Tag of the image: the digest of everything that it was built from.
    pub tag: String,
    /// Digest of the image's manifest, `sha256:…`.
    pub digest: String,
    /// Digest of what the dependencies were installed from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dependencies: String,
    /// Digests of the inputs, to tell why the next build is made.
    #[serde(default)]
    pub inputs: Inputs,
}

/// Digests of the inputs of an image, by what changes them. Each is the first 16 hexadecimal digits of a SHA-256.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// Inline text, or Git tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Inline dependencies; empty with `type: git`, where they are part of the source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deps: String,
    /// Runtime, the files of its server, and the format of the images.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// Base image and platform.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Value of the annotation `mainstay.dev/rebuild`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub requested: String,
}

/// Conditions that somebody else wrote may lack what ours always have.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    last_transition_time: Option<Time>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    observed_generation: Option<i64>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    status: String,
    #[serde(rename = "type", default)]
    kind: String,
}

fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let written = Option::<Vec<Written>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(written
        .into_iter()
        .map(|one| Condition {
            last_transition_time: one.last_transition_time.unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH)),
            message: one.message.unwrap_or_default(),
            observed_generation: one.observed_generation,
            reason: one.reason.unwrap_or_default(),
            status: one.status,
            type_: one.kind,
        })
        .collect())
}

/// As the CRD that Functions come from has it: only type and status are required, so that an object that another
/// controller left can still be changed.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "required": ["status", "type"],
            "properties": {
                "type": { "type": "string", "description": "ConfigurationReady, BuildReady or Running." },
                "status": { "type": "string", "description": "True, False or Unknown." },
                "reason": { "type": "string", "nullable": true, "description": "One word for the cause." },
                "message": { "type": "string", "nullable": true, "description": "What happened, for people." },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "nullable": true,
                    "description": "`metadata.generation` that the condition speaks of; that of Running is the one that serves, also \
                                    while a newer one is built."
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "nullable": true,
                    "description": "When the status changed last."
                }
            }
        }
    })
}
