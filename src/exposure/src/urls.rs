//! Checks URLs in an APIRule that other components request: keys of issuers, introspection, and URLs in other fields of
//! a handler's configuration.
//!
//! Oathkeeper and Istio request these URLs from inside of the cluster, so the check uses the host as it is written.
//!
//! Invariant: every URL of a configuration is checked, whatever its field. Only listed fields are exempt. Invariant: no
//! message contains a value from the configuration.
//!
//! Not here: resolving names. A public name may resolve to a private address; the process that connects has to check
//! that.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use reqwest::Url;
use serde_json::Value;

use mainstay_object::egress::{Egress, EgressPolicy};
use mainstay_object::names::HostName;
use mainstay_object::syntax::shown;

/// Fields whose URLs are not requested. Values of these fields are compared, or written into requests.
const NOT_ASKED: [&str; 5] = ["target_audience", "required_scope", "headers", "cookies", "claims"];

/// The message for a URL that points into the cluster.
const INSIDE: &str = "points into the cluster, to this machine or to a private network; the operator of the agent \
                      permits it with --allow-issuer";
/// The message for a URL that parsers interpret differently.
const AMBIGUOUS: &str = "has a user name, a password or a backslash; write the URL without";
/// The message for a string that is not a URL.
const NO_URL: &str = "value is empty or not a valid url";

/// Scheme, host and port of a URL that may point into the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOrigin(String);

/// A string is not the URL of an issuer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a URL with a scheme, a host and perhaps a port, such as http://dex.kyma-system.svc.cluster.local:5556"
)]
pub struct InvalidOrigin;

impl IssuerOrigin {
    /// Returns the origin of a URL; `None` if it is not one of HTTP.
    pub(super) fn of_url(text: &str) -> Option<Self> {
        parsed(text).map(|url| Self(url.origin().ascii_serialization()))
    }
}

impl FromStr for IssuerOrigin {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let url = parsed(text).ok_or(InvalidOrigin)?;
        let is_plain =
            url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if is_plain { Ok(Self(url.origin().ascii_serialization())) } else { Err(InvalidOrigin) }
    }
}

impl fmt::Display for IssuerOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Determines which URLs point into the cluster, and which of them are allowed.
#[derive(Clone, Copy)]
pub(super) struct Inside<'a> {
    /// The origins that the operator allows.
    pub(super) allowed: &'a [IssuerOrigin],
    /// Whether a namespace has Services. A pod's search list resolves `SERVICE.NAMESPACE` to a Service.
    pub(super) is_namespace: &'a dyn Fn(&str) -> bool,
}

/// Returns the refused URLs of a configuration: for each URL the path of its field, which begins with `attribute`, and
/// the reason. Returns at most `most` URLs.
pub(super) fn refused(config: &Value, attribute: &str, inside: Inside<'_>, most: usize) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    // Without URLs of keys, the issuer is asked for these URLs.
    let has_keys = config["jwks_urls"].as_array().is_some_and(|all| !all.is_empty());
    let mut open = vec![(attribute.to_owned(), String::new(), config)];
    while let Some((at, field, value)) = open.pop() {
        if found.len() >= most {
            break;
        }
        match value {
            Value::Object(fields) => {
                let asked = fields.iter().rev().filter(|(field, _)| !NOT_ASKED.contains(&field.as_str()));
                open.extend(asked.map(|(field, value)| (format!("{at}.{}", shown(field)), field.clone(), value)));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate().rev().filter(|(_, item)| !item.is_null());
                open.extend(items.map(|(index, item)| (format!("{at}[{index}]"), field.clone(), item)));
            }
            Value::String(text) => {
                let is_compared = has_keys && field == "trusted_issuers";
                let refusal = refusal(&field, text, inside).filter(|why| !is_compared || *why == NO_URL);
                found.extend(refusal.map(|why| (at, why)));
            }
            _ => {}
        }
    }
    found
}

/// Returns why a string must not be requested, if it is a URL.
fn refusal(field: &str, text: &str, inside: Inside<'_>) -> Option<&'static str> {
    let field = field.to_ascii_lowercase();
    let names_url = ["url", "urls", "uri", "uris", "trusted_issuers"].iter().any(|end| field.ends_with(end));
    match parsed(text) {
        Some(url) if inside.has(&url) && !inside.allows(&url) => Some(INSIDE),
        // The object contains the string as written, not the parsed URL.
        Some(url) if text.contains('\\') || !url.username().is_empty() || url.password().is_some() => Some(AMBIGUOUS),
        None if names_url || text.contains("://") => Some(NO_URL),
        _ => None,
    }
}

/// Parses an HTTP URL. The parser normalises IP addresses.
fn parsed(text: &str) -> Option<Url> {
    Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

impl Inside<'_> {
    /// Whether the host of a URL belongs to the cluster, this machine, or a private network.
    fn has(&self, url: &Url) -> bool {
        let last = url.host_str().and_then(|host| host.trim_end_matches('.').rsplit('.').next());
        is_inside(url) || last.is_some_and(self.is_namespace)
    }

    fn allows(&self, url: &Url) -> bool {
        self.allowed.iter().any(|one| one.0 == url.origin().ascii_serialization())
    }
}

/// Whether the host of a URL is written in a form that refers to the cluster, this machine, or a private network.
fn is_inside(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return true };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<IpAddr>() {
        let confined = EgressPolicy { unconfined: Some(Vec::new()), ..EgressPolicy::default() };
        return confined.refusal(Egress::Confined, address).is_some();
    }
    let is_of_machine = |host: &HostName| {
        let last = host.as_str().rsplit('.').next();
        matches!(last, Some("localhost" | "internal" | "pod"))
    };
    !HostName::parse(host).is_ok_and(|host| !host.is_of_cluster() && !is_of_machine(&host))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(config: Value, expected: &[&str]) {
        let allowed = ["http://dex.auth.svc.cluster.local:5556".parse().unwrap()];
        let inside = Inside { allowed: &allowed, is_namespace: &|name| ["prod", "com-team"].contains(&name) };
        let found = refused(&config, "config", inside, 10);
        assert_eq!(found.iter().map(|(at, _)| at.as_str()).collect::<Vec<_>>(), expected, "{config}");
    }

    /// Internal hosts in different spellings.
    const INSIDE_HOSTS: [&str; 31] = [
        "127.0.0.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:169.254.169.254]",
        "169.254.169.254",
        "metadata.google.internal",
        "10.96.0.1",
        "10.0.0.1:8080",
        "192.168.1.1",
        "100.64.0.1",
        "[fd00::1]",
        "localhost",
        "localhost.",
        "a.localhost",
        "kubernetes",
        "payments.prod",
        "PAYMENTS.Prod.",
        "pod-0.payments.prod:8080",
        "payments.com-team",
        "10-0-0-1.prod.pod",
        "kubernetes.default.svc",
        "KUBERNETES.default.SVC",
        "kubernetes.default.svc.",
        "payments.prod.svc.cluster.local",
        "payments.prod.svc.corp.example",
        "10-0-0-1.prod.pod.cluster.local",
        "user:word@payments.prod.svc",
        "dex.auth.svc.cluster.local",
        "dex.auth.svc.cluster.local:5557",
    ];

    #[test]
    fn every_url_of_a_configuration_is_judged() {
        for host in INSIDE_HOSTS {
            let url = format!("http://{host}/keys");
            check(json!({"jwks_urls": ["https://public.example.com", url]}), &["config.jwks_urls[1]"]);
            check(json!({"introspection_url": url}), &["config.introspection_url"]);
            check(json!({"pre_authorization": {"token_url": url}}), &["config.pre_authorization.token_url"]);
            check(json!({"api": {"url": url}}), &["config.api.url"]);
            check(json!({"fresh": {"field": [[url]]}}), &["config.fresh.field[0][0]"]);
            check(json!({"trusted_issuers": [url]}), &["config.trusted_issuers[0]"]);
            check(json!({"trusted_issuers": [url], "jwks_urls": ["https://keys.example.com"]}), &[]);
            check(json!({"target_audience": [url], "headers": {"X-Url": url}}), &[]);
        }
        for url in ["", "file:///etc/passwd", "inline://x", "s3://bucket/x", "http://", "x", "//payments.prod.svc/"] {
            check(json!({"jwks_urls": [url]}), &["config.jwks_urls[0]"]);
        }
        check(json!({"fresh": "gs://bucket/x"}), &["config.fresh"]);
        check(json!({"fresh": "read", "jwks_urls": null, "introspection_url": null, "cache": {"ttl": "5m"}}), &[]);
    }

    #[test]
    fn public_urls_and_those_that_the_operator_permits_are_asked() {
        for url in
            ["https://issuer.example.com/keys", "http://8.8.8.8/keys", "http://dex.auth.svc.cluster.local:5556/keys?a"]
        {
            check(json!({"jwks_urls": [url], "introspection_url": url}), &[]);
        }
    }

    #[test]
    fn a_url_that_parsers_read_in_different_ways_is_refused() {
        for url in
            ["http://issuer.example.com\\@127.0.0.1/", "http://issuer.example.com/a\\b", "http://u:w@example.com/"]
        {
            check(json!({"jwks_urls": [url]}), &["config.jwks_urls[0]"]);
        }
    }

    #[test]
    fn texts_have_no_value_and_their_number_is_bounded() {
        let urls: Vec<String> = (0..100).map(|at| format!("http://hunter{at}.svc/")).collect();
        let found =
            refused(&json!({"jwks_urls": urls}), "config", Inside { allowed: &[], is_namespace: &|_| false }, 5);
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|(at, why)| !at.contains("hunter") && !why.contains("hunter")), "{found:?}");
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        for good in ["http://dex.auth.svc:5556", "https://dex/", "http://127.0.0.1:80"] {
            assert!(good.parse::<IssuerOrigin>().is_ok(), "{good}");
        }
        for bad in ["", "dex", "dex:5556", "file:///a", "http://dex/keys", "http://a@dex", "http://dex?a"] {
            assert_eq!(bad.parse::<IssuerOrigin>(), Err(InvalidOrigin), "{bad}");
        }
    }
}
