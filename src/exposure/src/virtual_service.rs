//! Builds Istio's `VirtualService` of an APIRule.

use serde_json::{Value, json};

use super::child::{Child, ChildKind, Names};
use super::express::Guard;
use super::resolve::{Resolved, Rule};

/// Host and port of the proxy of Oathkeeper.
const OATHKEEPER: (&str, u16) = ("ory-oathkeeper-proxy.kyma-system.svc.cluster.local", 4455);

/// Returns the VirtualService, with a route for each path that has a guard; `None` without such paths.
pub(super) fn build(resolved: &Resolved, guards: &[Option<Guard>]) -> Option<Child> {
    let routes = resolved.rules.iter().zip(guards);
    let http: Vec<Value> = routes.filter_map(|(rule, guard)| Some(route(rule, (*guard)?))).collect();
    if http.is_empty() {
        return None;
    }
    let spec = json!({"hosts": [resolved.host.as_str()], "gateways": [resolved.gateway.to_string()], "http": http});
    let name = Names::new(&resolved.identity).of_uid();
    Some(Child::new(ChildKind::VirtualService, name, &resolved.identity, spec))
}

fn route(rule: &Rule, guard: Guard) -> Value {
    let mut matches = json!({"uri": {"regex": rule.path}});
    if matches!(guard, Guard::Methods | Guard::Token) {
        let methods: Vec<String> = rule.methods.iter().map(|method| regex::escape(method)).collect();
        matches["method"] = json!({"regex": methods.join("|")});
    }
    let destination = if guard == Guard::Oathkeeper {
        json!({"host": OATHKEEPER.0, "port": {"number": OATHKEEPER.1}})
    } else {
        json!({"host": rule.target.host.to_string(), "port": {"number": rule.target.port}})
    };
    json!({
        "match": [matches],
        "route": [{"destination": destination, "weight": 100}],
        "corsPolicy": {
            "allowOrigins": [{"regex": ".*"}],
            "allowMethods": ["GET", "POST", "PUT", "DELETE"],
            "allowHeaders": ["Authorization", "Content-Type", "*"],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{path, resolved};
    use super::*;

    fn built(rules: &[Value], guards: &[Option<Guard>]) -> Option<Value> {
        build(&resolved(json!({"rules": rules})), guards).map(|child| child.body)
    }

    #[test]
    fn has_the_shape_of_kymas() {
        let rules = [path("/.*", &["GET"], "noop"), path("/open", &["GET"], "allow")];
        let cors = json!({
            "allowOrigins": [{"regex": ".*"}], "allowMethods": ["GET", "POST", "PUT", "DELETE"],
            "allowHeaders": ["Authorization", "Content-Type", "*"],
        });
        let to =
            |host: &str, port: u16| json!([{"destination": {"host": host, "port": {"number": port}}, "weight": 100}]);
        let owner = json!({
            "apiVersion": "gateway.kyma-project.io/v1alpha1", "kind": "APIRule", "name": "web",
            "uid": "0a1b2c3d-0000-4000-8000-000000000000", "controller": true,
        });
        let metadata = json!({
            "name": "web-0a1b2", "namespace": "shop", "ownerReferences": [owner],
            "labels": {"apirule.gateway.kyma-project.io/v1alpha1": "web.shop"},
        });
        let proxy = to("ory-oathkeeper-proxy.kyma-system.svc.cluster.local", 4455);
        let spec = json!({
            "hosts": ["web.kyma.local"], "gateways": ["kyma-gateway.kyma-system.svc.cluster.local"],
            "http": [
                {"match": [{"uri": {"regex": "/.*"}}], "route": proxy, "corsPolicy": cors},
                {"match": [{"uri": {"regex": "/open"}}], "route": to("web.shop.svc.cluster.local", 80), "corsPolicy": cors},
            ],
        });
        let expected = json!({"kind": "VirtualService", "metadata": metadata, "spec": spec});
        assert_eq!(built(&rules, &[Some(Guard::Oathkeeper), Some(Guard::Open)]), Some(expected));
    }

    #[test]
    fn istio_checks_methods_where_no_other_means_does() {
        let rules = [path("/.*", &["GET", ".*"], "noop"), path("/closed", &["GET"], "jwt")];
        let spec = built(&rules, &[Some(Guard::Methods), None]).unwrap()["spec"].take();
        let matches = json!([{"uri": {"regex": "/.*"}, "method": {"regex": r"GET|\.\*"}}]);
        assert_eq!((&spec["http"][0]["match"], spec["http"].as_array().unwrap().len()), (&matches, 1));
        assert_eq!(spec["http"][0]["route"][0]["destination"]["host"], "web.shop.svc.cluster.local");
        assert_eq!(built(&rules, &[None, None]), None, "without a path there is no route");
    }
}
