//! Creates the objects to apply from a configuration and its code.
//!
//! Invariant: the objects depend only on these inputs, not on the cluster or the machine. So the objects that are
//! printed and committed equal the objects that are applied.

use kube::Resource as _;
use serde_json::{Map, Value, json};

use super::companions;
use super::config::{Config, GitSource, Source};
use super::fields::text_at;
use mainstay_api::git_repository::AuthType;
use mainstay_api::{Function, GitRepository};
use mainstay_function::{Credentials, PodKeys, Settings, resolve, text};
use mainstay_git::RemoteUrl;
use mainstay_object::failure::chain;
use mainstay_object::syntax;

/// The code of an inline Function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    /// Content of the handler file.
    pub(super) source: String,
    /// Content of the dependency file.
    pub(super) dependencies: String,
}

/// Returns the objects in the order of applying: the GitRepository, the Function, and the objects that refer to it.
///
/// # Errors
/// Fails with the problems, in the agent's words.
pub(super) fn objects(config: &Config, code: &Code) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    let mut wrong = Vec::new();
    if let Source::Git(git) = &config.source
        && let Some(url) = &git.url
    {
        if let Err(error) = RemoteUrl::parse(url) {
            wrong.push(format!("source.url: {}", chain(&error)));
        }
        if !git.is_own() {
            objects.push(repository(config, git, url));
        }
    }
    let function = function(config, code);
    match serde_json::from_value::<Function>(function.clone()) {
        Ok(function) => {
            if let Err(violations) = resolve(&function, &settings(), &Credentials::default()) {
                wrong.push(text(&violations));
            }
        }
        Err(error) => wrong.push(error.to_string()),
    }
    objects.push(function);
    let companions = companions::of(config);
    for (at, companion) in companions.iter().enumerate() {
        let (kind, name) = (text_at(companion, "/kind"), text_at(companion, "/metadata/name"));
        if let Some(words) = syntax::subdomain(name) {
            let name = syntax::shown(name);
            wrong.push(format!("the {kind} would be named \"{name}\": {words}; give it a different `name`"));
        }
        let is_same = |other: &Value| text_at(other, "/kind") == kind && text_at(other, "/metadata/name") == name;
        if companions[..at].iter().any(is_same) {
            wrong.push(format!("two of the kind {kind} would be named {}; give one a `name`", syntax::shown(name)));
        }
    }
    objects.extend(companions);
    if wrong.is_empty() { Ok(objects) } else { Err(wrong.join("\n")) }
}

/// Returns the settings of an installation whose settings are not known. Any pod key is allowed, because the cluster
/// applies the settings of its operator.
pub(super) fn settings() -> Settings {
    Settings { pod_keys: PodKeys::any(), ..Settings::default() }
}

/// Returns the URL and the login of a repository.
fn remote(git: &GitSource, url: &str) -> Value {
    let mut remote = json!({ "url": url });
    if let Some(secret) = &git.credentials_secret_name {
        let kind = git.credentials_type.unwrap_or(AuthType::Basic);
        remote["auth"] = json!({ "type": kind, "secretName": secret });
    }
    remote
}

fn repository(config: &Config, git: &GitSource, url: &str) -> Value {
    json!({
        "apiVersion": GitRepository::api_version(&()),
        "kind": GitRepository::kind(&()),
        "metadata": { "name": git.repository.as_ref().unwrap_or(&config.name), "namespace": config.namespace },
        "spec": remote(git, url),
    })
}

fn function(config: &Config, code: &Code) -> Value {
    let mut spec = Map::new();
    let mut set = |name: &str, value: Value| {
        let is_empty = matches!(&value, Value::Object(map) if map.is_empty())
            || matches!(&value, Value::Array(items) if items.is_empty());
        if !value.is_null() && !is_empty {
            spec.insert(name.to_owned(), value);
        }
    };
    set("runtime", json!(config.runtime));
    set("runtimeImageOverride", json!(config.runtime_image_override));
    match &config.source {
        Source::Inline { .. } => {
            set("source", json!(code.source));
            set("deps", if code.dependencies.is_empty() { Value::Null } else { json!(code.dependencies) });
        }
        Source::Git(git) => {
            set("type", json!("git"));
            set("source", json!(git.repository.as_ref().unwrap_or(&config.name)));
            set("gitRepository", git.url.as_ref().filter(|_| git.is_own()).map_or(Value::Null, |url| remote(git, url)));
            set("reference", json!(git.reference));
            set("baseDir", json!(git.base_dir));
        }
    }
    let labels = config.labels.iter().chain(&config.runtime_labels);
    set("labels", labels.map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>().into());
    set("annotations", json!(config.runtime_annotations));
    let mut resources = Map::new();
    for (part, amounts) in [("limits", &config.resource.limits), ("requests", &config.resource.requests)] {
        if !amounts.is_empty() {
            resources.insert(part.to_owned(), json!(amounts));
        }
    }
    set("resources", resources.into());
    set("env", json!(config.env));
    json!({
        "apiVersion": Function::api_version(&()),
        "kind": Function::kind(&()),
        "metadata": { "name": config.name, "namespace": config.namespace },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let config = Config::read(text, None).unwrap();
        let code = Code { source: "module.exports = { main: () => 'hi' }\n".into(), dependencies: String::new() };
        let shown = match objects(&config, &code) {
            Ok(objects) => objects
                .iter()
                .map(|object| format!("---\n{}", serde_yaml::to_string(object).unwrap()))
                .collect::<Vec<_>>()
                .concat(),
            Err(wrong) => wrong,
        };
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_git_function_has_its_repository_before_it() {
        check(
            "name: a\nnamespace: team\nruntime: python312\nsource:\n  sourceType: git\n  url: https://example.org/a.git\n  \
             reference: main\n  baseDir: /\n  credentialsSecretName: login\n",
            "---\napiVersion: serverless.kyma-project.io/v1alpha1\nkind: GitRepository\nmetadata:\n  name: a\n  namespace: \
             team\nspec:\n  auth:\n    secretName: login\n    type: basic\n  url: https://example.org/a.git\n---\napiVersion: \
             serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata:\n  name: a\n  namespace: team\nspec:\n  baseDir: \
             /\n  reference: main\n  runtime: python312\n  source: a\n  type: git\n",
        );
    }

    #[test]
    fn a_repository_of_the_function_itself_creates_no_git_repository() {
        check(
            "name: a\nnamespace: team\nruntime: python312\nsource:\n  sourceType: git\n  url: https://example.org/a.git\n  \
             repository: ''\n  reference: main\n  baseDir: /\n  credentialsSecretName: login\n",
            "---\napiVersion: serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata:\n  name: a\n  namespace: \
             team\nspec:\n  baseDir: /\n  gitRepository:\n    auth:\n      secretName: login\n      type: basic\n    \
             url: https://example.org/a.git\n  reference: main\n  runtime: python312\n  source: ''\n  type: git\n",
        );
    }

    #[test]
    fn labels_are_those_of_the_pods_and_of_what_refers_to_the_function() {
        check(
            "name: my-function\nnamespace: default\nlabels: {app: a}\nruntimeLabels: {tier: b}\nsource: {sourceType: \
             inline}\ntriggers:\n- version: evt1\n  source: the-source\n  type: t1\n",
            "---\napiVersion: serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata:\n  name: my-function\n  namespace: \
             default\nspec:\n  labels:\n    app: a\n    tier: b\n  runtime: nodejs22\n  source: |\n    module.exports = { main: () \
             => 'hi' }\n---\napiVersion: eventing.knative.dev/v1alpha1\nkind: Trigger\nmetadata:\n  labels:\n    app: a\n  name: \
             my-function-the-source\n  namespace: default\nspec:\n  broker: default\n  filter:\n    attributes:\n      \
             eventtypeversion: evt1\n      source: the-source\n      type: t1\n  subscriber:\n    ref:\n      apiVersion: v1\n      \
             kind: Service\n      name: my-function\n      namespace: default\n",
        );
    }

    #[test]
    fn refuses_invalid_objects_in_the_words_of_the_agent() {
        let head = "namespace: default\nsource: {sourceType: inline}\n";
        check(&format!("name: a\n{head}env: [{{name: 1A, value: x}}]\n"), &{
            let function = json!({
                "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "metadata": {"name": "a"},
                "spec": {"source": "x", "env": [{"name": "1A", "value": "x"}]},
            });
            let function = serde_json::from_value(function).unwrap();
            text(&resolve(&function, &Settings::default(), &Credentials::default()).unwrap_err())
        });
        check(
            &format!("name: a\n{head}triggers: [{{source: s, type: a}}, {{source: s, type: b}}]\n"),
            "two of the kind Trigger would be named a-s; give one a `name`",
        );
        let git = "name: a\nnamespace: default\nsource: {sourceType: git, url: 'svn://me:hunter2@h/x', reference: m, baseDir: /}\n";
        let config = Config::read(git, None).unwrap();
        let wrong = objects(&config, &Code::default()).unwrap_err();
        assert!(wrong.starts_with("source.url: ") && !wrong.contains("hunter2"), "{wrong}");
    }
}
