//! The remote cluster of a GitSync, for commands that run outside of the agent. A command reads the Secret with the
//! permissions of its user.
//!
//! Invariant: the objects of a GitSync with a remote cluster are never looked up in the GitSync's own cluster.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::clusters::{Begun, SecretKey, unreached};
use super::context::Context;
use super::outcome::{Refused, is_usable};
use super::whereabouts::{parsed, plain_http, wrong};
use mainstay_api::GitSync;
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::secrets::{Known, Purpose};
use mainstay_cluster::{AllowedAddresses, Cluster, Error, Kubeconfig};
use mainstay_engine::apply::Writer;
use mainstay_object::Owner;
use mainstay_object::egress::Egress;
use mainstay_object::failure::chain;

/// Returns the context of the remote cluster in the Secret's current kubeconfig; `None` if the objects are in the
/// cluster of the GitSync. `egress` are the addresses that may be connected to.
///
/// # Errors
///
/// The Secret may not be read or cannot be used, its server is refused, or the remote cluster does not respond. The
/// message names the GitSync, because a command may read several.
pub(super) async fn abroad(context: &Context, sync: &GitSync, egress: Egress) -> Result<Option<Arc<Context>>, Refused> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let owner = Owner::git_sync(&text(&sync.metadata.namespace), &text(&sync.metadata.name));
    let found = async {
        let Some((of, by)) = kubeconfig(&context.home, sync).await? else { return Ok(None) };
        let engine = context.engine(&owner, &of, &by, AllowedAddresses::of_system(egress)).await?;
        Ok::<_, Refused>(Some(Arc::clone(&engine.context)))
    };
    found
        .await
        .map_err(|refused| Refused { message: format!("GitSync {}: {}", owner.resource(), refused.message), ..refused })
}

/// Returns the kubeconfig in the Secret of a GitSync; `None` if the GitSync references no Secret.
async fn kubeconfig(home: &Cluster, sync: &GitSync) -> Result<Option<(SecretKey, Arc<Kubeconfig>)>, Refused> {
    let Some(secret) = sync.spec.kube_config.as_ref().map(|config| &config.secret_ref) else { return Ok(None) };
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let known = Known::secret(home, namespace, &secret.name, Purpose::KubeConfig).await;
    is_usable(&secret.name, "kubeconfig", &known)?;
    let Known::Data(contents) = known else { return Ok(None) };
    // Servers without TLS are permitted, also those on this machine. The caller decides which addresses are connected to.
    let by = parsed(&contents, secret.key.as_deref(), plain_http(true)).map_err(|why| wrong(&secret.name, &why))?;
    let of = SecretKey { namespace: namespace.to_owned(), name: secret.name.clone(), key: secret.key.clone() };
    Ok(Some((of, Arc::new(by))))
}

/// The reason why a remote cluster cannot be read, with the remedy.
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

/// A remote cluster, for commands.
#[derive(Clone, Debug)]
pub struct Abroad {
    /// The client of the remote cluster.
    pub cluster: Cluster,
    /// Id of the cluster of the GitSyncs, as inventories record it; `None` if the remote cluster is the same cluster.
    pub(super) home: Option<String>,
}

/// Returns the remote cluster of a GitSync; `None` if its objects are in the cluster of the GitSync. `egress` are the
/// addresses that may be connected to.
///
/// # Errors
///
/// The Secret may not be read or cannot be used, its server is refused, or the remote cluster does not respond.
pub async fn other_cluster(home: &Cluster, sync: &GitSync, egress: Egress) -> Result<Option<Abroad>, Unreached> {
    let Some((of, by)) = kubeconfig(home, sync).await? else { return Ok(None) };
    let refused = |error: Error| unreached(&of, &error);
    let cluster = Cluster::remote(&by, AllowedAddresses::of_system(egress)).await.map_err(refused)?;
    let (id, own) = (cluster.id().await.map_err(refused)?, home.id().await?);
    Ok(Some(Abroad { cluster, home: (id != own).then_some(own) }))
}

/// A writer for dry runs, whose writes are not followed up.
pub(super) fn unfollowed(cluster: Cluster) -> Begun {
    let writer = Writer::for_dry_runs(cluster, Liveness::default().component("dry runs"));
    Begun { writer, running: Box::new(()), over: CancellationToken::new() }
}
