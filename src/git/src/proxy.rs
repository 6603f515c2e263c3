//! Turns the Secret in a repository's `proxySecretRef` into a [`Proxy`].
//!
//! Invariant: neither `Display` nor `Debug` shows the user name or the password.
//!
//! Not here: the proxies from the agent's environment, which the HTTP client reads itself.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::ByteString;
use reqwest::Url;

use super::access_fault::AccessFault;
use super::address::plain_host;
use super::secret_field::field;
use mainstay_object::Secret;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

const ADDRESS: &str = "address";
const USERNAME: &str = "username";
const PASSWORD: &str = "password";
/// The fields of a Secret that are read.
pub(super) const FIELDS: [&str; 3] = [ADDRESS, USERNAME, PASSWORD];
/// Maximum length of user name and password, in bytes, because SOCKS encodes the length in one byte.
const MAX_BYTES: usize = 255;

/// A proxy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Proxy {
    pub(super) kind: ProxyKind,
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) login: Option<Login>,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ProxyKind {
    Http,
    /// HTTP over TLS.
    Https,
    /// SOCKS version 5. The proxy resolves the host's name.
    Socks5,
}

/// User name and password for a proxy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Login {
    pub(super) username: Secret<String>,
    pub(super) password: Secret<String>,
}

impl Proxy {
    /// Reads the data of a Secret.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, AccessFault> {
        let unusable = |field, why| AccessFault::UnusableField { field, why };
        let address = field(data, ADDRESS)?;
        let url = Url::parse(&address).map_err(|_| unusable(ADDRESS, FORM))?;
        if !plain_host::is_plain_in(&address) {
            return Err(unusable(ADDRESS, plain_host::REFUSED));
        }
        let kind = match url.scheme() {
            "http" => ProxyKind::Http,
            "https" => ProxyKind::Https,
            "socks5" | "socks5h" => ProxyKind::Socks5,
            _ => return Err(unusable(ADDRESS, FORM)),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(unusable(
                ADDRESS,
                "it must not contain a user name or password; put them into the keys username and password",
            ));
        }
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
        let host = url.host_str().filter(|host| is_bare && !host.is_empty()).ok_or(unusable(ADDRESS, FORM))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if is_metadata_host(&host) {
            return Err(unusable(ADDRESS, METADATA_REFUSED));
        }
        let port = url.port_or_known_default().unwrap_or(1080);
        let optional = |key| if data.contains_key(key) { field(data, key) } else { Ok(String::new()) };
        let (username, password) = (optional(USERNAME)?, optional(PASSWORD)?);
        for (key, value) in [(USERNAME, &username), (PASSWORD, &password)] {
            if value.len() > MAX_BYTES {
                return Err(unusable(key, "it is longer than 255 bytes"));
            }
        }
        let login = (!username.is_empty() || !password.is_empty())
            .then(|| Login { username: Secret::new(username), password: Secret::new(password) });
        Ok(Self { kind, host, port, login })
    }

    /// Returns the URL of the proxy with user name and password, for the HTTP client.
    pub(super) fn url(&self) -> Option<Secret<Url>> {
        let mut url = Url::parse(&self.address()).ok()?;
        if let Some(login) = &self.login {
            url.set_username(login.username.expose()).ok()?;
            url.set_password(Some(login.password.expose())).ok()?;
        }
        Some(Secret::new(url))
    }

    /// Returns the URL of the proxy without user name and password.
    pub(super) fn address(&self) -> String {
        let scheme = match self.kind {
            ProxyKind::Http => "http",
            ProxyKind::Https => "https",
            // In curl and reqwest, this scheme means that the proxy resolves host names.
            ProxyKind::Socks5 => "socks5h",
        };
        format!("{scheme}://{}", authority(&self.host, self.port))
    }
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub(super) fn authority(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

const FORM: &str = "it must have the form http://host:port, https://host:port or socks5://host:port";

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(data: &[(&str, &str)], expected: &str) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let got = match Proxy::read(&data) {
            Ok(proxy) => {
                let login = proxy.login.as_ref();
                let login = login.map(|login| format!(" {}:{}", login.username.expose(), login.password.expose()));
                format!("{proxy}{}", login.unwrap_or_default())
            }
            Err(fault) => fault.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn reads_addresses_and_logins_and_says_what_is_wrong_with_them() {
        check(&[("address", "http://proxy.corp:3128\n")], "http://proxy.corp:3128");
        check(&[("address", "https://proxy.corp/")], "https://proxy.corp:443");
        check(&[("address", "http://proxy"), ("username", "u"), ("password", "p")], "http://proxy:80 u:p");
        check(&[("address", "socks5://[::1]"), ("password", "p")], "socks5h://[::1]:1080 :p");
        check(&[("address", "socks5h://p:9"), ("username", ""), ("password", "")], "socks5h://p:9");
        let unusable = |why: &str| format!("address of the Secret cannot be used: {why}");
        for bad in ["proxy:3128", "ftp://proxy", "http://", "http://proxy/path", "http://proxy?x", "", "socks4://p"] {
            check(&[("address", bad)], &unusable(FORM));
        }
        let apart = "it must not contain a user name or password; put them into the keys username and password";
        check(&[("address", "http://u:hunter2@proxy")], &unusable(apart));
        check(&[("address", "http://169.254.169.254")], &unusable(METADATA_REFUSED));
        check(&[("username", "u")], "missing field address: the Secret needs it (it may be empty)");
        let long = "x".repeat(256);
        let data = [("address", "http://p"), ("password", &*long)];
        check(&data, "password of the Secret cannot be used: it is longer than 255 bytes");
    }
}
