//! Proxying to pods: the requests that are proxied, and the responses without a pod.
//!
//! Not here: responses of pods, because a server need not reach the pods of another cluster.

use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::token;
use crate::bindings::unplaced;
use crate::connections::{core, refused, refusing};
use crate::world::{World, claim, condition};

async fn service(w: &World, name: &str, ports: Value, selector: Value) {
    let body = json!({"metadata": {"name": name}, "spec": {"ports": ports, "selector": selector}});
    w.post(&w.path("v1", "services"), body).await.code(201);
}

/// Creates a running pod that is an endpoint of the Service `one`, whose only port has no name.
async fn served(w: &World) {
    let containers = json!([{"name": "c", "image": "nginx:1", "ports": [{"containerPort": 9}]}]);
    let pod = json!({
        "metadata": {"name": "p", "labels": {"app": "p"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": containers},
    });
    w.post(&w.path("v1", "pods"), pod).await.code(201);
    service(w, "one", json!([{"port": 80, "targetPort": 9}]), json!({"app": "p"})).await;
    let ready = |a: &crate::world::Answer| condition(&a.body, "Ready") == "True";
    w.until(&w.path("v1", "pods/p"), "the pod is ready", ready).await;
    let known = |a: &crate::world::Answer| a.body["subsets"][0]["addresses"][0].is_object();
    w.until(&w.path("v1", "endpoints/one"), "the pod is an endpoint", known).await;
}

#[test]
fn a_service_without_endpoints_is_unavailable() {
    claim(async |w| {
        service(w, "s", json!([{"name": "web", "port": 80}]), json!({"app": "none"})).await;
        w.until(&w.path("v1", "endpoints/s"), "the service has endpoints", |a| a.code == 200).await;
        let none = "no endpoints available for service \"s\"";
        for path in
            ["s/proxy/", "s:80/proxy/", "s:web/proxy/a", "s:nix/proxy/", "http:s:web/proxy/", ":s:/proxy/", "s/proxy"]
        {
            let path = w.path("v1", &format!("services/{path}"));
            w.get(&path).await.refused(503, "ServiceUnavailable", none);
            w.post(&path, json!({})).await.refused(503, "ServiceUnavailable", none);
        }
        let path = w.path("v1", "services/s/proxy/a");
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            w.send(method, &path, &[], "x").await.refused(503, "ServiceUnavailable", none);
        }
        assert_eq!(w.send(Method::HEAD, &path, &[], "").await.code, 503);
        let other = w.send(Method::from_bytes(b"FOO").unwrap(), &path, &[], "").await;
        other.refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource");
        let message = "no service port 81 found for service \"s\"";
        w.get(&w.path("v1", "services/s:81/proxy/")).await.refused(503, "ServiceUnavailable", message);
        w.get(&w.path("v1", "services/s/proxy/?dryRun=All")).await.refused(
            400,
            "BadRequest",
            "dryRun is not supported",
        );
    });
}

#[test]
fn a_proxy_of_nothing_is_not_found() {
    claim(async |w| {
        for (path, message) in [
            (w.path("v1", "services/s/proxy/"), "services \"s\" not found"),
            (w.path("v1", "services/http:s:80/proxy/"), "services \"s\" not found"),
            (w.path("v1", "pods/p/proxy/"), "pods \"p\" not found"),
            (w.path("v1", "pods/p:80/proxy/a"), "pods \"p\" not found"),
            ("/api/v1/nodes/no-such-node/proxy/".to_owned(), "nodes \"no-such-node\" not found"),
        ] {
            w.get(&path).await.refused(404, "NotFound", message);
        }
        for id in ["a:b:c:d", "ftp:a:80", "https::80", "a:80:"] {
            for kind in ["service", "pod"] {
                let message = format!("invalid {kind} request \"{id}\"");
                w.get(&w.path("v1", &format!("{kind}s/{id}/proxy/"))).await.refused(400, "BadRequest", &message);
            }
        }
        let message = "invalid node request \"a:b:c:d\"";
        w.get("/api/v1/nodes/a:b:c:d/proxy/").await.refused(400, "BadRequest", message);
    });
}

#[test]
fn a_pod_without_an_address_gets_nothing() {
    claim(async |w| {
        unplaced(w, "p").await;
        for id in ["p", "p:80", "http:p:80"] {
            let path = w.path("v1", &format!("pods/{id}/proxy/"));
            w.get(&path).await.refused(400, "BadRequest", "address not allowed");
        }
    });
}

#[test]
fn an_address_of_the_machine_itself_is_not_allowed() {
    claim(async |w| {
        unplaced(w, "p").await;
        for ip in ["127.0.0.1", "169.254.169.254", "::1", "0.0.0.0"] {
            let status = json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}});
            w.merge(&w.path("v1", "pods/p/status"), status).await.code(200);
            let answer = w.get(&w.path("v1", "pods/p:80/proxy/")).await;
            answer.refused(400, "BadRequest", "address not allowed");
        }
    });
}

#[test]
fn endpoints_that_are_no_pods_are_not_proxied_to() {
    claim(async |w| {
        unplaced(w, "p").await;
        let body = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
        w.post(&w.path("v1", "services"), body).await.code(201);
        let pod = json!({"kind": "Pod", "namespace": w.ns, "name": "p"});
        let elsewhere = json!({"kind": "Pod", "namespace": "kube-system", "name": "p"});
        let addresses = json!([{"ip": "10.1.2.3"}, {"ip": "10.1.2.4", "targetRef": pod}, {"ip": "10.1.2.5", "targetRef": elsewhere}]);
        let subsets = json!([{"addresses": addresses, "ports": [{"name": "web", "port": 80}]}]);
        w.post(&w.path("v1", "endpoints"), json!({"metadata": {"name": "s"}, "subsets": subsets})).await.code(201);
        let message = "no endpoints available for service \"s:web\"";
        w.get(&w.path("v1", "services/s:web/proxy/")).await.refused(503, "ServiceUnavailable", message);
    });
}

#[test]
fn the_root_of_a_proxy_is_a_folder() {
    claim(async |w| {
        served(w).await;
        for (path, query) in
            [("services/one:80/proxy", ""), ("pods/p:9/proxy", "?a=b"), ("services/one/proxy", "?a=b&c=%2F")]
        {
            let path = w.path("v1", path);
            let answer = w.get(&format!("{path}{query}")).await;
            assert_eq!((answer.code, answer.text.as_str()), (301, ""), "{path}");
            assert_eq!(answer.headers["location"], format!("{path}/{query}"));
        }
        let message = "no endpoints available for service \"one:nix\"";
        w.get(&w.path("v1", "services/one:nix/proxy/")).await.refused(503, "ServiceUnavailable", message);
    });
}

#[test]
fn webhooks_judge_what_is_proxied() {
    claim(async |w| {
        let resources = json!(["pods/proxy", "services/proxy"]);
        let hooks = refusing(w, json!(["CONNECT"]), resources).await;
        for (path, kind, options) in [
            ("pods/p:80/proxy/a/b/?c=d", "PodProxyOptions", json!({"path": "/a/b/"})),
            ("services/http:s:80/proxy/", "ServiceProxyOptions", json!({"path": "/"})),
            ("services/s/proxy", "ServiceProxyOptions", json!({})),
            ("services/s/proxy/a//b%20c", "ServiceProxyOptions", json!({"path": "/a//b c"})),
        ] {
            let request = refused(w, &hooks, Method::POST, &w.path("v1", path), json!({"x": 1})).await;
            assert_eq!((&request["kind"], &request["operation"]), (&core(kind), &json!("CONNECT")));
            assert_eq!((&request["subResource"], &request["options"]), (&json!("proxy"), &Value::Null));
            assert_eq!(request["name"], path.split('/').nth(1).unwrap());
            let mut expected = json!({"kind": kind, "apiVersion": "v1"});
            for (field, value) in options.as_object().unwrap() {
                expected[field] = value.clone();
            }
            assert_eq!((&request["object"], &request["oldObject"]), (&expected, &Value::Null));
        }
    });
}

#[test]
fn a_user_without_rights_on_a_proxy_is_refused() {
    claim(async |w| {
        let token = token(w, "a").await;
        let user = format!("system:serviceaccount:{}:a", w.ns);
        for (method, verb) in [
            (Method::GET, "get"),
            (Method::POST, "create"),
            (Method::PUT, "update"),
            (Method::PATCH, "patch"),
            (Method::DELETE, "delete"),
            (Method::OPTIONS, ""),
        ] {
            for resource in ["services", "pods"] {
                let message = format!(
                    "{resource} \"x:80\" is forbidden: User \"{user}\" cannot {verb} resource \"{resource}/proxy\" in API group \"\" in the namespace \"{}\"",
                    w.ns
                );
                let path = w.path("v1", &format!("{resource}/x:80/proxy/a/b"));
                w.bear(&token, method.clone(), &path, Value::Null).await.refused(403, "Forbidden", &message);
            }
        }
        let message = format!(
            "nodes \"n\" is forbidden: User \"{user}\" cannot get resource \"nodes/proxy\" in API group \"\" at the cluster scope"
        );
        let answer = w.bear(&token, Method::GET, "/api/v1/nodes/n/proxy/stats", Value::Null).await;
        answer.refused(403, "Forbidden", &message);
    });
}
