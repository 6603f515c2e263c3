//! The hosts, gateways and issuers that the operator of the agent permits.

use super::urls::IssuerOrigin;
use mainstay_object::names::{DomainName, GatewayRef, HostName};

/// The gateway that is always permitted: Kyma's.
const GATEWAY: (&str, &str) = ("kyma-system", "kyma-gateway");

/// The hosts, gateways and issuers that APIRules may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Completes a host without a dot, and permits the hosts below it; `None`: such hosts are not valid.
    pub default_domain: Option<DomainName>,
    /// Domains below which hosts are permitted, besides the default domain.
    pub allowed_domains: Vec<DomainName>,
    /// Gateways that are permitted besides `kyma-system/kyma-gateway`.
    pub allowed_gateways: Vec<GatewayRef>,
    /// Issuers inside of the cluster that may be asked for keys and about tokens.
    pub allowed_issuers: Vec<IssuerOrigin>,
}

impl Settings {
    /// The whole host; otherwise, the reason why it may not be served.
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

    /// The gateway; otherwise, the reason why it may not be used.
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
