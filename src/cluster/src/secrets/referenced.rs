//! Lists the Secrets that the objects of a namespace reference, for commands that run outside of the agent.
//!
//! Invariant: the list is complete, or there is none, because each unknown object may exclude the use of a Secret.
//!
//! Not here: the register of the agent, which follows these objects (`register`).

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::purpose::{Purpose, Purposes};
use super::references::SecretReferences;
use super::register::Referrer;
use crate::{Cluster, Error, Selection};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::GitSyncSpec;
use mainstay_api::receiver::ReceiverSpec;
use mainstay_api::{
    Function, FunctionSpec, GitRepository, GitSync, HelmChart, HelmChartSpec, ImageRepository, ImageRepositorySpec,
    ImageUpdateAutomation, ImageUpdateAutomationSpec, OciRepository, OciRepositorySpec, Provider, ProviderSpec,
    Receiver,
};
use mainstay_object::failure::chain;

/// Maximum number of objects of a kind.
const OBJECTS: usize = 20_000;

/// The Secrets that the objects of a namespace reference.
#[derive(Debug, Default)]
pub struct ReferencedSecrets {
    purposes: BTreeMap<String, Purposes>,
    repositories: Vec<GitRepositorySpec>,
}

impl ReferencedSecrets {
    /// Lists the references of a namespace with the permissions of this connection.
    ///
    /// # Errors
    /// A kind cannot be listed, has too many objects, or has an object that cannot be read. The text is a sentence
    /// without its end.
    pub async fn list(cluster: &Cluster, namespace: &str) -> Result<Self, String> {
        let (mut listed, here) = (Self::default(), (cluster, namespace));
        for referrer in Referrer::ALL {
            let named = match referrer {
                Referrer::GitRepository => {
                    let keep = |spec: GitRepositorySpec| listed.repositories.push(spec);
                    references::<GitRepository, GitRepositorySpec>(here, referrer, keep).await
                }
                Referrer::GitSync => references::<GitSync, GitSyncSpec>(here, referrer, drop).await,
                Referrer::Receiver => references::<Receiver, ReceiverSpec>(here, referrer, drop).await,
                Referrer::Provider => references::<Provider, ProviderSpec>(here, referrer, drop).await,
                Referrer::OciRepository => references::<OciRepository, OciRepositorySpec>(here, referrer, drop).await,
                Referrer::HelmChart => references::<HelmChart, HelmChartSpec>(here, referrer, drop).await,
                Referrer::ImageRepository => {
                    references::<ImageRepository, ImageRepositorySpec>(here, referrer, drop).await
                }
                Referrer::ImageUpdateAutomation => {
                    references::<ImageUpdateAutomation, ImageUpdateAutomationSpec>(here, referrer, drop).await
                }
                Referrer::Function => references::<Function, FunctionSpec>(here, referrer, drop).await,
            };
            for (secret, purpose) in named? {
                listed.purposes.entry(secret).or_default().insert(purpose);
            }
        }
        Ok(listed)
    }

    /// Returns the purposes of each referenced Secret.
    pub fn purposes(&self) -> &BTreeMap<String, Purposes> {
        &self.purposes
    }

    /// Returns the GitRepositories of the namespace.
    pub fn repositories(&self) -> &[GitRepositorySpec] {
        &self.repositories
    }
}

/// Lists the objects of a kind, and returns their references. `keep` receives each spec. A cluster without the kind has
/// no references.
async fn references<K, S>(
    (cluster, namespace): (&Cluster, &str),
    referrer: Referrer,
    mut keep: impl FnMut(S) + Send,
) -> Result<Vec<(String, Purpose)>, String>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    S: DeserializeOwned + SecretReferences + Send,
{
    let failed = move |error: Error| format!("{} cannot be listed: {}", referrer.plural(), chain(&error));
    let kind = cluster.kind(&K::api_version(&()), &K::kind(&())).await.map_err(failed)?;
    let Some(kind) = kind else { return Ok(Vec::new()) };
    let mut objects = cluster.list(&kind, Selection::default().within(namespace));
    let (mut named, mut count) = (Vec::new(), 0_usize);
    while let Some(object) = objects.try_next().await.map_err(failed)? {
        count += 1;
        if count > OBJECTS {
            return Err(format!("there are more than {OBJECTS} {}", referrer.plural()));
        }
        let spec = spec_of::<S>(object).map_err(|name| format!("{} {name} cannot be read", referrer.singular()))?;
        named.extend(spec.secret_references());
        keep(spec);
    }
    Ok(named)
}

/// Parses the spec of an object. Fails with the name of the object.
fn spec_of<S: DeserializeOwned>(mut object: Value) -> Result<S, String> {
    let spec = object.get_mut("spec").map(Value::take).unwrap_or_default();
    serde_json::from_value(spec).map_err(|_| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_spec_that_cannot_be_parsed_names_its_object() {
        let of = |spec: Value| spec_of::<GitSyncSpec>(json!({"metadata": {"name": "far"}, "spec": spec}));
        assert_eq!(of(json!({"kubeConfig": 1})).unwrap_err(), "far");
        assert_eq!(spec_of::<GitRepositorySpec>(json!({"metadata": {"name": "a"}})).unwrap_err(), "a");
    }
}
