//! Parses paths and queries.
//!
//! Empty pairs in the query (`?&limit=1`) and unknown parameters are ignored; percent and plus signs are decoded. For
//! repeated parameters, the last boolean and the first number or string count.
//!
//! Not here: whether the resource exists (see the type table).

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/api` or `/apis`: all groups. `/api` lists the core group, `/apis` the others.
    Groups {
        /// Whether the path is `/api`.
        core: bool,
    },
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1` or `/apis/{group}/{version}`.
    Version {
        /// Group, empty for core.
        group: String,
        /// Version.
        version: String,
    },
    /// A collection, an object or a subresource.
    Resource(Address),
    /// `/api/v1/watch/…` or `/apis/{group}/{version}/watch/…`: the deprecated way to watch a collection or an object.
    Watch(Address),
    /// `/version`.
    VersionInfo,
    /// `/healthz`, `/readyz`, `/livez` and their checks.
    Health {
        /// `healthz`, `readyz` or `livez`.
        group: String,
        /// One check, such as `poststarthook/rbac/bootstrap-roles`; empty for the whole group.
        check: String,
    },
    /// `/openapi/v2`.
    OpenApiLegacy,
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/api/v1` or `/openapi/v3/apis/{group}/{version}`: the part after `/openapi/v3/`.
    OpenApi(String),
    /// `/.well-known/openid-configuration`: the issuer of tokens and the location of its keys.
    Issuer,
    /// `/openid/v1/jwks`: the public keys of the issuer.
    Keys,
    /// `/devcluster/…`: fault injection.
    FaultInjection(String),
    /// Anything else.
    Unknown,
}

/// A collection, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name of the resource.
    pub resource: String,
    /// Namespace in the path, empty for none.
    pub namespace: String,
    /// Name of the object, empty for the collection.
    pub name: String,
    /// Subresource, empty for none.
    pub subresource: String,
}

/// Parses a path.
pub fn route(path: &str) -> Route {
    let parts: Vec<String> = path.split('/').filter(|p| !p.is_empty()).map(decode_path).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["api"] => Route::Groups { core: true },
        ["apis"] => Route::Groups { core: false },
        ["apis", group] => Route::Group((*group).to_owned()),
        ["api", version] => Route::Version { group: String::new(), version: (*version).to_owned() },
        ["apis", group, version] => Route::Version { group: (*group).to_owned(), version: (*version).to_owned() },
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        ["version"] => Route::VersionInfo,
        [group @ ("healthz" | "readyz" | "livez"), check @ ..] if !path.ends_with('/') => {
            Route::Health { group: (*group).to_owned(), check: check.join("/") }
        }
        ["openapi", "v2"] => Route::OpenApiLegacy,
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", rest @ ..] => Route::OpenApi(rest.join("/")),
        [".well-known", "openid-configuration"] => Route::Issuer,
        ["openid", "v1", "jwks"] => Route::Keys,
        ["devcluster", rest @ ..] => Route::FaultInjection(rest.join("/")),
        _ => Route::Unknown,
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Route {
    if let ["watch", below @ ..] = rest {
        return match resource(group, version, below) {
            Route::Resource(address) if address.subresource.is_empty() => Route::Watch(address),
            // Such a path names a resource called `watch`, which no kind has.
            _ => Route::Resource(Address {
                group: group.to_owned(),
                version: version.to_owned(),
                resource: "watch".to_owned(),
                ..Address::default()
            }),
        };
    }
    let (namespace, rest) = match rest {
        // `namespaces/x/status` is a subresource of the namespace, not a kind inside it.
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
        ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (*namespace, inner),
        _ => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", String::new()),
        [resource, name] => (*resource, *name, String::new()),
        [resource, name, subresource @ ..] => (*resource, *name, subresource.join("/")),
        [] => return Route::Unknown,
    };
    Route::Resource(Address {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
    })
}

/// The parameters of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses a query.
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|p| !p.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_query(name), decode_query(value))
        });
        Self(pairs.collect())
    }

    /// Returns the first value of a parameter; empty if it is missing.
    pub fn text(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    /// Returns whether a parameter is present, with or without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// Returns all values of a parameter that are not empty.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Returns all values of a parameter, including empty ones.
    pub fn every<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// Returns whether a parameter is set: present and neither `0` nor `false`. `?watch` counts as set.
    pub fn flag(&self, name: &str) -> bool {
        self.0.iter().rfind(|(n, _)| n == name).is_some_and(|(_, v)| !matches!(v.as_str(), "0" | "false"))
    }

    /// Returns the query with a parameter replaced.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.retain(|(n, _)| n != name);
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns a numeric parameter; `None` if it is missing or not a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }
}

/// Decodes the percent signs of a path segment.
pub(crate) fn decode_path(text: &str) -> String {
    decode(text, false)
}

fn decode_query(text: &str) -> String {
    decode(text, true)
}

fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        match (bytes[at], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) if plus_is_space => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: (&str, &str, &str, &str)) {
        let Route::Resource(a) = route(path) else { panic!("{path} is no resource") };
        assert_eq!((&*a.resource, &*a.namespace, &*a.name, &*a.subresource), expected, "{path}");
    }

    #[test]
    fn reads_paths_of_objects() {
        check("/api/v1/configmaps", ("configmaps", "", "", ""));
        check("/api/v1/namespaces", ("namespaces", "", "", ""));
        check("/api/v1/namespaces/a", ("namespaces", "", "a", ""));
        check("/api/v1/namespaces/a/finalize", ("namespaces", "", "a", "finalize"));
        check("/api/v1/namespaces/a/pods/p/log", ("pods", "a", "p", "log"));
        check("/apis/apps/v1/namespaces/a/deployments", ("deployments", "a", "", ""));
        check("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", ("clusterroles", "", "system:node", ""));
    }

    #[test]
    fn tolerates_empty_pairs_and_decodes() {
        let query = Query::parse("&limit=500&&labelSelector=a%3Db%2Cc+in+(d)&watch");
        assert_eq!(query.text("labelSelector"), "a=b,c in (d)");
        assert_eq!(query.number("limit"), Some(500));
        assert!(query.flag("watch") && !query.flag("other"));
    }
}
