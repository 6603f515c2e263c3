//! The agent's settings for identities of clouds.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;

use super::ServiceAccounts;
use crate::access_fault::AccessFault;
use crate::connection::Connection;
use crate::tls::Authorities;

/// The variables of the environment that are read. They are those of the providers' own libraries.
pub const CLOUD_VARIABLES: [&str; 10] = [
    AZURE_CLIENT_ID,
    AZURE_TENANT_ID,
    AZURE_FEDERATED_TOKEN_FILE,
    AZURE_AUTHORITY_HOST,
    AWS_ROLE_ARN,
    AWS_WEB_IDENTITY_TOKEN_FILE,
    AWS_ROLE_SESSION_NAME,
    AWS_CONTAINER_CREDENTIALS_FULL_URI,
    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE,
    GCE_METADATA_HOST,
];
pub(super) const AZURE_CLIENT_ID: &str = "AZURE_CLIENT_ID";
pub(super) const AZURE_TENANT_ID: &str = "AZURE_TENANT_ID";
pub(super) const AZURE_FEDERATED_TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
pub(super) const AZURE_AUTHORITY_HOST: &str = "AZURE_AUTHORITY_HOST";
pub(super) const AWS_ROLE_ARN: &str = "AWS_ROLE_ARN";
pub(super) const AWS_WEB_IDENTITY_TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
pub(super) const AWS_ROLE_SESSION_NAME: &str = "AWS_ROLE_SESSION_NAME";
pub(super) const AWS_CONTAINER_CREDENTIALS_FULL_URI: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
pub(super) const AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
pub(super) const GCE_METADATA_HOST: &str = "GCE_METADATA_HOST";

/// The agent's settings for identities of clouds. By default there are none, and objects that ask for one fail.
#[derive(Clone, Debug, Default)]
pub struct CloudSettings {
    /// The ServiceAccounts of the cluster.
    pub accounts: Option<Arc<dyn ServiceAccounts>>,
    /// Namespaces whose objects may use the identity of the agent.
    pub trusted: Vec<String>,
    /// The variables in [`CLOUD_VARIABLES`] that are set.
    pub environment: BTreeMap<String, String>,
    /// CA bundle of all hosts of clouds and of issuers of tokens in PEM format, instead of the public CAs. No object sets it.
    pub authorities: Option<String>,
}

impl CloudSettings {
    /// Returns a connection to a host of a cloud. Its certificate is verified by the agent's CAs, never by those of an
    /// object, whose proxy could otherwise read a login.
    pub(crate) fn connection(&self, given: &Connection) -> Result<Connection, AccessFault> {
        let authorities = self.authorities.as_ref().map(|pem| {
            let data = BTreeMap::from([("ca.crt".to_owned(), ByteString(pem.clone().into_bytes()))]);
            Authorities::read(&data)
        });
        let authorities = authorities.transpose()?.flatten().map(Arc::new);
        Ok(Connection { authorities, client: None, ..given.clone() })
    }

    /// Returns a variable; `None` if it is not set or empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }
}
