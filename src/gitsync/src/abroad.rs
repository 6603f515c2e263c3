//! For commands, which run outside of the agent: the cluster that the objects of a GitSync are in, by the rights of whoever may
//! read its Secret.
//!
//! Invariant: what is in another cluster is never looked for in this one.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::clusters::{Begun, SecretKey};
use super::context::Context;
use super::outcome::{Refused, is_usable};
use super::whereabouts::{parsed, plain_http, wrong};
use mainstay_api::GitSync;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::secrets::{Known, Purpose};
use mainstay_cluster::{Addresses, Cluster, Error, Kubeconfig};
use mainstay_engine::apply::Writer;
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// The context of another cluster, as a Secret leads there now; `None`: the objects are in the cluster of the GitSync.
///
/// # Errors
/// The Secret may not be read or cannot be used, or that cluster does not answer.
pub(super) async fn abroad(context: &Context, sync: &GitSync) -> Result<Option<Arc<Context>>, Refused> {
    let Some((of, by)) = kubeconfig(&context.home, sync).await? else { return Ok(None) };
    let owner = Owner::git_sync(&of.namespace, sync.metadata.name.as_deref().unwrap_or_default());
    let engine = context.engine(&owner, &of, &by).await?;
    Ok(Some(Arc::clone(&engine.context)))
}

/// What the Secret of a GitSync holds; `None`: it names none.
async fn kubeconfig(home: &Cluster, sync: &GitSync) -> Result<Option<(SecretKey, Arc<Kubeconfig>)>, Refused> {
    let Some(secret) = sync.spec.kube_config.as_ref().map(|config| &config.secret_ref) else { return Ok(None) };
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let known = Known::secret(home, namespace, &secret.name, Purpose::KubeConfig).await;
    is_usable(&secret.name, "kubeconfig", &known)?;
    let Known::Data(contents) = known else { return Ok(None) };
    // Whoever runs a command may connect to whatever that person can reach.
    let by = parsed(&contents, secret.key.as_deref(), plain_http(true)).map_err(|why| wrong(&secret.name, &why))?;
    let of = SecretKey { namespace: namespace.to_owned(), name: secret.name.clone(), key: secret.key.clone() };
    Ok(Some((of, Arc::new(by))))
}

/// Why another cluster is not looked at, with what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreached(String);

impl From<Refused> for Unreached {
    fn from(refused: Refused) -> Self {
        Self(refused.message)
    }
}

impl From<Error> for Unreached {
    fn from(error: Error) -> Self {
        Self(chain(&error))
    }
}

/// Another cluster, for commands.
#[derive(Clone, Debug)]
pub struct Abroad {
    /// It.
    pub cluster: Cluster,
    /// The cluster that its inventories name as that of their GitSyncs; `None` if it is that one.
    pub(super) home: Option<String>,
}

/// The other cluster that the objects of a GitSync are in; `None`: they are in that of the GitSync.
///
/// # Errors
/// The Secret may not be read or cannot be used, or that cluster does not answer.
pub async fn other_cluster(home: &Cluster, sync: &GitSync) -> Result<Option<Abroad>, Unreached> {
    let Some((_, by)) = kubeconfig(home, sync).await? else { return Ok(None) };
    let addresses: Addresses = Arc::new(|host, port| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            found.map(Iterator::collect).map_err(|error| format!("the name {host} is not found ({error})"))
        })
    });
    let cluster = Cluster::remote(&by, addresses).await?;
    let (id, own) = (cluster.id().await?, home.id().await?);
    Ok(Some(Abroad { cluster, home: (id != own).then_some(own) }))
}

/// A writer whose writes nobody follows up.
pub(super) fn unfollowed(cluster: Cluster) -> Begun {
    let writer = Writer::for_dry_runs(cluster, Liveness::default().component("dry runs"));
    Begun { writer, running: Box::new(()), over: CancellationToken::new() }
}
