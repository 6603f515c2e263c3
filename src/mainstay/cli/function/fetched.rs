//! Converts a Function of the cluster to a configuration and code.
//!
//! Invariant: fields that a configuration cannot express are reported, and defaults are omitted.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::companions;
use super::config::{Config, GitSource, Resource, Source, ValueFrom, Variable};
use super::fields::text_at;
use super::objects::Code;
use mainstay_api::function::{EnvVar, Resources};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::{Function, FunctionSpec};
use mainstay_function::authored;
use mainstay_function::runtimes;
use mainstay_object::printable;

/// A Function in the form of a workspace.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) config: Config,
    pub(super) code: Code,
    /// The fields that are not part of the workspace, some with a reason.
    pub(super) left_out: Vec<String>,
}

/// Converts a Function. `repository` is the GitRepository that the Function references, and `referring` are the objects
/// that may refer to the Function.
pub(super) fn fetched(function: &Function, repository: Option<&GitRepositorySpec>, referring: &[Value]) -> Fetched {
    let spec = authored(function);
    let mut left_out = unsaid(&spec);
    let (name, namespace) = (function.name_any(), function.namespace().unwrap_or_default());
    let runtime = [&spec.runtime, &function.spec.runtime].into_iter().flatten().find(|name| !name.is_empty()).cloned();
    let used = function.status.as_ref().and_then(|status| status.runtime.clone());
    let is_git = spec.kind.as_deref() == Some("git");
    let source = if is_git { git(&spec, repository, &mut left_out) } else { Source::default() };
    let code = Code { source: spec.source.clone(), dependencies: spec.deps.clone().unwrap_or_default() };
    let mut config = Config {
        runtime: runtime.or(used).unwrap_or_else(|| runtimes::DEFAULT.to_owned()),
        runtime_image_override: spec.runtime_image_override.clone(),
        runtime_annotations: spec.annotations.clone().unwrap_or_default(),
        source,
        resource: resource(spec.resources.as_ref(), &mut left_out),
        env: env(spec.env.as_deref().unwrap_or_default(), &mut left_out),
        name,
        namespace,
        ..Config::default()
    };
    let mut said = Vec::new();
    for object in referring {
        if !companions::refers_to(object, &config.namespace, &config.name) {
            continue;
        }
        match companions::add(&mut config, object) {
            Ok(()) => said.push(object),
            Err(why) => {
                let (kind, name) = (text_at(object, "/kind"), text_at(object, "/metadata/name"));
                left_out.push(format!("{kind} {}: {why}", printable(name)));
            }
        }
    }
    (config.labels, config.runtime_labels) = labels(spec.labels.unwrap_or_default(), &said);
    let code = if is_git { Code::default() } else { code };
    Fetched { config, code, left_out }
}

/// Splits a Function's labels into labels that the Function's companions also have, and labels of its pods only.
fn labels(all: BTreeMap<String, String>, referring: &[&Value]) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let is_everywhere = |name: &str, value: &str| {
        referring.iter().all(|object| object["metadata"]["labels"][name].as_str() == Some(value))
    };
    all.into_iter().partition(|(name, value)| is_everywhere(name, value))
}

fn git(spec: &FunctionSpec, repository: Option<&GitRepositorySpec>, left_out: &mut Vec<String>) -> Source {
    if repository.is_none() {
        left_out.push(format!("source.url: the GitRepository {} does not exist", printable(&spec.source)));
    }
    let own = spec.own_repository().is_some();
    let bare = repository.map(|repository| GitRepositorySpec {
        url: repository.url.clone(),
        auth: repository.auth.clone(),
        ..GitRepositorySpec::default()
    });
    if bare.as_ref() != repository {
        left_out.push("of the GitRepository, all but url and auth".to_owned());
    }
    let auth = repository.and_then(|repository| repository.auth.as_ref());
    Source::Git(GitSource {
        url: repository.map(|repository| repository.url.clone()),
        repository: Some(spec.source.clone()).filter(|name| own || !name.is_empty()),
        reference: spec.reference.clone(),
        base_dir: spec.base_dir.clone(),
        credentials_secret_name: auth.map(|auth| auth.secret_name.clone()),
        credentials_type: auth.map(|auth| auth.kind),
    })
}

/// Returns the fields of a spec that a configuration cannot express.
fn unsaid(spec: &FunctionSpec) -> Vec<String> {
    let rest = FunctionSpec {
        git_repository: spec.git_repository.clone().filter(|_| spec.own_repository().is_none()),
        source: String::new(),
        kind: None,
        deps: None,
        runtime: None,
        runtime_image_override: None,
        reference: None,
        base_dir: None,
        env: None,
        resources: None,
        labels: None,
        annotations: None,
        ..spec.clone()
    };
    let rest = json!(rest);
    let fields = rest.as_object().into_iter().flatten();
    fields.filter(|(name, _)| *name != "source").map(|(name, _)| format!("spec.{name}")).collect()
}

fn resource(resources: Option<&Resources>, left_out: &mut Vec<String>) -> Resource {
    let mut part = |name: &str, amounts: Option<&mainstay_api::Amounts>| {
        let mut said = BTreeMap::new();
        for (resource, amount) in amounts.into_iter().flat_map(mainstay_api::Amounts::iter) {
            if ["cpu", "memory"].contains(&resource) {
                said.insert(resource.to_owned(), amount.to_string());
            } else {
                left_out.push(format!("spec.resources.{name}.{}", printable(resource)));
            }
        }
        said
    };
    let limits = part("limits", resources.and_then(|resources| resources.limits.as_ref()));
    let requests = part("requests", resources.and_then(|resources| resources.requests.as_ref()));
    Resource { limits, requests }
}

fn env(variables: &[EnvVar], left_out: &mut Vec<String>) -> Vec<Variable> {
    let mut said = Vec::new();
    for variable in variables {
        let from = variable.value_from.as_ref().map(|from| json!(from));
        let known = from.map(serde_json::from_value::<Strict>).transpose();
        match known {
            Ok(from) => {
                let value_from = from.map(|Strict { config_map_key_ref, secret_key_ref }| ValueFrom {
                    config_map_key_ref: config_map_key_ref.map(StrictKey::into_ref),
                    secret_key_ref: secret_key_ref.map(StrictKey::into_ref),
                });
                said.push(Variable { name: variable.name.clone(), value: variable.value.clone(), value_from });
            }
            Err(_) => left_out.push(format!("spec.env {}", printable(&variable.name))),
        }
    }
    said
}

/// The sources of a value that a configuration can express. Other sources are an error.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Strict {
    config_map_key_ref: Option<StrictKey>,
    secret_key_ref: Option<StrictKey>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StrictKey {
    name: String,
    key: String,
}

impl StrictKey {
    fn into_ref(self) -> super::config::KeyRef {
        super::config::KeyRef { name: self.name, key: self.key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::function::objects::objects;
    use mainstay_api::own_repository::OwnRepository;

    fn function(spec: &Value) -> Function {
        let object = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "fn", "namespace": "ns"}, "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_workspace_survives_a_round_trip_through_objects() {
        let config = Config::read(include_str!("tests/whole.yaml"), None).unwrap();
        let code = Code { source: "module.exports = {}\r\n{{ .Values }}".into(), dependencies: "{}\n".into() };
        let objects = objects(&config, &code).unwrap();
        let live = serde_json::from_value(objects[0].clone()).unwrap();
        let mut fetched = fetched(&live, None, &objects[1..]);
        assert_eq!(fetched.code, code);
        assert_eq!(fetched.left_out, Vec::<String>::new());
        // These two fields have their default values.
        fetched.config.schema_version = config.schema_version;
        fetched.config.subscriptions[0].protocol.clone_from(&config.subscriptions[0].protocol);
        assert_eq!(fetched.config, config);
    }

    #[test]
    fn fields_that_a_configuration_cannot_hold_are_named() {
        let fetched = fetched(
            &function(&json!({
                "source": "x", "minReplicas": 2, "secretMounts": [{"secretName": "s", "mountPath": "/s"}],
                "env": [
                    {"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
                ],
                "resources": {"limits": {"cpu": "1", "ephemeral-storage": "1Gi"}},
            })),
            None,
            &[],
        );
        let expected = [
            "spec.minReplicas",
            "spec.secretMounts",
            "spec.resources.limits.ephemeral-storage",
            "spec.env NODE",
            "spec.env B",
        ];
        assert_eq!(fetched.left_out, expected);
        assert_eq!(fetched.config.env.len(), 1);
        assert_eq!(fetched.config.runtime, "nodejs22");
    }

    #[test]
    fn a_git_function_says_what_its_repository_is() {
        let live = function(
            &json!({"type": "git", "source": "code", "reference": "main", "baseDir": "/", "runtime": "python312"}),
        );
        let spec = json!({"url": "https://example.org/a.git", "auth": {"type": "key", "secretName": "s"}});
        let repository: GitRepositorySpec = serde_json::from_value(spec).unwrap();
        let fetched_from = |repository: Option<&GitRepositorySpec>| fetched(&live, repository, &[]);
        let found = fetched_from(Some(&repository));
        let Source::Git(git) = &found.config.source else { panic!() };
        assert_eq!(
            (git.url.as_deref(), git.credentials_secret_name.as_deref()),
            (Some("https://example.org/a.git"), Some("s"))
        );
        assert_eq!(found.left_out, Vec::<String>::new());
        let more = GitRepositorySpec { lfs: true, ..repository };
        assert_eq!(fetched_from(Some(&more)).left_out, ["of the GitRepository, all but url and auth"]);
        assert_eq!(fetched_from(None).left_out, ["source.url: the GitRepository code does not exist"]);
        let own = function(&json!({
            "type": "git", "source": "", "reference": "main", "baseDir": "/", "runtime": "python312",
            "gitRepository": {"url": "https://example.org/a.git"},
        }));
        let found = fetched(&own, own.spec.own_repository().map(OwnRepository::spec).as_ref(), &[]);
        let Source::Git(git) = &found.config.source else { panic!() };
        assert_eq!((git.url.as_deref(), git.is_own()), (Some("https://example.org/a.git"), true));
        assert_eq!(found.left_out, Vec::<String>::new());
    }
}
