//! Connections to pods, evictions and tokens: permissions, and the requests that webhooks receive.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::token;
use crate::hooks::configure;
use crate::webhook::{Hooks, allow, respond};
use crate::world::{World, claim};

/// Configures a webhook that refuses every matching request.
pub(crate) async fn refusing(w: &World, operations: Value, resources: Value) -> Hooks {
    let hooks = Hooks::start(|_, review| {
        respond(&json!({"uid": review["request"]["uid"], "allowed": false, "status": {"message": "no", "code": 409}}))
    });
    let mut hook = hooks.hook(w, "v");
    hook["rules"] = json!([{"operations": operations, "apiGroups": ["", "authorization.k8s.io"], "apiVersions": ["v1"], "resources": resources}]);
    hook["objectSelector"] = json!({});
    configure(w, "validating", "v", json!([hook])).await;
    hooks
}

/// Repeats a request until the webhook refuses it. Returns the request that the webhook received.
pub(crate) async fn refused(w: &World, hooks: &Hooks, method: Method, path: &str, body: Value) -> Value {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let body = if body.is_null() { String::new() } else { body.to_string() };
    loop {
        hooks.forget();
        let answer = w.send(method.clone(), path, &[("Content-Type", "application/json")], &body).await;
        if answer.code == 409 {
            assert_eq!(answer.message(), "admission webhook \"v.example.io\" denied the request: no");
            return hooks.asked()[0].request().clone();
        }
        assert!(tokio::time::Instant::now() < deadline, "the webhook is asked: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn core(kind: &str) -> Value {
    json!({"group": "", "version": "v1", "kind": kind})
}

#[test]
fn webhooks_judge_connections_before_there_is_a_pod() {
    claim(async |w| {
        let hooks = refusing(w, json!(["CONNECT"]), json!(["pods/*"])).await;
        let path = w.path("v1", "pods/p/exec?command=ls&command=-l&stdout=true&stdin=false&container=c");
        let request = refused(w, &hooks, Method::POST, &path, Value::Null).await;
        assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CONNECT"), &json!(false)));
        assert_eq!((&request["kind"], &request["requestKind"]), (&core("PodExecOptions"), &core("PodExecOptions")));
        assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "pods"}));
        assert_eq!((&request["subResource"], &request["requestSubResource"]), (&json!("exec"), &json!("exec")));
        assert_eq!((&request["name"], &request["namespace"]), (&json!("p"), &json!(w.ns)));
        let options = json!({"kind": "PodExecOptions", "apiVersion": "v1", "stdout": true, "container": "c", "command": ["ls", "-l"]});
        assert_eq!((&request["object"], &request["oldObject"]), (&options, &Value::Null));
        assert_eq!(request["options"], Value::Null);
        let request =
            refused(w, &hooks, Method::GET, &w.path("v1", "pods/p/attach?stderr=true&tty=true"), Value::Null).await;
        let options = json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stderr": true, "tty": true});
        assert_eq!((&request["object"], &request["subResource"]), (&options, &json!("attach")));
        let request = refused(w, &hooks, Method::POST, &w.path("v1", "pods/p/portforward?ports=80"), Value::Null).await;
        let options = json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80]});
        assert_eq!((&request["object"], &request["kind"]), (&options, &core("PodPortForwardOptions")));
    });
}

#[test]
fn a_connection_is_no_dry_run() {
    claim(async |w| {
        let answer = w.send(Method::POST, &w.path("v1", "pods/p/exec?command=ls&dryRun=All"), &[], "").await;
        answer.refused(400, "BadRequest", "dryRun is not supported");
    });
}

#[test]
fn webhooks_judge_evictions() {
    claim(async |w| {
        let hooks = refusing(w, json!(["CREATE"]), json!(["pods/eviction"])).await;
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let request = refused(w, &hooks, Method::POST, &w.path("v1", "pods/p/eviction"), body).await;
        let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
        assert_eq!((&request["kind"], &request["operation"]), (&kind, &json!("CREATE")));
        assert_eq!((&request["name"], &request["subResource"]), (&json!("p"), &json!("eviction")));
        assert_eq!(request["object"]["metadata"]["name"], "p");
        assert_eq!(request["options"]["kind"], "CreateOptions");
    });
}

#[test]
fn the_deletion_that_follows_from_an_eviction_is_not_judged() {
    claim(async |w| {
        let hooks = refusing(w, json!(["DELETE"]), json!(["pods"])).await;
        let pods = w.path("v1", "pods");
        let pod = json!({"metadata": {"name": "p"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "nginx:1"}]}});
        w.post(&pods, pod).await.code(201);
        refused(w, &hooks, Method::DELETE, &format!("{pods}/p"), Value::Null).await;
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
        let done = w.post(&format!("{pods}/p/eviction"), body).await.code(201);
        assert_eq!(
            done.body,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        );
        let marked = w.get(&format!("{pods}/p")).await;
        assert!(marked.code == 404 || marked.body["metadata"]["deletionTimestamp"].is_string(), "{}", marked.text);
    });
}

#[test]
fn an_eviction_names_its_pod() {
    claim(async |w| {
        let message = "name in URL does not match name in Eviction object";
        let path = w.path("v1", "pods/p/eviction");
        w.post(&path, json!({})).await.refused(400, "BadRequest", message);
        w.post(&path, json!({"metadata": {"name": "q"}})).await.refused(400, "BadRequest", message);
        w.post(&path, json!({"metadata": {"name": "p"}})).await.refused(404, "NotFound", "pods \"p\" not found");
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        let other = json!({"metadata": {"name": "p", "namespace": "other"}});
        w.post(&path, other).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn webhooks_judge_requests_for_tokens() {
    claim(async |w| {
        w.post(&w.path("v1", "serviceaccounts"), json!({"metadata": {"name": "a"}})).await.code(201);
        let hooks = refusing(w, json!(["*"]), json!(["serviceaccounts/token"])).await;
        let body = json!({"spec": {"audiences": ["x"]}});
        let request = refused(w, &hooks, Method::POST, &w.path("v1", "serviceaccounts/a/token"), body).await;
        let kind = json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"});
        assert_eq!((&request["kind"], &request["subResource"]), (&kind, &json!("token")));
        assert_eq!((&request["name"], &request["object"]["spec"]["audiences"]), (&json!("a"), &json!(["x"])));
    });
}

#[test]
fn webhooks_judge_local_questions_about_access() {
    claim(async |w| {
        let hooks = refusing(w, json!(["CREATE"]), json!(["localsubjectaccessreviews"])).await;
        let path = w.path("authorization.k8s.io/v1", "localsubjectaccessreviews");
        let attributes = json!({"namespace": w.ns, "verb": "get", "resource": "configmaps"});
        let body = json!({"spec": {"user": "alice", "resourceAttributes": attributes}});
        let request = refused(w, &hooks, Method::POST, &path, body).await;
        let kind = json!({"group": "authorization.k8s.io", "version": "v1", "kind": "LocalSubjectAccessReview"});
        assert_eq!((&request["kind"], &request["object"]["spec"]["user"]), (&kind, &json!("alice")));
    });
}

#[test]
fn a_webhook_for_namespaced_resources_leaves_others_alone() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| allow(review, json!({})));
        let mut hook = hooks.hook(w, "v");
        hook["objectSelector"] = json!({});
        let everything = |scope: &str| json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "scope": scope}]);
        hook["rules"] = everything("Cluster");
        let mut other = hook.clone();
        other["name"] = "n.example.io".into();
        other["clientConfig"]["url"] = format!("{}/n", hooks.url()).into();
        other["rules"] = everything("Namespaced");
        configure(w, "validating", "v", json!([hook, other])).await;
        crate::hooks::settled(w, &hooks, |_| !hooks.asked_at("/n").is_empty()).await;
        let labels = json!({"metadata": {"labels": {"x": "y"}}});
        w.merge(&format!("/api/v1/namespaces/{}", w.ns), labels).await.code(200);
        w.map("a", json!({})).await;
        let of = |path: &str| -> Vec<String> {
            let asked = hooks.asked_at(path);
            asked.iter().map(|a| a.request()["resource"]["resource"].as_str().unwrap().to_owned()).collect()
        };
        // For a namespace, the selector matches the labels of the namespace itself.
        assert!(of("/v").contains(&"namespaces".to_owned()) && !of("/v").contains(&"configmaps".to_owned()));
        assert!(of("/n").contains(&"configmaps".to_owned()) && !of("/n").contains(&"namespaces".to_owned()));
    });
}

#[test]
fn a_user_who_may_only_get_a_connection_is_refused() {
    claim(async |w| {
        let token = token(w, "a").await;
        let user = format!("system:serviceaccount:{}:a", w.ns);
        let rbac = "rbac.authorization.k8s.io/v1";
        let parts = ["pods/exec", "pods/attach", "pods/portforward"];
        let rules = json!([{"apiGroups": [""], "resources": parts, "verbs": ["get"]}, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        w.post(&w.path(rbac, "roles"), json!({"metadata": {"name": "r"}, "rules": rules})).await.code(201);
        let binding = json!({
            "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": w.ns}],
        });
        w.post(&w.path(rbac, "rolebindings"), binding).await.code(201);
        crate::permissions::until_allowed(w, &token, &w.maps("")).await;
        for part in parts {
            let path = w.path("v1", &format!("pods/p{}", part.trim_start_matches("pods")));
            let why = format!(
                "pods \"p\" is forbidden: User \"{user}\" cannot create resource \"{part}\" in API group \"\" in the namespace \"{}\"",
                w.ns
            );
            // The pod does not exist, but an unauthorized user must not learn that.
            let get = w.bear(&token, Method::GET, &path, Value::Null).await;
            get.refused(403, "Forbidden", "pods \"p\" is forbidden: ");
            w.bear(&token, Method::POST, &path, Value::Null).await.refused(403, "Forbidden", &why);
        }
    });
}
