//! Repositories laid out as those of Flux's documentation: what `mainstay convert` prints for them applies the objects
//! that Flux's own build (`tests/layouts/record`) and Helm render.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use mainstay_testkit::files::files_below;
use mainstay_testkit::foreign::define_kinds;
use mainstay_testkit::world::{NAMESPACE, World};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::chart_sources::Repository;

const OURS: &str = "mainstay.dev/v1alpha1";
/// The kinds of Flux in the layouts.
const FLUX: [(&str, &str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io/v1", "Kustomization", "kustomizations"),
    ("helm.toolkit.fluxcd.io/v2", "HelmRelease", "helmreleases"),
    ("source.toolkit.fluxcd.io/v1", "GitRepository", "gitrepositories"),
    ("source.toolkit.fluxcd.io/v1", "HelmRepository", "helmrepositories"),
];
/// The packed charts, with their versions.
const CHARTS: [(&str, &str); 2] = [("shop", "1.1.0"), ("operator", "0.9.0")];
const CLUSTER_SCOPED: [&str; 2] = ["Namespace", "CustomResourceDefinition"];

fn documents(text: &str) -> Vec<Value> {
    let read = serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    read.filter(Value::is_object).collect()
}

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], home: &Path) -> String {
    let output = mainstay_testkit::isolated(program).args(arguments).env("HOME", home).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if lower.ends_with('s') => format!("{lower}es"),
        None => format!("{lower}s"),
    }
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A layout with what Flux builds of it.
struct Layout {
    directory: PathBuf,
    /// The objects of each Kustomization, by its name.
    built: BTreeMap<String, Vec<Value>>,
    room: tempfile::TempDir,
}

impl Layout {
    fn read(name: &str) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layouts").join(name);
        let built = files_below(&directory.join("flux")).into_iter().map(|(file, content)| {
            let mut objects = documents(std::str::from_utf8(&content).unwrap());
            for object in &mut objects {
                without_labels_of_flux(object);
            }
            (file.trim_end_matches(".yaml").to_owned(), objects)
        });
        let room = tempfile::tempdir().unwrap();
        for (chart, version) in CHARTS {
            let source = directory.parent().unwrap().with_file_name("charts").join(chart).display().to_string();
            let to = room.path().join("packed").display().to_string();
            run("helm", &["package", &source, "--version", version, "--destination", &to], room.path());
        }
        let packed = room.path().join("packed").display().to_string();
        run("helm", &["repo", "index", &packed], room.path());
        Self { directory, built: built.collect(), room }
    }

    fn repository(&self) -> PathBuf {
        self.directory.join("repository")
    }

    /// Returns what `mainstay convert` prints for the objects in `clusters/production`, and for those that Flux builds.
    fn converted(&self) -> Vec<Value> {
        let fleet = self.room.path().join("fleet");
        let cluster = files_below(&self.repository().join("clusters/production"));
        let built = files_below(&self.directory.join("flux")).into_iter();
        for (file, content) in cluster.into_iter().chain(built.map(|(file, content)| (format!("flux/{file}"), content)))
        {
            let file = fleet.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        let fleet = fleet.display().to_string();
        let arguments = ["convert", "flux", &fleet, "-n", NAMESPACE];
        documents(&run(env!("CARGO_BIN_EXE_mainstay"), &arguments, self.room.path()))
    }

    /// Returns the objects of a HelmRelease as Helm renders them.
    fn helm_renders(&self, release: &Value) -> Vec<Value> {
        let (namespace, target) = (text(release, "/metadata/namespace"), text(release, "/spec/targetNamespace"));
        let own = text(release, "/metadata/name");
        let name = match (text(release, "/spec/releaseName"), target) {
            ("", "") => own.to_owned(),
            ("", target) => format!("{target}-{own}"),
            (name, _) => name.to_owned(),
        };
        let chart = text(release, "/spec/chart/spec/chart");
        let version = CHARTS.iter().find(|(packed, _)| *packed == chart).map(|(_, version)| version);
        let chart = match version {
            Some(version) => self.room.path().join(format!("packed/{chart}-{version}.tgz")),
            None => self.repository().join(chart),
        };
        let target = if target.is_empty() { namespace } else { target };
        let mut arguments: Vec<String> = ["template", &name, &chart.display().to_string(), "--namespace", target]
            .into_iter()
            .chain(["--kube-version", "1.32.4", "--api-versions", "networking.k8s.io/v1/Ingress", "--no-hooks"])
            .map(str::to_owned)
            .collect();
        if release["spec"]["install"]["crds"] != "Skip" {
            arguments.push("--include-crds".to_owned());
        }
        arguments.extend(self.values(release, namespace));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut rendered = run("helm", &arguments, self.room.path());
        for renderer in release["spec"]["postRenderers"].as_array().into_iter().flatten() {
            let directory = tempfile::tempdir().unwrap();
            let mut kustomization = renderer["kustomize"].clone();
            kustomization["resources"] = json!(["all.yaml"]);
            std::fs::write(directory.path().join("all.yaml"), &rendered).unwrap();
            std::fs::write(directory.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
            rendered = run("kubectl", &["kustomize", &directory.path().display().to_string()], self.room.path());
        }
        let mut objects = documents(&rendered);
        for object in &mut objects {
            if !CLUSTER_SCOPED.contains(&text(object, "/kind")) && object["metadata"]["namespace"].is_null() {
                object["metadata"]["namespace"] = target.into();
            }
        }
        objects
    }

    /// Returns the arguments with the values of a HelmRelease.
    fn values(&self, release: &Value, namespace: &str) -> Vec<String> {
        let (mut arguments, mut files) = (Vec::new(), 0);
        let mut file = |content: &str| {
            let path = self.room.path().join(format!("values-{files}.yaml"));
            files += 1;
            std::fs::write(&path, content).unwrap();
            format!("--values={}", path.display())
        };
        for named in release["spec"]["chart"]["spec"]["valuesFiles"].as_array().into_iter().flatten() {
            arguments.push(format!("--values={}", self.repository().join(named.as_str().unwrap()).display()));
        }
        for from in release["spec"]["valuesFrom"].as_array().into_iter().flatten() {
            let map = self.config_map(namespace, text(from, "/name"));
            let key = from["valuesKey"].as_str().unwrap_or("values.yaml");
            match (map, from["targetPath"].as_str()) {
                (None, _) => assert_eq!(from["optional"], true),
                (Some(map), Some(path)) => {
                    arguments.push(format!("--set={path}={}", map["data"][key].as_str().unwrap()));
                }
                (Some(map), None) => arguments.push(file(map["data"][key].as_str().unwrap())),
            }
        }
        arguments.push(file(&release["spec"]["values"].to_string()));
        arguments
    }

    fn all(&self) -> impl Iterator<Item = &Value> {
        self.built.values().flatten()
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.all().filter(move |object| object["kind"] == kind)
    }

    fn config_map(&self, namespace: &str, name: &str) -> Option<&Value> {
        let is_it = |map: &&Value| map["metadata"]["namespace"] == namespace && map["metadata"]["name"] == name;
        self.of_kind("ConfigMap").find(is_it)
    }
}

/// Removes the labels by which Flux recognizes the objects that it applied.
fn without_labels_of_flux(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.retain(|name, _| !name.starts_with("kustomize.toolkit.fluxcd.io/"));
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
}

/// Creates the printed objects, with the test's repositories.
fn create(world: &World, layout: &Layout, charts: &Repository) -> Vec<String> {
    let mut syncs = Vec::new();
    for mut object in layout.converted() {
        let kind = text(&object, "/kind").to_owned();
        match &*kind {
            "GitRepository" => object["spec"] = json!({"url": world.remote.path().display().to_string()}),
            "HelmChart" => {
                object["spec"]["repository"] = charts.url().into();
                object["spec"]["insecure"] = true.into();
            }
            "GitSync" => syncs.push(text(&object, "/metadata/name").to_owned()),
            other => panic!("{other}"),
        }
        let api_version = text(&object, "/apiVersion").to_owned();
        world.create(&api_version, &plural(&kind), NAMESPACE, object);
    }
    syncs
}

/// Copies the objects that the report of the conversion names.
fn copy_references(world: &World, layout: &Layout) {
    let named = layout.of_kind("HelmRelease").flat_map(|release| {
        let from = release["spec"]["valuesFrom"].as_array().into_iter().flatten();
        from.filter_map(|from| layout.config_map(text(release, "/metadata/namespace"), text(from, "/name")))
    });
    let maps: BTreeMap<&str, &Value> = named.map(|map| (text(map, "/metadata/name"), map)).collect();
    let accounts = layout.of_kind("ServiceAccount").map(|account| (text(account, "/metadata/name"), account));
    for (name, object) in maps.into_iter().chain(accounts) {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let copy = json!({"apiVersion": "v1", "kind": object["kind"], "metadata": metadata, "data": object["data"]});
        world.create("v1", &plural(text(object, "/kind")), NAMESPACE, copy);
    }
}

fn call(object: &Value, action: Action) -> Call {
    let of = (text(object, "/apiVersion"), plural(text(object, "/kind")));
    Call::new(of.0, &of.1, text(object, "/metadata/namespace"), text(object, "/metadata/name"), action)
}

fn live(world: &World, object: &Value) -> Option<Value> {
    let (api_version, resource) = (text(object, "/apiVersion"), plural(text(object, "/kind")));
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    world.server.object(api_version, &resource, namespace, name).map(|live| (*live).clone())
}

/// Sets the status of HelmReleases, as helm-controller does: GitSyncs wait for the objects that they apply.
fn helm_controller(world: &World, layout: &Layout) {
    for release in layout.of_kind("HelmRelease") {
        if live(world, release).is_some_and(|live| live["status"].is_null()) {
            let ready =
                json!({"type": "Ready", "status": "True", "reason": "InstallSucceeded", "message": "installed"});
            let status = json!({"status": {"conditions": [ready]}});
            world.write_as("helm-controller", call(release, Action::Patch(Form::Merge, status)));
        }
    }
}

/// Asserts that an apply of `wanted` as Mainstay changes nothing: the live object has no other field of Mainstay.
fn assert_applied(world: &World, wanted: &Value) {
    let before = live(world, wanted).unwrap_or_else(|| panic!("is missing: {wanted}"));
    let mut wanted = wanted.clone();
    for entries in ["labels", "annotations"] {
        for (name, value) in before["metadata"][entries].as_object().into_iter().flatten() {
            if name.starts_with("mainstay.dev/") {
                wanted["metadata"][entries][name] = value.clone();
            }
        }
    }
    let mut after = world.write_as("mainstay", call(&wanted, Action::Patch(Form::Apply, wanted.clone())));
    let mut before = before;
    for object in [&mut before, &mut after] {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|name, _| !["managedFields", "resourceVersion"].contains(&name.as_str()));
    }
    assert_eq!(before, after, "{wanted}");
}

/// Converts a layout, applies what is printed, and compares each object.
async fn renders_as_flux(name: &str) {
    let layout = Layout::read(name);
    let mut world = World::new().await;
    define_kinds(&world, &FLUX);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}});
    world.create("v1", "namespaces", "", namespace);
    for (file, content) in files_below(&layout.repository()) {
        world.remote.file(&file, content);
    }
    world.remote.commit("the layout");
    let charts = Repository::start(&layout.room.path().join("packed")).await;
    let syncs = create(&world, &layout, &charts);
    copy_references(&world, &layout);
    world.start();
    let is_ready = |world: &World| {
        helm_controller(world, &layout);
        syncs.iter().all(|sync| world.condition(sync, "Ready").starts_with("True"))
    };
    let shown = || {
        let states = syncs.iter().map(|sync| format!("{sync}: {}", world.condition(sync, "Ready")));
        states.collect::<Vec<_>>().join("\n")
    };
    world.until_or("all GitSyncs are ready", is_ready, shown).await;
    let of_sync: BTreeMap<String, u64> =
        syncs.iter().map(|sync| (sync.clone(), world.status(sync)["objects"].as_u64().unwrap())).collect();
    world.stop().await;
    let mut expected = layout.built.clone();
    for release in layout.of_kind("HelmRelease") {
        let name = text(release, "/metadata/name").to_owned();
        assert!(expected.insert(name, layout.helm_renders(release)).is_none());
    }
    for object in expected.values().flatten() {
        assert_applied(&world, object);
    }
    let counts = expected.into_iter().map(|(name, objects)| (name, objects.len() as u64)).collect();
    assert_eq!(of_sync, counts);
    assert!(world.get(OURS, "gitsyncs", "flux-system").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_kustomize_helm_layout_renders_what_flux_and_helm_render() {
    renders_as_flux("kustomize-helm").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_multi_tenancy_layout_renders_what_flux_and_helm_render() {
    renders_as_flux("multi-tenancy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_monorepo_renders_what_flux_and_helm_render() {
    renders_as_flux("monorepo").await;
}
