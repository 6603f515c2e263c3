//! Reads HTTPRoutes. The most specific match wins, not the first.

use serde_json::Value;

use super::target::{Cors, Target, only};

/// A supported HTTPRoute.
#[derive(Debug, PartialEq)]
pub(super) struct HttpRoute {
    pub(super) hosts: Vec<String>,
    pub(super) matches: Vec<Match>,
}

/// A match with its target.
#[derive(Debug, PartialEq)]
pub(super) struct Match {
    pub(super) path: Path,
    pub(super) method: Option<String>,
    pub(super) target: Target,
    pub(super) cors: Option<Cors>,
}

/// A path match, the most specific kind last.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Path {
    Regex(String),
    /// A prefix of whole segments, without a final slash.
    Prefix(String),
    Exact(String),
}

impl Path {
    /// The precedence of a match; the highest wins.
    pub(super) fn rank(&self) -> (u8, usize) {
        match self {
            Self::Regex(text) => (0, text.len()),
            Self::Prefix(text) => (1, text.len()),
            Self::Exact(text) => (2, text.len()),
        }
    }
}

/// Reads an HTTPRoute; `None` if a field is unsupported.
pub(super) fn read(object: &Value, namespace: &str) -> Option<HttpRoute> {
    let spec = object["spec"].as_object()?;
    only(spec, &["parentRefs", "hostnames", "rules"])?;
    let hosts = spec.get("hostnames")?.as_array()?.iter().map(|host| Some(host.as_str()?.to_ascii_lowercase()));
    let mut matches = Vec::new();
    for rule in spec.get("rules")?.as_array()? {
        only(rule.as_object()?, &["name", "matches", "filters", "backendRefs", "timeouts"])?;
        let backend = rule["backendRefs"].as_array()?.first()?;
        only(backend.as_object()?, &["group", "kind", "name", "namespace", "port", "weight"])?;
        let is_service = matches!(backend["kind"].as_str(), None | Some("Service"))
            && backend["group"].as_str().unwrap_or("").is_empty();
        // A cross-namespace reference requires a ReferenceGrant.
        if !is_service || backend["namespace"].as_str().is_some_and(|other| other != namespace) {
            return None;
        }
        let port = u16::try_from(backend["port"].as_u64()?).ok()?;
        let target = Target::new(namespace, backend["name"].as_str()?, port);
        let cors = read_filters(&rule["filters"])?;
        let all = rule["matches"].as_array().filter(|all| !all.is_empty());
        match all {
            None => matches.push(Match { path: Path::Prefix(String::new()), method: None, target, cors }),
            Some(all) => {
                for found in all {
                    let (path, method) = read_match(found)?;
                    matches.push(Match { path, method, target: target.clone(), cors: cors.clone() });
                }
            }
        }
    }
    Some(HttpRoute { hosts: hosts.collect::<Option<_>>()?, matches })
}

fn read_match(found: &Value) -> Option<(Path, Option<String>)> {
    only(found.as_object()?, &["path", "method"])?;
    let value = found["path"]["value"].as_str().unwrap_or("/").to_owned();
    let path = match found["path"]["type"].as_str().unwrap_or("PathPrefix") {
        "Exact" => Path::Exact(value),
        "PathPrefix" => Path::Prefix(value.trim_end_matches('/').to_owned()),
        "RegularExpression" => Path::Regex(value),
        _ => return None,
    };
    Some((path, found["method"].as_str().map(str::to_owned)))
}

/// Reads the CORS filter. Header modifiers are ignored, because the gateway sets the host header itself.
fn read_filters(filters: &Value) -> Option<Option<Cors>> {
    let mut cors = None;
    for filter in filters.as_array().into_iter().flatten() {
        match filter["type"].as_str()? {
            "RequestHeaderModifier" => {}
            "CORS" => {
                let texts = |field: &str| -> Vec<String> {
                    let all = filter["cors"][field].as_array().into_iter().flatten();
                    all.filter_map(Value::as_str).map(str::to_owned).collect()
                };
                let origins =
                    texts("allowOrigins").iter().map(|text| regex::escape(text).replace(r"\*", ".*")).collect();
                let (methods, headers) = (texts("allowMethods").join(","), texts("allowHeaders").join(","));
                cors = Some(Cors { origins, methods, headers });
            }
            _ => return None,
        }
    }
    Some(cors)
}
