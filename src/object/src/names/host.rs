//! Hosts: [`HostName`] and [`DomainName`].

use std::fmt;
use std::sync::Arc;

use super::InvalidName;
use super::address::CLUSTER_DOMAIN;
use super::label::is_label;

/// Maximum length of a host.
const MAX_LENGTH: usize = 253;

/// A host with at least two labels, in lower case and without a trailing dot. Neither an IP address nor a wildcard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

impl HostName {
    /// Parses a host. Upper case and one trailing dot are accepted and normalized.
    ///
    /// # Errors
    /// If it is not a host, is a single label, or is an IP address.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let name = normalise(text)?;
        if name.contains('.') { Ok(Self(name.into())) } else { Err(InvalidName::SingleLabel) }
    }

    /// Returns the host of a label in a domain.
    ///
    /// # Errors
    /// If `label` is not a label, or the host is too long.
    pub fn within(label: &str, domain: &DomainName) -> Result<Self, InvalidName> {
        let label = label.to_ascii_lowercase();
        if is_label(&label) { Self::parse(&format!("{label}.{domain}")) } else { Err(InvalidName::Label) }
    }

    /// Returns the host.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the host is below a domain. The domain itself is not.
    pub fn is_below(&self, domain: &DomainName) -> bool {
        self.0.strip_suffix(&*domain.0).is_some_and(|rest| rest.ends_with('.'))
    }

    /// Returns whether the cluster's DNS resolves the host: `*.svc`, `*.svc.*`, and names below the cluster's domain.
    pub fn is_of_cluster(&self) -> bool {
        let is_below = self.0.strip_suffix(CLUSTER_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        is_below || self.0.split('.').skip(1).any(|label| label == "svc")
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A domain, which may be a single label, in lower case and without a trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(Arc<str>);

impl DomainName {
    /// Parses a domain. Upper case and one trailing dot are accepted and normalized.
    ///
    /// # Errors
    /// If it is not a domain, or is an IP address.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        normalise(text).map(|name| Self(name.into()))
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn normalise(text: &str) -> Result<String, InvalidName> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if name.len() > MAX_LENGTH || !name.split('.').all(is_label) {
        let is_address = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        return Err(if is_address { InvalidName::IpAddress } else { InvalidName::Host });
    }
    if name.rsplit('.').next().is_some_and(is_number) { Err(InvalidName::IpAddress) } else { Ok(name) }
}

/// Returns whether a label is a number. URLs and the C library parse a host that ends with a number as an IPv4 address:
/// `127.1`, `0x7f.1`.
fn is_number(label: &str) -> bool {
    let hexadecimal = label.strip_prefix("0x");
    hexadecimal.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || label.bytes().all(|byte| byte.is_ascii_digit())
}
