//! The address of a repository on a Git daemon: `git://host:port/path`.
//!
//! Invariant: the address contains neither a user nor a password, because a Git daemon has no authentication.

use std::fmt;

use reqwest::Url;

use super::address::plain_host;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

const PORT: u16 = 9418;

/// The address of a repository on a Git daemon.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct GitAddress {
    /// A name or an IP address, in lower case and without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path, which begins with `/`.
    pub(super) path: String,
}

impl GitAddress {
    /// Parses the address after `git://`. The error is the violated rule.
    pub(super) fn parse(rest: &str) -> Result<Self, &'static str> {
        const FORM: &str = "the URL of a Git daemon must have the form git://host:port/path";
        // The rules of HTTP addresses apply.
        let url = Url::parse(&format!("http://{rest}")).map_err(|_| FORM)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a Git daemon does not authenticate users; remove the user from the URL");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("the URL must not contain `?` or `#`; credentials belong in a Secret");
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(FORM)?;
        if !plain_host::is_plain(rest) {
            return Err(plain_host::REFUSED);
        }
        if is_metadata_host(host) {
            return Err(METADATA_REFUSED);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let path = super::percent::decoded(url.path());
        let path = path.trim_end_matches('/').to_owned();
        let leads_up = path.split('/').any(|segment| matches!(segment, "." | ".."));
        if path.is_empty() || leads_up || path.chars().any(char::is_control) {
            return Err(FORM);
        }
        // `Url::port` omits the default port of HTTP.
        let named_80 = rest.split('/').next().is_some_and(|authority| authority.ends_with(":80"));
        Ok(Self { host, port: url.port().unwrap_or(if named_80 { 80 } else { PORT }), path })
    }

    /// Returns the port unless it is the default of Git daemons.
    pub(super) fn unusual_port(&self) -> Option<u16> {
        Some(self.port).filter(|port| *port != PORT)
    }

    /// Returns `host` or `host:port`.
    pub(super) fn authority(&self) -> String {
        match self.port {
            PORT if self.host.contains(':') => format!("[{}]", self.host),
            PORT => self.host.clone(),
            port => super::proxy::authority(&self.host, port),
        }
    }
}

impl fmt::Display for GitAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self
            .path
            .replace('%', "%25")
            .replace('?', "%3F")
            .replace('#', "%23")
            .replace(' ', "%20")
            .replace('\\', "%5C");
        write!(f, "git://{}{path}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_displayed_form_parses_to_the_same_address(rest in "[ -~]{0,8}@?[a-z\\[\\]:.0-9-]{1,9}[:/][ -~]{0,12}") {
            if let Ok(address) = GitAddress::parse(&rest) {
                let shown = address.to_string();
                let parsed = GitAddress::parse(shown.strip_prefix("git://").unwrap());
                prop_assert_eq!(parsed.as_ref(), Ok(&address), "{}", shown);
                prop_assert!(!shown.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn reads_addresses_of_a_git_daemon() {
        let check = |rest: &str, expected: &str| {
            let got = GitAddress::parse(rest).map_or_else(str::to_owned, |address| address.to_string());
            assert_eq!(got, expected, "{rest}");
        };
        check("Git.corp/a/b.git/", "git://git.corp/a/b.git");
        check("git.corp:80/a", "git://git.corp:80/a");
        check("git.corp:9418/a%20b", "git://git.corp/a%20b");
        check("git.corp/a%5Cb", "git://git.corp/a%5Cb");
        check("[::1]:1/a", "git://[::1]:1/a");
        check("[::1]/a", "git://[::1]/a");
        check("u:p@git.corp/a", "a Git daemon does not authenticate users; remove the user from the URL");
        check("git.corp/a?b", "the URL must not contain `?` or `#`; credentials belong in a Secret");
        check("169.254.169.254/a", METADATA_REFUSED);
        for bad in ["", "/a", "git.corp", "git.corp/", "git.corp/a%00b", "git.corp:99999/a", "git.corp/a%2f..%2fb"] {
            check(bad, "the URL of a Git daemon must have the form git://host:port/path");
        }
    }
}
