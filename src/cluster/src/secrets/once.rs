//! Reads a Secret or ConfigMap once, for commands that run outside of the agent.
//!
//! Invariant: a Secret that may not be read does not count as absent.

use super::purpose::{Purpose, Purposes, by_name};
use serde_json::Value;

use super::state::{Holder, Known, contents_of};
use super::{RepositoryData, ValueSources};
use crate::{Cluster, Kind, Scope};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::{SubstituteSource, SubstituteSourceKind};
use mainstay_api::names::{DEFAULT_REGISTRY_SECRET, EXTERNAL_REGISTRY_SECRET};
use mainstay_object::failure::{Class, chain};

/// The default names of Secrets with registry credentials.
const DEFAULT_NAMES: [&str; 2] = [DEFAULT_REGISTRY_SECRET, EXTERNAL_REGISTRY_SECRET];

impl RepositoryData {
    /// Reads the Secrets of a repository.
    pub async fn read(cluster: &Cluster, namespace: &str, spec: &GitRepositorySpec) -> Self {
        let read = async |name: Option<&str>, used_for| match name {
            Some(name) => Some(Known::secret(cluster, namespace, name, used_for).await),
            None => None,
        };
        Self {
            auth: read(spec.auth.as_ref().map(|auth| &*auth.secret_name), Purpose::Repository).await,
            proxy: read(spec.proxy_secret_ref.as_ref().map(|proxy| &*proxy.name), Purpose::Proxy).await,
            verify: read(spec.verify.as_ref().map(|verify| &*verify.secret_ref.name), Purpose::SignatureKeys).await,
        }
    }
}

impl ValueSources {
    /// Reads the sources of values.
    pub async fn read(cluster: &Cluster, namespace: &str, sources: &[SubstituteSource]) -> Vec<Known> {
        let mut known = Vec::with_capacity(sources.len());
        for source in sources {
            known.push(match source.kind {
                SubstituteSourceKind::Secret => Known::secret(cluster, namespace, &source.name, Purpose::Values).await,
                SubstituteSourceKind::ConfigMap => read(cluster, Holder::ConfigMap, namespace, &source.name).await,
            });
        }
        known
    }
}

impl Known {
    /// Reads a Secret and checks its use like [`of`](Self::of).
    pub async fn secret(cluster: &Cluster, namespace: &str, name: &str, used_for: Purpose) -> Self {
        read(cluster, Holder::Secret, namespace, name).await.for_use(used_for, Ok(stated(name)))
    }

    /// Returns the content of a Secret if its name and its metadata permit this use. References from other objects are
    /// not checked.
    pub fn of(secret: &Value, used_for: Purpose) -> Self {
        let name = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        Self::Data(contents_of(Holder::Secret, secret)).for_use(used_for, Ok(stated(name)))
    }
}

/// Returns the purposes that a Secret has because of its name.
fn stated(name: &str) -> Purposes {
    by_name(name).into_iter().chain(DEFAULT_NAMES.contains(&name).then_some(Purpose::ImageRegistry)).collect()
}

async fn read(cluster: &Cluster, holder: Holder, namespace: &str, name: &str) -> Known {
    let kind = match holder {
        Holder::Secret | Holder::Digests => Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced),
        Holder::ConfigMap => Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced),
    };
    match cluster.get(&kind, Some(namespace), name).await {
        Ok(Some(live)) => Known::Data(contents_of(holder, &live)),
        Ok(None) => Known::Absent,
        // The error does not mention the permissions for a watch, because a single read does not need them.
        Err(error) => Known::Unreadable { class: Class::Unavailable, why: chain(&error) },
    }
}
