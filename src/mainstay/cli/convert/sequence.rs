//! The steps for handing live objects over to Mainstay without a restart of a pod.

use serde_json::Value;

use super::document::Document;
use super::flux::GROUP;
use super::helm_release::release_name;
use super::report::Conversion;

/// Label of Flux on an object that a Kustomization applied.
pub(super) const PARENT: &str = "/metadata/labels/kustomize.toolkit.fluxcd.io~1name";
/// Label of Flux with the namespace of that Kustomization.
const PARENT_NAMESPACE: &str = "/metadata/labels/kustomize.toolkit.fluxcd.io~1namespace";

/// Returns the steps for objects that were read from a cluster. Objects that are not converted stay with their tool.
pub(super) fn text(documents: &[Document], conversion: &Conversion) -> String {
    let (kept, moved): (Vec<_>, Vec<_>) =
        documents.iter().filter(|document| resource(document).is_some()).partition(|one| conversion.has_lost(one));
    let moved = in_order(moved);
    if moved.is_empty() {
        return String::new();
    }
    let mut text = "\nThe objects change hands without a restart of a pod:\n".to_owned();
    let suspensions: Vec<_> = moved.iter().rev().filter_map(|document| suspension(document)).collect();
    let mut steps = Vec::new();
    if !suspensions.is_empty() {
        steps.push(format!(
            "Suspend the objects. Flux then applies and deletes nothing for them:\n{}",
            suspensions.concat()
        ));
    }
    let others = documents.iter().filter(|one| is_other_of_flux(one) && !kept.iter().any(|kept| names(kept, one)));
    let applied: Vec<_> = moved.iter().copied().chain(others).filter_map(applied_by).collect();
    if !applied.is_empty() {
        steps.push(format!(
            "Remove the manifests of these objects of Flux from the directories that Mainstay reads. Otherwise it creates them \
             again, and fails when Flux is uninstalled. If other clusters share a manifest, delete it with a patch in the \
             overlay of this cluster, or in `spec.patches` of its GitSync:\n{}",
            applied.concat()
        ));
    }
    steps.push(
        "Create the GitSyncs. They apply no object that is still listed by its former tool:\n  kubectl apply -f FILE\n"
            .to_owned(),
    );
    let releases: String = moved.iter().map(|document| release(document)).collect();
    steps.push(format!(
        "Release one object after the other. Its GitSync is then Ready (`mainstay status`):\n{releases}"
    ));
    for (number, step) in steps.iter().enumerate() {
        text.push_str(&format!("{}. {step}", number + 1));
    }
    if !kept.is_empty() {
        let kept: Vec<_> = kept.iter().map(|document| document.subject()).collect();
        text.push_str(&format!("Not converted, so leave them as they are: {}\n", kept.join(", ")));
    }
    text
}

/// Returns the resource name of an object that applies other objects.
fn resource(document: &Document) -> Option<&'static str> {
    match document.kind() {
        "Kustomization" => Some("kustomizations.kustomize.toolkit.fluxcd.io"),
        "HelmRelease" => Some("helmreleases.helm.toolkit.fluxcd.io"),
        "Application" => Some("applications.argoproj.io"),
        _ => None,
    }
}

/// Returns kind, name and namespace as arguments of kubectl.
fn arguments(document: &Document) -> String {
    format!("{} {} -n {}", resource(document).unwrap_or_default(), document.name(), document.namespace())
}

fn suspension(document: &Document) -> Option<String> {
    let is_of_flux = document.kind() != "Application";
    let patch = r#"{"spec":{"suspend":true}}"#;
    is_of_flux.then(|| format!("  kubectl patch {} --type merge -p '{patch}'\n", arguments(document)))
}

/// Returns whether a document is of a kind of Flux that applies no other objects, such as a HelmRepository or an Alert.
fn is_other_of_flux(document: &Document) -> bool {
    resource(document).is_none() && document.group().ends_with(GROUP)
}

/// Returns whether the spec of `user` names a source.
fn names(user: &Document, source: &Document) -> bool {
    fn any(value: &Value, source: &Document) -> bool {
        match value {
            Value::Object(map) => {
                let is_it = value["kind"] == source.kind() && value["name"] == source.name();
                is_it || map.values().any(|value| any(value, source))
            }
            Value::Array(list) => list.iter().any(|value| any(value, source)),
            _ => false,
        }
    }
    any(&user.object["spec"], source)
}

fn applied_by(document: &Document) -> Option<String> {
    let parent = document.field(PARENT);
    let is_own = parent == document.name() && document.kind() == "Kustomization";
    let is_applied = !parent.is_empty() && !is_own;
    is_applied.then(|| format!("  {}, applied by Kustomization {parent}\n", document.subject()))
}

/// Returns the commands that make Flux or Argo CD release the objects of `document`.
fn release(document: &Document) -> String {
    let arguments = arguments(document);
    let delete = format!("  kubectl delete {arguments}\n");
    match document.kind() {
        "Application" => {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            format!("  kubectl patch {arguments} --type merge -p '{patch}'\n{delete}")
        }
        "HelmRelease" => {
            let storage = match document.field("/spec/storageNamespace") {
                "" => document.namespace(),
                namespace => namespace,
            };
            format!("{delete}  kubectl delete secret -n {storage} -l owner=helm,name={}\n", release_name(document))
        }
        _ => delete,
    }
}

/// Sorts objects after those on which they depend, and a Kustomization after the objects that it applies.
fn in_order(mut left: Vec<&Document>) -> Vec<&Document> {
    let mut sorted = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_free = |one: &&Document| !left.iter().any(|other| !std::ptr::eq(*one, *other) && needs(one, other));
        // Objects that wait for each other keep their order.
        let next = left.iter().position(is_free).unwrap_or_default();
        sorted.push(left.remove(next));
    }
    sorted
}

/// Returns whether `one` must come after `other`.
fn needs(one: &Document, other: &Document) -> bool {
    let depends = one.object["spec"]["dependsOn"].as_array().into_iter().flatten().any(|named| {
        let namespace = named["namespace"].as_str().unwrap_or(one.namespace());
        one.kind() == other.kind() && named["name"] == other.name() && namespace == other.namespace()
    });
    let applies = one.kind() == "Kustomization"
        && other.field(PARENT) == one.name()
        && other.field(PARENT_NAMESPACE) == one.namespace();
    depends || applies
}
