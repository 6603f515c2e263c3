//! OCIRepositories and HelmCharts, and what ORAS and Helm push for them.

use std::path::Path;

use mainstay_testkit::isolated;
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{built, run};

pub(super) const OURS: &str = "mainstay.dev/v1alpha1";
/// The media types of `flux push artifact`.
const CONFIG: &str = "application/vnd.cncf.flux.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";

/// Runs ORAS in a directory. Returns its standard output.
pub(super) fn oras(directory: &Path, arguments: &[&str]) -> String {
    run(isolated(built("oras")).args(arguments).current_dir(directory))
}

/// Pushes an artifact with a ConfigMap `web` of this value, as Flux does. `options` are those of ORAS for the registry.
pub(super) fn push_artifact(image: &str, value: &str, options: &[&str]) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("web.yaml"), config_map("web", value)).unwrap();
    std::fs::write(directory.path().join("config.json"), "{}").unwrap();
    run(isolated("tar").args(["-czf", "layer.tgz", "web.yaml"]).current_dir(directory.path()));
    let (config, layer) = (format!("config.json:{CONFIG}"), format!("layer.tgz:{CONTENT}"));
    oras(directory.path(), &[&["push"], options, &["--config", &config, image, &layer]].concat());
}

/// Packs a chart `shop` whose ConfigMap `web` has this value. Also returns its file name.
fn pack(version: &str, value: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("shop");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: shop\nversion: 0.0.0\n").unwrap();
    std::fs::write(chart.join("values.yaml"), format!("key: {value}\n")).unwrap();
    std::fs::write(chart.join("templates/web.yaml"), config_map("web", "{{ .Values.key }}")).unwrap();
    run(isolated("helm").args(["package", "shop", "--version", version]).current_dir(directory.path()));
    (directory, format!("shop-{version}.tgz"))
}

/// Pushes a chart to the repositories below an `oci://` URL. `options` are those of Helm for the registry.
pub(super) fn push_chart(url: &str, version: &str, value: &str, options: &[&str]) {
    let (directory, file) = pack(version, value);
    run(isolated("helm").args([&["push", &file, url], options].concat()).current_dir(directory.path()));
}

/// Returns the bytes of a packed chart.
pub(super) fn packed(version: &str, value: &str) -> Vec<u8> {
    let (directory, file) = pack(version, value);
    std::fs::read(directory.path().join(file)).unwrap()
}

/// Returns a running world with an OCIRepository or a HelmChart `web`, and a GitSync that follows it.
pub(super) async fn world(kind: &str, spec: Value) -> World {
    let mut world = World::new().await;
    create(&world, kind, "web", spec);
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": kind, "name": "web"}}));
    world.start();
    world
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "OCIRepository" => "ocirepositories",
        "HelmChart" => "helmcharts",
        "Provider" => "providers",
        "Alert" => "alerts",
        _ => panic!("{kind}"),
    }
}

/// Creates an object of ours.
pub(super) fn create(world: &World, kind: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let object = json!({"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec});
    world.create(OURS, plural(kind), NAMESPACE, object);
}

/// Changes the spec of `web`.
pub(super) fn change(world: &World, kind: &str, spec: Value) {
    world.edit(OURS, plural(kind), "web", json!({"spec": spec}));
}

/// Waits until a condition of an object of ours begins with a string and contains another one.
pub(super) async fn says(world: &World, (kind, name): (&str, &str), condition: &str, beginning: &str, part: &str) {
    let status =
        |world: &World| world.get(OURS, plural(kind), name).map(|object| object["status"].clone()).unwrap_or_default();
    let holds = |world: &World| {
        let said = condition_of(&status(world), condition);
        said.starts_with(beginning) && said.contains(part)
    };
    world.until_or(part, holds, || status(world).to_string()).await;
}

/// Waits until the ConfigMap `web` has this value.
pub(super) async fn applied(world: &World, value: &str) {
    let sources = || {
        let of = |plural| world.server.objects(OURS, plural, Some(NAMESPACE));
        let all = [of("ocirepositories"), of("helmcharts"), of("gitsyncs")].concat();
        all.iter().map(|object| object["status"].to_string()).collect::<Vec<_>>().join("\n")
    };
    world.until_or(value, |world| world.data("web") == value, sources).await;
}
