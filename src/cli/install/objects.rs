//! What [`Request`] installs, in the order in which it is applied. Roles and the Deployment are those of `manifests/`.

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::request::{Access, IMAGE, Request};
use crate::{
    api::{self, GitRepository, GitSync, names},
    cli::{Error, connection::DEFAULT_NAMESPACE},
    receiver::BaseUrl,
    source,
};

const NAMESPACE: &str = include_str!("../../../manifests/namespace.yaml");
const RBAC: &str = include_str!("../../../manifests/rbac.yaml");
const AGENT: &str = include_str!("../../../manifests/deployment.yaml");
/// The namespace of `manifests/`.
const MANIFEST_NAMESPACE: &str = DEFAULT_NAMESPACE;
/// The environment of the agent in its Deployment, and the variable of `mainstay agent --receiver-url`.
const VARIABLES: &str = "/spec/template/spec/containers/0/env";
const RECEIVER_URL: &str = "MAINSTAY_RECEIVER_URL";
/// Label on everything that is installed.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "mainstay");

/// Everything.
pub(super) fn all(request: &Request) -> Result<Vec<Value>, Error> {
    let mut objects = manifest(NAMESPACE, request)?;
    if request.with_definitions {
        for definition in api::definitions() {
            objects.push(value("CustomResourceDefinition", &definition)?);
        }
    }
    objects.extend(manifest(RBAC, request)?);
    objects.extend(secret(request));
    let known_hosts = format!("{}{}", source::PUBLISHED, request.known_hosts.as_deref().unwrap_or_default());
    objects.push(config_map(request, names::KNOWN_HOSTS, names::KNOWN_HOSTS_KEY, known_hosts));
    objects.push(config_map(request, names::BOOTSTRAP, names::BOOTSTRAP_KEY, stream(&followed(request)?)?));
    let mut agent = manifest(AGENT, request)?;
    if let Some(BaseUrl::Known(url)) = &request.receiver_url {
        let variables = agent.iter_mut().filter_map(|object| object.pointer_mut(VARIABLES)?.as_array_mut());
        variables.for_each(|all| all.push(json!({"name": RECEIVER_URL, "value": url})));
    }
    objects.extend(agent);
    Ok(objects)
}

fn value(what: &str, object: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|cause| Error::Understand { what: what.to_owned(), cause })
}

/// The documents of a manifest, in the request's namespace and with its image.
fn manifest(text: &str, request: &Request) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(document).map_err(Error::WriteYaml)?;
        settle(&mut object, request);
        objects.push(object);
    }
    Ok(objects)
}

/// Replaces the two texts of `manifests/` that differ from installation to installation, wherever they stand.
fn settle(value: &mut Value, request: &Request) {
    match value {
        Value::String(text) if *text == MANIFEST_NAMESPACE => text.clone_from(&request.namespace),
        Value::String(text) if *text == IMAGE => text.clone_from(&request.image),
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, request)),
        Value::Object(fields) => fields.values_mut().for_each(|field| settle(field, request)),
        _ => {}
    }
}

fn metadata(request: &Request, name: &str) -> Value {
    json!({"name": name, "namespace": request.namespace, "labels": {LABEL.0: LABEL.1}})
}

fn config_map(request: &Request, name: &str, key: &str, text: String) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(request, name), "data": {key: text}})
}

/// The Secret that the agent puts a new key into. Applied again, it keeps the key, because no field of it is here.
fn secret(request: &Request) -> Option<Value> {
    let Access::NewKey(name) = &request.access else { return None };
    let mut metadata = metadata(request, name);
    metadata["labels"][names::GENERATE] = json!(names::SSH_KEY);
    // Should the repository hold a Secret with this name, the key is left alone all the same.
    metadata["annotations"] = json!({names::RECONCILE: names::DISABLED});
    Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}))
}

/// The GitRepository and its GitSyncs, which the agent creates.
fn followed(request: &Request) -> Result<Vec<Value>, Error> {
    let auth = match &request.access {
        Access::Anonymous => None,
        Access::Basic(secret) => Some(json!({"type": "basic", "secretName": secret})),
        Access::Key(secret) | Access::NewKey(secret) => Some(json!({"type": "key", "secretName": secret})),
    };
    let mut spec = json!({"url": request.url});
    if let Some(auth) = auth {
        spec["auth"] = auth;
    }
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": request.namespace},
        })
    };
    let mut objects = vec![object("serverless.kyma-project.io/v1alpha1", "GitRepository", &request.name, spec)];
    // What is written here must be what the types read.
    serde_json::from_value::<GitRepository>(objects[0].clone())
        .map_err(|cause| Error::Understand { what: "GitRepository".into(), cause })?;
    for (name, directory) in &request.syncs {
        let mut spec = json!({
            "gitRepository": request.name, "reference": request.branch, "baseDir": directory.to_string(),
            "targetNamespace": request.target_namespace,
        });
        if let Some(interval) = request.interval {
            spec["interval"] = value("interval", &interval)?;
        }
        let sync = object("mainstay.dev/v1alpha1", "GitSync", name, spec);
        serde_json::from_value::<GitSync>(sync.clone())
            .map_err(|cause| Error::Understand { what: "GitSync".into(), cause })?;
        objects.push(sync);
    }
    Ok(objects)
}

/// The objects as one YAML stream.
pub(super) fn stream(objects: &[Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(object).map_err(Error::WriteYaml)?);
    }
    Ok(text)
}
