//! `config.yaml`: the configuration of a Function in its workspace.
//!
//! Invariant: all mistakes are reported, each with its line and column.
//!
//! Not here: the validation of the Function, which the module `objects` does with `function::resolve`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::check::check;
use super::document::{Problem, parse};
use super::shape::{self, CONFIG, Reading};
use mainstay_api::git_repository::AuthType;
use mainstay_function::runtimes::{self, Runtime};

/// The content of the file. Absent fields are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Config {
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) runtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime_image_override: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) runtime_labels: BTreeMap<String, String>,
    pub(super) runtime_annotations: BTreeMap<String, String>,
    pub(super) source: Source,
    pub(super) resource: Resource,
    pub(super) env: Vec<Variable>,
    pub(super) triggers: Vec<Trigger>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) api_rules: Vec<ApiRule>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schema_version: Option<Schema>,
}

/// How Subscriptions are written.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Schema {
    /// With filters, as `eventing.kyma-project.io/v1alpha1`
    #[default]
    V0,
    /// With a source and types, as `eventing.kyma-project.io/v1alpha2`
    V1,
}

/// The location of the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "sourceType", rename_all = "lowercase")]
pub(super) enum Source {
    /// In files.
    #[serde(rename_all = "camelCase")]
    Inline {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_path: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_handler_name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deps_handler_name: Option<String>,
    },
    /// In a Git repository.
    Git(GitSource),
}

/// Code in a Git repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GitSource {
    /// The URL. Without a URL, the GitRepository must already exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    /// Name of the GitRepository; by default the name of the Function. Empty if the URL belongs to the Function itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credentials_secret_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credentials_type: Option<AuthType>,
}

impl GitSource {
    /// Returns whether the URL belongs to the Function itself, without a GitRepository.
    pub(super) fn is_own(&self) -> bool {
        self.repository.as_deref() == Some("")
    }
}

impl Source {
    /// Returns the directory of the files, if the configuration specifies one.
    pub(super) fn path(&self) -> Option<&str> {
        match self {
            Self::Inline { source_path, .. } => source_path.as_deref(),
            Self::Git(_) => None,
        }
    }
}

impl Default for Source {
    fn default() -> Self {
        Self::Inline { source_path: None, source_handler_name: None, deps_handler_name: None }
    }
}

/// CPU and memory of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Resource {
    pub(super) limits: BTreeMap<String, String>,
    pub(super) requests: BTreeMap<String, String>,
}

/// An environment variable of a Function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Variable {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value_from: Option<ValueFrom>,
}

/// The location of a variable's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ValueFrom {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config_map_key_ref: Option<KeyRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret_key_ref: Option<KeyRef>,
}

/// A key of a ConfigMap or a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct KeyRef {
    pub(super) name: String,
    pub(super) key: String,
}

/// An event that triggers the Function, for Knative.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Trigger {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) event_type_version: String,
    pub(super) source: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
}

/// Events that the Function receives, in the form of either schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Subscription {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<Filter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) type_matching: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    pub(super) types: Vec<String>,
}

/// The filter of a Subscription in the schema `v0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Filter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dialect: Option<String>,
    pub(super) filters: Vec<EventFilter>,
}

/// A single event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EventFilter {
    pub(super) event_source: Match,
    pub(super) event_type: Match,
}

/// The value of a property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Match {
    pub(super) property: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    pub(super) value: String,
}

/// The exposure of the Function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ApiRule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<String>,
    pub(super) service: Service,
    pub(super) rules: Vec<Rule>,
}

/// The host and port of the exposed Function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u32>,
}

/// The access to a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    pub(super) methods: Vec<String>,
    pub(super) access_strategies: Vec<AccessStrategy>,
}

/// An authentication method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AccessStrategy {
    pub(super) handler: String,
    #[serde(skip_serializing_if = "AccessConfig::is_empty")]
    pub(super) config: AccessConfig,
}

/// The configuration of an authentication method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AccessConfig {
    pub(super) jwks_urls: Vec<String>,
    pub(super) trusted_issuers: Vec<String>,
    pub(super) required_scope: Vec<String>,
}

impl AccessConfig {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Config {
    /// Parses a configuration. `namespace` is used if the configuration contains no namespace.
    pub(super) fn read(text: &str, namespace: Option<&str>) -> Result<Self, Vec<Problem>> {
        let document = parse(text).map_err(|problem| vec![problem])?;
        let mut reading = Reading::default();
        let mut value = reading.read(&document, CONFIG);
        check(&mut value, namespace, &mut reading);
        if reading.problems.is_empty() {
            match serde_json::from_value(value) {
                Ok(config) => return Ok(config),
                // The table accepts the configuration, but the types do not.
                Err(error) => reading.wrong("", error.to_string()),
            }
        }
        reading.problems.sort();
        Err(reading.problems)
    }

    /// Returns the configuration as YAML.
    pub(super) fn text(&self) -> Result<String, serde_json::Error> {
        Ok(shape::write(&serde_json::to_value(self)?, CONFIG))
    }

    /// Returns the runtime, which determines the file names.
    pub(super) fn runtime(&self) -> Option<&'static Runtime> {
        runtimes::find(&self.runtime)
    }

    /// Returns the names of the two files of an inline Function, below its directory.
    pub(super) fn files(&self) -> Option<[String; 2]> {
        let Source::Inline { source_handler_name, deps_handler_name, .. } = &self.source else { return None };
        let runtime = self.runtime()?;
        let or = |given: &Option<String>, default: &str| given.as_deref().unwrap_or(default).to_owned();
        Some([or(source_handler_name, runtime.handler_file()), or(deps_handler_name, runtime.dependency_file())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::function::check::supported;

    const WHOLE: &str = include_str!("tests/whole.yaml");

    fn problems(text: &str) -> Vec<String> {
        let found = Config::read(text, None).unwrap_err();
        found.iter().map(|problem| format!("{}: {}", problem.mark, problem.what)).collect()
    }

    #[test]
    fn every_field_is_read_and_written_as_it_was() {
        let config = Config::read(WHOLE, None).unwrap();
        assert_eq!(config.text().unwrap(), WHOLE);
        assert_eq!(config.source, Source::default());
        assert_eq!(config.env[1].value_from.as_ref().unwrap().secret_key_ref.as_ref().unwrap().key, "token");
    }

    #[test]
    fn a_configuration_of_the_tutorials_is_read() {
        let text = "name: my-function\nnamespace: default\nruntime: python38\nsource:\n    sourceType: inline\n    \
                    sourcePath: /work/my-function\ntriggers:\n  - version: evt1\n    source: the-source\n    type: t1\n";
        let config = Config::read(text, None).unwrap();
        assert_eq!(config.triggers[0].event_type_version, "evt1");
        assert_eq!(config.files().unwrap(), ["handler.py", "requirements.txt"]);
    }

    #[test]
    fn all_that_is_missing_or_wrong_is_said_at_once() {
        assert_eq!(
            problems("runtime: cobol\nsource:\n  sourceType: inline\n  url: x\nenv:\n- value: a\n"),
            [
                "1:1: name is missing",
                "1:1: namespace is missing; write it, or use --namespace",
                &format!("1:10: 'cobol' invalid runtime; {}", supported()),
                "4:8: url has no meaning with sourceType inline",
                "6:3: name is missing",
            ]
        );
        let head = "name: a\nnamespace: b\nsource: {sourceType: inline}\n";
        assert_eq!(problems("name: a\nnamespace: b\n"), ["1:1: source is missing"]);
        assert_eq!(
            problems("name: a\nnamespace: b\nsource: {sourceType: svn}\n"),
            ["3:22: unsupported source svn; sourceType must be inline or git"]
        );
        assert_eq!(
            problems("name: a\nnamespace: b\nsource: {sourceType: inline, depsHandlerName: config.yaml}\n"),
            ["3:9: config.yaml, the handler and the dependency file must be different files"]
        );
        assert_eq!(
            problems(&format!("{head}schemaVersion: v2\n")),
            ["4:16: unexpected schema version v2; it must be v0 or v1"]
        );
        assert_eq!(
            problems(&format!("{head}subscriptions:\n- source: a\n")),
            ["5:3: filter is missing", "5:11: source is of schemaVersion v1, and this is v0"]
        );
        assert_eq!(
            problems(&format!("{head}env:\n- {{name: A, value: b, valueFrom: {{secretKeyRef: {{name: s}}}}}}\n")),
            ["5:3: it has both value and valueFrom; remove one", "5:49: key is missing"]
        );
        assert_eq!(
            problems(&format!("{head}apiRules:\n- rules:\n  - path: /\n")),
            ["6:5: methods are missing, such as [\"GET\"]"]
        );
        assert_eq!(
            problems("name: a\nnamespace: b\nsource: {sourceType: git, credentialsType: x}\n"),
            [
                "3:9: url is missing",
                "3:44: credentialsSecretName is missing",
                "3:44: credentialsType x is neither basic nor key"
            ]
        );
    }

    #[test]
    fn the_flag_is_for_a_file_that_names_no_namespace() {
        let text = "name: a\nsource: {sourceType: inline}\n";
        assert_eq!(Config::read(text, Some("team")).unwrap().namespace, "team");
        let text = format!("namespace: other\n{text}");
        let found = Config::read(&text, Some("team")).unwrap_err();
        assert_eq!(found[0].what, "namespace is other, and --namespace says team");
    }
}
