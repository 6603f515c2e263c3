//! How live objects change hands without a restart of a pod.

use super::document::Document;

/// Label of Flux on an object that a Kustomization applied.
const PARENT: &str = "/metadata/labels/kustomize.toolkit.fluxcd.io~1name";

/// The commands, for the objects that are read from a cluster.
pub(super) fn text(documents: &[Document]) -> String {
    let mut text = "\nOne object at a time, without a restart of a pod:\n".to_owned();
    for document in documents {
        let (name, namespace) = (document.name(), document.namespace());
        let parent = document.field(PARENT);
        if !parent.is_empty() && parent != name && is_moved(document) {
            text.push_str(&format!(
                "  # Kustomization {parent} applies {}: suspend it first, and remove the manifest from its path\n",
                document.subject()
            ));
        }
        text.push_str(&match document.kind() {
            "Kustomization" | "HelmRelease" => {
                let kind = if document.kind() == "Kustomization" { "kustomizations.kustomize" } else { "helmreleases.helm" };
                let kind = format!("{kind}.toolkit.fluxcd.io");
                format!(
                    "  kubectl patch {kind} {name} -n {namespace} --type merge -p '{{\"spec\":{{\"suspend\":true}}}}'\n  \
                     kubectl delete {kind} {name} -n {namespace}\n"
                )
            }
            "Application" => format!(
                "  kubectl patch applications.argoproj.io {name} -n {namespace} --type merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'\n  \
                 kubectl delete applications.argoproj.io {name} -n {namespace}\n"
            ),
            _ => String::new(),
        });
    }
    text + "  kubectl apply -f FILE   # the GitRepositories, then the GitSync of the object\n"
}

fn is_moved(document: &Document) -> bool {
    matches!(document.kind(), "Kustomization" | "HelmRelease" | "Application")
}
