//! Installs the CRDs, a GitRepository and a GitSync in the embedded cluster.

use std::net::SocketAddr;

use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use super::{FollowedRepository, NAMESPACE};
use crate::{
    agent::Admit,
    cli::{Error, connection::own_kind},
};
use mainstay_api::{GitRepository, GitRepositorySpec, GitSync, GitSyncSpec, names};
use mainstay_cluster::{Apply, Cluster, Kind};

const WEBHOOKS: &str = include_str!("../../../../manifests/webhooks.yaml");

/// Sets every version of a CRD to served. The embedded cluster converts objects itself, so the address of the
/// conversion webhook is not used.
fn serve_all(definition: &mut Value) {
    for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["served"] = true.into();
    }
    let client = serde_json::json!({"url": "https://127.0.0.1/convert"});
    let webhook = serde_json::json!({"conversionReviewVersions": ["v1"], "clientConfig": client});
    definition["spec"]["conversion"] = serde_json::json!({"strategy": "Webhook", "webhook": webhook});
}

/// Applies the CRDs and the two objects. With `newer`, Functions are also served in v1alpha2.
pub(super) async fn install(
    cluster: &Cluster,
    followed: &FollowedRepository,
    reference: &str,
    newer: bool,
) -> Result<(), Error> {
    let definition = cluster.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").await?;
    let definition = definition.ok_or_else(|| Error::UnknownKind("CustomResourceDefinition".into()))?;
    let definitions = [devcluster::gateway::DEFINITIONS, devcluster::service_catalog::DEFINITIONS];
    for document in definitions.into_iter().flat_map(serde_yaml::Deserializer::from_str) {
        let wanted = Value::deserialize(document).map_err(Error::WriteYaml)?;
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
        apply(cluster, &definition, None, name, &wanted).await?;
    }
    for document in serde_yaml::Deserializer::from_str(mainstay_eventing::DEFINITIONS) {
        let wanted = Value::deserialize(document).map_err(Error::WriteYaml)?;
        let name = wanted["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        apply(cluster, &definition, None, &name, &wanted).await?;
    }
    for wanted in mainstay_api::definitions().into_iter().chain([mainstay_api::api_rule::definition()]) {
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let mut wanted =
            serde_json::to_value(&wanted).map_err(|cause| Error::Understand { what: name.clone(), cause })?;
        if newer && name == names::FUNCTION_DEFINITION {
            serve_all(&mut wanted);
        }
        apply(cluster, &definition, None, &name, &wanted).await?;
    }
    cluster.kinds_changed();
    let mut repository = GitRepository::new(
        &followed.name,
        GitRepositorySpec { url: followed.url.clone(), ..GitRepositorySpec::default() },
    );
    // The branch may contain a GitRepository with this name for other clusters. In this cluster, the GitRepository must
    // keep the URL of the local copy.
    repository.metadata.annotations = Some([(names::RECONCILE.to_owned(), names::DISABLED.to_owned())].into());
    let kind = own_kind::<GitRepository>(cluster).await?;
    apply(cluster, &kind, Some(NAMESPACE), &followed.name, &repository).await?;
    let spec = serde_json::json!({
        "gitRepository": followed.name, "reference": reference, "baseDir": followed.base_dir
    });
    let what = || format!("GitSync {}", followed.name);
    let spec: GitSyncSpec = serde_json::from_value(spec).map_err(|cause| Error::Understand { what: what(), cause })?;
    let kind = own_kind::<GitSync>(cluster).await?;
    apply(cluster, &kind, Some(NAMESPACE), &followed.name, &GitSync::new(&followed.name, spec)).await
}

/// Registers the agent's webhooks.
pub(super) async fn webhooks(cluster: &Cluster, admit: &Admit) -> Result<(), Error> {
    let Some(address) = admit.address() else { return Ok(()) };
    for object in webhooks_at(address)? {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let found = cluster.kind("admissionregistration.k8s.io/v1", &kind).await?;
        let kind = found.ok_or(Error::UnknownKind(kind))?;
        apply(cluster, &kind, None, names::ADMISSION, &object).await?;
    }
    Ok(())
}

/// Returns the webhook configurations of `manifests/` with a URL instead of a Service, for a process outside of the
/// cluster.
pub(in crate::cli) fn webhooks_at(address: SocketAddr) -> Result<Vec<Value>, Error> {
    let mut configurations = Vec::new();
    for document in serde_yaml::Deserializer::from_str(WEBHOOKS) {
        let mut object = Value::deserialize(document).map_err(Error::WriteYaml)?;
        let Some(webhooks) = object["webhooks"].as_array_mut() else { continue };
        for webhook in webhooks {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            webhook["clientConfig"] = serde_json::json!({"url": format!("https://{address}{path}")});
        }
        configurations.push(object);
    }
    Ok(configurations)
}

async fn apply(
    cluster: &Cluster,
    kind: &Kind,
    namespace: Option<&str>,
    name: &str,
    object: &impl Serialize,
) -> Result<(), Error> {
    let mut body = serde_json::to_value(object)
        .map_err(|cause| Error::Understand { what: format!("{} {name}", kind.kind), cause })?;
    if let (Some(namespace), Some(metadata)) = (namespace, body["metadata"].as_object_mut()) {
        metadata.insert("namespace".into(), Value::from(namespace));
    }
    cluster.apply(kind, namespace, name, &body, Apply::forced(names::DEV_MANAGER)).await?;
    Ok(())
}
