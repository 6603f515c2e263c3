//! A remote: address, credentials, connection settings, and verification of its commits.
//!
//! Invariant: two remotes have the same identity, and thus the same mirror, only if address, credentials and
//! connection are equal.
//! Not here: the state of a remote (`remotes`), and the protocols.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::connection::digest;
use super::consumers::Identity;
use super::{Connection, Credentials, RemoteUrl, Verification};
use mainstay_object::egress::Egress;

/// The identity of a repository on a server, shared by all consumers of any credentials.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RepositoryId([u8; 32]);

/// A repository and how to authenticate to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Address of the repository.
    pub url: RemoteUrl,
    /// How to authenticate. If anonymous, the credentials in the address are used.
    pub credentials: Credentials,
    /// The settings of the connection.
    pub connection: Connection,
    /// How commits must be signed; `None` without verification. This does not affect the mirror.
    pub verification: Option<Arc<Verification>>,
    /// Whether submodules are fetched recursively with a commit.
    pub submodules: bool,
    /// Whether Git LFS files are fetched.
    pub lfs: bool,
}

impl Remote {
    /// Returns a remote with default connection settings.
    pub fn new(url: RemoteUrl, credentials: Credentials) -> Self {
        Self { url, credentials, connection: Connection::default(), verification: None, submodules: false, lfs: false }
    }

    /// Returns the same remote without verification, for commits that were already verified and applied.
    #[must_use]
    pub fn without_verification(&self) -> Self {
        Self { verification: None, ..self.clone() }
    }

    /// Returns fingerprint and type of the pinned host key; `None` if the Secret has host keys.
    pub fn pinned_host_key(&self) -> Option<&str> {
        let Credentials::Key(identity) = &self.credentials else { return None };
        let pin = identity.pinning.as_ref().filter(|_| identity.known_hosts.is_none())?.pin.as_ref()?;
        Some(&pin.fingerprint).filter(|text| !text.is_empty()).map(String::as_str)
    }

    pub(super) fn credentials(&self) -> &Credentials {
        match &self.credentials {
            Credentials::Anonymous => self.url.embedded(),
            given @ (Credentials::Basic { .. }
            | Credentials::Bearer(_)
            | Credentials::App(_)
            | Credentials::Cloud(_)
            | Credentials::Key(_)) => given,
        }
    }

    /// Returns the parts that distinguish credentials.
    fn credential_parts(&self) -> Vec<&str> {
        match self.credentials() {
            Credentials::Anonymous => Vec::new(),
            Credentials::Basic { username, password } => vec![username, password.expose()],
            Credentials::Bearer(token) => vec!["bearer", token.expose()],
            Credentials::App(app) => app.parts().into_iter().collect(),
            Credentials::Cloud(identity) => identity.parts(),
            Credentials::Key(identity) => identity.parts().into_iter().collect(),
        }
    }

    /// Returns a digest that distinguishes credentials and reveals nothing of them.
    pub(super) fn account(&self) -> [u8; 32] {
        digest(self.credential_parts().into_iter())
    }

    /// Returns the identity of the repository, independent of credentials. Custom proxies or CAs make it a different
    /// repository, because other consumers cannot trust the responses. An unencrypted address also differs from
    /// encrypted ones.
    pub(super) fn repository(&self) -> RepositoryId {
        let place = match (self.url.host(), self.url.repository_path()) {
            (Some(host), Some(path)) => {
                let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
                format!("{host}{port}/{path}")
            }
            _ => self.url.to_string(),
        };
        let protection =
            Some(self.url.scheme()).filter(|scheme| !matches!(*scheme, "https" | "ssh")).unwrap_or_default();
        let own = Connection { client: None, egress: Egress::default(), ..self.connection.clone() };
        let own = if own == Connection::default() { Vec::new() } else { own.parts() };
        let owner = self.url.artifact().map(|artifact| artifact.owner.as_str());
        let parts = [protection, &place].into_iter().chain(own.iter().map(String::as_str)).chain(owner);
        RepositoryId(digest(parts))
    }

    /// Returns the identity of the remote: a digest of address, credentials and connection.
    pub(super) fn identity(&self) -> Identity {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        add(&self.url.to_string());
        self.credential_parts().into_iter().for_each(&mut add);
        if let Some(artifact) = self.url.artifact() {
            add("artifact");
            add(&artifact.owner);
        }
        // Without special settings, the identity, and thus the mirror, is the same as in earlier versions.
        if self.connection != Connection::default() {
            add("connection");
            self.connection.parts().iter().for_each(|part| add(part));
        }
        digest.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::super::proxy::Proxy;
    use super::*;

    fn remote(url: &str) -> Remote {
        Remote::new(RemoteUrl::parse(url).unwrap(), Credentials::Anonymous)
    }

    #[test]
    fn a_repository_is_the_same_whatever_login_reads_it() {
        let shop = remote("https://git.example.org/team/shop").repository();
        for url in [
            "https://git.example.org/team/shop.git",
            "https://user:password@git.example.org/team/shop",
            "git@git.example.org:team/shop.git",
            "ssh://deploy@git.example.org/team/shop",
        ] {
            assert_eq!(remote(url).repository(), shop, "{url}");
        }
        for url in [
            "https://git.example.org/team/shop2",
            "https://git.example.org:8443/team/shop",
            "http://git.example.org/team/shop",
            "git://git.example.org/team/shop",
            "/team/shop",
        ] {
            assert_ne!(remote(url).repository(), shop, "{url}");
        }
        let mut confined = remote("https://git.example.org/team/shop");
        confined.connection.egress = Egress::Confined;
        assert_eq!(confined.repository(), shop, "it may reach fewer addresses");
        let address = ByteString(b"http://proxy.example.org:3128".to_vec());
        confined.connection.proxy = Some(Arc::new(Proxy::read(&[("address".to_owned(), address)].into()).unwrap()));
        assert_ne!(confined.repository(), shop, "a proxy of somebody's own answers what it wants");
    }
}
