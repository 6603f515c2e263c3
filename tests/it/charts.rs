//! Helm charts are rendered by the official tool, see what the commit holds and nothing else, and are rendered anew only when
//! that changed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::listener::metrics_are;
use crate::support::world::{World, config_map, free_address};

/// The files of a directory, relative to it.
fn files_below(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let relative = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
                found.push((relative, std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Puts one of the charts of `tests/charts` into the repository.
fn add_chart(world: &mut World, chart: &str, directory: &str) {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/charts").join(chart);
    for (path, content) in files_below(&own) {
        world.remote.file(&format!("{directory}/{path}"), content);
    }
}

/// A chart with one template.
fn small(world: &mut World, directory: &str, template: &str) {
    world
        .remote
        .file(&format!("{directory}/Chart.yaml"), "apiVersion: v2\nname: small\nversion: 0.1.0\n")
        .file(&format!("{directory}/values.yaml"), "key: one\n")
        .file(&format!("{directory}/templates/map.yaml"), template);
}

const MAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-map\ndata:\n  key: {{ .Values.key }}\n";

async fn renders_are(world: &World, count: u64) {
    let line = format!("mainstay_renders_total {count}\n");
    metrics_are(world, &line, |text| text.contains(&line)).await;
}

fn version(world: &World, api_version: &str, resource: &str, name: &str) -> Value {
    world.get(api_version, resource, name).unwrap()["metadata"]["resourceVersion"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_is_applied_changed_and_pruned() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    add_chart(&mut world, "shop", "apps/shop");
    world.remote.file("apps/plain.yaml", config_map("plain", "1")).file("other/a.txt", "1").commit("one");
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    renders_are(&world, 1).await;
    let settings = world.get("v1", "configmaps", "demo-shop").unwrap();
    assert_eq!(settings["data"]["server.conf"], "listen 8080;\nmessage \"Welcome\";\n");
    assert_eq!(settings["data"]["namespace"], "mainstay-tests");
    assert_eq!(settings["metadata"]["labels"]["team"], "commerce");
    assert_eq!(world.get("v1", "configmaps", "demo-sessions").unwrap()["data"]["memory"], "64Mi");
    let deployment = world.get("apps/v1", "deployments", "demo-shop").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "registry.example.com/shop:2.7.0");
    // The cluster serves Ingresses; the Pod of the chart's test is none of what is applied.
    assert!(world.get("networking.k8s.io/v1", "ingresses", "demo-shop").is_some());
    assert!(world.get("v1", "pods", "demo-shop-test").is_none());
    assert_eq!(world.data("plain"), "1");
    assert_eq!(world.status("demo")["objects"], 6);
    // A hand edit goes back to what was rendered.
    world.edit("apps/v1", "deployments", "demo-shop", json!({"spec": {"replicas": 7}}));
    world
        .until("it is put back", |w| w.get("apps/v1", "deployments", "demo-shop").unwrap()["spec"]["replicas"] == 2)
        .await;

    // What no chart reads renders nothing.
    world.remote.file("other/a.txt", "2").file("apps/plain.yaml", config_map("plain", "2"));
    world.commit("demo", "unrelated").await;
    assert_eq!(world.data("plain"), "2");
    renders_are(&world, 1).await;

    // A value changes what it is in, and nothing else.
    let before = (version(&world, "v1", "services", "demo-shop"), version(&world, "v1", "configmaps", "demo-sessions"));
    let values = std::fs::read_to_string("tests/charts/shop/values.yaml").unwrap().replace("Welcome", "Good bye");
    world.remote.file("apps/shop/values.yaml", values);
    world.commit("demo", "a value").await;
    renders_are(&world, 2).await;
    let settings = world.get("v1", "configmaps", "demo-shop").unwrap();
    assert_eq!(settings["data"]["server.conf"], "listen 8080;\nmessage \"Good bye\";\n");
    let after = (version(&world, "v1", "services", "demo-shop"), version(&world, "v1", "configmaps", "demo-sessions"));
    assert_eq!(before, after);

    // A chart that leaves takes its objects with it.
    for (path, _) in files_below(Path::new("tests/charts/shop")) {
        world.remote.remove(&format!("apps/shop/{path}"));
    }
    world.commit("demo", "no chart").await;
    world.until("its objects are gone", |w| w.get("apps/v1", "deployments", "demo-shop").is_none()).await;
    world.until("all of them", |w| w.config_maps() == ["plain"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_git_sync_says_how_a_chart_is_rendered() {
    let mut world = World::new().await;
    small(
        &mut world,
        "app",
        &MAP.replace("key: {{", "more: {{ .Values.more }}\n  ns: {{ .Release.Namespace }}\n  key: {{"),
    );
    world
        .remote
        .file("app/crds/wide.yaml", crate::support::world::definition())
        .file("app/prod.yaml", "key: prod\nmore: prod\n")
        .file("values/eu.yaml", "more: eu\n")
        .commit("one");
    let helm = json!({"releaseName": "web", "valuesFiles": ["prod.yaml", "../values/eu.yaml"], "includeCRDs": false});
    world.sync("demo", json!({"baseDir": "/app", "render": {"helm": helm}}));
    world.start();
    world.ready("demo").await;
    let data = |world: &World| world.get("v1", "configmaps", "web-map").unwrap()["data"].clone();
    assert_eq!(data(&world), json!({"key": "prod", "more": "eu", "ns": "mainstay-tests"}));
    assert_eq!(world.status("demo")["objects"], 1);
    // A file with values outside of the directory counts.
    world.remote.file("values/eu.yaml", "more: EU\n");
    world.commit("demo", "values").await;
    assert_eq!(data(&world)["more"], "EU");
    // The GitSync's own values come last.
    world.change("demo", json!({"render": {"helm": {"values": {"more": "own", "key": null}}}})).await;
    world.until("the values are applied", |w| data(w)["more"] == "own").await;
    world.change("demo", json!({"render": {"helm": {"releaseName": "-f"}}})).await;
    let why = "-f is no name of a release";
    world.until(why, |w| w.condition("demo", "Ready").contains(why)).await;
    world.change("demo", json!({"baseDir": "/", "render": {"helm": {"releaseName": "web"}}})).await;
    let why = "Chart.yaml: spec.render.helm is for a chart in baseDir, and this is none";
    world.until(why, |w| w.condition("demo", "Ready").contains(why)).await;
    assert_eq!(data(&world)["more"], "own");
}
