//! Objects of other GitOps tools: their kinds, and objects that list the objects that they manage.

use devcluster::verbs::delete::DeleteOptions;
use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use super::world::{NAMESPACE, World};

const FLUX: &str = "kustomize.toolkit.fluxcd.io/v1";
const ARGO: &str = "argoproj.io/v1alpha1";
const HELM: &str = "helm.toolkit.fluxcd.io/v2";

/// The kinds of these objects. Their schemas accept any fields.
const KINDS: [(&str, &str, &str); 3] = [
    (FLUX, "Kustomization", "kustomizations"),
    (ARGO, "Application", "applications"),
    (HELM, "HelmRelease", "helmreleases"),
];

/// Creates the CRDs of Flux and Argo CD.
pub fn define(world: &World) {
    define_kinds(world, &KINDS);
}

/// Creates CRDs of these kinds, each with its API version and its plural. Their schemas accept any fields.
pub fn define_kinds(world: &World, kinds: &[(&str, &str, &str)]) {
    for (api_version, kind, plural) in kinds {
        let (group, version) = api_version.split_once('/').unwrap();
        let singular = kind.to_lowercase();
        world.define(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
            "spec": {"group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }));
    }
}

fn calls(tool: &str, name: &str, action: Action) -> Call {
    let (api_version, resource) = match tool {
        "flux" => (FLUX, "kustomizations"),
        "argo" => (ARGO, "applications"),
        "helm-release" => (HELM, "helmreleases"),
        _ => ("v1", "secrets"),
    };
    Call::new(api_version, resource, NAMESPACE, name, action)
}

fn listing(name: &str, ids: &[String]) -> Value {
    let entries = ids.iter().map(|id| json!({"id": id, "v": "v1"})).collect::<Vec<_>>();
    json!({"apiVersion": FLUX, "kind": "Kustomization",
           "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": ["finalizers.fluxcd.io"]},
           "spec": {"prune": true, "interval": "10m"}, "status": {"inventory": {"entries": entries}}})
}

/// Creates a Kustomization of Flux with these IDs in its inventory.
pub fn kustomization(world: &World, name: &str, ids: &[String]) {
    world.write_as("flux", calls("flux", "", Action::Create(listing(name, ids))));
}

/// Waits until a Kustomization is being deleted. If the Kustomization is suspended, removes its finalizer, like the
/// controller does.
pub async fn suspended_goes(world: &World, name: &str) {
    let live = |w: &World| w.get(FLUX, "kustomizations", name);
    let is_deleted = |w: &World| live(w).is_none_or(|live| live["metadata"]["deletionTimestamp"].is_string());
    world.until("the Kustomization is deleted", is_deleted).await;
    assert_eq!(live(world).unwrap()["spec"]["suspend"], true);
    let free = Action::Patch(Form::Merge, json!({"metadata": {"finalizers": null}}));
    world.write_as("flux", calls("flux", name, free));
}

fn object(tool: &str, name: &str, lists: &[&str]) -> Value {
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
    match tool {
        "flux" => {
            let ids = lists.iter().map(|listed| format!("{NAMESPACE}_{listed}__ConfigMap")).collect::<Vec<_>>();
            listing(name, &ids)
        }
        "argo" => {
            let listed =
                |listed: &&str| json!({"version": "v1", "kind": "ConfigMap", "namespace": NAMESPACE, "name": listed});
            let resources = lists.iter().map(listed).collect::<Vec<_>>();
            json!({"apiVersion": ARGO, "kind": "Application", "metadata": metadata(name), "status": {"resources": resources}})
        }
        "helm-release" => json!({"apiVersion": HELM, "kind": "HelmRelease", "metadata": metadata(name), "spec": {}}),
        _ => {
            let mut metadata = metadata(&secret(name));
            metadata["labels"] = json!({"owner": "helm", "name": name, "status": "deployed", "version": "1"});
            json!({"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "metadata": metadata,
                   "stringData": {"release": "H4sI"}})
        }
    }
}

/// Returns the name of Helm's Secret for a release.
fn secret(name: &str) -> String {
    format!("sh.helm.release.v1.{name}.v1")
}

/// Creates an object of a tool, which lists these ConfigMaps as managed: `flux`, `argo`, `helm-release` or `helm`.
pub fn keeper(world: &World, tool: &str, name: &str, lists: &[&str]) {
    world.write_as(tool, calls(tool, "", Action::Create(object(tool, name, lists))));
}

/// Removes the finalizers of such an object and deletes it, as the controller of a suspended object does.
pub fn without_finalizers(world: &World, tool: &str, name: &str) {
    let name = if tool == "helm" { secret(name) } else { name.to_owned() };
    let free = Action::Patch(Form::Merge, json!({"metadata": {"finalizers": null}}));
    world.write_as(tool, calls(tool, &name, free));
    world.write_as(tool, calls(tool, &name, Action::Delete(DeleteOptions::default())));
}
