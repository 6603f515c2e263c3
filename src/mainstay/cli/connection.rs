//! The cluster and the namespace of a command.

use std::{path::PathBuf, sync::Arc};

use super::Error;
use mainstay_cluster::{Cluster, Kind, Origin, Selection};

/// Where `mainstay install` puts the agent unless told otherwise.
pub(super) const DEFAULT_NAMESPACE: &str = "mainstay-system";

/// Flags of every command that talks to a cluster.
#[derive(clap::Args, Debug)]
pub(super) struct Connection {
    /// Kubeconfig of the cluster; by default the pod's service account, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace; by default the one of the kubeconfig or the pod
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
}

/// Flags of every command that can look at all namespaces.
#[derive(clap::Args, Debug)]
pub(super) struct WideConnection {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    pub(super) all_namespaces: bool,
}

impl WideConnection {
    /// The GitSync of this name, or all of the namespace or the cluster.
    pub(super) fn selection(&self, cluster: &Cluster, name: Option<&str>) -> Selection {
        if self.all_namespaces {
            return Selection::default();
        }
        let namespace = self.connection.namespace(cluster);
        match name {
            Some(name) => Selection::named(Some(&namespace), name),
            None => Selection::default().within(&namespace),
        }
    }
}

/// Flags of every command about the installed agent itself.
#[derive(clap::Args, Debug)]
pub(super) struct HomeConnection {
    /// Kubeconfig of the cluster; by default the pod's service account, else $KUBECONFIG, else ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the agent, as for `mainstay install`
    #[arg(short, long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    pub(super) namespace: String,
}

impl HomeConnection {
    /// Reads the configuration; sends no request yet.
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        connect(self.kubeconfig.as_ref()).await
    }
}

async fn connect(kubeconfig: Option<&PathBuf>) -> Result<Cluster, Error> {
    let origin = match kubeconfig {
        Some(path) => Origin::Kubeconfig { path: Some(path.clone()), context: None },
        None => Origin::Either,
    };
    Ok(Cluster::from_origin(&origin).await?)
}

impl Connection {
    /// Reads the configuration; sends no request yet.
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        connect(self.kubeconfig.as_ref()).await
    }

    /// The namespace of the flag.
    pub(super) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The namespace of a command that needs no cluster: `default` where there is no kubeconfig.
    pub(super) async fn namespace_without_cluster(&self) -> Result<String, Error> {
        let is_named = self.kubeconfig.is_some() || std::env::var_os("KUBECONFIG").is_some_and(|path| !path.is_empty());
        match (&self.namespace, self.connect().await) {
            (Some(namespace), _) => Ok(namespace.clone()),
            (None, Ok(cluster)) => Ok(cluster.default_namespace()),
            (None, Err(error)) if is_named => Err(error),
            (None, Err(_)) => Ok("default".to_owned()),
        }
    }

    /// The namespace of the command.
    pub(super) fn namespace(&self, cluster: &Cluster) -> String {
        self.namespace.clone().unwrap_or_else(|| cluster.default_namespace())
    }
}

/// The served kind of one of Mainstay's resources.
pub(super) async fn own_kind<R>(cluster: &Cluster) -> Result<Arc<Kind>, Error>
where
    R: kube::Resource<DynamicType = ()>,
{
    let (api_version, kind) = (R::api_version(&()), R::kind(&()));
    cluster.kind(&api_version, &kind).await?.ok_or(Error::NotInstalled { kind: kind.into_owned() })
}
