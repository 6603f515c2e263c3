//! The cluster and the namespace of a command.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{Error, dev_run::DevRun};
use mainstay_api::Span;
use mainstay_cluster::{Cluster, Kind, Origin, Selection};

/// Default namespace of `mainstay install`.
pub(super) const DEFAULT_NAMESPACE: &str = "mainstay-system";
/// Heading of the flags that select a cluster in the help of commands.
pub(super) const HEADING: &str = "Cluster";

/// Flags that choose the cluster and the user, as kubectl has them. They may stand before the command, too.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct ClusterArguments {
    /// Kubeconfig file; by default $KUBECONFIG, else ~/.kube/config, else the pod's service account
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default the current one
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig; by default that of the context
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig; by default that of the context
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, help_heading = HEADING, value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate, with --as; may be repeated
    #[arg(long = "as-group", global = true, help_heading = HEADING, value_name = "GROUP", requires = "impersonate")]
    impersonate_groups: Vec<String>,
    /// Timeout of one request, such as 5s; with 0, the default, only the API server's own timeout applies
    #[arg(long, global = true, help_heading = HEADING, value_name = "DURATION", value_parser = timeout)]
    request_timeout: Option<Duration>,
}

/// Parses a duration such as `5s`, or a number of seconds. Zero means no timeout.
fn timeout(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    text.parse::<Span>().map(|span| span.0).map_err(|error| error.to_string())
}

impl ClusterArguments {
    /// Returns the origin of the configuration that the flags select.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            request_timeout: self.request_timeout.filter(|timeout| !timeout.is_zero()),
        }
    }

    /// Reads the configuration. This sends no request yet.
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        Ok(Cluster::from_origin(&self.origin()).await?)
    }
}

/// Flags of every command that talks to a cluster.
#[derive(clap::Args, Debug)]
pub(super) struct Connection {
    /// Namespace; by default that of the kubeconfig or the pod
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Flags of every command that can look at all namespaces.
#[derive(clap::Args, Debug)]
pub(super) struct WideConnection {
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    pub(super) all_namespaces: bool,
    #[command(flatten)]
    pub(super) connection: Connection,
}

impl WideConnection {
    /// Returns the selection of one GitSync by name, or of all in the namespace or the cluster.
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
    /// Namespace of the agent, as for `mainstay install`
    #[arg(short, long, value_name = "NS", default_value = DEFAULT_NAMESPACE)]
    pub(super) namespace: String,
    #[command(flatten)]
    cluster: ClusterArguments,
}

impl HomeConnection {
    /// Reads the configuration. This sends no request yet.
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        self.cluster.connect().await
    }
}

impl Connection {
    /// Reads the configuration. This sends no request yet.
    pub(super) async fn connect(&self) -> Result<Cluster, Error> {
        self.cluster.connect().await
    }

    /// Returns the `mainstay dev` that wrote the kubeconfig, if any.
    pub(super) fn dev_run(&self) -> DevRun {
        DevRun::of(&self.cluster.origin())
    }

    /// Returns the name of the kubeconfig's context, if there is one.
    pub(super) fn context_name(&self) -> Option<String> {
        self.cluster.origin().context_name()
    }

    /// Returns the namespace in the flag, if given.
    pub(super) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the namespace of a command that needs no cluster: that of the flag or of the kubeconfig, or `default`
    /// without a usable kubeconfig.
    pub(super) async fn namespace_without_cluster(&self) -> Result<String, Error> {
        if let Some(namespace) = &self.namespace {
            return Ok(namespace.clone());
        }
        let origin = self.cluster.origin();
        match origin.default_namespace().await {
            Err(error) if origin.names_cluster() => Err(error.into()),
            found => Ok(found.unwrap_or_else(|_| "default".to_owned())),
        }
    }

    /// Returns the namespace of the command.
    pub(super) fn namespace(&self, cluster: &Cluster) -> String {
        self.namespace.clone().unwrap_or_else(|| cluster.default_namespace())
    }
}

/// Returns the kind of one of Mainstay's resources, as the cluster serves it.
pub(super) async fn own_kind<R>(cluster: &Cluster) -> Result<Arc<Kind>, Error>
where
    R: kube::Resource<DynamicType = ()>,
{
    let (api_version, kind) = (R::api_version(&()), R::kind(&()));
    cluster.kind(&api_version, &kind).await?.ok_or(Error::NotInstalled { kind: kind.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_timeouts_that_kubectl_reads() {
        for (text, expected) in [("0", 0), ("0s", 0), ("5", 5), ("5s", 5), ("1m30s", 90)] {
            assert_eq!(timeout(text), Ok(Duration::from_secs(expected)), "{text}");
        }
        for text in ["", "-1s", "soon", "5 s"] {
            assert!(timeout(text).is_err(), "{text}");
        }
    }
}
