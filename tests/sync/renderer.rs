//! Kustomizations and charts are rendered in a separate process beside the agent, which may end at any time.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::json;

use mainstay_testkit::world::{World, config_map};

/// A renderer as in the container beside the agent. Ends on drop.
struct Renderer(Child);

impl Renderer {
    fn start(shared: &Path, path: Option<&str>) -> Self {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.arg("renderer").arg("--shared").arg(shared).stdin(Stdio::null());
        if let Some(path) = path {
            command.env("PATH", path);
        }
        Self(command.spawn().unwrap())
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn files(world: &mut World, value: &str) {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: chart-map\ndata:\n  key: {{ .Values.key }}\n";
    world
        .remote
        .file("web/kustomization.yaml", "resources: [map.yaml]\nnamePrefix: prod-\n")
        .file("web/map.yaml", config_map("map", value))
        .file("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 0.1.0\n")
        .file("chart/values.yaml", format!("key: {value}\n"))
        .file("chart/templates/map.yaml", map);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_output_is_applied_and_its_absence_loses_no_object() {
    let mut world = World::new().await;
    let shared = tempfile::tempdir().unwrap();
    world.renderer = Some(shared.path().to_owned());
    files(&mut world, "one");
    world.remote.commit("a kustomization and a chart");
    world.sync("demo", json!({}));
    // The renderer starts while the agent waits for it.
    world.start();
    let renderer = Renderer::start(shared.path(), None);
    world.ready("demo").await;
    assert_eq!((world.data("prod-map"), world.data("chart-map")), ("one".to_owned(), "one".to_owned()));
    let left = std::fs::read_dir(shared.path().join("files")).unwrap().count();
    assert_eq!(left, 0, "nothing stays behind");

    // The renderer gets no requests for unchanged input.
    drop(renderer);
    world.remote.file("plain.yaml", config_map("plain", "1"));
    world.commit("demo", "nothing to render").await;
    assert_eq!(world.data("plain"), "1");
    files(&mut world, "two");
    world.try_commit("demo", "something to render").await;
    let away = "the container `renderer` of the agent's pod does not respond";
    let said = |w: &World| w.condition("demo", "Reconciling");
    world.until_or(away, |w| said(w).contains(away), || said(&world)).await;
    assert_eq!((world.data("prod-map"), world.data("chart-map")), ("one".to_owned(), "one".to_owned()));
    // The agent retries without a request.
    let renderer = Renderer::start(shared.path(), None);
    world.until("it is applied", |w| w.data("prod-map") == "two" && w.data("chart-map") == "two").await;

    // A renderer without tools reports which ones to install.
    drop(renderer);
    let _without = Renderer::start(shared.path(), Some("/nothing"));
    files(&mut world, "three");
    world.try_commit("demo", "no tools").await;
    let missing =
        "web/kustomization.yaml: it is built by `kustomize` or `kubectl kustomize`, but neither program was found";
    let said = |w: &World| w.condition("demo", "Ready");
    world.until_or(missing, |w| said(w).contains(missing), || said(&world)).await;
    assert_eq!(world.data("prod-map"), "two");
}
