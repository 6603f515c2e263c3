//! The objects of an [`Installation`], in the order of applying. Roles and the Deployment are those of `manifests/`.

use serde_json::{Value, json};

use super::agent;
use super::manifests::{MANIFEST_NAMESPACE, RBAC, WEBHOOKS, manifest, substitute, value};
use super::newer;
use super::parts;
use super::pods;
use super::registry::Registry;
use super::request::{Access, Installation};
use super::restricted;
use crate::cli::Error;
use mainstay_api::{GitRepository, GitSync, names};

const NAMESPACE: &str = include_str!("../../../../manifests/namespace.yaml");
const NETWORK_POLICY: &str = include_str!("../../../../manifests/network-policy.yaml");
const EGRESS_POLICY: &str = include_str!("../../../../manifests/egress/network-policy.yaml");
const DISRUPTION_BUDGET: &str = include_str!("../../../../manifests/disruption-budget.yaml");
const REGISTRY: &str = include_str!("../../../../manifests/registry/registry.yaml");
/// The agent's environment in its Deployment.
const VARIABLES: &str = "/spec/template/spec/containers/0/env";
/// The agent's arguments in its Deployment.
const ARGUMENTS: &str = "/spec/template/spec/containers/0/args";
/// Label on all installed objects.
const LABEL: (&str, &str) = (names::INSTALLED, names::INSTALLED_AS);

/// Returns all objects.
pub(super) fn all(installation: &Installation) -> Result<Vec<Value>, Error> {
    let mut objects = manifest(NAMESPACE, installation)?;
    if installation.with_definitions {
        for mut definition in parts::definitions(installation)? {
            if installation.v1alpha2 {
                newer::serve(&mut definition)?;
                substitute(&mut definition, installation);
            }
            objects.push(definition);
        }
    }
    objects.extend(rights(installation)?);
    if installation.v1alpha2 {
        objects.extend(manifest(newer::RBAC, installation)?);
    }
    objects.extend(secret(installation));
    let known_hosts = format!("{}{}", mainstay_git::PUBLISHED, installation.known_hosts.as_deref().unwrap_or_default());
    objects.push(config_map(installation, names::KNOWN_HOSTS, names::KNOWN_HOSTS_KEY, known_hosts));
    objects.push(config_map(installation, names::BOOTSTRAP, names::BOOTSTRAP_KEY, stream(&followed(installation)?)?));
    objects.extend(deployment(installation)?);
    objects.extend(manifest(NETWORK_POLICY, installation)?);
    objects.extend(egress(installation)?);
    objects.extend(manifest(DISRUPTION_BUDGET, installation)?);
    if installation.registry == Registry::Internal {
        // The host name is replaced, because builds use the registry's host name, which contains the namespace.
        let here = format!(".{}.svc.", installation.namespace);
        let mut registry = manifest(&REGISTRY.replace(&format!(".{MANIFEST_NAMESPACE}.svc."), &here), installation)?;
        for object in &mut registry {
            confine_clients(object, &installation.values.registry_networks);
        }
        objects.extend(registry);
    }
    objects.extend(manifest(WEBHOOKS, installation)?);
    objects.extend(parts::chosen(installation)?);
    objects.retain_mut(|object| parts::keep_chosen(object, installation));
    let workloads =
        objects.iter_mut().filter(|object| object["kind"] == "Deployment" || object["kind"] == "StatefulSet");
    workloads.for_each(|workload| pods::choose(workload, &installation.values));
    Ok(objects)
}

/// Returns the agent's ServiceAccount and permissions.
fn rights(installation: &Installation) -> Result<Vec<Value>, Error> {
    let mut objects = manifest(RBAC, installation)?;
    if installation.values.shards > 0 {
        objects.iter_mut().for_each(see_leases);
    }
    let Some(restricted) = &installation.restricted else { return Ok(objects) };
    // Keeps the agent's ServiceAccount, its permissions in its own namespace, and the view role for users.
    let stays = ["ServiceAccount", "Role", "RoleBinding"];
    objects.retain(|object| {
        stays.iter().any(|kind| object["kind"] == *kind)
            || object["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    });
    objects.extend(restricted::rights(installation, restricted));
    Ok(objects)
}

/// Lets agents with shards watch the Leases of each other.
fn see_leases(object: &mut Value) {
    let rules = object.get_mut("rules").and_then(Value::as_array_mut).into_iter().flatten();
    for rule in rules.filter(|rule| rule["resources"] == json!(["leases"])) {
        rule["verbs"] = json!(["get", "list", "watch", "create", "update"]);
    }
}

/// Returns the policy of `--egress-policy`, with the port of the repository.
fn egress(installation: &Installation) -> Result<Vec<Value>, Error> {
    let Some(port) = installation.egress_port else { return Ok(Vec::new()) };
    let mut objects = manifest(EGRESS_POLICY, installation)?;
    let rules = objects.iter_mut().filter_map(|object| object["spec"]["egress"].as_array_mut()?.last_mut());
    for ports in rules.filter_map(|rule| rule["ports"].as_array_mut()) {
        if !ports.iter().any(|known| known["port"] == port) {
            ports.push(json!({"port": port, "protocol": "TCP"}));
        }
    }
    Ok(objects)
}

/// Restricts the clients in a NetworkPolicy to pods, and to nodes in these networks.
fn confine_clients(object: &mut Value, networks: &[String]) {
    if let (Some(rule), false) = (object.pointer_mut("/spec/ingress/0"), networks.is_empty()) {
        let blocks = networks.iter().map(|network| json!({"ipBlock": {"cidr": network}}));
        rule["from"] = [json!({"namespaceSelector": {}})].into_iter().chain(blocks).collect();
    }
}

/// Returns the agent's Deployment with its Service.
fn deployment(installation: &Installation) -> Result<Vec<Value>, Error> {
    let mut objects = manifest(agent::MANIFEST, installation)?;
    for variables in objects.iter_mut().filter_map(|object| object.pointer_mut(VARIABLES)?.as_array_mut()) {
        variables.extend(agent::environment(installation.receiver_url.as_ref(), &installation.values));
    }
    for arguments in objects.iter_mut().filter_map(|object| object.pointer_mut(ARGUMENTS)?.as_array_mut()) {
        arguments.extend(installation.agent_arguments.iter().cloned().map(Value::from));
    }
    Ok(objects)
}

fn metadata(installation: &Installation, name: &str) -> Value {
    json!({"name": name, "namespace": installation.namespace, "labels": {LABEL.0: LABEL.1}})
}

fn config_map(installation: &Installation, name: &str, key: &str, text: String) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(installation, name), "data": {key: text}})
}

/// Returns the Secret for a new key. The Secret has no data here, so the key stays when the Secret is applied again.
fn secret(installation: &Installation) -> Option<Value> {
    let Access::NewKey(name) = &installation.access else { return None };
    let mut metadata = metadata(installation, name);
    metadata["labels"][names::GENERATE] = json!(names::SSH_KEY);
    // If the repository contains a Secret with this name, that Secret must not overwrite the key.
    metadata["annotations"] = json!({names::RECONCILE: names::DISABLED});
    Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}))
}

/// Returns the GitRepository and its GitSyncs, which the agent creates.
fn followed(installation: &Installation) -> Result<Vec<Value>, Error> {
    let auth = match &installation.access {
        Access::Anonymous => None,
        Access::Basic(secret) => Some(json!({"type": "basic", "secretName": secret})),
        Access::Key(secret) | Access::NewKey(secret) => Some(json!({"type": "key", "secretName": secret})),
    };
    let mut spec = json!({"url": installation.url});
    if let Some(auth) = auth {
        spec["auth"] = auth;
    }
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": version, "kind": kind, "spec": spec,
            "metadata": {"name": name, "namespace": installation.namespace},
        })
    };
    let mut objects = vec![object("serverless.kyma-project.io/v1alpha1", "GitRepository", &installation.name, spec)];
    // The objects are parsed to ensure that the types accept them.
    serde_json::from_value::<GitRepository>(objects[0].clone())
        .map_err(|cause| Error::Understand { what: "GitRepository".into(), cause })?;
    for (name, directory) in &installation.syncs {
        let mut spec = json!({
            "gitRepository": installation.name, "reference": installation.branch, "baseDir": directory.to_string(),
            "targetNamespace": installation.target_namespace,
        });
        if let Some(restricted) = &installation.restricted {
            spec["serviceAccountName"] = json!(restricted.account);
        }
        if let Some(interval) = installation.interval {
            spec["interval"] = value("interval", &interval)?;
        }
        let sync = object("mainstay.dev/v1alpha1", "GitSync", name, spec);
        serde_json::from_value::<GitSync>(sync.clone())
            .map_err(|cause| Error::Understand { what: "GitSync".into(), cause })?;
        objects.push(sync);
    }
    Ok(objects)
}

/// Returns the objects as one YAML stream.
pub(super) fn stream(objects: &[Value]) -> Result<String, Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(object).map_err(Error::WriteYaml)?);
    }
    Ok(text)
}
