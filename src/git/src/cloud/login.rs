//! The logins of identities, for registries and Git repositories.
//!
//! Invariant: one login of an identity for a place is requested at a time, and reused until shortly before its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use reqwest::Url;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use super::exchange::Exchange;
use super::google::GkeCluster;
use super::place::Place;
use super::signature::Keys;
use super::{CloudFault, CloudIdentity};
use crate::connection::{Connection, digest};
use crate::error::Fault;
use crate::issued::{Digest, Issued};
use crate::outbound::Outbound;
use crate::proxy::Proxy;
use crate::remotes::Source;
use crate::transport::on_behalf_of;
use crate::{Credentials, Secret};

/// Maximum time for a login.
const WITHIN: Duration = Duration::from_secs(30);

/// A login, which is erased when it is dropped.
#[derive(Clone)]
pub(in crate::cloud) struct Login {
    /// The user; `None` for a bearer token.
    pub(in crate::cloud) username: Option<String>,
    pub(in crate::cloud) secret: Zeroizing<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    fn credentials(&self) -> Credentials {
        let secret = Secret::new(self.secret.to_string());
        match &self.username {
            Some(username) => Credentials::Basic { username: username.clone(), password: secret },
            None => Credentials::Bearer(secret),
        }
    }
}

/// The logins of all identities.
#[derive(Debug, Default)]
pub(crate) struct Clouds {
    pub(in crate::cloud) logins: Issued<Login>,
    pub(in crate::cloud) keys: Issued<Arc<Keys>>,
    pub(in crate::cloud) cluster: OnceCell<GkeCluster>,
}

impl Source {
    /// Returns a client for a registry that an identity reads. `proxy` is the Secret with the object's proxy.
    ///
    /// # Errors
    /// A field of the Secret cannot be used.
    pub fn cloud_outbound(
        &self,
        namespace: &str,
        proxy: Option<&BTreeMap<String, ByteString>>,
    ) -> Result<Outbound, Fault> {
        let connection = self.cloud_settings().connection(&self.through(namespace, proxy)?)?;
        Outbound::new(self, namespace, &connection)
    }

    fn through(&self, namespace: &str, proxy: Option<&BTreeMap<String, ByteString>>) -> Result<Connection, Fault> {
        let proxy = proxy.map(Proxy::read).transpose()?.map(Arc::new);
        Ok(Connection { proxy, egress: self.egress(namespace), ..Connection::default() })
    }

    /// Returns the login of an identity for a registry. `host` is the registry's host, and `proxy` the Secret with the
    /// object's proxy.
    ///
    /// # Errors
    /// The registry does not belong to the provider, the identity is not set up, or the provider refuses it.
    pub async fn registry_login(
        &self,
        identity: &CloudIdentity,
        host: &str,
        proxy: Option<&BTreeMap<String, ByteString>>,
    ) -> Result<Credentials, Fault> {
        let place = Place::registry(identity.provider, host).map_err(|why| CloudFault::Field { why })?;
        let connection = self.through(&identity.namespace, proxy)?;
        on_behalf_of(&self.tenant, self.login(identity, &place, &connection)).await
    }

    /// Returns the login of an identity for a Git repository that is reached by this connection.
    pub(crate) async fn git_login(
        &self,
        identity: &CloudIdentity,
        url: &Url,
        connection: &Connection,
    ) -> Result<Credentials, Fault> {
        let place = Place::repository(identity.provider, url).map_err(|why| CloudFault::Field { why })?;
        self.login(identity, &place, connection).await
    }

    /// Drops the login for a Git repository after its server has rejected it.
    pub(crate) fn git_login_refused(&self, identity: &CloudIdentity, url: &Url) {
        let Ok(place) = Place::repository(identity.provider, url) else { return };
        self.clouds().logins.refused(key(identity, &place));
        self.clouds().keys.refused(key(identity, &place));
    }

    async fn login(&self, identity: &CloudIdentity, place: &Place, with: &Connection) -> Result<Credentials, Fault> {
        let given = tokio::time::timeout(WITHIN, async {
            let exchange = Exchange::new(self, identity, with).await?;
            exchange.login(place).await
        });
        let late = |_| Fault::Timeout { after: WITHIN, what: "waiting for a login of the cloud" };
        Ok(given.await.map_err(late)??.credentials())
    }
}

/// Returns the key of a login in the cache.
pub(super) fn key(identity: &CloudIdentity, place: &Place) -> Digest {
    digest(identity.parts().into_iter().chain(place.parts()))
}
