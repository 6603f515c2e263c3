//! HelmCharts: packed charts of real registries and chart repositories are rendered as Helm renders them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use mainstay_object::egress::METADATA_REFUSED;
use mainstay_testkit::docker_registry::{DockerRegistry, PASSWORD, Served, USER};
use mainstay_testkit::files::files_below;
use mainstay_testkit::world::{NAMESPACE, World, condition_of};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const OURS: &str = "mainstay.dev/v1alpha1";
const SHOP: &str = "mainstay-tests-shop";

/// Helm with an empty home, beside a directory with packed charts.
pub(super) struct Helm {
    home: tempfile::TempDir,
    pub(super) packed: tempfile::TempDir,
}

impl Helm {
    pub(super) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), packed: tempfile::tempdir().unwrap() }
    }

    pub(super) fn run(&self, arguments: &[&str]) -> String {
        let output = mainstay_testkit::isolated("helm").args(arguments).env("HOME", self.home.path()).output();
        let output = output.expect("helm is missing: run .ci/test --install");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Packs the chart `shop` of `tests/charts` with this message in its values.
    pub(super) fn pack(&self, version: &str, message: &str) -> PathBuf {
        self.pack_with(version, message, &[])
    }

    /// Packs the chart with these options of Helm.
    pub(super) fn pack_with(&self, version: &str, message: &str, options: &[&str]) -> PathBuf {
        let source = tempfile::tempdir().unwrap();
        for (path, content) in files_below(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/charts/shop")) {
            let to = source.path().join("shop").join(&path);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            let text = String::from_utf8(content).unwrap();
            std::fs::write(to, text.replace("Welcome", message)).unwrap();
        }
        let chart = source.path().join("shop").display().to_string();
        let to = self.packed.path().display().to_string();
        self.run(&[&["package", &chart, "--version", version, "--destination", &to], options].concat());
        self.packed.path().join(format!("shop-{version}.tgz"))
    }

    /// Writes `index.yaml` beside the packed charts.
    pub(super) fn index(&self, more: &[&str]) {
        let directory = self.packed.path().display().to_string();
        let mut arguments = vec!["repo", "index", &directory];
        arguments.extend(more);
        self.run(&arguments);
    }

    /// Returns the objects that Helm makes of a packed chart.
    pub(super) fn template(&self, chart: &Path) -> Vec<Value> {
        let chart = chart.display().to_string();
        let printed = self.run(&[
            "template",
            "web",
            &chart,
            "--namespace",
            NAMESPACE,
            "--kube-version",
            "1.32.4",
            "--api-versions",
            "networking.k8s.io/v1/Ingress",
            "--include-crds",
            "--skip-tests",
            "--no-hooks",
            "--set",
            "replicas=3",
        ]);
        let documents = printed.split("---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
        documents.filter(|document| !document.is_null()).collect()
    }
}

/// Returns whether `live` has every field of `wanted`.
fn has(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| has(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| has(live, wanted))
        }
        _ => live == wanted,
    }
}

/// Waits until the cluster has the objects that Helm makes of a chart.
pub(super) async fn applied(world: &World, objects: &[Value]) {
    assert!(objects.len() >= 4, "{objects:?}");
    for wanted in objects {
        let kind = wanted["kind"].as_str().unwrap();
        let plural = if kind == "Ingress" { "ingresses".to_owned() } else { format!("{}s", kind.to_lowercase()) };
        let live = |world: &World| {
            world.get(wanted["apiVersion"].as_str().unwrap(), &plural, wanted["metadata"]["name"].as_str().unwrap())
        };
        let shown = || format!("{wanted}\n{:?}\n{} {}", live(world), status(world), world.status("web"));
        world.until_or(kind, |world| live(world).is_some_and(|live| has(&live, wanted)), shown).await;
    }
    world.condition_is("web", "Ready", "True").await;
}

/// The requests that a server got, and its answers.
#[derive(Default)]
struct Answers {
    directory: PathBuf,
    /// The header with the login that it asks for.
    login: Mutex<Option<String>>,
    /// Paths with the login of the request, if it had one.
    requests: Mutex<Vec<(String, Option<String>)>>,
    not_modified: Mutex<u64>,
    /// Other answers than files: an address to which it redirects, or bytes.
    instead: Mutex<HashMap<String, Instead>>,
}

#[derive(Clone)]
pub(super) enum Instead {
    Redirect(String),
    Bytes(Vec<u8>),
}

/// A chart repository: a web server for the files of a directory.
pub(super) struct Repository {
    address: SocketAddr,
    answers: Arc<Answers>,
}

impl Repository {
    pub(super) async fn start(directory: &Path) -> Self {
        Self::start_at("127.0.0.1:0", directory).await
    }

    async fn start_at(address: &str, directory: &Path) -> Self {
        let answers = Arc::new(Answers { directory: directory.to_owned(), ..Answers::default() });
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&answers));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, answers }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/stable", self.address)
    }

    fn instead(&self, path: &str, answer: Instead) {
        self.answers.instead.lock().insert(format!("/stable/{path}"), answer);
    }
}

async fn answer(State(answers): State<Arc<Answers>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let text = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let login = text(header::AUTHORIZATION);
    answers.requests.lock().push((path.clone(), login.clone()));
    if answers.login.lock().as_ref().is_some_and(|wanted| Some(wanted) != login.as_ref()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let instead = answers.instead.lock().get(&path).cloned();
    match instead {
        Some(Instead::Redirect(to)) => return (StatusCode::FOUND, [(header::LOCATION, to)]).into_response(),
        Some(Instead::Bytes(bytes)) => return bytes.into_response(),
        None => {}
    }
    let file = path.strip_prefix("/stable/").map(|name| answers.directory.join(name));
    let Some(bytes) = file.and_then(|file| std::fs::read(file).ok()) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{}\"", hex::encode(Sha256::digest(&bytes)));
    if text(header::IF_NONE_MATCH).as_ref() == Some(&tag) {
        *answers.not_modified.lock() += 1;
        return StatusCode::NOT_MODIFIED.into_response();
    }
    ([(header::ETAG, tag)], bytes).into_response()
}

fn create(world: &World, namespace: &str, spec: &Value) {
    let mut whole = json!({"name": "shop", "insecure": true, "interval": "10s"});
    json_patch::merge(&mut whole, spec);
    let metadata = json!({"name": "web", "namespace": namespace});
    let object = json!({"apiVersion": OURS, "kind": "HelmChart", "metadata": metadata, "spec": whole});
    world.create(OURS, "helmcharts", namespace, object);
}

/// Returns a world with the HelmChart `web`, and a GitSync that renders it as [`Helm::template`] does.
pub(super) async fn world(spec: Value) -> World {
    let mut world = World::new().await;
    create(&world, NAMESPACE, &spec);
    let helm = json!({"values": {"replicas": 3}});
    let source = json!({"kind": "HelmChart", "name": "web"});
    world.sync("web", json!({"gitRepository": null, "sourceRef": source, "render": {"helm": helm}}));
    world.start();
    world
}

pub(super) fn change(world: &World, spec: Value) {
    world.edit(OURS, "helmcharts", "web", json!({"spec": spec}));
}

pub(super) fn status(world: &World) -> Value {
    world.get(OURS, "helmcharts", "web").map_or(Value::Null, |live| live["status"].clone())
}

pub(super) async fn said(world: &World, part: &str) {
    let ready = |world: &World| condition_of(&status(world), "Ready");
    world.until_or(part, |world| ready(world).contains(part), || status(world).to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_a_registry_is_rendered_as_helm_renders_it() {
    let (helm, registry) = (Helm::new(), DockerRegistry::start(Served::Safely).await);
    let (address, authority) = (format!("oci://{}/charts", registry.host()), helm.home.path().join("ca.pem"));
    std::fs::write(&authority, registry.authority()).unwrap();
    let push = |chart: &Path| {
        let (chart, authority) = (chart.display().to_string(), authority.display().to_string());
        let login = ["--ca-file", &authority, "--username", USER, "--password", PASSWORD];
        let arguments: Vec<&str> = ["push", &chart, &address].into_iter().chain(login).collect();
        helm.run(&arguments);
    };
    let first = helm.pack("1.0.0", "Welcome");
    for chart in [first.clone(), helm.pack("1.2.0-rc.1", "Candidate"), helm.pack("2.0.0", "Too new")] {
        push(&chart);
    }
    let world = world(json!({"repository": address, "version": "1.x", "insecure": false})).await;
    said(&world, "its certificate is refused").await;
    world.set_secret("ca", json!({"ca.crt": registry.authority()}));
    change(&world, json!({"certSecretRef": {"name": "ca"}}));
    said(&world, "to a request without credentials").await;
    // A Secret with another purpose is not sent to the address.
    world.set_secret("values", json!({"username": USER, "password": PASSWORD}));
    world.sync("other", json!({"substituteFrom": [{"kind": "Secret", "name": "values"}]}));
    change(&world, json!({"secretRef": {"name": "values"}}));
    said(&world, "the variables or charts of a GitSync").await;
    world.set_secret("login", json!({"username": USER, "password": PASSWORD}));
    change(&world, json!({"secretRef": {"name": "login"}}));
    applied(&world, &helm.template(&first)).await;
    let second = helm.pack("1.1.0+build.5", "Good bye");
    push(&second);
    applied(&world, &helm.template(&second)).await;
    world.until("status", |world| status(world)["artifact"]["commit"] == world.status("web")["appliedCommit"]).await;
    let revision = status(&world)["artifact"]["revision"].as_str().unwrap().to_owned();
    assert!(revision.starts_with("1.1.0+build.5@sha256:"), "{revision}");
    assert_eq!(world.status("web")["attemptedReference"], "refs/tags/1.1.0+build.5");
    assert!(!status(&world).to_string().contains(PASSWORD));
    let data = BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
    let config = json!({"auths": {registry.host(): {"auth": data}}}).to_string();
    world.set_secret("docker", json!({".dockerconfigjson": config}));
    change(&world, json!({"secretRef": {"name": "docker"}, "version": "1.0.0"}));
    applied(&world, &helm.template(&first)).await;
    change(&world, json!({"name": "missing"}));
    said(&world, "the registry has no such repository").await;
    change(&world, json!({"name": "shop", "version": "9.x"}));
    said(&world, "is a version in the range 9.x").await;
    assert!(world.get("apps/v1", "deployments", "web-shop").is_some(), "the last chart stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_of_a_chart_repository_is_rendered_as_helm_renders_it() {
    let helm = Helm::new();
    let (first, repository) = (helm.pack("1.0.0", "Welcome"), Repository::start(helm.packed.path()).await);
    helm.pack("2.0.0", "Too new");
    helm.index(&[]);
    let login = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")));
    *repository.answers.login.lock() = Some(login.clone());
    let world = world(json!({"repository": repository.url(), "version": "^1.0"})).await;
    said(&world, "401 to a request without credentials").await;
    world.set_secret("login", json!({"username": USER, "password": PASSWORD}));
    change(&world, json!({"secretRef": {"name": "login"}}));
    applied(&world, &helm.template(&first)).await;
    // An index that is the same is not sent again.
    let is_same = |_: &World| *repository.answers.not_modified.lock() > 0;
    world.until_or("not modified", is_same, || status(&world).to_string()).await;
    // Archives of another server are asked for without the login.
    let second = helm.pack("1.1.0+build.5", "Good bye");
    let other = Repository::start(helm.packed.path()).await;
    helm.index(&["--url", &other.url()]);
    applied(&world, &helm.template(&second)).await;
    let asked = other.answers.requests.lock().clone();
    assert!(!asked.is_empty() && asked.iter().all(|(_, login)| login.is_none()), "{asked:?}");
    assert!(repository.answers.requests.lock().iter().any(|(_, sent)| sent.as_ref() == Some(&login)));
    assert!(status(&world)["artifact"]["revision"].as_str().unwrap().starts_with("1.1.0+build.5@sha256:"));
    // An archive that changed after the index was written is refused.
    let third = helm.pack("1.3.0", "Changed");
    helm.index(&[]);
    std::fs::copy(&second, third).unwrap();
    said(&world, "the archive of version 1.3.0 does not have the digest in index.yaml").await;
    applied(&world, &helm.template(&second)).await;
    assert!(!status(&world).to_string().contains(PASSWORD));
}

/// A request for a sync looks up the chart, too, long before the interval ends. The sync has the new version when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_sync_looks_up_the_chart_first() {
    let helm = Helm::new();
    let (first, repository) = (helm.pack("1.0.0", "Welcome"), Repository::start(helm.packed.path()).await);
    helm.index(&[]);
    let world = world(json!({"repository": repository.url(), "version": "^1.0", "interval": "24h"})).await;
    applied(&world, &helm.template(&first)).await;
    helm.pack("1.1.0", "Good bye");
    helm.index(&[]);
    world.ask("web").await;
    let chart = status(&world);
    assert!(chart["artifact"]["revision"].as_str().unwrap().starts_with("1.1.0@sha256:"), "{chart}");
    assert_eq!(world.status("web")["appliedCommit"], chart["artifact"]["commit"]);
    // A lookup that fails does not hold the request.
    change(&world, json!({"suspend": true}));
    said(&world, "suspended").await;
    world.ask("web").await;
}

/// Returns a world with the objects that `mainstay convert` prints for a source and a HelmRelease of Flux.
async fn converted(source: Value, release: Value) -> World {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("flux.yaml");
    let texts = [source, release].map(|object| serde_yaml::to_string(&object).unwrap());
    std::fs::write(&file, texts.join("---\n")).unwrap();
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    let output = command.args(["convert", "flux"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut world = World::new().await;
    for text in String::from_utf8(output.stdout).unwrap().split("---\n").filter(|text| !text.trim().is_empty()) {
        let object: Value = serde_yaml::from_str(text).unwrap();
        let plural = match object["kind"].as_str().unwrap() {
            "OCIRepository" => "ocirepositories".to_owned(),
            kind => format!("{}s", kind.to_lowercase()),
        };
        world.create(OURS, &plural, NAMESPACE, object);
    }
    world.start();
    world
}

/// Returns a source of Flux.
fn source(kind: &str, spec: Value) -> Value {
    let metadata = json!({"name": "charts", "namespace": NAMESPACE});
    json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Returns a HelmRelease with the values of [`Helm::template`].
fn release(spec: &Value) -> Value {
    let mut whole = json!({"interval": "10m", "values": {"replicas": 3}});
    json_patch::merge(&mut whole, spec);
    let metadata = json!({"name": "web", "namespace": NAMESPACE});
    json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata, "spec": whole})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_helm_release_of_a_helm_repository_is_rendered_as_helm_renders_it() {
    let helm = Helm::new();
    let (first, repository) = (helm.pack("1.0.0", "Welcome"), Repository::start(helm.packed.path()).await);
    helm.pack("2.0.0", "Too new");
    helm.index(&[]);
    let charts = source("HelmRepository", json!({"url": repository.url(), "interval": "10m"}));
    let chart = json!({"chart": "shop", "version": "1.x", "sourceRef": {"kind": "HelmRepository", "name": "charts"}});
    let world = converted(charts, release(&json!({"chart": {"spec": chart}}))).await;
    applied(&world, &helm.template(&first)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_converted_helm_release_of_an_oci_repository_is_rendered_as_helm_renders_it() {
    let (helm, registry) = (Helm::new(), DockerRegistry::start(Served::Plainly).await);
    let first = helm.pack("1.0.0", "Welcome");
    for chart in [first.clone(), helm.pack("2.0.0", "Too new")] {
        let address = format!("oci://{}/charts", registry.host());
        helm.run(&["push", &chart.display().to_string(), &address, "--plain-http"]);
    }
    let selector = json!({"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy"});
    let charts = source(
        "OCIRepository",
        json!({
            "url": format!("oci://{}/charts/shop", registry.host()), "interval": "10m", "insecure": true,
            "ref": {"semver": "1.x"}, "layerSelector": selector,
        }),
    );
    let world = converted(charts, release(&json!({"chartRef": {"kind": "OCIRepository", "name": "charts"}}))).await;
    applied(&world, &helm.template(&first)).await;
}

/// Returns a packed chart with these empty files.
fn archive(paths: &[&str]) -> Vec<u8> {
    packed(&paths.iter().map(|path| (*path, "")).collect::<Vec<_>>())
}

/// Returns a packed chart with these files.
fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_packed_chart_without_its_subcharts_is_refused_with_their_names() {
    let (directory, metadata) = (tempfile::tempdir().unwrap(), "apiVersion: v2\nname: shop\nversion: 1.0.0\n");
    let needs = "dependencies:\n- {name: db, version: 1.x, repository: 'https://charts.example.com'}\n\
        - {name: cache, version: 2.x, repository: 'https://charts.example.com'}\n";
    let repository = Repository::start(directory.path()).await;
    let index = "entries: {shop: [{version: 1.0.0, urls: [shop.tgz]}]}\n";
    repository.instead("index.yaml", Instead::Bytes(index.as_bytes().to_vec()));
    let chart = packed(&[
        ("shop/Chart.yaml", &format!("{metadata}{needs}")),
        ("shop/charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.0.0\n"),
    ]);
    repository.instead("shop.tgz", Instead::Bytes(chart));
    let world = world(json!({"repository": repository.url()})).await;
    said(&world, "stored artifact 1.0.0@").await;
    let ready = |world: &World| world.condition("web", "Ready");
    let part = "it depends on charts that are not in its directory charts/: cache (run `helm dependency build` before";
    world.until_or("the subcharts", |world| ready(world).contains(part), || ready(&world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_indexes_and_archives_are_refused_and_the_last_chart_stays() {
    let helm = Helm::new();
    let (first, repository) = (helm.pack("1.0.0", "Welcome"), Repository::start(helm.packed.path()).await);
    helm.index(&[]);
    let world = world(json!({"repository": repository.url()})).await;
    applied(&world, &helm.template(&first)).await;
    let again = |number: u64| change(&world, json!({"timeout": format!("{}s", 100 + number)}));
    let inside = "http://169.254.169.254/latest/meta-data";
    let index = |url: &str| format!("entries: {{shop: [{{version: 1.0.1, urls: ['{url}']}}]}}\n").into_bytes();
    let indexes = [
        (Instead::Bytes(vec![b'a'; 64 << 20]), "the file is longer"),
        (Instead::Bytes(vec![b'['; 1 << 20]), "index.yaml: line 1: the index is nested too deeply"),
        (Instead::Bytes(b"<html><body>Sign in</body></html>".to_vec()), "it is not the index of a chart repository"),
        (Instead::Bytes(b"entries: {other: []}\n".to_vec()), "index.yaml has no chart shop"),
        (Instead::Redirect(format!("{inside}/index.yaml")), METADATA_REFUSED),
        (Instead::Redirect("file:///etc/passwd".to_owned()), "it is not HTTP"),
        (Instead::Bytes(index(inside)), METADATA_REFUSED),
        (Instead::Bytes(index("file:///etc/passwd")), "does not begin with https://"),
        (Instead::Bytes(index("oci://registry.example.org/shop:1")), "has its archive in a registry"),
    ];
    for (number, (answer, part)) in (1..).zip(indexes) {
        repository.instead("index.yaml", answer);
        again(number);
        said(&world, part).await;
    }
    repository.instead("index.yaml", Instead::Bytes(index("shop.tgz")));
    for (number, (paths, part)) in (50..).zip([
        (&["shop/Chart.yaml", "shop/../../a"][..], "outside the artifact"),
        (&["shop/Chart.yaml", "other/a"], "is outside the directory of the chart"),
        (&["Chart.yaml"], "is outside the directory of the chart"),
    ]) {
        repository.instead("shop.tgz", Instead::Bytes(archive(paths)));
        again(number);
        said(&world, part).await;
    }
    applied(&world, &helm.template(&first)).await;
    change(&world, json!({"name": "../shop"}));
    said(&world, "spec.name: must consist of letters").await;
    assert!(condition_of(&status(&world), "Stalled").starts_with("True"));
    assert!(world.get("apps/v1", "deployments", "web-shop").is_some(), "the last chart stays");
}

/// Changes the HelmChart of the tenant, and waits until its condition has `part`.
async fn tenant_said(world: &World, spec: Value, part: &str) {
    let patch = Action::Patch(Form::Merge, json!({"spec": spec}));
    world.write_as("kubectl-edit", Call::new(OURS, "helmcharts", SHOP, "web", patch));
    let live = || world.server.object(OURS, "helmcharts", SHOP, "web").unwrap();
    let is_said = |_: &World| {
        let live = live();
        live["status"]["observedGeneration"] == live["metadata"]["generation"]
            && condition_of(&live["status"], "Ready").contains(part)
    };
    world.until_or(part, is_said, || live().to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_helm_chart_of_a_tenant_reaches_no_internal_address() {
    const REFUSED: &str = "this namespace are not read from";
    let helm = Helm::new();
    helm.pack("1.0.0", "Welcome");
    helm.index(&[]);
    let repository = Repository::start(helm.packed.path()).await;
    let inside = Repository::start_at("127.0.0.2:0", helm.packed.path()).await;
    let mut world = World::new().await;
    world.allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
    world.create("v1", "namespaces", "", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}}));
    create(&world, SHOP, &json!({"repository": inside.url()}));
    world.start();
    tenant_said(&world, json!({}), REFUSED).await;
    let allowed = |timeout: &str| json!({"repository": repository.url(), "timeout": timeout});
    tenant_said(&world, allowed("50s"), "stored artifact 1.0.0@").await;
    repository.instead("index.yaml", Instead::Redirect(format!("{}/index.yaml", inside.url())));
    tenant_said(&world, allowed("51s"), REFUSED).await;
    let index = |url: &str| format!("entries: {{shop: [{{version: 1.1.0, urls: ['{url}']}}]}}\n").into_bytes();
    repository.instead("index.yaml", Instead::Bytes(index(&format!("{}/shop-1.0.0.tgz", inside.url()))));
    tenant_said(&world, allowed("52s"), REFUSED).await;
    repository.instead("index.yaml", Instead::Bytes(index("shop-1.1.0.tgz")));
    repository.instead("shop-1.1.0.tgz", Instead::Redirect(format!("{}/shop-1.0.0.tgz", inside.url())));
    tenant_said(&world, allowed("53s"), REFUSED).await;
    let asked = repository.answers.requests.lock().len();
    let port = inside.address.port();
    for (number, host) in ["127.0.0.2", "2130706434", "0x7f.2", "[::ffff:127.0.0.2]"].iter().enumerate() {
        let name = format!("proxy-{number}");
        let proxy = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": SHOP},
            "stringData": {"address": format!("http://{host}:{port}")}});
        world.create("v1", "secrets", SHOP, proxy);
        tenant_said(&world, json!({"proxySecretRef": {"name": name}}), REFUSED).await;
        let registry = json!({"repository": format!("oci://{}/charts", repository.address)});
        tenant_said(&world, registry, REFUSED).await;
        tenant_said(&world, json!({"repository": repository.url()}), REFUSED).await;
    }
    assert_eq!(repository.answers.requests.lock().len(), asked);
    assert_eq!(*inside.answers.requests.lock(), []);
}
