//! Connection options as objects, which webhooks review before a connection to a pod is opened.
//!
//! Not here: the connections (`service::stream`).

use crate::route::Query;
use serde_json::{Map, Value, json};

pub(crate) fn options(subresource: &str, query: &Query) -> Value {
    let mut options = Map::new();
    let kind = match subresource {
        "exec" => "PodExecOptions",
        "attach" => "PodAttachOptions",
        _ => "PodPortForwardOptions",
    };
    options.insert("kind".to_owned(), kind.into());
    options.insert("apiVersion".to_owned(), "v1".into());
    if subresource == "portforward" {
        let ports: Vec<i64> = query
            .every("ports")
            .flat_map(|ports| ports.split(','))
            .filter_map(|port| port.trim().parse().ok())
            .collect();
        if !ports.is_empty() {
            options.insert("ports".to_owned(), json!(ports));
        }
        return Value::Object(options);
    }
    for stream in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(stream) {
            options.insert(stream.to_owned(), true.into());
        }
    }
    if !query.text("container").is_empty() {
        options.insert("container".to_owned(), query.text("container").into());
    }
    let words: Vec<&str> = query.every("command").collect();
    if subresource == "exec" && !words.is_empty() {
        options.insert("command".to_owned(), json!(words));
    }
    Value::Object(options)
}

/// Returns the options of a proxied request to a path of a pod, service or node.
pub(crate) fn proxy_options(kind: &str, path: &str) -> Value {
    let mut options = json!({"kind": format!("{kind}ProxyOptions"), "apiVersion": "v1"});
    if !path.is_empty() {
        options["path"] = path.into();
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_is_asked_of_a_connection() {
        let query = Query::parse("command=ls&command=-l&stdout=true&tty=false&container=c");
        let exec = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "c", "command": ["ls", "-l"]});
        assert_eq!(options("exec", &query), exec);
        let forward = json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 81]});
        assert_eq!(options("portforward", &Query::parse("ports=80,81")), forward);
    }
}
