//! Settings of a connection besides credentials: trusted CAs, client certificate, proxy, and allowed addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};

use super::access_fault::AccessFault;
use super::proxy::Proxy;
use super::tls::{Authorities, ClientIdentity};
use mainstay_object::egress::Egress;

/// The settings of a connection. Cheap to clone. The default has no special settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Connection {
    pub(super) authorities: Option<Arc<Authorities>>,
    pub(super) client: Option<Arc<ClientIdentity>>,
    pub(super) proxy: Option<Arc<Proxy>>,
    pub(super) egress: Egress,
}

impl Connection {
    /// Reads the data of the Secret in a repository's `auth`.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, AccessFault> {
        Ok(Self {
            authorities: Authorities::read(data)?.map(Arc::new),
            client: ClientIdentity::read(data)?.map(Arc::new),
            proxy: None,
            egress: Egress::default(),
        })
    }

    /// Returns the same connection, limited to the addresses that `egress` allows. A different limit makes it a
    /// different remote, because a confined namespace must not read the mirror of an address that it may not connect
    /// to.
    #[must_use]
    pub fn within(self, egress: Egress) -> Self {
        Self { egress, ..self }
    }

    /// Returns a digest that distinguishes connections and reveals none of their settings.
    pub(super) fn digest(&self) -> [u8; 32] {
        digest(self.parts().iter().map(String::as_str))
    }

    /// Returns the parts that distinguish connections.
    pub(super) fn parts(&self) -> Vec<String> {
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let mut parts = vec![
            text(self.authorities.as_ref().map(|authorities| authorities.pem())),
            text(self.client.as_ref().map(|client| client.pem())),
            self.proxy.as_ref().map(|proxy| proxy.address()).unwrap_or_default(),
        ];
        // Unconfined connections have the same identity as before confinement was introduced.
        parts.extend(match self.egress {
            Egress::Unrestricted => None,
            Egress::OffMachine => Some("off-machine".to_owned()),
            Egress::Confined => Some("confined".to_owned()),
        });
        let login = self.proxy.as_ref().and_then(|proxy| proxy.login.as_ref());
        parts.extend(
            login.into_iter().flat_map(|login| [&login.username, &login.password]).map(|text| text.expose().clone()),
        );
        parts
    }
}

/// Returns a digest over strings, each preceded by its length.
pub(super) fn digest<'t>(parts: impl Iterator<Item = &'t str>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_parts_apart() {
        let of = |parts: &[&str]| digest(parts.iter().copied());
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }
}
