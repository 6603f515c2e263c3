//! An API server without credentials: each connection uses the token of its user.
//!
//! Invariant: a connection has the credentials of its token only, whatever credentials the configuration of this
//! process has.

use http::Uri;
use kube::Config;
use kube::config::AuthInfo;

use mainstay_object::Secret;

use super::connect::Cluster;
use super::error::{Attempt, Cause, Error, Target};
use super::kubeconfig::certificates;
use super::origin::Origin;

/// The URL of an API server, and the certificate authorities with which its certificate is verified.
#[derive(Clone)]
pub struct ApiServer(Config);

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("url", &self.0.cluster_url).finish_non_exhaustive()
    }
}

fn wrong(why: &'static str) -> Error {
    Error::new(Attempt::Connect, Target::Cluster, Cause::Configuration(why.into()))
}

impl ApiServer {
    /// Returns the server of a kubeconfig, without the credentials in it. Runs no program and sends no request.
    ///
    /// # Errors
    /// If the kubeconfig cannot be read.
    pub async fn from_origin(origin: &Origin) -> Result<Self, Error> {
        Ok(Self::without_credentials(origin.config().await?))
    }

    /// Returns the server at this URL. Without authorities (PEM), those of the machine are trusted.
    ///
    /// # Errors
    /// If the URL is not an HTTPS URL, or if there is no certificate among the authorities.
    pub fn at(url: &Uri, authorities: Option<&[u8]>) -> Result<Self, Error> {
        if url.scheme_str() != Some("https") || url.host().is_none_or(str::is_empty) {
            return Err(wrong(
                "the URL of the API server must begin with https://, or tokens would be sent unencrypted",
            ));
        }
        let mut config = Config::new(url.clone());
        if let Some(pem) = authorities {
            let found = certificates(pem).ok_or_else(|| wrong("the CA bundle has no certificate in PEM format"))?;
            config.root_cert = Some(found.into_iter().map(|certificate| certificate.to_vec()).collect());
        }
        Ok(Self::without_credentials(config))
    }

    fn without_credentials(mut config: Config) -> Self {
        config.auth_info = AuthInfo::default();
        Self(config)
    }

    /// Returns a connection with the permissions of a token. Sends no request.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn as_user(&self, token: &Secret<String>) -> Result<Cluster, Error> {
        let mut config = self.0.clone();
        config.auth_info.token = Some(token.expose().clone().into());
        Cluster::lean(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_needs_https_and_a_certificate_in_its_bundle() {
        for url in ["http://kubernetes.default.svc", "kubernetes.default.svc", "/a"] {
            assert!(ApiServer::at(&url.parse().unwrap(), None).is_err(), "{url}");
        }
        let url = "https://kubernetes.default.svc".parse().unwrap();
        assert!(ApiServer::at(&url, None).is_ok());
        assert!(ApiServer::at(&url, Some(b"no certificate")).is_err());
    }

    #[test]
    fn credentials_of_the_configuration_are_dropped() {
        let mut config = Config::new("https://kubernetes.default.svc".parse().unwrap());
        config.auth_info.token = Some("of-the-process".to_owned().into());
        config.auth_info.impersonate = Some("alice".to_owned());
        let server = ApiServer::without_credentials(config);
        assert!(server.0.auth_info.token.is_none() && server.0.auth_info.impersonate.is_none());
    }
}
