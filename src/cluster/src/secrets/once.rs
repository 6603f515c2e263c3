//! One look at a Secret or ConfigMap, for commands, which run outside of the agent and need no watch.
//!
//! Invariant: what may not be read is not taken for absent.

use super::state::{Holder, Known, contents_of};
use super::{RepositoryData, ValueSources};
use crate::{Cluster, Kind, Scope};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::{SubstituteSource, SubstituteSourceKind};
use mainstay_object::failure::{Class, chain};

impl RepositoryData {
    /// What the Secrets that a repository names hold now.
    pub async fn read(cluster: &Cluster, namespace: &str, spec: &GitRepositorySpec) -> Self {
        let read = async |name: Option<&str>| match name {
            Some(name) => Some(read(cluster, Holder::Secret, namespace, name).await),
            None => None,
        };
        Self {
            auth: read(spec.auth.as_ref().map(|auth| &*auth.secret_name)).await,
            proxy: read(spec.proxy_secret_ref.as_ref().map(|proxy| &*proxy.name)).await,
            verify: read(spec.verify.as_ref().map(|verify| &*verify.secret_ref.name)).await,
        }
    }
}

impl ValueSources {
    /// What each of these sources holds now.
    pub async fn read(cluster: &Cluster, namespace: &str, sources: &[SubstituteSource]) -> Vec<Known> {
        let mut known = Vec::with_capacity(sources.len());
        for source in sources {
            let holder = match source.kind {
                SubstituteSourceKind::Secret => Holder::Secret,
                SubstituteSourceKind::ConfigMap => Holder::ConfigMap,
            };
            known.push(read(cluster, holder, namespace, &source.name).await);
        }
        known
    }
}

impl Known {
    /// What a Secret holds now.
    pub async fn secret(cluster: &Cluster, namespace: &str, name: &str) -> Self {
        read(cluster, Holder::Secret, namespace, name).await
    }
}

async fn read(cluster: &Cluster, holder: Holder, namespace: &str, name: &str) -> Known {
    let kind = match holder {
        Holder::Secret | Holder::Digests => Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced),
        Holder::ConfigMap => Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced),
    };
    match cluster.get(&kind, Some(namespace), name).await {
        Ok(Some(live)) => Known::Data(contents_of(holder, &live)),
        Ok(None) => Known::Absent,
        // What the agent would need to watch it is not what is missing.
        Err(error) => Known::Unreadable { class: Class::Unavailable, why: chain(&error) },
    }
}
