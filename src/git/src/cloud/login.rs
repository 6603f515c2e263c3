//! The logins of identities, for registries and Git repositories.
//!
//! Invariant: one login of an identity for a place is requested at a time, and reused until shortly before its end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use reqwest::Url;

use super::exchange::Exchange;
use super::logins::{Login, key};
use super::place::Place;
use super::{CloudFault, CloudIdentity};
use crate::Credentials;
use crate::connection::Connection;
use crate::error::Fault;
use crate::outbound::Outbound;
use crate::proxy::Proxy;
use crate::remotes::Source;
use crate::transport::on_behalf_of;

/// Maximum time for a login.
pub(super) const WITHIN: Duration = Duration::from_secs(30);

impl Source {
    /// Returns a client for a registry that an identity reads, or for an issuer of tokens. `proxy` is the Secret with the
    /// object's proxy.
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

    /// Drops the login of an identity for a registry after a failed read, if the login is at least five minutes old: the
    /// registry may have refused it.
    pub fn doubt_registry_login(&self, identity: &CloudIdentity, host: &str) {
        let Ok(place) = Place::registry(identity.provider, host) else { return };
        self.clouds().logins.doubted(key(identity, &place));
        self.clouds().keys.doubted(key(identity, &place));
    }

    async fn login(&self, identity: &CloudIdentity, place: &Place, with: &Connection) -> Result<Credentials, Fault> {
        Ok(self.issued_login(identity, place, with).await?.credentials())
    }

    /// Returns the login of an identity for a place that is reached by this connection.
    pub(super) async fn issued_login(
        &self,
        identity: &CloudIdentity,
        place: &Place,
        with: &Connection,
    ) -> Result<Login, Fault> {
        // Few requests need an identity, so the others do not carry this future.
        let asked = Box::pin(async {
            let exchange = Exchange::new(self, identity, with).await?;
            exchange.login(place).await
        });
        let given = tokio::time::timeout(WITHIN, asked);
        let late = |_| Fault::Timeout { after: WITHIN, what: "waiting for a login of the cloud" };
        given.await.map_err(late)?
    }
}
