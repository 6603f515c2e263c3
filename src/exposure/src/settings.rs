//! What the operator of the agent decides about hosts.
//!
//! A domain is allowed if the host ends with a dot and the domain; Kyma's looks for the text only, so that `evilkyma.local` passed.

use std::fmt;

/// What the operator of the agent decides about hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What follows a host without a dot; `None`: such hosts are not valid.
    pub default_domain: Option<String>,
    /// The domains in which hosts may be; with none, all are.
    pub allowed_domains: Vec<String>,
}

/// Why a text is no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADomain;

impl fmt::Display for NotADomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a domain such as example.com: lower case letters, digits, - and dots between them")
    }
}

impl std::error::Error for NotADomain {}

impl Settings {
    /// Reads a domain, which may be one word.
    ///
    /// # Errors
    /// It is none.
    pub fn domain(text: &str) -> Result<String, NotADomain> {
        if mainstay_object::syntax::subdomain(text).is_none() { Ok(text.to_owned()) } else { Err(NotADomain) }
    }

    /// The whole host; otherwise, why it may not be served.
    pub(super) fn host(&self, written: &str) -> Result<String, &'static str> {
        if written.is_empty() {
            return Err("no host is given; write one here, or in spec.host");
        }
        if !written.contains('.') {
            let none = "Host does not contain a domain name and no default domain name is configured";
            return self.default_domain.as_ref().map(|domain| format!("{written}.{domain}")).ok_or(none);
        }
        let lower = written.to_ascii_lowercase();
        let is_in = |domain: &String| {
            lower
                .strip_suffix(domain.to_ascii_lowercase().as_str())
                .is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
        };
        if self.allowed_domains.is_empty() || self.allowed_domains.iter().any(is_in) {
            Ok(written.to_owned())
        } else {
            Err("Host is not whitelisted")
        }
    }
}
