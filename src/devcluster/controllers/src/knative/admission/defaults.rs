//! Defaults of Services, Configurations, Revisions and Routes.
//!
//! Invariant: a complete object is not changed.

use serde_json::{Map, Value, json};

use crate::knative::kinds::NAMESPACE;
use crate::knative::names;
use devcluster_apiserver::object::controller;
use devcluster_apiserver::server::Server;

/// The ConfigMap `config-defaults`.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// Maximum duration of a request in seconds. Default: 300.
    timeout: Option<u64>,
    /// Default amounts as (`requests` or `limits`, resource, amount). Default: none.
    amounts: Vec<(&'static str, &'static str, String)>,
}

/// Keys of `config-defaults`, with the list and the resource that they set.
const AMOUNTS: [(&str, &str, &str); 4] = [
    ("revision-cpu-request", "requests", "cpu"),
    ("revision-memory-request", "requests", "memory"),
    ("revision-cpu-limit", "limits", "cpu"),
    ("revision-memory-limit", "limits", "memory"),
];

impl Settings {
    /// Reads the present settings.
    pub(super) fn read(server: &Server) -> Self {
        let map = server.object("v1", "configmaps", NAMESPACE, "config-defaults");
        let of = |key: &str| map.as_ref().and_then(|map| map["data"][key].as_str()).map(str::to_owned);
        let timeout = of("revision-timeout-seconds").and_then(|text| text.parse().ok());
        let amounts = AMOUNTS.into_iter().filter_map(|(key, list, resource)| Some((list, resource, of(key)?)));
        Self { timeout, amounts: amounts.collect() }
    }
}

/// Sets the defaults of an object, and the annotations of its creator and last modifier.
pub(super) fn complete(kind: &str, object: &Value, old: &Value, user: &str, settings: &Settings) -> Value {
    let mut object = object.clone();
    match kind {
        "Service" => {
            template(&mut object["spec"]["template"], settings);
            let traffic = &mut object["spec"]["traffic"];
            if traffic.as_array().is_none_or(Vec::is_empty) {
                *traffic = json!([{"latestRevision": true, "percent": 100}]);
            }
            for target in traffic.as_array_mut().into_iter().flatten() {
                if target["latestRevision"].is_null() {
                    target["latestRevision"] = target["revisionName"].is_null().into();
                }
            }
        }
        "Configuration" => template(&mut object["spec"]["template"], settings),
        "Revision" => pod(&mut object["spec"], settings),
        _ => {}
    }
    // A controlled object was created by its controller, not by a user.
    if matches!(kind, "Service" | "Configuration" | "Route") && controller(&object).is_none() {
        signed(&mut object, old, user);
    }
    object
}

fn signed(object: &mut Value, old: &Value, user: &str) {
    let spec = object["spec"].clone();
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    let Some(annotations) = annotations.as_object_mut() else { return };
    if old.is_null() {
        annotations.insert(names::CREATOR.to_owned(), user.into());
        annotations.insert(names::MODIFIER.to_owned(), user.into());
    } else if old["spec"] != spec {
        annotations.insert(names::MODIFIER.to_owned(), user.into());
    }
}

fn template(template: &mut Value, settings: &Settings) {
    if template.is_object() {
        pod(&mut template["spec"], settings);
    }
}

fn pod(spec: &mut Value, settings: &Settings) {
    let Some(fields) = spec.as_object_mut() else { return };
    let mut set = |field: &str, value: Value| {
        fields.entry(field).or_insert(value);
    };
    set("timeoutSeconds", settings.timeout.unwrap_or(300).into());
    set("containerConcurrency", 0.into());
    set("enableServiceLinks", false.into());
    for container in spec["containers"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        self::container(container, settings);
    }
}

fn container(container: &mut Map<String, Value>, settings: &Settings) {
    if container.get("name").is_none_or(|name| name == "") {
        container.insert("name".to_owned(), "user-container".into());
    }
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    for (list, resource, amount) in &settings.amounts {
        if resources[list][resource].is_null() {
            resources[list][resource] = amount.as_str().into();
        }
    }
    let probe = container.entry("readinessProbe").or_insert_with(|| json!({}));
    if probe["successThreshold"].is_null() {
        probe["successThreshold"] = 1.into();
    }
    let actions = ["tcpSocket", "httpGet", "exec", "grpc"];
    if actions.iter().all(|action| probe[action].is_null()) {
        if let Some(probe) = probe.as_object_mut() {
            probe.retain(|_, value| !value.is_null());
        }
        probe["tcpSocket"] = json!({"port": 0});
    } else if let Some(probe) = probe.as_object_mut() {
        probe.retain(|_, value| !value.is_null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service() -> Value {
        json!({"metadata": {"name": "hello"}, "spec": {"template": {"spec": {"containers": [{"image": "i"}]}}}})
    }

    #[test]
    fn a_service_is_completed_once() {
        let complete = |object: &Value, old: &Value| complete("Service", object, old, "ada", &Settings::default());
        let whole = complete(&service(), &Value::Null);
        let container = json!({
            "image": "i", "name": "user-container", "resources": {},
            "readinessProbe": {"successThreshold": 1, "tcpSocket": {"port": 0}},
        });
        let pod = json!({
            "containers": [container], "timeoutSeconds": 300, "containerConcurrency": 0, "enableServiceLinks": false,
        });
        let traffic = json!([{"latestRevision": true, "percent": 100}]);
        assert_eq!(whole["spec"], json!({"template": {"spec": pod}, "traffic": traffic}));
        assert_eq!(whole["metadata"]["annotations"], json!({names::CREATOR: "ada", names::MODIFIER: "ada"}));
        assert_eq!(complete(&whole, &whole), whole);
    }

    #[test]
    fn the_last_modifier_is_set_when_the_spec_changes() {
        let old = complete("Service", &service(), &Value::Null, "ada", &Settings::default());
        let mut new = old.clone();
        new["metadata"]["labels"] = json!({"a": "b"});
        let of = |new: &Value| {
            complete("Service", new, &old, "bob", &Settings::default())["metadata"]["annotations"].clone()
        };
        assert_eq!(of(&new)[names::MODIFIER], "ada");
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
        assert_eq!(of(&new), json!({names::CREATOR: "ada", names::MODIFIER: "bob"}));
    }

    #[test]
    fn amounts_are_those_of_the_settings() {
        let settings = Settings { timeout: Some(30), amounts: vec![("limits", "cpu", "1".to_owned())] };
        let whole = complete("Service", &service(), &Value::Null, "ada", &settings);
        let pod = &whole["spec"]["template"]["spec"];
        assert_eq!(
            (&pod["timeoutSeconds"], &pod["containers"][0]["resources"]),
            (&json!(30), &json!({"limits": {"cpu": "1"}}))
        );
    }
}
