//! `Function` (`serverless.kyma-project.io/v1alpha1`): code that answers HTTP requests, built and run by the cluster.
//!
//! Invariant: every object that the schema admits can be read. Invalid values are reported in the Function's
//! conditions; they never make the object unreadable.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::own_repository::OwnRepository;
use super::schemas::TimeSchema;
use super::{Amount, Amounts};

/// Code that answers HTTP requests: source and dependencies are built into an image, which is served and scaled.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "serverless.kyma-project.io",
    version = "v1alpha1",
    kind = "Function",
    plural = "functions",
    namespaced,
    status = "FunctionStatus",
    derive = "PartialEq",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.podSelector"
    ),
    printcolumn(
        name = "Configured",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='ConfigurationReady')].status"
    ),
    printcolumn(name = "Built", type_ = "string", json_path = ".status.conditions[?(@.type=='BuildReady')].status"),
    printcolumn(name = "Running", type_ = "string", json_path = ".status.conditions[?(@.type=='Running')].status"),
    printcolumn(name = "Runtime", type_ = "string", json_path = ".status.runtime"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".metadata.generation"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    // These columns come after the others, because scripts read columns by position.
    printcolumn(name = "Serves", type_ = "integer", json_path = ".status.servedGeneration"),
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.commit", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Running')].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct FunctionSpec {
    /// Source code; with `type: git`, the name of a GitRepository in the same namespace, or empty beside `gitRepository`.
    pub source: String,
    /// `inline` if source and dependencies are in this object, `git` if they are in a Git repository; by default `inline`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Content of `package.json` or `requirements.txt`. Ignored with `type: git`, where the file in the repository is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deps: Option<String>,
    /// Language and version: `nodejs10` to `nodejs26` (even numbers), `python38` to `python314`. By default `nodejs22`;
    /// a Function that was built without `runtime` keeps the one in `status.runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Base image by digest, `repository@sha256:…`, instead of the default one of the runtime. It must contain the language in
    /// the version of `runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_image_override: Option<String>,
    /// With `type: git`: branch, tag or commit to follow, or the first 7 or more digits of a commit id. With the prefix
    /// `semver:`, a range of versions, such as `semver:>=1.2 <2`: follows the tag with the highest version in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// With `type: git`: directory of the repository with the handler and the dependency file; `/` is the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<String>,
    /// With `type: git`: the repository itself, instead of the name of a GitRepository in `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_repository: Option<OwnRepository>,
    /// Environment variables of the running code. If a name occurs twice, the last value is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// CPU and memory of each pod. Missing values come from the preset in the label
    /// `serverless.kyma-project.io/function-resources-preset`, by default `M`. For other resources, such as
    /// `ephemeral-storage`, the request defaults to the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// CPU and memory of the build. Missing values come from the preset in the label
    /// `serverless.kyma-project.io/build-resources-preset`, by default `normal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_resources: Option<Resources>,
    /// Preset of `resources`, instead of the one that the label names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Preset of `buildResources`, instead of the one that the label names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_profile: Option<String>,
    /// Number of pods, instead of `minReplicas` and `maxReplicas`. Scalers write it: `kubectl scale`, a
    /// HorizontalPodAutoscaler, a ScaledObject of KEDA. While it is set, the agent does not scale by CPU utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Minimum number of pods, at least 1, or 0 on Knative. By default the one of the preset in the label
    /// `serverless.kyma-project.io/replicas-preset`, by default `S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i64>,
    /// Maximum number of pods. If it is larger than `minReplicas`, the number of pods is scaled by CPU utilisation. By default
    /// the one of the preset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i64>,
    /// Additional labels of the pods. `MAINSTAY_POD_KEYS` of the agent says which prefixes are allowed besides harmless ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Additional annotations of the pods, with the same restriction as `labels`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Deprecated: `labels` and `annotations` by their former names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplate>,
    /// Secrets whose keys are files in the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_mounts: Option<Vec<SecretMount>>,
}

impl FunctionSpec {
    /// Returns the Function's own repository; `None` if the code is inline or in a GitRepository object.
    pub fn own_repository(&self) -> Option<&OwnRepository> {
        let is_git = self.kind.as_deref() == Some("git");
        self.git_repository.as_ref().filter(|own| is_git && **own != OwnRepository::default())
    }

    /// Returns the Secret with the credentials for that repository.
    pub fn own_secret(&self) -> Option<&str> {
        Some(&self.own_repository()?.auth.as_ref()?.secret_name)
    }
}

/// Labels and annotations of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodTemplate {
    /// Additional labels; those of `spec.labels` come before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Additional annotations; those of `spec.annotations` come before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// A Secret whose keys are files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretMount {
    /// Name of the Secret in the Function's namespace.
    pub secret_name: String,
    /// Directory of the files in the container, an absolute path.
    pub mount_path: String,
}

/// An environment variable: a value, or the source of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Name of the variable.
    pub name: String,
    /// Value of the variable; `$(NAME)` is replaced by the value of a variable that is defined before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Source of the value, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
}

/// Source of the value of an environment variable; exactly one field is set.
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
    /// Whether the pod also starts without it; by default not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// A field of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// API version of the path; by default `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Path of the field, such as `metadata.name`.
    pub field_path: String,
}

/// A resource of the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFieldRef {
    /// Name of the container; by default the container of the variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Unit of the value; by default `1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Amount>,
    /// Resource, such as `limits.memory`.
    pub resource: String,
}

/// Requests and limits of a container, by resource: `cpu`, `memory`, and others that the cluster supports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resources {
    /// Maximum that the container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Amounts>,
    /// Amount that is reserved for the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Amounts>,
}

/// Observed state of a Function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionStatus {
    /// `metadata.generation` that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions: ConfigurationReady, BuildReady and Running; the one that was written last is first.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "conditions")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// `spec.source` that this status is for; the address, if the Function has a repository of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Runtime of the Function, also if `spec.runtime` is not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// With `type: git`: the first commit with the current content of `baseDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// With `type: git`: Git tree id of `baseDir` in that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// With `type: git`: `spec.reference` of that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// With `type: git`: `spec.baseDir` of that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<String>,
    /// `spec.runtimeImageOverride` that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_image_override: Option<String>,
    /// Settings that work, but may be a mistake: an unknown preset, a deprecated runtime, a variable that is ignored. Each new
    /// one is also reported by a Warning Event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Number of pods that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Labels of the pods, for scalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<String>,
    /// `knative` while there is a Knative Service of the Function; absent for a Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<String>,
    /// Image that currently serves, by digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `metadata.generation` of the version that currently serves; an older one than that of the Function during a rollout, and
    /// after a version that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_generation: Option<i64>,
    /// Position in the build queue, from 1; absent if the Function does not wait for a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<i64>,
    /// Number of builds that were started for `building`; more than 1 if some of them failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builds: Option<i64>,
    /// Tag of the image that is being built, or whose build failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub building: Option<String>,
    /// Time at which a failed build is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub retry_at: Option<Time>,
    /// Time at which it is built on the base image that its runtime has by now (`MAINSTAY_BASE_SCHEDULE` of the agent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub moves_at: Option<Time>,
    /// The last image that was built, with digests of its inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<Built>,
}

/// An image that was built, with digests of its inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Built {
    /// Repository that the image was pushed to, without tag and digest.
    pub repository: String,
    /// Tag of the image: the digest of all of its inputs.
    pub tag: String,
    /// Digest of the image's manifest, `sha256:…`.
    pub digest: String,
    /// Digest of the files that determine the dependencies, such as package.json and its lock file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dependencies: String,
    /// The base image that the tag in `spec.runtimeImageOverride` named during the build, by its digest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Digests of the inputs, from which the reason of the next build is determined.
    #[serde(default)]
    pub inputs: Inputs,
}

/// Digests of the inputs of an image. Each is the first 16 hexadecimal digits of a SHA-256.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inputs {
    /// Inline source, or Git tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Inline dependencies; empty with `type: git`, where they are part of the source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub deps: String,
    /// Runtime, files of its server, and format of the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// Base image and platform.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// Value of the annotation `mainstay.dev/rebuild`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub requested: String,
}

/// A condition that another controller wrote. It may lack fields that Mainstay always sets.
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

/// As in Kyma's CRD, only type and status are required, so that objects which another controller wrote can be changed.
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
                "message": { "type": "string", "nullable": true, "description": "The cause in a sentence." },
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
