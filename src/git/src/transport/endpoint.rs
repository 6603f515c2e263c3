//! The location of a repository on an HTTP server, after redirects.
//!
//! Invariant: a redirect to a different host is followed without credentials. A redirect from https to http is refused.

use reqwest::{Url, header};

use crate::address::strip;
use crate::error::Fault;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

/// The endpoint of a repository after redirects.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) base: Url,
    /// Whether the host is that of the repository's address.
    pub(super) own: bool,
}

pub(super) fn append(base: &Url, tail: &str, query: Option<&str>) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}/{tail}", base.path().trim_end_matches('/')));
    url.set_query(query);
    url
}

pub(super) fn host(url: &Url) -> String {
    let name = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"))
}

/// Returns the target of a redirect. `asked` is the repository's own address.
pub(super) fn redirected(at: &Endpoint, asked: &Url, response: &reqwest::Response) -> Result<Endpoint, Fault> {
    let location = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
    let to = location.and_then(|to| append(&at.base, "info/refs", None).join(to).ok());
    let Some(mut to) = to else {
        return Err(Fault::Protocol { why: "a redirect has no URL" });
    };
    next_endpoint(&at.base, asked, &mut to)
}

fn next_endpoint(from: &Url, asked: &Url, to: &mut Url) -> Result<Endpoint, Fault> {
    strip(to);
    if to.host_str().is_some_and(is_metadata_host) {
        return Err(Fault::Redirect { to: host(to), why: METADATA_REFUSED });
    }
    if !matches!(to.scheme(), "http" | "https") {
        return Err(Fault::Redirect { to: host(to), why: "it is not HTTP" });
    }
    if from.scheme() == "https" && to.scheme() == "http" {
        return Err(Fault::Redirect { to: host(to), why: "it changes from https to http" });
    }
    let Some(path) = to.path().strip_suffix("/info/refs").map(str::to_owned) else {
        return Err(Fault::WebPage);
    };
    to.set_path(&path);
    to.set_query(None);
    to.set_fragment(None);
    let default_ports = asked.port().is_none() && to.port().is_none();
    let same_port = asked.port_or_known_default() == to.port_or_known_default() && asked.scheme() == to.scheme();
    let upgraded = asked.scheme() == "http" && to.scheme() == "https" && default_ports;
    let own = asked.host() == to.host() && (same_port || upgraded);
    Ok(Endpoint { base: to.clone(), own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        let from = Url::parse(from).unwrap();
        let got = match next_endpoint(&from, &from, &mut Url::parse(to).unwrap()) {
            Ok(at) => format!("{} {}", if at.own { "own" } else { "foreign" }, at.base),
            Err(fault) => fault.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn sends_credentials_only_to_redirects_within_the_host() {
        check("https://a.org/x", "https://a.org/x.git/info/refs?service=git-upload-pack", "own https://a.org/x.git");
        check("http://a.org/x", "https://a.org/x/info/refs", "own https://a.org/x");
        check("https://a.org/x", "https://b.org/x/info/refs", "foreign https://b.org/x");
        check("https://a.org/x", "https://u:p@a.org:444/x/info/refs", "foreign https://a.org:444/x");
        check("http://a.org:80/x", "http://a.org:8080/x/info/refs", "foreign http://a.org:8080/x");
        check("http://a.org:8080/x", "https://a.org:8080/x/info/refs", "foreign https://a.org:8080/x");
        let refused = "the server redirects to a.org, which is not followed: it changes from https to http";
        check("https://a.org/x", "http://a.org/x/info/refs", refused);
        let link_local = format!("the server redirects to 169.254.169.254, which is not followed: {METADATA_REFUSED}");
        check("http://a.org/x", "http://2852039166/x/info/refs", &link_local);
        check("https://a.org/x", "https://a.org/users/sign_in", &Fault::WebPage.to_string());
    }
}
