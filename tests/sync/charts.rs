//! Helm charts are rendered by the official tool. The tool sees only the content of the commit, and renders again only
//! after changes.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use mainstay_testkit::files::files_below;
use mainstay_testkit::listener::metrics_are;
use mainstay_testkit::world::{World, config_map, free_address};

/// Adds one of the charts in `tests/charts` to the repository.
fn add_chart(world: &mut World, chart: &str, directory: &str) {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/charts").join(chart);
    for (path, content) in files_below(&own) {
        world.remote.file(&format!("{directory}/{path}"), content);
    }
}

/// Adds a chart with one template.
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
    // The cluster serves Ingresses. The Pod of the chart's test is not applied.
    assert!(world.get("networking.k8s.io/v1", "ingresses", "demo-shop").is_some());
    assert!(world.get("v1", "pods", "demo-shop-test").is_none());
    assert_eq!(world.data("plain"), "1");
    assert_eq!(world.status("demo")["objects"], 6);
    // A hand edit is reverted to the rendered state.
    world.edit("apps/v1", "deployments", "demo-shop", json!({"spec": {"replicas": 7}}));
    world
        .until("it is reverted", |w| w.get("apps/v1", "deployments", "demo-shop").unwrap()["spec"]["replicas"] == 2)
        .await;

    // A change outside of charts renders nothing.
    world.remote.file("other/a.txt", "2").file("apps/plain.yaml", config_map("plain", "2"));
    world.commit("demo", "unrelated").await;
    assert_eq!(world.data("plain"), "2");
    renders_are(&world, 1).await;

    // A changed value changes only the objects that use it.
    let before = (version(&world, "v1", "services", "demo-shop"), version(&world, "v1", "configmaps", "demo-sessions"));
    let values = std::fs::read_to_string("tests/charts/shop/values.yaml").unwrap().replace("Welcome", "Good bye");
    world.remote.file("apps/shop/values.yaml", values);
    world.commit("demo", "a value").await;
    renders_are(&world, 2).await;
    let settings = world.get("v1", "configmaps", "demo-shop").unwrap();
    assert_eq!(settings["data"]["server.conf"], "listen 8080;\nmessage \"Good bye\";\n");
    let after = (version(&world, "v1", "services", "demo-shop"), version(&world, "v1", "configmaps", "demo-sessions"));
    assert_eq!(before, after);

    // Removing a chart removes its objects.
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
        .file("app/crds/wide.yaml", mainstay_testkit::world::definition())
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
    // A values file outside of the directory counts, too.
    world.remote.file("values/eu.yaml", "more: EU\n");
    world.commit("demo", "values").await;
    assert_eq!(data(&world)["more"], "EU");
    // The GitSync's own values take precedence.
    world.change("demo", json!({"render": {"helm": {"values": {"more": "own", "key": null}}}})).await;
    world.until("the values are applied", |w| data(w)["more"] == "own").await;
    world.change("demo", json!({"render": {"helm": {"releaseName": "-f"}}})).await;
    let why = "-f is not a valid name of a release";
    world.until(why, |w| w.condition("demo", "Ready").contains(why)).await;
    world.change("demo", json!({"baseDir": "/", "render": {"helm": {"releaseName": "web"}}})).await;
    let why = "Chart.yaml: spec.render.helm needs a chart with a name and a version in baseDir";
    world.until(why, |w| w.condition("demo", "Ready").contains(why)).await;
    world.change("demo", json!({"baseDir": "/app"})).await;
    world.remote.file(".mainstayignore", "app\n");
    world.try_commit("demo", "the chart is left out").await;
    let why = "spec.render.helm needs a chart in baseDir, but";
    world.until(why, |w| w.condition("demo", "Ready").contains(why)).await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("by the rule \"app\" (.mainstayignore:1)"), "{said}");
    assert_eq!(data(&world)["more"], "own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_and_chance_are_refused_by_name() {
    let mut world = World::new().await;
    add_chart(&mut world, "platform", "app");
    world.remote.commit("one");
    world.sync("demo", json!({"baseDir": "/app"}));
    world.start();
    let said = |w: &World| w.condition("demo", "Ready");
    let hook =
        "app/templates/all.yaml: ConfigMap after is a hook of Helm (post-install), which is not run (turn it off";
    world.until_or(hook, |w| said(w).contains(hook), || said(&world)).await;
    assert!(said(&world).starts_with("False ManifestInvalid") && world.config_maps().is_empty(), "{}", said(&world));
    world.change("demo", json!({"render": {"helm": {"hooks": "Omit"}}})).await;
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["front", "probe", "zone-a", "zone-b"]);
    assert_eq!(world.get("v1", "configmaps", "probe").unwrap()["data"]["path"], "/healthz");

    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: made}\nstringData: {hush: {{ randAlphaNum 20 }}}\n";
    world.remote.file("app/templates/made.yaml", secret);
    world.try_commit("demo", "chance").await;
    let chance = "app/templates/made.yaml: each rendering of the chart gives different values: Secret made (";
    world.until_or(chance, |w| said(w).contains(chance), || said(&world)).await;
    assert!(world.get("v1", "secrets", "made").is_none());
    assert_eq!(world.config_maps(), ["front", "probe", "zone-a", "zone-b"]);
    world.remote.file(
        "app/templates/made.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: made}\nstringData: {hush: {{ .Values.hush | default \"one\" }}}\n",
    );
    world.commit("demo", "nothing of chance").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_come_with_their_objects_and_a_restarted_agent_changes_nothing() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    add_chart(&mut world, "operator", "app");
    world.remote.commit("one");
    world.sync("demo", json!({"baseDir": "/app"}));
    world.start();
    world.ready("demo").await;
    let backup = ("mainstay-tests.example.com/v1", "backups", "demo-nightly");
    assert_eq!(world.get(backup.0, backup.1, backup.2).unwrap()["spec"]["keep"], 7);
    let before = version(&world, backup.0, backup.1, backup.2);
    world.stop().await;
    world.start();
    world.ask("demo").await;
    // The output was kept.
    renders_are(&world, 0).await;
    assert_eq!(version(&world, backup.0, backup.1, backup.2), before);
    // Objects with Helm's resource policy `keep` stay.
    world.remote.file(
        "app/values.yaml",
        "backups: {weekly: {schedule: '0 4 * * 0', keep: 4}}\nserviceAccount: {create: true}\n",
    );
    world.commit("demo", "one less").await;
    assert!(world.get(backup.0, backup.1, backup.2).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_that_asks_what_the_cluster_serves_is_rendered_again_when_that_changes() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    let asks =
        "{{ .Capabilities.APIVersions.Has \"mainstay-tests.example.com/v1/Wide\" | ternary \"wide\" \"narrow\" }}";
    small(&mut world, "apps/asks", &MAP.replace("{{ .Values.key }}", asks));
    small(&mut world, "apps/plain", &MAP.replace("-map", "-plain"));
    world.remote.commit("one");
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    assert_eq!((world.data("demo-map"), world.data("demo-plain")), ("narrow".to_owned(), "one".to_owned()));
    renders_are(&world, 2).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "wides.mainstay-tests.example.com"},
        "spec": {
            "group": "mainstay-tests.example.com", "scope": "Namespaced",
            "names": {"kind": "Wide", "plural": "wides", "singular": "wide"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    world.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition);
    // A sync request triggers a render, too. A real server serves a new kind with a delay.
    let rendered_again = async {
        while world.data("demo-map") != "wide" {
            world.ask("demo").await;
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, rendered_again).await.expect("it is rendered again");
    renders_are(&world, 3).await;
    world.ask("demo").await;
    renders_are(&world, 3).await;
}
