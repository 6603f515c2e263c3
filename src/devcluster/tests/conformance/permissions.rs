//! RBAC: permissions of roles, messages of refusals, and escalation.

use reqwest::Method;
use serde_json::{Value, json};

use crate::accounts::token;
use crate::world::{World, claim};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn user(w: &World, name: &str) -> String {
    format!("system:serviceaccount:{}:{name}", w.ns)
}

/// Gives a ServiceAccount a Role with these rules in the claim's namespace.
async fn allow(w: &World, account: &str, rules: Value) {
    w.post(&w.path(RBAC, "roles"), json!({"metadata": {"name": account}, "rules": rules})).await.code(201);
    bind(w, account, "Role", account).await;
}

async fn bind(w: &World, account: &str, kind: &str, role: &str) {
    let binding = json!({
        "metadata": {"generateName": "b-"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": w.ns}],
    });
    w.post(&w.path(RBAC, "rolebindings"), binding).await.code(201);
}

/// Waits until a token is authorized. A real server observes new roles with a delay.
pub(crate) async fn until_allowed(w: &World, token: &str, path: &str) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while w.bear(token, Method::GET, path, Value::Null).await.code == 403 {
        assert!(tokio::time::Instant::now() < deadline, "{path} is allowed");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

#[test]
fn a_refusal_names_user_verb_resource_and_place() {
    claim(async |w| {
        let (ns, token) = (&w.ns, token(w, "a").await);
        let me = user(w, "a");
        let map = json!({"metadata": {"name": "m"}});
        let cases = [
            (
                Method::GET,
                w.maps("s1"),
                Value::Null,
                format!(
                    "configmaps \"s1\" is forbidden: User \"{me}\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::GET,
                w.maps(""),
                Value::Null,
                format!(
                    "configmaps is forbidden: User \"{me}\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::GET,
                w.maps("?watch=1"),
                Value::Null,
                format!(
                    "configmaps is forbidden: User \"{me}\" cannot watch resource \"configmaps\" in API group \"\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::POST,
                w.maps(""),
                map,
                format!(
                    "configmaps is forbidden: User \"{me}\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::PATCH,
                format!("{}/d/status", w.path("apps/v1", "deployments")),
                json!({}),
                format!(
                    "deployments.apps \"d\" is forbidden: User \"{me}\" cannot patch resource \"deployments/status\" in API group \"apps\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::DELETE,
                w.path("apps/v1", "deployments"),
                Value::Null,
                format!(
                    "deployments.apps is forbidden: User \"{me}\" cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::GET,
                "/api/v1/nodes".to_owned(),
                Value::Null,
                format!(
                    "nodes is forbidden: User \"{me}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
                ),
            ),
            (
                Method::GET,
                "/api/v1/configmaps".to_owned(),
                Value::Null,
                format!(
                    "configmaps is forbidden: User \"{me}\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope"
                ),
            ),
            (
                Method::GET,
                format!("/api/v1/namespaces/{ns}"),
                Value::Null,
                format!(
                    "namespaces \"{ns}\" is forbidden: User \"{me}\" cannot get resource \"namespaces\" in API group \"\" in the namespace \"{ns}\""
                ),
            ),
            (
                Method::GET,
                "/metrics".to_owned(),
                Value::Null,
                format!("forbidden: User \"{me}\" cannot get path \"/metrics\""),
            ),
        ];
        for (method, path, body, message) in cases {
            w.bear(&token, method, &path, body).await.refused(403, "Forbidden", &message);
        }
        let answer = w.bear(&token, Method::GET, &format!("{}/d", w.path("apps/v1", "deployments")), Value::Null).await;
        assert_eq!(answer.body["details"], json!({"name": "d", "group": "apps", "kind": "deployments"}));
        let answer = w.bear(&token, Method::GET, "/metrics", Value::Null).await;
        assert_eq!(answer.body["details"], json!({}));
    });
}

#[test]
fn everyone_who_is_known_may_discover() {
    claim(async |w| {
        let token = token(w, "a").await;
        for path in ["/api", "/apis", "/api/v1", "/version", "/healthz", "/openapi/v3"] {
            w.bear(&token, Method::GET, path, Value::Null).await.code(200);
        }
    });
}

#[test]
fn a_role_allows_what_it_names_and_no_more() {
    claim(async |w| {
        let token = token(w, "a").await;
        w.map("one", json!({})).await;
        w.map("two", json!({})).await;
        let named = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update", "list"], "resourceNames": ["one"]});
        let rules = json!([
            named,
            rule(&["apps"], &["deployments/scale", "*/status"], &["get"]),
            rule(&[""], &["secrets"], &["*"])
        ]);
        allow(w, "a", rules).await;
        until_allowed(w, &token, &w.maps("one")).await;
        w.bear(&token, Method::GET, &w.maps("one"), Value::Null).await.code(200);
        w.bear(&token, Method::GET, &w.maps("two"), Value::Null).await.code(403);
        w.bear(&token, Method::GET, &w.maps(""), Value::Null).await.code(403);
        w.bear(&token, Method::GET, &w.maps("?fieldSelector=metadata.name%3Done"), Value::Null).await.code(200);
        w.bear(&token, Method::DELETE, &w.maps("one"), Value::Null).await.code(403);
        let deployments = w.path("apps/v1", "deployments");
        w.bear(&token, Method::GET, &format!("{deployments}/d/scale"), Value::Null).await.code(404);
        w.bear(&token, Method::GET, &format!("{deployments}/d/status"), Value::Null).await.code(404);
        w.bear(&token, Method::GET, &format!("{deployments}/d"), Value::Null).await.code(403);
        w.bear(&token, Method::POST, &w.path("v1", "secrets"), json!({"metadata": {"name": "s"}})).await.code(201);
    });
}

#[test]
fn an_apply_that_creates_needs_the_permission_to_create() {
    claim(async |w| {
        let token = token(w, "a").await;
        allow(w, "a", json!([rule(&[""], &["configmaps"], &["get", "patch"])])).await;
        until_allowed(w, &token, &w.maps("one")).await;
        let config = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
        let as_account = format!("Bearer {token}");
        let headers = [("Authorization", as_account.as_str()), ("Content-Type", "application/apply-patch+yaml")];
        let path = w.maps("new?fieldManager=m&force=true");
        let answer = w.send_as_stranger(Method::PATCH, &path, &headers, &config("new").to_string()).await;
        let message = format!(
            "configmaps \"new\" is forbidden: User \"{}\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"{}\"",
            user(w, "a"),
            w.ns
        );
        answer.refused(403, "Forbidden", &message);
        w.map("old", json!({})).await;
        let path = w.maps("old?fieldManager=m&force=true");
        w.send_as_stranger(Method::PATCH, &path, &headers, &config("old").to_string()).await.code(200);
    });
}

#[test]
fn the_roles_of_every_cluster_can_be_bound() {
    claim(async |w| {
        for name in ["cluster-admin", "admin", "edit", "view", "system:discovery", "system:basic-user", "system:node"] {
            let role = w.get(&format!("{CLUSTER_ROLES}/{name}")).await.ok();
            assert_eq!(role["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults", "{name}");
        }
        let token = token(w, "a").await;
        bind(w, "a", "ClusterRole", "view").await;
        until_allowed(w, &token, &w.maps("")).await;
        w.bear(&token, Method::GET, &w.maps(""), Value::Null).await.code(200);
        w.bear(&token, Method::POST, &w.maps(""), json!({"metadata": {"name": "m"}})).await.code(403);
        w.bear(&token, Method::GET, &w.path("v1", "secrets"), Value::Null).await.code(403);
        // A RoleBinding grants a ClusterRole in its namespace only.
        w.bear(&token, Method::GET, "/api/v1/configmaps", Value::Null).await.code(403);
    });
}

#[test]
fn roles_are_aggregated_by_their_labels() {
    claim(async |w| {
        let label = format!("aggregate-{}", w.ns);
        let sum = format!("{}-sum", w.ns);
        w.forget_later(&format!("{CLUSTER_ROLES}/{sum}"));
        let selector = json!({"clusterRoleSelectors": [{"matchLabels": {&label: "true"}}]});
        w.post(CLUSTER_ROLES, json!({"metadata": {"name": sum}, "aggregationRule": selector})).await.code(201);
        for name in ["x", "y"] {
            let part = format!("{}-{name}", w.ns);
            w.forget_later(&format!("{CLUSTER_ROLES}/{part}"));
            let role = json!({"metadata": {"name": part, "labels": {&label: "true"}}, "rules": [rule(&[""], &[name], &["get"])]});
            w.post(CLUSTER_ROLES, role).await.code(201);
        }
        let wanted = json!([rule(&[""], &["x"], &["get"]), rule(&[""], &["y"], &["get"])]);
        w.until(&format!("{CLUSTER_ROLES}/{sum}"), "the rules of both", |a| a.body["rules"] == wanted).await;
    });
}

#[test]
fn a_user_cannot_grant_rights_that_he_lacks() {
    claim(async |w| {
        let token = token(w, "a").await;
        let rules = json!([
            rule(&["rbac.authorization.k8s.io"], &["roles", "rolebindings"], &["get", "create", "update", "patch"]),
            rule(&[""], &["configmaps"], &["get", "list"]),
        ]);
        allow(w, "a", rules).await;
        until_allowed(w, &token, &w.maps("")).await;
        let roles = w.path(RBAC, "roles");
        let role = |name: &str, verbs: &[&str]| json!({"metadata": {"name": name}, "rules": [rule(&[""], &["configmaps"], verbs)]});
        w.bear(&token, Method::POST, &roles, role("less", &["get"])).await.code(201);
        let answer = w.bear(&token, Method::POST, &roles, role("more", &["get", "delete"])).await;
        let me = user(w, "a");
        let message = format!(
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"{me}\" (groups=[\"system:serviceaccounts\" \"system:serviceaccounts:{}\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}}",
            w.ns
        );
        answer.refused(403, "Forbidden", &message);
        let answer = w.bear(&token, Method::PATCH, &format!("{roles}/less"), role("less", &["*"])).await;
        assert_eq!(answer.code, 403, "{}", answer.text);
        let binding = json!({
            "metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "User", "name": "alice"}],
        });
        let answer = w.bear(&token, Method::POST, &w.path(RBAC, "rolebindings"), binding).await;
        let start = format!("rolebindings.rbac.authorization.k8s.io \"b\" is forbidden: user \"{me}\" (groups=");
        answer.refused_like(403, "Forbidden", &start);
    });
}

#[test]
fn questions_about_access_are_answered_by_the_roles() {
    claim(async |w| {
        let token = token(w, "a").await;
        allow(w, "a", json!([rule(&[""], &["configmaps"], &["get"])])).await;
        until_allowed(w, &token, &w.maps("x")).await;
        let ask = |verb: &str| json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": w.ns}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let yes = w.bear(&token, Method::POST, path, ask("get")).await.code(201).body;
        assert_eq!(yes["status"]["allowed"], true);
        assert!(
            yes["status"]["reason"].as_str().is_some_and(|why| why.starts_with("RBAC: allowed by RoleBinding \"b-")),
            "{yes}"
        );
        let no = w.bear(&token, Method::POST, path, ask("delete")).await.code(201).body;
        assert_eq!(no["status"], json!({"allowed": false}));
        let mut about = ask("get");
        about["spec"]["user"] = user(w, "a").into();
        let answer = w.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", about.clone()).await.code(201);
        assert_eq!(answer.body["status"]["allowed"], true);
        about["spec"]["user"] = "stranger".into();
        let answer = w.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", about).await.code(201);
        assert_eq!(answer.body["status"], json!({"allowed": false}));
        let rules = json!({"spec": {"namespace": w.ns}});
        let answer = w.bear(&token, Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rules).await;
        let listed = answer.code(201).body["status"]["resourceRules"].as_array().cloned().unwrap_or_default();
        assert!(listed.contains(&rule(&[""], &["configmaps"], &["get"])), "{listed:?}");
    });
}

#[test]
fn one_user_can_speak_as_another() {
    claim(async |w| {
        let account = user(w, "a");
        let headers = [("Impersonate-User", account.as_str()), ("Content-Type", "application/json")];
        let me = w.send(Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &headers, "{}").await;
        let info = me.code(201).body["status"]["userInfo"].clone();
        assert_eq!(info["username"], account);
        // An impersonated ServiceAccount has its token's groups and need not exist.
        let of_namespace = format!("system:serviceaccounts:{}", w.ns);
        let groups = json!(["system:serviceaccounts", of_namespace, "system:authenticated"]);
        assert_eq!(info["groups"], groups, "{info}");
        let message = format!(
            "configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"{}\"",
            w.ns
        );
        w.send(Method::GET, &w.maps(""), &[("Impersonate-User", "alice")], "").await.refused(
            403,
            "Forbidden",
            &message,
        );
        let headers = [("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters")];
        w.send(Method::GET, &w.maps(""), &headers, "").await.code(200);
        // Impersonation requires permission.
        let bearer = format!("Bearer {}", token(w, "b").await);
        let headers = [("Authorization", bearer.as_str()), ("Impersonate-User", "alice")];
        let answer = w.send_as_stranger(Method::GET, &w.maps(""), &headers, "").await;
        // Since 1.36 a real server first checks a narrower permission, and names that in its message.
        let named = format!("User \"{}\" cannot impersonate", user(w, "b"));
        assert_eq!((answer.code, answer.reason()), (403, "Forbidden"), "{}", answer.text);
        assert!(answer.message().contains(&named), "{}", answer.text);
    });
}
