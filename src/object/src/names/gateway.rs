//! [`GatewayRef`]: the gateway through which a host is reached.

use std::fmt;

use super::{DnsLabel, InvalidName, ServiceHost};

/// A gateway, by its namespace and name. It is never Istio's reserved word `mesh`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GatewayRef {
    /// `NAMESPACE/NAME`.
    Name {
        /// The namespace.
        namespace: DnsLabel,
        /// The name.
        name: DnsLabel,
    },
    /// `NAME.NAMESPACE.svc.cluster.local`.
    Service(ServiceHost),
}

impl GatewayRef {
    /// Parses `NAMESPACE/NAME`, or the host of a Service: `NAME.NAMESPACE`, with or without `svc` and the cluster's
    /// domain.
    ///
    /// # Errors
    /// The reference has neither form, or is `mesh`.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if text.trim_matches('.').eq_ignore_ascii_case("mesh") {
            return Err(InvalidName::Mesh);
        }
        if let Some((namespace, name)) = text.split_once('/') {
            let (namespace, name) = (DnsLabel::parse(namespace), DnsLabel::parse(name));
            let (namespace, name) = namespace.and_then(|namespace| Ok((namespace, name?))).map_err(wrong)?;
            return Ok(Self::Name { namespace, name });
        }
        if let Ok(host) = ServiceHost::parse(text) {
            return Ok(Self::Service(host));
        }
        let (name, namespace) = text.split_once('.').ok_or(InvalidName::Gateway)?;
        let name = super::ServiceName::parse(name).map_err(wrong)?;
        Ok(Self::Service(ServiceHost::new(name, DnsLabel::parse(namespace).map_err(wrong)?)))
    }

    /// Returns the namespace of the gateway.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Name { namespace, .. } => namespace.as_str(),
            Self::Service(host) => host.namespace().as_str(),
        }
    }

    /// Returns the name of the gateway.
    pub fn name(&self) -> &str {
        match self {
            Self::Name { name, .. } => name.as_str(),
            Self::Service(host) => host.service().as_str(),
        }
    }

    /// Returns whether both references, in either form, are for the same gateway.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.namespace(), self.name()) == (other.namespace(), other.name())
    }
}

fn wrong(_: InvalidName) -> InvalidName {
    InvalidName::Gateway
}

impl fmt::Display for GatewayRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Service(host) => host.fmt(f),
        }
    }
}
