//! The page with the network of a GitSync: routes, Services and pods.

use mainstay_testkit::world::{NAMESPACE, deployment};
use serde_json::{Value, json};

use super::{
    FORM, READS,
    functions::function,
    pages::{Desk, HOSTILE, SYNCS, looks_right},
    trees::overseer,
    users::{ELSEWHERE, URL, Users},
};

const SERVICES: (&str, &str) = ("v1", "services");

/// Returns a Service with this selector and the port 80.
fn service(name: &str, selector: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": selector, "ports": [{"name": "http", "port": 80}]},
    })
}

/// Returns whether a slice has two ready endpoints.
fn is_ready(slice: &Value) -> bool {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    endpoints.filter(|one| one["conditions"]["ready"] == true).count() == 2
}

/// Applies a Deployment with a Service, a NetworkPolicy, a Service without pods, and an Ingress. One path of the Ingress has a
/// wrong port, and the last one has no Service.
pub(super) async fn routed(users: &mut Users, last: &str) {
    let backend = |name: &str, port: u16| json!({"service": {"name": name, "port": {"number": port}}});
    let path =
        |path: &str, backend: Value| json!({"path": path, "pathType": "ImplementationSpecific", "backend": backend});
    let paths =
        json!([path("/", backend("web", 80)), path("/api", backend("web", 8080)), path(last, backend("gone", 80))]);
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "shop"},
        "spec": {"rules": [{"host": "shop.example.com", "http": {"paths": paths}}]},
    });
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "limit"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": {}}]}]},
    });
    let world = &mut users.world;
    world.remote.file("apps/web.yaml", deployment("web", "example.org/web:1", 2));
    for (name, object) in [
        ("service", service("web", &json!({"app": "web"}))),
        ("idle", service("idle", &json!({"app": "idle"}))),
        ("ingress", ingress),
        ("policy", policy),
    ] {
        world.remote.file(&format!("apps/{name}.yaml"), object.to_string());
    }
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    world
        .until("the pods are ready", |w| {
            let slices = w.server.objects("discovery.k8s.io/v1", "endpointslices", Some(NAMESPACE));
            slices.iter().any(|slice| is_ready(slice))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_sees_the_part_of_the_network_that_the_own_token_may_list() {
    let mut users = Users::new().await;
    routed(&mut users, "/orders").await;
    users.namespace(ELSEWHERE);
    let console = users.console(FORM).await;
    let page = format!("/gitsync/{NAMESPACE}/demo/network");
    let overseer = console.sign_in(&overseer(&users)).await;
    let text = console.get(&format!("/gitsync/{NAMESPACE}/demo"), &overseer).await.text;
    assert!(text.contains("/network\">Network</a>"), "{text}");
    let text = console.get(&page, &overseer).await.text;
    for part in [
        "shop.example.com</a>",
        &format!("Ingress {NAMESPACE}/shop</a>"),
        "<code>/orders (ImplementationSpecific)</code>",
        "no such Service",
        "port 8080 is not a port of the Service",
        &format!("Traffic to Service {NAMESPACE}/web"),
        "<code>http: 80/TCP</code>",
        "2 ready, 0 not ready",
        &format!("Deployment {NAMESPACE}/web</a>"),
        &format!("NetworkPolicy {NAMESPACE}/limit</a> limits ingress: 1 rule"),
        "no ready pod: the Service selects none",
        "3 targets, 1 route, ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("Not all") && !text.contains("style="), "{text}");

    // A user without the permission to list routes and endpoints sees why, and no problem that is not known.
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let text = console.get(&page, &reader).await.text;
    for part in [
        format!("because you may not list them in {NAMESPACE}: ingresses.networking.k8s.io"),
        format!("Not all endpoints are known: you may not list endpointslices.discovery.k8s.io in {NAMESPACE}."),
        format!("Not all routes are known: you may not list ingresses.networking.k8s.io in {NAMESPACE}."),
        format!("Traffic to Service {NAMESPACE}/web"),
        "no problem is known".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains("no ready pod") && !text.contains("shop.example.com"), "{text}");
    let stranger = console.sign_in(&users.account(ELSEWHERE, "stranger", READS)).await;
    let refused = console.get(&page, &stranger).await;
    assert!(refused.code == 403 && !refused.text.contains("shop.example.com"), "{}", refused.text);
    assert_eq!(console.get(&format!("/gitsync/{NAMESPACE}/none/network"), &overseer).await.code, 404);
    assert_eq!(console.get(&format!("/function/{NAMESPACE}/none/network"), &overseer).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_network_follows_the_git_sync_and_hostile_paths_stay_texts() {
    let mut users = Users::new().await;
    routed(&mut users, &format!("/{HOSTILE}")).await;
    users.world.stop().await;
    let desk = Desk::of(users).await;
    let tab = desk.user(&overseer(&desk.users)).await;
    tab.open(&format!("{URL}/gitsync/{NAMESPACE}/demo/network")).await;
    tab.shows("no such Service").await;
    let strange =
        "document.querySelectorAll('script:not([src]), img, svg, iframe, [onerror], [onload], [style]').length";
    assert_eq!((tab.value(strange).await, tab.value("typeof window.ran").await), (json!(0), json!("undefined")));
    looks_right(&tab, "network-hostile").await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    desk.users.world.create(SERVICES.0, SERVICES.1, NAMESPACE, service("gone", &json!({"app": "web"})));
    desk.status(SYNCS, "demo", &json!({"driftedObjects": 1}));
    tab.until("!document.body.innerText.includes('no such Service')").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");

    let greeter = json!({"runtime": "nodejs22", "source": "module.exports = { main: () => 'one' }"});
    function(&desk, "greeter", greeter);
    desk.users.world.create(SERVICES.0, SERVICES.1, NAMESPACE, service("greeter", &json!({"app": "none"})));
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    tab.click("main a", "Network").await;
    tab.shows("no ready pod: the Service selects none").await;
    tab.shows("1 target, 0 routes").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
