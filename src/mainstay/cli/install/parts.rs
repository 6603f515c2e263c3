//! Manifests of optional components, and the remains of excluded components in a cluster.

use serde_json::Value;

use super::manifests::{RBAC, WEBHOOKS, manifest, value};
use super::nats;
use super::request::Installation;
use crate::{Component, cli::Error};
use mainstay_api::names::{COMPONENT, FUNCTION_DEFINITION};

const EVENTING: [&str; 5] = [
    include_str!("../../../../manifests/eventing/namespace.yaml"),
    mainstay_eventing::DEFINITIONS,
    include_str!("../../../../manifests/eventing/rbac.yaml"),
    include_str!("../../../../manifests/eventing/deployment.yaml"),
    include_str!("../../../../manifests/eventing/network-policy.yaml"),
];
/// The same with NATS instead of a journal.
const EVENTING_ON_NATS: [&str; 4] = [
    include_str!("../../../../manifests/eventing/namespace.yaml"),
    mainstay_eventing::DEFINITIONS,
    include_str!("../../../../manifests/eventing/rbac.yaml"),
    nats::MANIFEST,
];
const EXPOSURE: [&str; 2] =
    [include_str!("../../../../manifests/exposure/crd.yaml"), include_str!("../../../../manifests/exposure/rbac.yaml")];
const CONSOLE: [&str; 1] = [include_str!("../../../../manifests/console/deployment.yaml")];
const DEFINITION: &str = "CustomResourceDefinition";
/// Kyma's namespace for eventing.
const NAMESPACE_OF_EVENTING: &str = "kyma-system";

/// Returns the objects of chosen components that have separate manifests.
pub(super) fn chosen(installation: &Installation) -> Result<Vec<Value>, Error> {
    let (values, mut objects) = (&installation.values, Vec::new());
    let parts = [
        (Component::Exposure, &EXPOSURE[..]),
        (Component::Eventing, if values.nats.is_chosen() { &EVENTING_ON_NATS[..] } else { &EVENTING[..] }),
        (Component::Console, &CONSOLE[..]),
    ];
    for (component, texts) in parts {
        // Without a choice, users add these components separately.
        if installation.chosen.as_ref().is_none_or(|chosen| !chosen.has(component)) {
            continue;
        }
        for text in texts {
            objects.extend(manifest(text, installation)?);
        }
    }
    if values.nats.drains() && installation.has(Component::Eventing) {
        objects.extend(manifest(nats::DRAIN, installation)?);
    }
    if values.nats.is_embedded() && installation.has(Component::Eventing) {
        let mut server = manifest(nats::SERVER, installation)?;
        values.nats.choose_server(&mut server);
        objects.extend(server);
    }
    let is_wanted = |object: &Value| {
        let is_home = object["kind"] == "Namespace" && installation.namespace == NAMESPACE_OF_EVENTING;
        !is_home && (object["kind"] != DEFINITION || installation.with_definitions)
    };
    objects.retain(is_wanted);
    objects.iter_mut().filter(|object| is_console(object)).for_each(|object| values.console.choose(object));
    values.nats.choose(&mut objects);
    Ok(objects)
}

fn is_console(object: &Value) -> bool {
    object["kind"] == "Deployment" && object["metadata"]["name"] == "mainstay-console"
}

/// Removes the parts of an object that belong to excluded components. Returns false if no part remains.
pub(super) fn keep_chosen(object: &mut Value, installation: &Installation) -> bool {
    if installation.has(Component::Functions) {
        return true;
    }
    if let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut) {
        webhooks.retain(|webhook| !is_of_functions(webhook));
    }
    if let Some(containers) = object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut) {
        let variables = containers.iter_mut().filter_map(|container| container.get_mut("env")?.as_array_mut());
        variables.for_each(|all| all.retain(|variable| variable["name"] != "MAINSTAY_BUILDER_IMAGE"));
    }
    let metadata = &object["metadata"];
    metadata["labels"][COMPONENT] != Component::Functions.name() && metadata["name"] != FUNCTION_DEFINITION
}

/// Returns whether a webhook is for Functions.
fn is_of_functions(webhook: &Value) -> bool {
    let rules = webhook["rules"].as_array().into_iter().flatten();
    let mut resources = rules.filter_map(|rule| rule["resources"].as_array()).flatten();
    resources.any(|resource| resource == "functions" || resource == "secrets")
}

/// Returns notes about permissions and components that are excluded, because `kubectl apply` removes nothing.
pub(super) fn notes(installation: &Installation) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    if installation.restricted.is_some() {
        notes.push(
            "an earlier installation without --profile restricted has cluster-admin permissions, which stay in the \
             cluster; remove them:\n  kubectl delete --ignore-not-found \
             clusterrolebinding/mainstay-applies \
             clusterrolebinding/mainstay-impersonates"
                .to_owned(),
        );
    }
    notes.extend(left_out(installation)?);
    Ok(notes)
}

fn left_out(installation: &Installation) -> Result<Option<String>, Error> {
    let Some(chosen) = &installation.chosen else { return Ok(None) };
    let left: Vec<Component> = Component::ALL.into_iter().filter(|component| !chosen.has(*component)).collect();
    if left.is_empty() {
        return Ok(None);
    }
    let mut names = Vec::new();
    for component in &left {
        names.extend(rights_of(*component, installation)?);
    }
    let left: Vec<&str> = left.into_iter().map(Component::name).collect();
    if names.is_empty() {
        return Ok(Some(format!("left out: {}. A cluster that has them keeps their objects", left.join(", "))));
    }
    Ok(Some(format!(
        "left out: {}. A cluster that has them keeps their definitions, objects, registry and images, and workloads \
         keep running without an agent that reconciles them. To remove their permissions and webhooks:\n  kubectl \
         delete \
         --ignore-not-found {}",
        left.join(", "),
        names.join(" ")
    )))
}

/// Returns a component's cluster-wide permissions and webhooks, as arguments of `kubectl delete`. The component's data
/// and CRDs are not included.
fn rights_of(component: Component, installation: &Installation) -> Result<Vec<String>, Error> {
    let texts: Vec<&str> = match component {
        Component::Sync => Vec::new(),
        Component::Functions => vec![RBAC, WEBHOOKS],
        Component::Eventing => EVENTING.to_vec(),
        Component::Exposure => EXPOSURE.to_vec(),
        Component::Console => CONSOLE.to_vec(),
    };
    let mut names = Vec::new();
    for text in texts {
        for object in manifest(text, installation)? {
            let label = object["metadata"]["labels"][COMPONENT].as_str();
            let is_its = component != Component::Functions || label == Some(component.name());
            let (kind, name) = (object["kind"].as_str().unwrap_or_default(), &object["metadata"]["name"]);
            let is_right = ["ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration"].contains(&kind);
            if let (true, true, Some(name)) = (is_its, is_right, name.as_str()) {
                names.push(format!("{}/{name}", kind.to_lowercase()));
            }
        }
    }
    Ok(names)
}

/// Returns the CRDs of the types in `mainstay_api`.
pub(super) fn definitions(installation: &Installation) -> Result<Vec<Value>, Error> {
    let all = mainstay_api::definitions();
    let mut definitions = all.iter().map(|one| value(DEFINITION, one)).collect::<Result<Vec<_>, _>>()?;
    definitions.retain_mut(|definition| keep_chosen(definition, installation));
    Ok(definitions)
}
