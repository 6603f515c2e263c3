//! Deletes the registry in the cluster, and the copies of its login.
//!
//! Invariant: registry and copies stay as long as there are Functions, because the pods of Functions pull from the
//! registry with these copies.

use std::sync::Arc;

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Uninstall, is_ours, stays, was_written_by};
use crate::cli::{Error, output};
use mainstay_api::names;
use mainstay_cluster::{Kind, Scope, Selection};

/// Kinds of the registry's objects, which all have the same name.
const OBJECTS: [(&str, &str, &str); 5] = [
    ("apps/v1", "Deployment", "deployments"),
    ("v1", "Service", "services"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("v1", "Secret", "secrets"),
    ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
];
/// Kinds that are copied to all namespaces.
const COPIED: [(&str, &str); 2] = [("Secret", "secrets"), ("ServiceAccount", "serviceaccounts")];

impl Uninstall<'_> {
    /// Counts the Functions of the cluster.
    pub(super) async fn count_functions(&self) -> Result<usize, Error> {
        let functions = self.cluster.kind("serverless.kyma-project.io/v1alpha1", "Function").await?;
        let Some(functions) = functions else { return Ok(0) };
        let all: Vec<ObjectMeta> = self.cluster.list_metadata(&functions, Selection::default()).try_collect().await?;
        Ok(all.len())
    }

    /// Deletes the registry of the installation with its volume, and the copies of logins in all namespaces. The
    /// message that the registry stays is printed again only if the number of Functions differs from `planned`.
    pub(super) async fn delete_registry(&self, planned: usize) -> Result<(), Error> {
        let name = names::INTERNAL_REGISTRY;
        let functions = self.count_functions().await?;
        if functions > 0 {
            return if functions == planned { Ok(()) } else { output::print(&stays(functions)) };
        }
        for (kind, plural) in COPIED {
            let kind = Arc::new(Kind::fixed("v1", kind, plural, Scope::Namespaced));
            let copies = Selection::labelled(names::PROPAGATED_FROM, self.namespace);
            let copies: Vec<ObjectMeta> = self.cluster.list_metadata(&kind, copies).try_collect().await?;
            for copy in copies {
                let is_copy = |meta: &ObjectMeta| was_written_by(meta, names::PROPAGATION_MANAGER);
                self.delete(&kind, copy.namespace.as_deref(), copy.name.as_deref().unwrap_or_default(), is_copy)
                    .await?;
            }
        }
        let secrets = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
        let is_made = |meta: &ObjectMeta| {
            let mut owners = meta.owner_references.iter().flatten();
            was_written_by(meta, names::AGENT_MANAGER) && owners.any(|owner| owner.name == name)
        };
        self.delete(&secrets, Some(self.namespace), names::DEFAULT_REGISTRY_SECRET, is_made).await?;
        for (api_version, kind, plural) in OBJECTS {
            let kind = Kind::fixed(api_version, kind, plural, Scope::Namespaced);
            self.delete(&kind, Some(self.namespace), name, is_ours).await?;
        }
        Ok(())
    }
}

/// Returns whether a controller created an object for the registry. The registry's own objects do not count.
pub(super) fn is_made_for_registry(meta: &ObjectMeta) -> bool {
    let mut makers = meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    makers.any(|owner| match &*owner.kind {
        "Deployment" | "Service" => owner.name == names::INTERNAL_REGISTRY,
        // A ReplicaSet has the name of its Deployment and a hash.
        "ReplicaSet" => {
            let hash = owner.name.strip_prefix(names::INTERNAL_REGISTRY).and_then(|rest| rest.strip_prefix('-'));
            hash.is_some_and(|hash| !hash.contains('-'))
        }
        _ => false,
    })
}
