//! The remote cluster of a GitSync, for commands that run outside of the agent. A command reads the Secret with the
//! permissions of its user.
//!
//! Invariant: the objects of a GitSync with a remote cluster are never looked up in the GitSync's own cluster.

use std::net::SocketAddr;
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
use mainstay_object::egress::{Egress, EgressPolicy};
use mainstay_object::failure::chain;

/// Returns the context of the remote cluster in the Secret's current kubeconfig; `None` if the objects are in the
/// cluster of the GitSync.
///
/// # Errors
///
/// The Secret may not be read or cannot be used, or the remote cluster does not respond.
pub(super) async fn abroad(context: &Context, sync: &GitSync) -> Result<Option<Arc<Context>>, Refused> {
    let Some((of, by)) = kubeconfig(&context.home, sync).await? else { return Ok(None) };
    let owner = Owner::git_sync(&of.namespace, sync.metadata.name.as_deref().unwrap_or_default());
    let engine = context.engine(&owner, &of, &by).await?;
    Ok(Some(Arc::clone(&engine.context)))
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
    let Some((_, by)) = kubeconfig(home, sync).await? else { return Ok(None) };
    let addresses: Addresses = Arc::new(move |host, port| {
        Box::pin(async move {
            // Connections to remote clusters use no proxy, so the policy needs no names of proxies.
            if let Some(refusal) = EgressPolicy::default().refusal_of_host(egress, &host) {
                return Err(refusal.to_string());
            }
            let found = tokio::net::lookup_host((host.as_str(), port)).await;
            let found = found.map_err(|error| format!("the name {host} is not found ({error})"))?;
            permitted(found.collect(), egress)
        })
    });
    let cluster = Cluster::remote(&by, addresses).await?;
    let (id, own) = (cluster.id().await?, home.id().await?);
    Ok(Some(Abroad { cluster, home: (id != own).then_some(own) }))
}

/// Returns the permitted addresses of a host. The error is the reason why none is permitted.
fn permitted(found: Vec<SocketAddr>, egress: Egress) -> Result<Vec<SocketAddr>, String> {
    let policy = EgressPolicy::default();
    let refusal = |address: &SocketAddr| policy.refusal(egress, address.ip());
    let refused = found.iter().find_map(refusal);
    let permitted: Vec<SocketAddr> = found.into_iter().filter(|address| refusal(address).is_none()).collect();
    match refused {
        Some(refusal) if permitted.is_empty() => Err(refusal.to_string()),
        _ => Ok(permitted),
    }
}

/// A writer for dry runs, whose writes are not followed up.
pub(super) fn unfollowed(cluster: Cluster) -> Begun {
    let writer = Writer::for_dry_runs(cluster, Liveness::default().component("dry runs"));
    Begun { writer, running: Box::new(()), over: CancellationToken::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_object::egress::EgressRefusal;

    #[test]
    fn a_name_with_addresses_of_the_machine_has_only_its_other_addresses() {
        let found = |addresses: &[&str], egress| {
            permitted(addresses.iter().map(|address| address.parse().unwrap()).collect(), egress)
        };
        let (local, far) = ("127.0.0.1:443", "10.0.0.1:443");
        assert_eq!(found(&[local, far], Egress::OffMachine), Ok(vec![far.parse().unwrap()]));
        assert_eq!(found(&[local, "[::1]:443"], Egress::OffMachine), Err(EgressRefusal::Machine.to_string()));
        assert_eq!(found(&[local], Egress::Unrestricted), Ok(vec![local.parse().unwrap()]));
        for egress in [Egress::OffMachine, Egress::Unrestricted] {
            for metadata in ["169.254.169.254:80", "[fe80::1]:80"] {
                assert_eq!(found(&[metadata], egress), Err(EgressRefusal::Metadata.to_string()), "{metadata}");
            }
        }
    }
}
