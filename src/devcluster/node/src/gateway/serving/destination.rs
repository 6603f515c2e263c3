//! Selects the Revision of a request.

use serde_json::Value;

use devcluster_apiserver::object::{controller, text};
use devcluster_apiserver::server::Server;
use devcluster_apiserver::store::Key;

/// API version and plural of Ingresses.
const INGRESSES: (&str, &str) = ("networking.internal.knative.dev/v1alpha1", "ingresses");

/// The Knative object behind a Service without a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Led {
    /// An address of the Route with this name.
    Route(String),
    /// The Revision with the Service's name.
    Revision,
}

fn led(service: &Value) -> Option<Led> {
    let has_pods = service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    let owner = controller(service).filter(|_| !has_pods)?;
    let group = text(owner, "/apiVersion").split('/').next().unwrap_or_default();
    match (group, text(owner, "/kind")) {
        ("serving.knative.dev", "Route") => Some(Led::Route(text(owner, "/name").to_owned())),
        ("networking.internal.knative.dev", "ServerlessService") => Some(Led::Revision),
        _ => None,
    }
}

/// Whether Knative routes the requests of a Service.
pub(crate) fn is_led(service: &Value) -> bool {
    led(service).is_some()
}

/// Returns the Revision for a request to a Service; `None` if it has no route. `draw` is a random number below 100.
pub(super) fn of_service(server: &Server, service: &Value, draw: u64) -> Option<Key> {
    let (namespace, name) = (text(service, "/metadata/namespace"), text(service, "/metadata/name"));
    match led(service)? {
        Led::Revision => Some(Key::new(namespace, name)),
        Led::Route(route) => {
            let ingress = server.object(INGRESSES.0, INGRESSES.1, namespace, &route)?;
            by_host(&ingress, &format!("{name}.{namespace}"), draw)
        }
    }
}

/// Returns the Revision for a request to a host.
pub(in crate::gateway) fn of_host(server: &Server, host: &str, draw: u64) -> Option<Key> {
    let all = server.objects(INGRESSES.0, INGRESSES.1, None);
    all.iter().find_map(|ingress| by_host(ingress, host, draw))
}

fn by_host(ingress: &Value, host: &str, draw: u64) -> Option<Key> {
    let rules = ingress["spec"]["rules"].as_array()?.iter();
    let is_it = |rule: &&Value| rule["hosts"].as_array().is_some_and(|hosts| hosts.iter().any(|one| one == host));
    let rule = rules.into_iter().find(is_it)?;
    let splits = rule["http"]["paths"][0]["splits"].as_array()?;
    let whole: u64 = splits.iter().map(percent).sum();
    let mut rest = draw % whole.max(1);
    let chosen = splits.iter().find(|split| {
        let is_it = rest < percent(split);
        rest = rest.saturating_sub(percent(split));
        is_it
    })?;
    Some(Key::new(text(chosen, "/serviceNamespace"), text(chosen, "/serviceName")))
}

fn percent(split: &Value) -> u64 {
    split["percent"].as_u64().unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_shared_out_as_the_ingress_says() {
        let split = |name: &str, percent: u64| json!({"serviceName": name, "serviceNamespace": "shop", "servicePort": 80, "percent": percent});
        let paths = json!([{"splits": [split("a", 20), split("b", 80)]}]);
        let rule = json!({"hosts": ["web.shop", "web.shop.svc"], "http": {"paths": paths}});
        let ingress = json!({"spec": {"rules": [rule]}});
        let to = |draw| by_host(&ingress, "web.shop", draw).map(|key| key.name().to_owned());
        let counted = |name: &str| (0..100).filter(|draw| to(*draw).as_deref() == Some(name)).count();
        assert_eq!((counted("a"), counted("b")), (20, 80));
        assert_eq!(by_host(&ingress, "other.shop", 0), None);
    }

    #[test]
    fn a_service_is_led_while_a_route_or_a_revision_has_it_and_no_pods_do() {
        let service = |api: &str, kind: &str, selector: Value| {
            let owner = json!({"apiVersion": api, "kind": kind, "name": "web", "controller": true});
            json!({"metadata": {"ownerReferences": [owner]}, "spec": {"selector": selector}})
        };
        let (route, none) = ("serving.knative.dev/v1", Value::Null);
        assert_eq!(led(&service(route, "Route", none.clone())), Some(Led::Route("web".to_owned())));
        assert_eq!(led(&service(route, "Route", json!({"app": "web"}))), None);
        let revision = service("networking.internal.knative.dev/v1alpha1", "ServerlessService", none.clone());
        assert_eq!(led(&revision), Some(Led::Revision));
        assert_eq!(led(&service("route.openshift.io/v1", "Route", none)), None);
        assert_eq!(led(&json!({"spec": {}})), None);
    }
}
