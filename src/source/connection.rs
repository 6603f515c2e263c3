//! What a connection to a remote is made with besides its credentials: the CAs that it trusts and its client
//! certificate.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;

use super::error::Fault;
use super::tls::{Authorities, ClientIdentity};

/// What a connection is made with. Cheap to clone; by default nothing special.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Connection {
    pub(super) authorities: Option<Arc<Authorities>>,
    pub(super) client: Option<Arc<ClientIdentity>>,
}

impl Connection {
    /// Reads the data of the Secret that a repository's `auth` names.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Fault> {
        Ok(Self {
            authorities: Authorities::read(data)?.map(Arc::new),
            client: ClientIdentity::read(data)?.map(Arc::new),
        })
    }

    /// The parts that distinguish connections.
    pub(super) fn parts(&self) -> [&str; 2] {
        let authorities = self.authorities.as_ref().map_or("", |authorities| authorities.pem());
        [authorities, self.client.as_ref().map_or("", |client| client.pem())]
    }
}
