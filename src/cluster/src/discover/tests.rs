//! Discovery, against a fake API server.

use serde_json::{Value, json};

use super::super::fake::{self, Server};
use super::*;

fn resource(plural: &str, kind: &str, scope: &str, status: bool) -> Value {
    json!({
        "resource": plural,
        "responseKind": { "group": "", "version": "", "kind": kind },
        "scope": scope,
        "singularResource": kind.to_lowercase(),
        "shortNames": if kind == "Deployment" { json!(["deploy"]) } else { json!([]) },
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        "subresources": if status { json!([{ "subresource": "status" }]) } else { json!([]) },
    })
}

fn group(name: &str, versions: Value) -> Value {
    json!({ "metadata": { "name": name }, "versions": versions })
}

fn version(version: &str, freshness: &str, resources: &[Value]) -> Value {
    json!({ "version": version, "freshness": freshness, "resources": resources })
}

fn aggregated(groups: &[Value]) -> Value {
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": groups })
}

/// Answers the requests of one aggregated discovery.
async fn answer(server: &mut Server, groups: &[Value]) {
    let asked = server.next().await;
    assert_eq!(asked.line(), "GET /api");
    assert!(asked.request.headers()["accept"].to_str().unwrap().contains("apidiscovery.k8s.io;v=v2;"));
    let core = version("v1", "Current", &[resource("configmaps", "ConfigMap", "Namespaced", false)]);
    asked.json(200, &aggregated(&[group("", json!([core]))])).await;
    let asked = server.next().await;
    assert_eq!(asked.line(), "GET /apis");
    asked.json(200, &aggregated(groups)).await;
}

fn apps() -> Value {
    group("apps", json!([version("v1", "Current", &[resource("deployments", "Deployment", "Namespaced", true)])]))
}

/// Looks up a kind while the server answers one discovery.
async fn ask(
    cluster: &Cluster,
    server: &mut Server,
    groups: &[Value],
    api_version: &str,
    kind: &str,
) -> Option<Arc<Kind>> {
    let (found, ()) = tokio::join!(cluster.kind(api_version, kind), answer(server, groups));
    found.expect("discovery answers")
}

#[tokio::test(start_paused = true)]
async fn reads_everything_with_two_requests_and_remembers_it() {
    let (cluster, mut server) = fake::cluster();
    let found = ask(&cluster, &mut server, &[apps()], "apps/v1", "Deployment").await.expect("served");
    assert_eq!((&*found.plural, found.namespaced, found.has_status), ("deployments", true, true));
    assert!(found.listable && found.watchable && found.patchable && found.deletable && found.preferred);
    let config_map = cluster.kind("v1", "ConfigMap").await.expect("known").expect("served");
    assert_eq!((config_map.api_version(), config_map.has_status), ("v1".to_owned(), false));
    assert_eq!(cluster.requests().total(|_, _| true), 2);
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_looked_for_at_most_once_per_second() {
    let (cluster, mut server) = fake::cluster();
    assert_eq!(ask(&cluster, &mut server, &[], "x.io/v1", "Widget").await, None);
    assert_eq!(cluster.kind("x.io/v1", "Widget").await.expect("an answer from memory"), None);
    tokio::time::advance(Duration::from_secs(2)).await;
    let widgets = group("x.io", json!([version("v1", "Current", &[resource("widgets", "Widget", "Cluster", false)])]));
    let found = ask(&cluster, &mut server, &[widgets], "x.io/v1", "Widget").await.expect("served now");
    assert!(!found.namespaced);
}

#[tokio::test(start_paused = true)]
async fn is_read_again_at_once_after_a_change() {
    let (cluster, mut server) = fake::cluster();
    assert_eq!(ask(&cluster, &mut server, &[], "x.io/v1", "Widget").await, None);
    cluster.kinds_changed();
    let widgets = group("x.io", json!([version("v1", "Current", &[resource("widgets", "Widget", "Cluster", false)])]));
    assert!(ask(&cluster, &mut server, &[widgets], "x.io/v1", "Widget").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn questions_at_the_same_time_share_one_reading() {
    let (cluster, mut server) = fake::cluster();
    let groups = [apps()];
    let (one, other, ()) = tokio::join!(
        cluster.kind("apps/v1", "Deployment"),
        cluster.kind("v1", "ConfigMap"),
        answer(&mut server, &groups),
    );
    assert!(one.expect("an answer").is_some() && other.expect("an answer").is_some());
}

#[tokio::test(start_paused = true)]
async fn one_broken_group_does_not_fail_the_rest() {
    let (cluster, mut server) = fake::cluster();
    let metrics = |freshness: &str, resources: &[Value]| {
        group("metrics.k8s.io", json!([version("v1beta1", freshness, resources)]))
    };
    let nodes = resource("nodes", "NodeMetrics", "Cluster", false);
    ask(&cluster, &mut server, &[metrics("Current", &[nodes])], "v1", "ConfigMap").await.expect("served");
    cluster.kinds_changed();
    ask(&cluster, &mut server, &[apps(), metrics("Stale", &[])], "apps/v1", "Deployment").await.expect("served");
    let known = cluster.kind("metrics.k8s.io/v1beta1", "NodeMetrics").await.expect("known from before");
    assert_eq!(&*known.expect("known from before").plural, "nodes");
    let unknown = cluster.kind("metrics.k8s.io/v1beta1", "PodMetrics").await.expect_err("nobody can know");
    assert_eq!(unknown.class(), mainstay_object::failure::Class::Unavailable);
    let absent = cluster.kind("nowhere.io/v1", "Thing").await.expect("everybody else answered");
    assert_eq!(absent, None);
}

#[tokio::test(start_paused = true)]
async fn discovered_kinds_survive_an_unreachable_server() {
    let (cluster, mut server) = fake::cluster();
    ask(&cluster, &mut server, &[apps()], "apps/v1", "Deployment").await.expect("served");
    cluster.kinds_changed();
    let (known, ()) = tokio::join!(cluster.kind("apps/v1", "Deployment"), async { server.next().await.cut() });
    assert!(known.expect("known from before").is_some());
    let (unknown, ()) = tokio::join!(cluster.kind("x.io/v1", "Widget"), async { server.next().await.cut() });
    assert_eq!(unknown.expect_err("nobody can know").to_string(), "could not ask for the kinds of the cluster");
}

#[tokio::test(start_paused = true)]
async fn falls_back_to_asking_group_by_group() {
    let (cluster, mut server) = fake::cluster();
    let server_side = async {
        server.next().await.json(200, &json!({ "kind": "APIVersions", "versions": ["v1"] })).await;
        let core = server.next().await;
        assert_eq!(core.line(), "GET /api/v1");
        core.json(
            200,
            &json!({ "kind": "APIResourceList", "resources": [
                { "name": "namespaces", "singularName": "", "namespaced": false, "kind": "Namespace", "verbs": ["list", "patch"] },
                { "name": "namespaces/status", "singularName": "", "namespaced": false, "kind": "Namespace", "verbs": ["get"] },
                { "name": "pods/eviction", "namespaced": true, "kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"] },
            ] }),
        )
        .await;
        let groups = json!([
            { "name": "apps", "versions": [{ "groupVersion": "apps/v1", "version": "v1" }] },
            { "name": "broken.io", "versions": [{ "groupVersion": "broken.io/v1", "version": "v1" }] },
        ]);
        server.next().await.json(200, &json!({ "kind": "APIGroupList", "groups": groups })).await;
        let apps = json!({ "resources": [{ "name": "deployments", "namespaced": true, "kind": "Deployment", "verbs": ["list"] }] });
        server.next().await.json(200, &apps).await;
        server.next().await.json(503, &json!({ "code": 503, "reason": "ServiceUnavailable" })).await;
    };
    let (found, ()) = tokio::join!(cluster.kind("v1", "Namespace"), server_side);
    let found = found.expect("an answer").expect("served");
    assert_eq!(
        (found.namespaced, found.has_status, found.deletable, &*found.singular),
        (false, true, false, "namespace")
    );
    assert!(cluster.kind("apps/v1", "Deployment").await.expect("known").is_some());
    assert_eq!(cluster.kind("v1", "Eviction").await.expect("known"), None);
    assert!(cluster.kind("broken.io/v1", "Thing").await.is_err());
    assert!(cluster.preferred_kind("broken.io", "Thing").await.is_err());
    assert_eq!(cluster.preferred_kind("apps", "Thing").await.expect("known"), None);
    for word in ["thing", "things.broken.io", "things.v1.broken.io"] {
        let error = cluster.kind_called(word).await.expect_err(word);
        assert!(mainstay_object::failure::chain(&error).contains("broken.io/v1"), "{word}: {error}");
    }
    assert_eq!(cluster.kind_called("things.apps").await.expect("known"), None);
}

#[tokio::test(start_paused = true)]
async fn people_may_call_a_kind_by_any_of_its_names() {
    let (cluster, mut server) = fake::cluster();
    let older = version("v1beta1", "Current", &[resource("deployments", "Deployment", "Namespaced", true)]);
    let newer = version("v1", "Current", &[resource("deployments", "Deployment", "Namespaced", true)]);
    ask(&cluster, &mut server, &[group("apps", json!([newer, older]))], "v1", "ConfigMap").await.expect("served");
    for word in ["deploy", "Deployment", "deployments", "deployments.apps", "DEPLOYMENT.apps"] {
        let found = cluster.kind_called(word).await.expect("known").expect(word);
        assert_eq!(found.api_version(), "apps/v1", "{word}");
    }
    assert_eq!(cluster.kind_called("deployments.extensions").await.expect("known"), None);
    assert_eq!(&*cluster.preferred_kind("apps", "Deployment").await.expect("known").expect("served").version, "v1");
    let names: Vec<_> = cluster.kinds().await.expect("known").iter().map(|kind| kind.resource.to_string()).collect();
    assert_eq!(names, ["configmaps", "deployments.apps"]);
}
