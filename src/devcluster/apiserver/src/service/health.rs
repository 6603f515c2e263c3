//! `/healthz`, `/readyz` and `/livez`, with those checks of a real server that apply here.
//!
//! All checks pass whenever the server answers: the store is in memory, and initialisation ends before the server
//! listens.
//!
//! Not here: a shutdown state. A dropped server is gone immediately.

use super::respond;
use crate::body::Body;
use crate::route::Query;
use http::{HeaderValue, Response, header};
use std::fmt::Write as _;

/// The checks and their groups, in the order of a real server.
const CHECKS: &[(&str, &[&str])] = &[
    ("ping", &["healthz", "livez", "readyz"]),
    ("log", &["healthz", "livez", "readyz"]),
    ("etcd", &["healthz", "livez", "readyz"]),
    ("etcd-readiness", &["readyz"]),
    ("informer-sync", &["readyz"]),
    ("poststarthook/start-apiextensions-controllers", &["healthz", "livez", "readyz"]),
    ("poststarthook/crd-informer-synced", &["healthz", "livez", "readyz"]),
    ("poststarthook/start-system-namespaces-controller", &["healthz", "livez", "readyz"]),
    ("poststarthook/rbac/bootstrap-roles", &["healthz", "livez", "readyz"]),
    ("poststarthook/scheduling/bootstrap-system-priority-classes", &["healthz", "livez", "readyz"]),
    ("poststarthook/bootstrap-controller", &["healthz", "livez", "readyz"]),
    ("shutdown", &["readyz"]),
];

/// Answers for one check, or for the whole group if `check` is empty.
pub(super) fn answer(group: &str, check: &str, query: &Query) -> Response<Body> {
    let checks = || CHECKS.iter().filter(|(_, groups)| groups.contains(&group)).map(|(name, _)| *name);
    if !check.is_empty() {
        return if checks().any(|name| name == check) { respond::text(200, "ok") } else { respond::page_not_found() };
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    if !query.has("verbose") {
        return sniffless(respond::text(200, "ok"));
    }
    let mut text = String::new();
    for name in checks() {
        let state = if excluded.contains(&name) { "excluded: ok" } else { "ok" };
        let _ = writeln!(text, "[+]{name} {state}");
    }
    let mut strangers: Vec<&str> = excluded.into_iter().filter(|name| checks().all(|check| check != *name)).collect();
    strangers.sort_unstable();
    strangers.dedup();
    if !strangers.is_empty() {
        let quoted: Vec<String> = strangers.iter().map(|name| format!("{name:?}")).collect();
        let _ = writeln!(text, "warn: some health checks cannot be excluded: no matches for {}", quoted.join(","));
    }
    let _ = writeln!(text, "{group} check passed");
    sniffless(respond::text(200, text))
}

/// Forbids browsers to guess the media type.
fn sniffless(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
