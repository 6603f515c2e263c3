//! Reads VirtualServices.

use serde_json::Value;

use super::target::{Cors, Target, only};

/// The host of Oathkeeper's proxy. The gateway checks requests to it itself.
const OATHKEEPER: &str = "ory-oathkeeper-proxy.kyma-system.svc.cluster.local";

/// A supported VirtualService.
#[derive(Debug, PartialEq)]
pub(super) struct VirtualService {
    pub(super) hosts: Vec<String>,
    pub(super) routes: Vec<Route>,
}

/// A route. The first matching route wins.
#[derive(Debug, PartialEq)]
pub(super) struct Route {
    /// An empty list matches everything.
    pub(super) matches: Vec<Match>,
    pub(super) target: Destination,
    pub(super) cors: Option<Cors>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Match {
    pub(super) path: Option<Text>,
    pub(super) method: Option<Text>,
}

#[derive(Debug, PartialEq)]
pub(super) enum Text {
    Exact(String),
    Prefix(String),
    Regex(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Destination {
    Oathkeeper,
    Service(Target),
}

/// Reads a VirtualService; `None` if a field is unsupported.
pub(super) fn read(object: &Value, namespace: &str) -> Option<VirtualService> {
    let spec = object["spec"].as_object()?;
    only(spec, &["hosts", "gateways", "http", "exportTo"])?;
    let hosts = spec.get("hosts")?.as_array()?.iter().map(|host| Some(host.as_str()?.to_ascii_lowercase()));
    let routes = spec.get("http")?.as_array()?.iter().map(|route| read_route(route, namespace));
    Some(VirtualService { hosts: hosts.collect::<Option<_>>()?, routes: routes.collect::<Option<_>>()? })
}

fn read_route(route: &Value, namespace: &str) -> Option<Route> {
    only(route.as_object()?, &["name", "match", "route", "corsPolicy", "headers", "timeout"])?;
    let matches = route["match"].as_array().into_iter().flatten().map(read_match).collect::<Option<_>>()?;
    let destination = &route["route"].as_array()?.first()?["destination"];
    let host = destination["host"].as_str()?;
    let target = if host == OATHKEEPER {
        Destination::Oathkeeper
    } else {
        let port = u16::try_from(destination["port"]["number"].as_u64().unwrap_or(80)).ok()?;
        Destination::Service(Target::named(host, port, namespace)?)
    };
    let cors = match &route["corsPolicy"] {
        Value::Null => None,
        cors => Some(read_cors(cors)?),
    };
    Some(Route { matches, target, cors })
}

fn read_match(found: &Value) -> Option<Match> {
    only(found.as_object()?, &["name", "uri", "method"])?;
    let text = |value: &Value| match value {
        Value::Null => Some(None),
        value => read_text(value).map(Some),
    };
    Some(Match { path: text(&found["uri"])?, method: text(&found["method"])? })
}

fn read_text(value: &Value) -> Option<Text> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    let (how, text) = fields.iter().next()?;
    let text = text.as_str()?.to_owned();
    match how.as_str() {
        "exact" => Some(Text::Exact(text)),
        "prefix" => Some(Text::Prefix(text)),
        "regex" => Some(Text::Regex(text)),
        _ => None,
    }
}

fn read_cors(cors: &Value) -> Option<Cors> {
    let texts = |field: &str| -> Vec<String> {
        cors[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut origins = Vec::new();
    for origin in cors["allowOrigins"].as_array().into_iter().flatten() {
        origins.push(match read_text(origin)? {
            Text::Exact(text) if text == "*" => ".*".to_owned(),
            Text::Exact(text) => regex::escape(&text),
            Text::Prefix(text) => format!("{}.*", regex::escape(&text)),
            Text::Regex(text) => text,
        });
    }
    Some(Cors { origins, methods: texts("allowMethods").join(","), headers: texts("allowHeaders").join(",") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unsupported_virtual_service_has_no_routes() {
        let with = |route: Value| read(&json!({"spec": {"hosts": ["A.b"], "http": [route]}}), "shop");
        let to = json!([{"destination": {"host": "web", "port": {"number": 80}}}]);
        let read = with(json!({"match": [{"uri": {"regex": "/.*"}}], "route": to})).unwrap();
        assert_eq!(read.hosts, ["a.b"]);
        assert_eq!(read.routes[0].target, Destination::Service(Target::new("shop", "web", 80)));
        assert_eq!(with(json!({"match": [{"headers": {"x": {"exact": "y"}}}], "route": to})), None);
        assert_eq!(with(json!({"route": to, "fault": {}})), None);
        assert_eq!(with(json!({"route": [{"destination": {"host": "example.com"}}]})), None);
        let proxy = json!([{"destination": {"host": OATHKEEPER, "port": {"number": 4455}}}]);
        assert_eq!(with(json!({"route": proxy})).unwrap().routes[0].target, Destination::Oathkeeper);
    }
}
