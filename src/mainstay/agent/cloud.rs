//! Identities of clouds for the objects of the cluster: the ServiceAccounts, and the logins for registries.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use zeroize::Zeroizing;

use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_function::registry;
use mainstay_git::{Account, CloudIdentity, Credentials, ServiceAccounts, Source};
use mainstay_object::failure::chain;

/// The ServiceAccounts of a cluster.
struct ClusterAccounts(Cluster);

impl std::fmt::Debug for ClusterAccounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterAccounts")
    }
}

impl ServiceAccounts for ClusterAccounts {
    fn find<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Account>, String>> {
        async move {
            let kind = Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced);
            let found = self.0.get_metadata(&kind, Some(namespace), name).await;
            let found = found.map_err(|error| chain(&error))?.filter(|found| found.deletion_timestamp.is_none());
            Ok(found.map(|found| Account {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: found.uid.unwrap_or_default(),
                annotations: found.annotations.unwrap_or_default(),
            }))
        }
        .boxed()
    }

    fn token<'a>(
        &'a self,
        account: &'a Account,
        audience: &'a str,
    ) -> BoxFuture<'a, Result<Zeroizing<String>, String>> {
        async move {
            let Account { namespace, name, uid, .. } = account;
            let token = self.0.service_account_token(namespace, (name, uid), audience).await.map_err(|error| {
                let hint = if error.is_forbidden() {
                    format!(
                        "; grant the agent the verb create on serviceaccounts/token of {name} in namespace {namespace}"
                    )
                } else {
                    String::new()
                };
                chain(&error) + &hint
            })?;
            Ok(Zeroizing::new(token.expose().clone()))
        }
        .boxed()
    }
}

/// Adds the identities of a cluster. Objects in `trusted` namespaces may use the identity of the agent.
pub(super) fn with_identities(
    mut source: mainstay_git::Settings,
    trusted: impl Iterator<Item = String>,
    cluster: &Cluster,
) -> mainstay_git::Settings {
    source.clouds.trusted = trusted.collect();
    source.clouds.accounts = Some(Arc::new(ClusterAccounts(cluster.clone())));
    source
}

/// The fields of an object that decide who logs in to its registry.
pub(super) struct Login<'a> {
    pub(super) provider: Option<&'a str>,
    pub(super) account: Option<&'a str>,
    /// The host of the registry; `None` if the address is invalid.
    pub(super) registry: Option<&'a str>,
    /// Fields that contradict an identity, and whether they are set.
    pub(super) others: [(&'static str, bool); 3],
}

impl Login<'_> {
    /// Returns the identity of an object in a namespace; `None` if the object names none.
    ///
    /// # Errors
    /// Fails with the invalid field. No token was requested yet.
    pub(super) fn identity(&self, namespace: &str) -> Result<Option<CloudIdentity>, String> {
        let Some(identity) = CloudIdentity::read(self.provider, self.account, namespace)? else { return Ok(None) };
        let provider = self.provider.unwrap_or_default();
        self.registry.map_or(Ok(()), |registry| identity.check_registry(registry))?;
        if let Some((field, _)) = self.others.into_iter().find(|(_, is_set)| *is_set) {
            return Err(format!("{field}: must not be set with spec.provider {provider}; remove one of them"));
        }
        Ok(Some(identity))
    }
}

/// Returns the login of an identity for a registry.
///
/// # Errors
/// Why there is no login, without a token.
pub(super) async fn login(
    source: &Source,
    identity: &CloudIdentity,
    registry: &str,
    proxy: Option<&BTreeMap<String, ByteString>>,
) -> Result<registry::Login, String> {
    match source.registry_login(identity, registry, proxy).await {
        Ok(Credentials::Basic { username, password }) => Ok(registry::Login { username, password }),
        Ok(_) => Err("the provider has no logins for registries".to_owned()),
        Err(fault) => Err(chain(&fault)),
    }
}
