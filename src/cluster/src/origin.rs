//! Finds the configuration of a cluster: kubeconfigs and flags as for kubectl, or the ServiceAccount of the pod.
//!
//! Invariant: the order is that of kubectl: the file in the flag, `$KUBECONFIG`, `~/.kube/config`, the ServiceAccount
//! of the pod. If a file that is set explicitly cannot be used, the result is an error, not a fallback.
//! Invariant: only this module reads the agent's own kubeconfig and the environment variables that point to it.
//!
//! Not here: the clients of a configuration (`connect`).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::Value;

use super::connect::{Cluster, ProxySettings};
use super::error::{Attempt, Cause, Error, Target};

/// The flags that select a cluster and a user. By default, none is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The path of the kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The context that replaces the current one.
    pub context: Option<String>,
    /// The cluster that replaces that of the context.
    pub cluster: Option<String>,
    /// The user that replaces that of the context.
    pub user: Option<String>,
    /// The impersonated user.
    pub impersonate: Option<String>,
    /// The impersonated groups.
    pub impersonate_groups: Vec<String>,
    /// Timeout of a request other than a watch; the default is that of API servers.
    pub request_timeout: Option<Duration>,
}

/// The source of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Kubeconfigs. Earlier ones take precedence.
    Files(Vec<PathBuf>),
    /// The ServiceAccount of the pod.
    Pod,
}

/// The relevant environment variables.
#[derive(Clone, Debug, Default)]
struct Environment {
    /// The paths in `$KUBECONFIG`.
    kubeconfig: Vec<PathBuf>,
    /// `~/.kube/config`.
    home: Option<PathBuf>,
    is_pod: bool,
}

impl Environment {
    fn read() -> Self {
        let paths = |text: &OsStr| std::env::split_paths(text).filter(|path| !path.as_os_str().is_empty()).collect();
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG").map(|text| paths(&text)).unwrap_or_default(),
            home: std::env::home_dir().map(|home| home.join(".kube").join("config")),
            is_pod: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

impl Origin {
    /// Returns the origin for the current context of a kubeconfig.
    pub fn of_file(path: &Path) -> Self {
        Self { kubeconfig: Some(path.to_owned()), ..Self::default() }
    }

    /// Whether a flag selects a cluster or a user.
    pub fn names_cluster(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || self.cluster.is_some() || self.user.is_some()
    }

    /// Returns the namespace of the context or of the pod, else `default`. Runs no program and sends no request.
    pub async fn default_namespace(&self) -> Result<String, Error> {
        Ok(self.config().await?.default_namespace)
    }

    /// Returns an extension of the context, which other programs ignore; `None` if it is missing or cannot be read.
    pub fn extension(&self, name: &str) -> Option<Value> {
        let Place::Files(paths) = place(self, &Environment::read(), Path::exists) else { return None };
        let all = read(&paths).ok()?;
        let chosen = self.context.clone().or(all.current_context)?;
        let context = all.contexts.into_iter().find(|context| context.name == chosen)?.context?;
        let extensions = context.extensions.unwrap_or_default();
        extensions.into_iter().find(|extension| extension.name == name).map(|extension| extension.extension)
    }

    /// Returns the name of the context; `None` without a readable kubeconfig. Runs no program and sends no request.
    pub fn context_name(&self) -> Option<String> {
        let Place::Files(paths) = place(self, &Environment::read(), Path::exists) else { return None };
        if self.context.is_some() {
            return self.context.clone();
        }
        read(&paths).ok()?.current_context
    }

    pub(super) async fn config(&self) -> Result<Config, Error> {
        let mut config = match place(self, &Environment::read(), Path::exists) {
            Place::Pod => in_cluster(&ProxySettings::from_environment())?,
            Place::Files(paths) => {
                let options = KubeConfigOptions {
                    context: self.context.clone(),
                    cluster: self.cluster.clone(),
                    user: self.user.clone(),
                };
                let read = read(&paths).map_err(unusable)?;
                Config::from_custom_kubeconfig(read, &options).await.map_err(unusable)?
            }
        };
        if let Some(user) = &self.impersonate {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        Ok(config)
    }
}

impl Cluster {
    /// Reads the configuration and creates the clients. Sends no request.
    pub async fn from_origin(origin: &Origin) -> Result<Self, Error> {
        Self::within(origin.config().await?, origin.request_timeout)
    }
}

/// Selects the source of the configuration.
fn place(origin: &Origin, environment: &Environment, is_there: impl Fn(&Path) -> bool) -> Place {
    if let Some(path) = &origin.kubeconfig {
        return Place::Files(vec![path.clone()]);
    }
    // If there are several files, some of them may be missing.
    match &environment.kubeconfig[..] {
        [] => {}
        [one] => return Place::Files(vec![one.clone()]),
        [first, ..] => {
            let there: Vec<_> = environment.kubeconfig.iter().filter(|path| is_there(path)).cloned().collect();
            return Place::Files(if there.is_empty() { vec![first.clone()] } else { there });
        }
    }
    let home = environment.home.clone();
    if environment.is_pod && !origin.names_cluster() && !home.as_deref().is_some_and(is_there) {
        return Place::Pod;
    }
    Place::Files(home.into_iter().collect())
}

fn read(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    let [first, others @ ..] = paths else { return Err(KubeconfigError::FindPath) };
    let read = Kubeconfig::read_from(first)?;
    others.iter().try_fold(read, |read, path| read.merge(Kubeconfig::read_from(path)?))
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(Attempt::Connect, Target::Cluster, Cause::Configuration(Box::new(error)))
}

/// Adds the proxy to the configuration of a pod. The client library reads proxy variables only for kubeconfigs.
fn in_cluster(proxy: &ProxySettings) -> Result<Config, Error> {
    let mut config = Config::incluster().map_err(unusable)?;
    let host = config.cluster_url.host().unwrap_or_default().to_owned();
    config.proxy_url = proxy.proxy_of(&host).map(|url| url.parse::<Uri>().map_err(unusable)).transpose()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[&str], kubeconfig: &[&str], is_pod: bool, missing: &[&str], expected: Option<&[&str]>) {
        let mut origin = Origin::default();
        for flag in flags {
            match flag.split_once('=') {
                Some(("kubeconfig", path)) => origin.kubeconfig = Some(path.into()),
                Some(("context", name)) => origin.context = Some(name.to_owned()),
                Some(("as", name)) => origin.impersonate = Some(name.to_owned()),
                _ => panic!("{flag}"),
            }
        }
        let kubeconfig = kubeconfig.iter().map(PathBuf::from).collect();
        let environment = Environment { kubeconfig, home: Some("home".into()), is_pod };
        let found = place(&origin, &environment, |path| !missing.iter().any(|name| path == Path::new(name)));
        let expected = expected.map_or(Place::Pod, |paths| Place::Files(paths.iter().map(PathBuf::from).collect()));
        assert_eq!(found, expected, "{flags:?} {environment:?} without {missing:?}");
    }

    #[test]
    fn kubeconfigs_win_over_the_account_of_the_pod() {
        for is_pod in [true, false] {
            check(&["kubeconfig=flag"], &["env"], is_pod, &[], Some(&["flag"]));
            check(&["kubeconfig=flag"], &["env"], is_pod, &["flag"], Some(&["flag"]));
            check(&[], &["env"], is_pod, &[], Some(&["env"]));
            check(&[], &["env"], is_pod, &["env"], Some(&["env"]));
            check(&[], &["a", "b", "c"], is_pod, &["b"], Some(&["a", "c"]));
            check(&[], &["a", "b"], is_pod, &["a", "b"], Some(&["a"]));
            check(&[], &[], is_pod, &[], Some(&["home"]));
            check(&["context=x"], &[], is_pod, &["home"], Some(&["home"]));
        }
        check(&[], &[], true, &["home"], None);
        check(&["as=alice"], &[], true, &["home"], None);
        check(&[], &[], false, &["home"], Some(&["home"]));
    }
}
