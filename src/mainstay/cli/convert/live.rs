//! The objects of Flux or Argo CD in a cluster.

use futures::TryStreamExt as _;
use serde_json::Value;

use super::super::Error;
use super::document::Document;
use super::sequence::PARENT;
use mainstay_cluster::{Cluster, Selection};

/// The kinds that are read; kinds that the cluster does not serve are skipped.
const KINDS: [(&str, &str); 17] = [
    ("argoproj.io/v1alpha1", "AppProject"),
    ("argoproj.io/v1alpha1", "Application"),
    ("argoproj.io/v1alpha1", "ApplicationSet"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
    ("image.toolkit.fluxcd.io/v1", "ImagePolicy"),
    ("image.toolkit.fluxcd.io/v1", "ImageRepository"),
    ("image.toolkit.fluxcd.io/v1", "ImageUpdateAutomation"),
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
    ("notification.toolkit.fluxcd.io/v1", "Receiver"),
    ("notification.toolkit.fluxcd.io/v1beta3", "Alert"),
    ("notification.toolkit.fluxcd.io/v1beta3", "Provider"),
    ("source.toolkit.fluxcd.io/v1", "Bucket"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository"),
    ("source.toolkit.fluxcd.io/v1", "HelmChart"),
    ("source.toolkit.fluxcd.io/v1", "HelmRepository"),
    ("source.toolkit.fluxcd.io/v1", "OCIRepository"),
    ("source.toolkit.fluxcd.io/v1", "ExternalArtifact"),
];

/// Reads the objects of a group in all namespaces. Objects that another object created are excluded.
pub(super) async fn read(cluster: &Cluster, group: &str) -> Result<Vec<Document>, Error> {
    let mut documents = Vec::new();
    for (version, kind) in
        KINDS.iter().filter(|(version, _)| version.split('/').next().is_some_and(|own| own.ends_with(group)))
    {
        let Some(kind) = cluster.kind(version, kind).await? else { continue };
        let objects: Vec<Value> = cluster.list(&kind, Selection::default()).try_collect().await?;
        let is_made =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
        documents.extend(objects.into_iter().filter(|object| !is_made(object)).map(Document::of));
    }
    // HelmCharts of HelmReleases are excluded as well. They have labels instead of owner references.
    documents.retain(|document| document.kind() != "HelmChart" || !document.field(PARENT).is_empty());
    Ok(documents)
}
