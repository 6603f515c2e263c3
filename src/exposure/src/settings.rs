//! The hosts, gateways and issuers that the operator allows.

use super::urls::IssuerOrigin;
use mainstay_object::names::{DomainName, GatewayRef, HostName};

/// Kyma's gateway, which is always allowed.
const GATEWAY: (&str, &str) = ("kyma-system", "kyma-gateway");

/// The hosts, gateways and issuers that APIRules may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Domain that completes hosts without a dot. Hosts below this domain are allowed, too. With `None`, hosts without
    /// a dot are invalid.
    pub default_domain: Option<DomainName>,
    /// Domains below which hosts are allowed, in addition to the default domain.
    pub allowed_domains: Vec<DomainName>,
    /// Allowed gateways, in addition to `kyma-system/kyma-gateway`.
    pub allowed_gateways: Vec<GatewayRef>,
    /// In-cluster issuers that may be contacted for keys and token introspection.
    pub allowed_issuers: Vec<IssuerOrigin>,
    /// Namespaces in which a Service needs no selector; `*` is any namespace.
    pub written_endpoints: Vec<String>,
}

impl Settings {
    /// Returns the complete host. Fails with the reason if it is not allowed.
    pub(super) fn host(&self, written: &str) -> Result<HostName, String> {
        if written.is_empty() {
            return Err("no host is given; write one here, or in spec.host".to_owned());
        }
        if !written.contains('.') {
            let none = "Host does not contain a domain name and no default domain name is configured";
            let domain = self.default_domain.as_ref().ok_or(none)?;
            return HostName::within(written, domain).map_err(|why| why.to_string());
        }
        let host = HostName::parse(written).map_err(|why| why.to_string())?;
        if host.is_of_cluster() {
            return Err("Host is not whitelisted: it is a host of the cluster itself".to_owned());
        }
        let mut permitted = self.default_domain.iter().chain(&self.allowed_domains);
        if permitted.any(|domain| host.is_below(domain)) {
            return Ok(host);
        }
        Err("Host is not whitelisted: the operator of the agent permits domains with --allow-domain".to_owned())
    }

    /// Whether Services of a namespace may have endpoints that a user wrote.
    pub(super) fn has_written_endpoints(&self, namespace: &str) -> bool {
        self.written_endpoints.iter().any(|one| one == "*" || one == namespace)
    }

    /// Returns the gateway. Fails with the reason if it is not allowed.
    pub(super) fn gateway(&self, written: &str) -> Result<GatewayRef, String> {
        let gateway = GatewayRef::parse(written).map_err(|why| why.to_string())?;
        let is_default = (gateway.namespace(), gateway.name()) == GATEWAY;
        if is_default || self.allowed_gateways.iter().any(|allowed| allowed.is_same(&gateway)) {
            return Ok(gateway);
        }
        Err(format!(
            "{gateway} is not permitted: the operator of the agent permits gateways besides {}/{} with --allow-gateway",
            GATEWAY.0, GATEWAY.1
        ))
    }
}
