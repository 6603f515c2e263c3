//! The origins at which browsers reach this server: scheme, host and port, compared exactly.

use std::str::FromStr;

use http::Uri;

/// Host name of this machine that only this page uses. Browsers resolve it to a loopback address, and do not send its
/// cookies to pages that other ports serve as `localhost`.
pub(crate) const OWN_HOST: &str = "mainstay-console.localhost";

/// An origin of this server, such as `https://console.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin {
    is_secure: bool,
    /// Host and port in the form that browsers send, which omits the default port.
    authority: String,
}

impl WebOrigin {
    /// Returns the origin of a port of this machine, with this name of the machine.
    pub(crate) fn of_this_machine(name: &str, port: u16) -> Self {
        let authority = if port == 80 { name.to_owned() } else { format!("{name}:{port}") };
        Self { is_secure: false, authority }
    }

    /// Returns whether a browser sends this host.
    pub(crate) fn has_host(&self, host: &str) -> bool {
        self.authority == host
    }

    /// Returns the value of the header `Origin` that pages of this origin send.
    pub(crate) fn text(&self) -> String {
        format!("{}://{}", if self.is_secure { "https" } else { "http" }, self.authority)
    }

    /// Returns whether pages at other ports of this machine use the same host, so that browsers send them the cookies
    /// of this origin.
    pub(crate) fn shares_cookies(&self) -> bool {
        !self.is_secure && !self.host().ends_with(".localhost")
    }

    fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').filter(|_| !self.authority.ends_with(']'));
        host.map_or(&*self.authority, |(host, _)| host)
    }

    /// Returns the domains whose cookies a browser may send to this origin, the shortest last, at most eight.
    pub(crate) fn cookie_domains(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.host()), |domain| domain.split_once('.').map(|(_, parent)| parent)).take(8)
    }

    /// Returns whether pages are encrypted, so that cookies can be `Secure`.
    pub(crate) fn is_secure(&self) -> bool {
        self.is_secure
    }
}

impl FromStr for WebOrigin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|_| "it is not a URL; write https://HOST".to_owned())?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("write https://HOST".to_owned()),
        };
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let is_bare = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if host.is_empty() || !is_bare || uri.path() != "/" || uri.query().is_some() {
            return Err("it has more than a host and a port; write https://HOST".to_owned());
        }
        if !is_secure && !loopback::web::is_this_machine(&host) {
            return Err("browsers would send tokens unencrypted; write https://HOST".to_owned());
        }
        let port = uri.port_u16().filter(|port| *port != if is_secure { 443 } else { 80 });
        let authority = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        Ok(Self { is_secure, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for (text, expected) in [
            ("https://Console.example.com", "https://console.example.com"),
            ("https://console.example.com:443/", "https://console.example.com"),
            ("https://console.example.com:8443", "https://console.example.com:8443"),
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://127.0.0.1:80", "http://127.0.0.1"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(text.parse::<WebOrigin>().unwrap().text(), expected, "{text}");
        }
        assert_eq!(WebOrigin::of_this_machine("localhost", 80).text(), "http://localhost");
    }

    #[test]
    fn plain_names_of_this_machine_share_their_cookies_with_other_ports() {
        for (text, shares) in [
            ("http://localhost:8080", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]", true),
            ("http://[::1]:8080", true),
            ("http://mainstay-console.localhost:8080", false),
            ("http://mainstay-console.localhost", false),
            ("https://console.example.com", false),
        ] {
            assert_eq!(text.parse::<WebOrigin>().unwrap().shares_cookies(), shares, "{text}");
        }
    }

    #[test]
    fn an_origin_of_another_machine_is_encrypted_and_has_no_path() {
        for text in [
            "http://console.example.com",
            "https://a/b",
            "https://a?b",
            "https://me@a",
            "a",
            "",
            "ftp://a",
            "https://",
            "http://localhost.evil.example",
        ] {
            assert!(text.parse::<WebOrigin>().is_err(), "{text}");
        }
    }
}
