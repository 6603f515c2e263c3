//! Reads the objects of other GitOps tools that manage objects: Kustomizations, Applications, HelmReleases and Helm
//! releases.
//!
//! Invariant: a tool is read only if an object shows signs of it. The content of a Secret is never read, only its
//! metadata.
//! Invariant: the agent's own permissions in that cluster are used, because a ServiceAccount that may apply an object
//! may not be allowed to read the other tools.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;

use super::contested::{Found, Keeper, Keepers, Lists, Signs, listed_by_application, listed_by_kustomization, named};
use mainstay_cluster::{Cluster, Error, Kind, LabelSelector, Scope, Selection};
use mainstay_object::failure::chain;
use mainstay_object::{Key, NamespacedName};

/// The namespace of Argo CD in its manifests and in its documentation.
const ARGO_CD: &str = "argocd";

/// Returns the keepers of these objects. Objects without a keeper are omitted. `trusts` returns whether the users of a
/// namespace may claim objects of others.
///
/// # Errors
///
/// The cluster does not respond. A tool that may not be read gives an unknown keeper instead.
pub(super) async fn keepers(
    cluster: &Cluster,
    suspects: &[(&Key, &Signs)],
    trusts: impl Fn(&str) -> bool,
) -> Result<HashMap<Key, Keeper>, Error> {
    if suspects.is_empty() {
        return Ok(HashMap::new());
    }
    let mut keepers = Keepers::default();
    if suspects.iter().any(|(_, signs)| signs.may_be_of_kustomization()) {
        let lists = listed(cluster, "kustomize.toolkit.fluxcd.io", "Kustomization", listed_by_kustomization).await;
        keepers.kustomizations = unless_forbidden(lists)?;
    }
    if suspects.iter().any(|(_, signs)| signs.may_be_of_application()) {
        keepers.applications =
            unless_forbidden(listed(cluster, "argoproj.io", "Application", listed_by_application).await)?;
        if let Found::All(lists) = &keepers.applications {
            let namespaces = lists.values().flatten().map(NamespacedName::namespace);
            let central = namespaces.filter(|namespace| *namespace == ARGO_CD || trusts(namespace));
            keepers.central = central.map(str::to_owned).collect();
        }
    }
    let helm_releases: HashSet<_> = suspects.iter().filter_map(|(_, signs)| signs.helm_release.clone()).collect();
    if !helm_releases.is_empty() {
        keepers.helm_releases = unless_forbidden(existing(cluster, helm_releases).await)?;
    }
    let releases: HashSet<_> = suspects.iter().filter_map(|(_, signs)| signs.release.clone()).collect();
    if !releases.is_empty() {
        keepers.releases = unless_forbidden(released(cluster, releases).await)?;
    }
    Ok(suspects.iter().filter_map(|(key, signs)| Some(((*key).clone(), keepers.of(key, signs)?))).collect())
}

fn unless_forbidden<T>(found: Result<T, Error>) -> Result<Found<T>, Error> {
    match found {
        Ok(found) => Ok(Found::All(found)),
        Err(error) if error.is_forbidden() => Ok(Found::Unknown(chain(&error))),
        Err(error) => Err(error),
    }
}

/// Returns the objects that the objects of a kind list.
async fn listed(cluster: &Cluster, group: &str, kind: &str, lists: fn(&Value) -> Vec<Key>) -> Result<Lists, Error> {
    let mut all = Lists::new();
    let Some(kind) = cluster.preferred_kind(group, kind).await? else { return Ok(all) };
    let mut list = cluster.list(&kind, Selection::default());
    while let Some(object) = list.next().await {
        let object = match object {
            Ok(object) => object,
            // The CRD was deleted in the meantime.
            Err(error) if error.is_not_found() => break,
            Err(error) => return Err(error),
        };
        if let Some(name) = named(&object) {
            for key in lists(&object) {
                all.entry(key).or_default().push(name.clone());
            }
        }
    }
    Ok(all)
}

/// Returns the HelmReleases that exist.
async fn existing(cluster: &Cluster, names: HashSet<NamespacedName>) -> Result<HashSet<NamespacedName>, Error> {
    let mut all = HashSet::new();
    let kind = cluster.preferred_kind("helm.toolkit.fluxcd.io", "HelmRelease").await?;
    for name in kind.iter().flat_map(|_| &names) {
        let Some(kind) = &kind else { break };
        if cluster.get_metadata(kind, Some(name.namespace()), name.name()).await?.is_some() {
            all.insert(name.clone());
        }
    }
    Ok(all)
}

/// Returns the kind and the selection of Helm's records of a release.
pub(super) fn records(release: &NamespacedName) -> (Arc<Kind>, Selection) {
    let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
    let labels = LabelSelector::equals("owner", "helm").and(&LabelSelector::equals("name", release.name()));
    (kind, Selection::by_labels(labels).within(release.namespace()))
}

/// Returns those releases that have a record of Helm.
async fn released(cluster: &Cluster, names: HashSet<NamespacedName>) -> Result<HashSet<NamespacedName>, Error> {
    let mut all = HashSet::new();
    for name in names {
        let (kind, records) = records(&name);
        let mut list = cluster.list_metadata(&kind, records);
        match list.next().await {
            Some(Ok(_)) => drop(all.insert(name)),
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(all)
}
