//! Finds written objects by their resource versions: every write of an object changes its version.

use std::{collections::HashMap, fmt::Debug};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    autoscaling::v2::HorizontalPodAutoscaler,
    batch::v1::Job,
    core::v1::{ConfigMap, Pod, Service},
};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use super::{Error, stand::NAMESPACE};
use crate::api::{FUNCTION_NAME, Function};

/// The version of every object of a Function, by kind and name, with the Function's name.
pub(super) struct Versions(HashMap<(String, String), (String, String)>);

impl Versions {
    /// Reads the present versions.
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        let mut versions = Self(HashMap::new());
        versions.add::<Function>(client).await?;
        versions.add::<ConfigMap>(client).await?;
        versions.add::<Job>(client).await?;
        versions.add::<Pod>(client).await?;
        versions.add::<Deployment>(client).await?;
        versions.add::<ReplicaSet>(client).await?;
        versions.add::<Service>(client).await?;
        versions.add::<HorizontalPodAutoscaler>(client).await?;
        Ok(versions)
    }

    async fn add<K>(&mut self, client: &Client) -> Result<(), Error>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let kind = K::kind(&()).into_owned();
        let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
        let list = api.list_metadata(&ListParams::default()).await.map_err(Error::Ask)?;
        for object in list {
            let function = if kind == "Function" {
                object.name_any()
            } else if let Some(name) = object.labels().get(FUNCTION_NAME) {
                name.clone()
            } else {
                continue;
            };
            let version = object.resource_version().unwrap_or_default();
            self.0.insert((kind.clone(), object.name_any()), (function, version));
        }
        Ok(())
    }

    /// Returns the number of objects of a kind.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.0.keys().filter(|(of, _)| of == kind).count()
    }

    /// Returns the number of objects of a kind that were created since `earlier`.
    pub(super) fn made(&self, kind: &str, earlier: &Self) -> usize {
        self.0.keys().filter(|key| key.0 == kind && !earlier.0.contains_key(*key)).count()
    }

    /// Returns the number of other Functions' objects that were written, created or deleted since `earlier`.
    pub(super) fn written_besides(&self, function: &str, earlier: &Self) -> usize {
        let other = |(owner, _): &&(String, String)| owner != function;
        let changed = self.0.iter().filter(|(key, now)| other(now) && earlier.0.get(*key) != Some(now)).count();
        let gone = earlier.0.iter().filter(|(key, then)| other(then) && !self.0.contains_key(*key)).count();
        changed + gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_writes_to_others_and_what_is_gone() {
        let versions = |rows: &[(&str, &str, &str)]| {
            let row = |(name, owner, version): &(&str, &str, &str)| {
                (("Job".to_owned(), (*name).to_owned()), ((*owner).to_owned(), (*version).to_owned()))
            };
            Versions(rows.iter().map(row).collect())
        };
        let before = versions(&[("a-1", "a", "1"), ("b-1", "b", "2"), ("c-1", "c", "3")]);
        let after = versions(&[("a-1", "a", "9"), ("a-2", "a", "10"), ("b-1", "b", "11")]);
        assert_eq!((after.written_besides("a", &before), before.written_besides("a", &before)), (2, 0));
        assert_eq!((after.count("Job"), after.made("Job", &before)), (3, 1));
    }
}
