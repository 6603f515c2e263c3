//! `Function` in the version `v1alpha2`: the same object as [`function`](super::function), with other fields.
//!
//! `v1alpha1` is the stored version and the one that the agent uses, so the agent and users of `v1alpha1` need no
//! conversion. Without a conversion webhook, `v1alpha2` is not served. Each version can express the other one, except
//! for fields without effect (`admission::convert`).
//!
//! Not here: a status type. The status is that of `v1alpha1`.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::function::{EnvVar, FunctionStatus, PodTemplate, Resources, SecretMount};
use super::git_repository::RepositoryAuth;

/// Code that answers HTTP requests: source and dependencies are built into an image, which is served and scaled.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "serverless.kyma-project.io",
    version = "v1alpha2",
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
    printcolumn(name = "Runtime", type_ = "string", json_path = ".spec.runtime"),
    printcolumn(name = "Version", type_ = "integer", json_path = ".metadata.generation"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
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
    /// Language and version: `nodejs10` to `nodejs26` (even numbers), `python38` to `python314`. By default `nodejs22`;
    /// a Function that was built without `runtime` keeps the one in `status.runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Base image by digest, `repository@sha256:…`, instead of the default one of the runtime. It must contain the language in
    /// the version of `runtime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_image_override: Option<String>,
    /// Source of the code: this object, or a Git repository.
    pub source: Source,
    /// Environment variables of the running code. If a name occurs twice, the last value is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// CPU and memory of the pods and of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_configuration: Option<ResourceConfiguration>,
    /// Bounds for the number of pods, which is scaled by CPU utilisation. By default the numbers of the preset in the
    /// label `serverless.kyma-project.io/replicas-preset`, by default `S`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_config: Option<ScaleConfig>,
    /// Number of pods, instead of `scaleConfig`. Scalers write it: `kubectl scale`, a HorizontalPodAutoscaler, a
    /// ScaledObject of KEDA. While it is set, the agent does not scale by CPU utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
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

/// Source of the code: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.inline) != has(self.gitRepository)", "message": "Use GitRepository or Inline source"}
]))]
pub struct Source {
    /// The code is in this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Inline>,
    /// The code is in a Git repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_repository: Option<GitSource>,
}

/// Code in the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inline {
    /// Source code.
    pub source: String,
    /// Content of `package.json` or `requirements.txt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<String>,
}

/// Code in a Git repository, which has either an address or the name of an object that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// Address of the repository: `https://…`, `http://…`, `ssh://user@host:port/path` or `user@host:path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How to authenticate to `url`; without it the repository is read anonymously.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<RepositoryAuth>,
    /// Name of a GitRepository in the same namespace, instead of `url` and `auth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Branch, tag or commit to follow, or the first 7 or more digits of a commit id. With the prefix `semver:`, a range of
    /// versions, such as `semver:>=1.2 <2`: follows the tag with the highest version in the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Directory of the repository with the handler and the dependency file; `/` is the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<String>,
}

/// CPU and memory of the pods and of the build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceConfiguration {
    /// Those of each pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<ResourceSection>,
    /// Those of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<ResourceSection>,
}

/// CPU and memory of a container. The preset sets values that `resources` does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceSection {
    /// Name of the preset, instead of the one in the label `serverless.kyma-project.io/function-resources-preset` or
    /// `serverless.kyma-project.io/build-resources-preset`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Requests and limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// Between which numbers of pods the Function is scaled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleConfig {
    /// Minimum number of pods, at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_replicas: Option<i64>,
    /// Maximum number of pods. If it is larger than `minReplicas`, the number of pods is scaled by CPU utilisation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i64>,
}

/// The Functions that have a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Functions with inline code.
    Inline,
    /// Functions with code in Git.
    Git,
    /// All Functions.
    Any,
}

/// The paths below `spec` of fields that moved: in `v1alpha1`, and in this version. All other fields have the same
/// path in both versions.
pub const PATHS: [(Form, &[&str], &[&str]); 13] = [
    (Form::Inline, &["source"], &["source", "inline", "source"]),
    (Form::Inline, &["deps"], &["source", "inline", "dependencies"]),
    (Form::Git, &["source"], &["source", "gitRepository", "name"]),
    (Form::Git, &["gitRepository", "url"], &["source", "gitRepository", "url"]),
    (Form::Git, &["gitRepository", "auth"], &["source", "gitRepository", "auth"]),
    (Form::Git, &["reference"], &["source", "gitRepository", "reference"]),
    (Form::Git, &["baseDir"], &["source", "gitRepository", "baseDir"]),
    (Form::Any, &["resources"], &["resourceConfiguration", "function", "resources"]),
    (Form::Any, &["profile"], &["resourceConfiguration", "function", "profile"]),
    (Form::Any, &["buildResources"], &["resourceConfiguration", "build", "resources"]),
    (Form::Any, &["buildProfile"], &["resourceConfiguration", "build", "profile"]),
    (Form::Any, &["minReplicas"], &["scaleConfig", "minReplicas"]),
    (Form::Any, &["maxReplicas"], &["scaleConfig", "maxReplicas"]),
];

/// Returns the path in this version for a path in `v1alpha1`, such as `spec.resources.limits.cpu`, of a Function of
/// this form.
pub fn path_of(path: &str, form: Form) -> String {
    let Some(below) = path.strip_prefix("spec.") else { return path.to_owned() };
    let rows = PATHS.iter().filter(|(of, ..)| *of == form || *of == Form::Any);
    let moved = rows.filter_map(|(_, before, after)| {
        let rest = below.strip_prefix(&before.join("."))?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then(|| format!("spec.{}{rest}", after.join(".")))
    });
    let section = || (form == Form::Git && below == "gitRepository").then(|| "spec.source.gitRepository".to_owned());
    moved.max_by_key(String::len).or_else(section).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_said_in_the_words_of_this_version() {
        let check = |form, path: &str, expected: &str| assert_eq!(path_of(path, form), expected, "{form:?} {path}");
        check(Form::Inline, "spec.source", "spec.source.inline.source");
        check(Form::Inline, "spec.deps", "spec.source.inline.dependencies");
        check(Form::Git, "spec.source", "spec.source.gitRepository.name");
        check(Form::Git, "spec.baseDir", "spec.source.gitRepository.baseDir");
        check(Form::Git, "spec.gitRepository", "spec.source.gitRepository");
        check(Form::Git, "spec.gitRepository.url", "spec.source.gitRepository.url");
        for form in [Form::Inline, Form::Git] {
            check(form, "spec.maxReplicas", "spec.scaleConfig.maxReplicas");
            check(form, "spec.resources.limits.cpu", "spec.resourceConfiguration.function.resources.limits.cpu");
            check(form, "spec.buildResources", "spec.resourceConfiguration.build.resources");
            for same in ["spec.env[0].name", "spec.runtime", "spec.sourcecode", "metadata.name", "spec", ""] {
                check(form, same, same);
            }
        }
    }
}
