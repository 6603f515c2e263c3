//! One look at a Secret or ConfigMap, for commands, which run outside of the agent and need no watch.
//!
//! Invariant: what may not be read is not taken for absent.

use super::purpose::{Purpose, Purposes, by_name};
use serde_json::Value;

use super::state::{Holder, Known, contents_of};
use super::{RepositoryData, ValueSources};
use crate::{Cluster, Kind, Scope};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::git_sync::{SubstituteSource, SubstituteSourceKind};
use mainstay_api::names::{DEFAULT_REGISTRY_SECRET, EXTERNAL_REGISTRY_SECRET};
use mainstay_object::failure::{Class, chain};

/// The names of the Secrets with registry credentials, unless an operator chose others.
const DEFAULT_NAMES: [&str; 2] = [DEFAULT_REGISTRY_SECRET, EXTERNAL_REGISTRY_SECRET];

impl RepositoryData {
    /// Reads the Secrets that a repository names.
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
    /// Reads each of these sources.
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
    /// Reads a Secret, as [`of`](Self::of) does.
    pub async fn secret(cluster: &Cluster, namespace: &str, name: &str, used_for: Purpose) -> Self {
        read(cluster, Holder::Secret, namespace, name).await.for_use(used_for, Ok(stated(name)))
    }

    /// Returns the contents of a Secret, if its name and its metadata permit this use. Other objects that name it do not count.
    pub fn of(secret: &Value, used_for: Purpose) -> Self {
        let name = secret.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        Self::Data(contents_of(Holder::Secret, secret)).for_use(used_for, Ok(stated(name)))
    }
}

/// The purposes that the name of a Secret gives it.
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
        // The label for the agent's watch is not needed here.
        Err(error) => Known::Unreadable { class: Class::Unavailable, why: chain(&error) },
    }
}
