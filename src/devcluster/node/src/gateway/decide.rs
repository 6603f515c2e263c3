//! Decides where a request goes, with which CORS headers and after which checks.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Method};

use super::http_route;
use super::pattern::Patterns;
use super::rule::{Authenticator, Rule};
use super::table::Table;
use super::target::{Cors, Target};
use super::virtual_service::{Destination, Match, Text, VirtualService};

/// The decision about a request.
#[derive(Debug)]
pub(super) enum Decision {
    /// No route: 404 without a body.
    Nowhere,
    /// The path is ambiguous: 400.
    Ambiguous,
    /// Response to a CORS preflight.
    Preflight(Allowed),
    /// Forwarded without checks.
    Open(Target, Option<Allowed>),
    /// Forwarded if this Rule's checks allow it.
    Guarded(Arc<Rule>, Option<Allowed>),
    /// Refused by Oathkeeper with this status.
    Refused(u16, Option<Allowed>),
}

impl Decision {
    /// Whether a page of another origin may send this request.
    pub(super) fn is_for_others(&self) -> bool {
        match self {
            Self::Preflight(_) => true,
            Self::Open(_, allowed) | Self::Guarded(_, allowed) | Self::Refused(_, allowed) => allowed.is_some(),
            Self::Nowhere | Self::Ambiguous => false,
        }
    }
}

/// CORS permissions of another origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Allowed {
    pub(super) origin: String,
    pub(super) methods: String,
    pub(super) headers: String,
}

/// The parts of a request that the decision depends on.
#[derive(Debug)]
pub(super) struct Asked<'r> {
    pub(super) method: &'r Method,
    /// Percent-encoded, without the query.
    pub(super) path: &'r str,
    pub(super) headers: &'r HeaderMap,
    /// The host of the request's URL, if it has one.
    pub(super) authority: Option<&'r str>,
}

impl Asked<'_> {
    /// Returns the host in lower case, without port and final dot.
    pub(super) fn host(&self) -> Option<String> {
        let named = || self.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = self.authority.or_else(named)?;
        let end = host.rfind(':').filter(|at| host[at + 1..].bytes().all(|byte| byte.is_ascii_digit()));
        let host = host[..end.unwrap_or(host.len())].trim_end_matches('.');
        (!host.is_empty()).then(|| host.to_ascii_lowercase())
    }
}

/// Decides about a request.
pub(super) fn decide(table: &Table, patterns: &Patterns, asked: &Asked<'_>) -> Decision {
    let Some(host) = asked.host() else { return Decision::Nowhere };
    let Some(path) = decoded(asked.path) else { return Decision::Ambiguous };
    // A server might normalise such a path to a path other than the matched one.
    if path.split(['/', '\\']).any(|segment| matches!(segment, "." | "..")) || path.contains('\0') {
        return Decision::Ambiguous;
    }
    let method = asked.method.as_str();
    let services = table.virtual_services(&host);
    let found = services.iter().find_map(|service| of_service(service, patterns, method, &path));
    let (destination, cors) = match found {
        Some(found) => found,
        None if !services.is_empty() => return Decision::Nowhere,
        None => match of_http_routes(table, patterns, &host, asked, &path) {
            Some((target, cors)) => (Destination::Service(target), cors),
            None => return Decision::Nowhere,
        },
    };
    let allowed = cors.and_then(|cors| allowed(&cors, patterns, asked.headers));
    if let Some(allowed) = allowed.clone().filter(|_| is_preflight(asked)) {
        return Decision::Preflight(allowed);
    }
    match destination {
        Destination::Service(target) => Decision::Open(target, allowed),
        Destination::Oathkeeper => of_rules(table, patterns, &host, method, &path, allowed),
    }
}

fn is_preflight(asked: &Asked<'_>) -> bool {
    *asked.method == Method::OPTIONS && asked.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

fn of_service(
    service: &VirtualService,
    patterns: &Patterns,
    method: &str,
    path: &str,
) -> Option<(Destination, Option<Cors>)> {
    let says = |text: &Text, value: &str| match text {
        Text::Exact(exact) => exact == value,
        Text::Prefix(prefix) => value.starts_with(prefix.as_str()),
        Text::Regex(expression) => patterns.matches(expression, value),
    };
    let fits = |one: &Match| {
        one.path.as_ref().is_none_or(|text| says(text, path))
            && one.method.as_ref().is_none_or(|text| says(text, method))
    };
    let route = service.routes.iter().find(|route| route.matches.is_empty() || route.matches.iter().any(fits))?;
    Some((route.target.clone(), route.cors.clone()))
}

fn of_http_routes(
    table: &Table,
    patterns: &Patterns,
    host: &str,
    asked: &Asked<'_>,
    path: &str,
) -> Option<(Target, Option<Cors>)> {
    let says = |wanted: &http_route::Path| match wanted {
        http_route::Path::Exact(exact) => exact == path,
        http_route::Path::Prefix(prefix) => {
            path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        http_route::Path::Regex(expression) => patterns.matches(expression, path),
    };
    let routes = table.http_routes(host);
    let all = routes.iter().flat_map(|route| &route.matches).filter(|found| says(&found.path));
    // A preflight asks about a method other than its own.
    let is_met = |found: &&http_route::Match| {
        found.method.as_ref().is_none_or(|method| method == asked.method.as_str())
            || (found.cors.is_some() && is_preflight(asked))
    };
    let best = all.filter(is_met).max_by_key(|found| (found.path.rank(), found.method.is_some()))?;
    Some((best.target.clone(), best.cors.clone()))
}

/// Finds the Rule of a request. More than one matching Rule is an error.
fn of_rules(
    table: &Table,
    patterns: &Patterns,
    host: &str,
    method: &str,
    path: &str,
    allowed: Option<Allowed>,
) -> Decision {
    let mut rules = table.rules(host);
    rules.retain(|rule| rule.methods.iter().any(|known| known == method) && patterns.matches(&rule.path, path));
    match (rules.pop(), rules.is_empty()) {
        (None, _) => Decision::Refused(404, allowed),
        (Some(rule), true) => Decision::Guarded(rule, allowed),
        (Some(_), false) => Decision::Refused(500, allowed),
    }
}

fn allowed(cors: &Cors, patterns: &Patterns, headers: &HeaderMap) -> Option<Allowed> {
    let origin = headers.get(ORIGIN)?.to_str().ok()?;
    cors.origins.iter().any(|expression| patterns.matches(expression, origin)).then(|| Allowed {
        origin: origin.to_owned(),
        methods: cors.methods.clone(),
        headers: cors.headers.clone(),
    })
}

/// Decodes a path; `None` if it is not UTF-8.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Evaluates an authenticator that needs no key; `None` if it does not recognise credentials.
pub(super) fn plain_check(authenticator: &Authenticator, headers: &HeaderMap) -> Option<bool> {
    match authenticator {
        Authenticator::Noop => Some(true),
        Authenticator::Anonymous => (!headers.contains_key(AUTHORIZATION)).then_some(true),
        Authenticator::Unauthorized | Authenticator::Disabled => Some(false),
        Authenticator::Jwt(_) | Authenticator::Introspection(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::super::table::KINDS;
    use super::*;

    const PROXY: &str = "ory-oathkeeper-proxy.kyma-system.svc.cluster.local";

    /// A table with paths of one host, each with its target; paths of Oathkeeper have a Rule.
    fn table(paths: &[(&str, &[&str])]) -> Table {
        let mut table = Table::default();
        let mut http = Vec::new();
        for (at, (path, methods)) in paths.iter().enumerate() {
            let host = if methods.is_empty() { "web.shop.svc.cluster.local" } else { PROXY };
            let cors =
                json!({"allowOrigins": [{"regex": ".*"}], "allowMethods": ["GET", "POST"], "allowHeaders": ["*"]});
            http.push(json!({"match": [{"uri": {"regex": path}}], "route": [{"destination": {"host": host}}], "corsPolicy": cors}));
            let rule = json!({
                "upstream": {"url": "http://web.shop.svc.cluster.local:80"}, "authorizer": {"handler": "allow"},
                "match": {"url": format!("<http|https>://web.kyma.local<{path}>"), "methods": methods},
                "authenticators": [{"handler": "noop"}],
            });
            let rule = json!({"spec": rule});
            table.set(KINDS[1].0, "shop", &at.to_string(), Some(&rule).filter(|_| !methods.is_empty()));
        }
        let service = json!({"spec": {"hosts": ["web.kyma.local"], "http": http}});
        table.set(KINDS[0].0, "shop", "web", Some(&service));
        table
    }

    fn ask(table: &Table, method: &str, host: &str, path: &str, headers: &[(&'static str, &str)]) -> String {
        let mut all = HeaderMap::new();
        all.insert(HOST, HeaderValue::from_str(host).unwrap());
        for (name, value) in headers {
            all.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let asked = Asked { method: &method, path, headers: &all, authority: None };
        match decide(table, &Patterns::default(), &asked) {
            Decision::Guarded(rule, _) => format!("guarded {}", rule.path),
            Decision::Refused(status, _) => format!("refused {status}"),
            Decision::Open(target, _) => format!("open {}", target.service),
            Decision::Preflight(allowed) => format!("preflight {} {}", allowed.origin, allowed.methods),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn host_and_path_and_method_decide() {
        let table = table(&[("/post", &["POST"]), ("/.*", &["GET", "DELETE"])]);
        let check = |method: &str, host: &str, path: &str, expected: &str| {
            assert_eq!(ask(&table, method, host, path, &[]), expected, "{method} {host} {path}");
        };
        check("GET", "web.kyma.local", "/ip", "guarded /.*");
        check("GET", "WEB.kyma.local.:8080", "/ip", "guarded /.*");
        check("POST", "web.kyma.local", "/ip", "refused 404");
        check("PATCH", "web.kyma.local", "/ip", "refused 404");
        check("POST", "web.kyma.local", "/post", "guarded /post");
        check("POST", "web.kyma.local", "/%70ost", "guarded /post");
        check("POST", "web.kyma.local", "/post/1", "refused 404");
        check("GET", "nobody.kyma.local", "/", "Nowhere");
        check("GET", "web.kyma.local", "/a/../post", "Ambiguous");
        check("GET", "web.kyma.local", "/a/%2e%2E/post", "Ambiguous");
        check("GET", "web.kyma.local", "/%zz", "Ambiguous");
        check("GET", "", "/", "Nowhere");
    }

    #[test]
    fn two_rules_are_an_error_and_an_open_path_takes_all_methods() {
        let both = table(&[("/.*", &["GET"]), ("/a", &["GET"]), ("/b", &["POST"])]);
        assert_eq!(ask(&both, "GET", "web.kyma.local", "/a", &[]), "refused 500");
        assert_eq!(ask(&both, "POST", "web.kyma.local", "/b", &[]), "guarded /b");
        let open = table(&[("/.*", &[])]);
        assert_eq!(ask(&open, "PATCH", "web.kyma.local", "/", &[]), "open web");
    }

    #[test]
    fn pages_may_ask_before() {
        let table = table(&[("/.*", &["GET"])]);
        let (origin, asks) = (("origin", "https://page"), ("access-control-request-method", "GET"));
        let ask = |headers: &[(&'static str, &str)]| ask(&table, "OPTIONS", "web.kyma.local", "/", headers);
        assert_eq!(ask(&[origin, asks]), "preflight https://page GET,POST");
        assert_eq!(ask(&[origin]), "refused 404", "a plain OPTIONS is routed");
        assert_eq!(ask(&[asks]), "refused 404");
    }

    #[test]
    fn the_most_specific_match_of_an_http_route_counts() {
        let mut table = Table::default();
        let rule = |kind: &str, path: &str, method: Option<&str>, service: &str| {
            let mut found = json!({"path": {"type": kind, "value": path}});
            if let Some(method) = method {
                found["method"] = method.into();
            }
            json!({"matches": [found], "backendRefs": [{"name": service, "port": 80}]})
        };
        let rules = [
            rule("PathPrefix", "/", None, "all"),
            rule("PathPrefix", "/a", Some("GET"), "gets"),
            rule("RegularExpression", "/a/b.*", None, "some"),
            rule("Exact", "/a/b", Some("POST"), "one"),
        ];
        let route = |rules: &[Value]| json!({"spec": {"hostnames": ["web.kyma.local"], "rules": rules}});
        table.set(KINDS[2].0, "shop", "web", Some(&route(&rules)));
        let check = |method: &str, path: &str, expected: &str| {
            assert_eq!(ask(&table, method, "web.kyma.local", path, &[]), expected, "{method} {path}");
        };
        check("GET", "/x", "open all");
        check("GET", "/a/b", "open gets");
        check("GET", "/ab", "open all");
        check("POST", "/a/b", "open one");
        check("PUT", "/a/b", "open all");
        let mut unknown = rules;
        unknown[0]["matches"][0]["headers"] = json!([{"name": "x", "value": "y"}]);
        table.set(KINDS[2].0, "shop", "web", Some(&route(&unknown)));
        assert_eq!(ask(&table, "GET", "web.kyma.local", "/a", &[]), "Nowhere");
    }

    #[test]
    fn ten_thousand_rules_are_found_by_their_host() {
        let mut table = Table::default();
        for at in 0..10_000 {
            let rule = json!({"spec": {
                "upstream": {"url": "http://web.shop.svc.cluster.local:80"}, "authorizer": {"handler": "allow"},
                "match": {"url": format!("<http|https>://h{at}.kyma.local</(a+)+b>"), "methods": ["GET"]},
            }});
            table.set(KINDS[1].0, "shop", &at.to_string(), Some(&rule));
        }
        assert_eq!(table.rules("h77.kyma.local").len(), 1);
    }
}
