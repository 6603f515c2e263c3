//! Addresses of Services: [`ServiceHost`] and [`ServiceAddress`].

use std::fmt;
use std::num::NonZeroU16;

use super::{DnsLabel, InvalidName, ServiceName, UrlPath};

/// The domain of the cluster's DNS.
pub const CLUSTER_DOMAIN: &str = "cluster.local";

/// The host of a Service in the cluster: `NAME.NAMESPACE.svc.cluster.local`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceHost {
    service: ServiceName,
    namespace: DnsLabel,
}

impl ServiceHost {
    /// Returns the host of a Service.
    pub fn new(service: ServiceName, namespace: DnsLabel) -> Self {
        Self { service, namespace }
    }

    /// Parses `NAME.NAMESPACE.svc`, with or without the cluster's domain and a trailing dot.
    ///
    /// # Errors
    /// The host does not have this form.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let name = name.strip_suffix(CLUSTER_DOMAIN).and_then(|rest| rest.strip_suffix('.')).unwrap_or(&name);
        let parts = name.strip_suffix(".svc").and_then(|name| name.split_once('.'));
        let (service, namespace) = parts.ok_or(InvalidName::ServiceHost)?;
        let wrong = |_| InvalidName::ServiceHost;
        let (service, namespace) = (ServiceName::parse(service), DnsLabel::parse(namespace));
        Ok(Self::new(service.map_err(wrong)?, namespace.map_err(wrong)?))
    }

    /// Returns the name of the Service.
    pub fn service(&self) -> &ServiceName {
        &self.service
    }

    /// Returns the namespace of the Service.
    pub fn namespace(&self) -> &DnsLabel {
        &self.namespace
    }
}

impl fmt::Display for ServiceHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.svc.{CLUSTER_DOMAIN}", self.service, self.namespace)
    }
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// Without TLS.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// Returns `http` or `https`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Returns the default port.
    const fn usual_port(self) -> NonZeroU16 {
        match self {
            Self::Http => NonZeroU16::MIN.saturating_add(79),
            Self::Https => NonZeroU16::MIN.saturating_add(442),
        }
    }
}

/// Scheme, host and port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceAddress {
    /// HTTP or HTTPS.
    pub scheme: Scheme,
    /// The host of the Service.
    pub host: ServiceHost,
    /// The port of the Service.
    pub port: NonZeroU16,
}

impl ServiceAddress {
    /// Returns host and port. The default port is omitted.
    pub fn authority(&self) -> String {
        if self.port == self.scheme.usual_port() { self.host.to_string() } else { self.host_and_port() }
    }

    /// Returns scheme, host and port: `http://NAME.NAMESPACE.svc.cluster.local:80`.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme.as_str(), self.host_and_port())
    }

    /// Returns the URL of a path. The default port is omitted.
    pub fn url(&self, path: &UrlPath) -> String {
        format!("{}://{}{path}", self.scheme.as_str(), self.authority())
    }

    fn host_and_port(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}
