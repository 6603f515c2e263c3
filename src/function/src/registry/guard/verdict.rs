//! Decides which requests to the registry are allowed.

use std::borrow::Cow;

use http::{Method, StatusCode};

use super::asked::{Part, Subject, is_read};
use crate::registry::image_ref::is_repository;
use crate::registry::{Digest, SHARED_LAYERS, owner};

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    /// A sender without a valid login.
    Unknown,
    /// A sender with the registry's login.
    Registry,
    /// A sender with the login of a namespace.
    Namespace(String),
}

/// A request without its subject.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) method: &'a Method,
    pub(super) query: &'a str,
    /// Whether the request came over TLS.
    pub(super) is_encrypted: bool,
    /// Whether the request was sent to a loopback address.
    pub(super) is_to_loopback: bool,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The path does not exist in the API.
    NotFound,
    /// The specification does not define this method for the path.
    Method,
    /// The login is missing or wrong.
    Unauthorized,
    /// The request came over plain HTTP, which is allowed only for reads by nodes.
    Unencrypted,
    /// The login of this namespace lacks the permission.
    Denied(String),
}

impl Refusal {
    /// Returns the HTTP status of the refusal, its code in the distribution specification, and its message.
    pub(super) fn parts(&self) -> (StatusCode, &'static str, String) {
        match self {
            Self::NotFound => (StatusCode::NOT_FOUND, "UNSUPPORTED", "a registry serves nothing at this path".to_owned()),
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "UNSUPPORTED",
                "a registry has no such method at this path".to_owned(),
            ),
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "UNAUTHORIZED",
                "the login is missing or wrong; the present one is in the Secret serverless-registry-config-default of each namespace"
                    .to_owned(),
            ),
            Self::Unencrypted => (
                StatusCode::BAD_REQUEST,
                "UNSUPPORTED",
                "plain HTTP is for nodes that pull from their loopback address; use HTTPS".to_owned(),
            ),
            Self::Denied(namespace) => (
                StatusCode::FORBIDDEN,
                "DENIED",
                format!(
                    "the login of the namespace {namespace} may push only images of its Functions, and pull only these and \
                     images that belong to no Function, such as base/node"
                ),
            ),
        }
    }
}

/// Returns the query to forward for an allowed request.
///
/// # Errors
/// Returns the refusal of a request that is not allowed.
pub(super) fn judge<'q>(
    subject: Option<Subject<'_>>,
    visitor: &Visitor,
    request: Request<'q>,
) -> Result<Cow<'q, str>, Refusal> {
    let Request { method, query, is_encrypted, is_to_loopback } = request;
    let subject = subject.ok_or(Refusal::NotFound)?;
    let is_read_of_a_node = is_to_loopback && is_read(method);
    if !is_encrypted && !is_read_of_a_node {
        return Err(Refusal::Unencrypted);
    }
    if !subject.has(method) {
        return Err(Refusal::Method);
    }
    let namespace = match visitor {
        _ if subject == Subject::Health => return Ok("".into()),
        Visitor::Unknown => return Err(Refusal::Unauthorized),
        Visitor::Registry => return Ok(query.into()),
        Visitor::Namespace(namespace) => namespace,
    };
    let denied = || Refusal::Denied(namespace.clone());
    match subject {
        Subject::Health | Subject::Version => Ok("".into()),
        Subject::Catalog => Err(denied()),
        Subject::Of(SHARED_LAYERS, Part::Uploads) => sharing(query, namespace).map(Cow::Owned).ok_or_else(denied),
        Subject::Of(name, part) => {
            let owner = owner(name);
            let may = owner.map_or_else(|| is_read(method), |owner| owner == namespace);
            if !may {
                return Err(denied());
            }
            Ok(if part == Part::Uploads { mounting(query, namespace) } else { query.into() })
        }
    }
}

/// Returns the query that mounts a blob of the namespace's own repositories in the shared repository; `None` for any
/// other query.
///
/// Invariant: a namespace shares only blobs of its own repositories. No upload reaches the shared repository.
fn sharing(query: &str, namespace: &str) -> Option<String> {
    let all: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let only = |name: &str| {
        let mut values = all.iter().filter(|(other, _)| *other == name).map(|(_, value)| &**value);
        values.next().filter(|_| values.next().is_none())
    };
    let (digest, from) = (only("mount")?.parse::<Digest>().ok()?, only("from")?);
    let is_own = is_repository(from) && owner(from) == Some(namespace);
    let mut query = form_urlencoded::Serializer::new(String::new());
    is_own.then(|| query.append_pair("mount", digest.as_str()).append_pair("from", from).finish())
}

/// Returns the digest and the repository in a query from [`sharing`].
pub(super) fn mounted(query: &str) -> Option<(Digest, String)> {
    let find = |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(other, _)| other == name);
    Some((find("mount")?.1.parse().ok()?, find("from")?.1.into_owned()))
}

/// Whether a request of a namespace shares a blob.
pub(super) fn shares(subject: Option<Subject<'_>>, visitor: &Visitor) -> bool {
    matches!((subject, visitor), (Some(Subject::Of(SHARED_LAYERS, Part::Uploads)), Visitor::Namespace(_)))
}

/// Returns the query that starts an upload. A blob is mounted only from repositories that the namespace may read.
/// Otherwise the query starts a plain upload, as the specification allows.
fn mounting<'q>(query: &'q str, namespace: &str) -> Cow<'q, str> {
    let pairs = || form_urlencoded::parse(query.as_bytes());
    let may_read = |from: &str| {
        let is_path = Subject::read(&format!("/v2/{from}/tags/list")).is_some();
        is_path && owner(from).is_none_or(|owner| owner == namespace)
    };
    let mut from = pairs().filter(|(name, _)| name == "from").peekable();
    let mounts = from.peek().is_some() && from.all(|(_, from)| may_read(&from));
    let kept = pairs().filter(|(name, _)| mounts || !matches!(&**name, "mount" | "from"));
    form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TLS: (bool, bool) = (true, false);
    const NODE: (bool, bool) = (false, true);

    fn team() -> Visitor {
        Visitor::Namespace("team".into())
    }

    #[track_caller]
    fn check(visitor: &Visitor, (is_encrypted, is_to_loopback): (bool, bool), asked: &str, expected: &str) {
        let (method, target) = asked.split_once(' ').unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let method = &method.parse().unwrap();
        let request = Request { method, query, is_encrypted, is_to_loopback };
        let judged = match judge(Subject::read(path), visitor, request) {
            Ok(query) => format!("passed {query}"),
            Err(refusal) => refusal.parts().0.as_u16().to_string(),
        };
        assert_eq!(judged.trim(), expected, "{visitor:?} {asked}");
    }

    #[test]
    fn a_namespace_reads_and_writes_its_own_repositories() {
        let hyphenated = Visitor::Namespace("team-a".into());
        for path in [
            "PUT /v2/{}/manifests/1",
            "GET /v2/{}/blobs/sha256:00",
            "PATCH /v2/{}/blobs/uploads/1",
            "GET /v2/{}/tags/list",
        ] {
            check(&team(), TLS, &path.replace("{}", "team-fn"), "passed");
            check(&team(), TLS, &path.replace("{}", "team-a-fn"), "passed");
            check(&team(), TLS, &path.replace("{}", "team-a_fn"), "403");
            check(&team(), TLS, &path.replace("{}", "shop-fn"), "403");
            check(&hyphenated, TLS, &path.replace("{}", "team-a_fn"), "passed");
            check(&hyphenated, TLS, &path.replace("{}", "team-a-fn"), "403");
            check(&Visitor::Registry, TLS, &path.replace("{}", "shop-fn"), "passed");
            check(&Visitor::Unknown, TLS, &path.replace("{}", "shop-fn"), "401");
        }
        check(&team(), TLS, "GET /v2/_catalog", "403");
        check(&Visitor::Registry, TLS, "GET /v2/_catalog?n=5", "passed n=5");
        check(&team(), TLS, "GET /v2/", "passed");
        check(&Visitor::Unknown, TLS, "GET /v2/", "401");
        check(&Visitor::Unknown, TLS, "GET /", "passed");
        check(&Visitor::Registry, TLS, "GET /debug/vars", "404");
    }

    #[test]
    fn repositories_of_no_function_are_readable_and_not_writable() {
        for name in ["base/node", "base/shop-fn", "node22"] {
            check(&team(), TLS, &format!("GET /v2/{name}/manifests/1"), "passed");
            check(&team(), TLS, &format!("PUT /v2/{name}/manifests/1"), "403");
            check(&team(), TLS, &format!("DELETE /v2/{name}/manifests/1"), "403");
            check(&team(), TLS, &format!("POST /v2/{name}/blobs/uploads/"), "403");
        }
    }

    #[test]
    fn a_blob_of_another_namespace_is_not_taken_over() {
        let begin = |query: &str| format!("POST /v2/team-fn/blobs/uploads/?{query}");
        check(&team(), TLS, &begin("mount=d&from=team-other"), "passed mount=d&from=team-other");
        check(&team(), TLS, &begin("mount=d&from=base%2Fnode"), "passed mount=d&from=base%2Fnode");
        check(&team(), TLS, &begin("mount=d&from=shop-fn&digest=x"), "passed digest=x");
        check(&team(), TLS, &begin("mount=d&from=team-other&from=shop-fn"), "passed");
        check(&team(), TLS, &begin("mount=d&from=base%2F..%2Fshop-fn"), "passed");
        check(&team(), TLS, &begin("mount=d;from=shop-fn"), "passed");
        check(&team(), TLS, &begin("mount=d"), "passed");
        // Docker's registry starts an upload at this path too.
        check(&team(), TLS, "POST /v2/team-fn/blobs/uploads/1?mount=d&from=shop-fn", "405");
        check(&Visitor::Registry, TLS, &begin("mount=d&from=shop-fn"), "passed mount=d&from=shop-fn");
    }

    #[test]
    fn a_namespace_shares_only_blobs_of_its_own() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let share = |query: &str| format!("POST /v2/mainstay/base-layers/blobs/uploads/?{query}");
        let (own, escaped) = (format!("mount={digest}&from=team-fn"), digest.replace(':', "%3A"));
        let passed = format!("passed mount={escaped}&from=team-fn");
        check(&team(), TLS, &share(&own), &passed);
        check(&team(), TLS, &share(&format!("{own}&digest=x&other=y")), &passed);
        for denied in [
            String::new(),
            format!("mount={digest}"),
            "from=team-fn".to_owned(),
            "mount=d&from=team-fn".to_owned(),
            format!("mount={digest}&from=shop-fn"),
            format!("mount={digest}&from=base%2Fnode"),
            format!("mount={digest}&from=mainstay%2Fbase-layers"),
            format!("mount={digest}&from=team-fn%2F..%2Fshop-fn"),
            format!("{own}&from=shop-fn"),
            format!("from=shop-fn&{own}"),
            format!("{own}&mount={digest}"),
        ] {
            check(&team(), TLS, &share(&denied), "403");
            check(&Visitor::Unknown, TLS, &share(&denied), "401");
        }
        check(&team(), NODE, &share(&own), "400");
        let taken = format!("POST /v2/team-fn/blobs/uploads/?mount={digest}&from=mainstay%2Fbase-layers");
        check(&team(), TLS, &taken, &format!("passed mount={escaped}&from=mainstay%2Fbase-layers"));
        for other in ["PUT /v2/{}/manifests/1", "PATCH /v2/{}/blobs/uploads/1", "DELETE /v2/{}/blobs/sha256:00"] {
            check(&team(), TLS, &other.replace("{}", "mainstay/base-layers"), "403");
        }
    }

    #[test]
    fn plain_http_is_for_reads_of_a_node() {
        check(&team(), NODE, "GET /v2/team-fn/manifests/1", "passed");
        check(&team(), NODE, "HEAD /v2/team-fn/manifests/1", "passed");
        check(&team(), NODE, "PUT /v2/team-fn/manifests/1", "400");
        check(&team(), (false, false), "GET /v2/team-fn/manifests/1", "400");
        check(&Visitor::Unknown, (false, false), "GET /", "400");
    }
}
