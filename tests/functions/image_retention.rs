//! Unused images are removed from the in-cluster registry with their blobs, by the init containers of its pod. Images
//! that are in use, recent or foreign stay complete.

use std::path::{Path, PathBuf};
use std::time::Duration;

use devcluster::{Action, Call, verbs::patch::Form};
use jiff::{SignedDuration, Timestamp};
use mainstay_function::Retention;
use mainstay_function::registry::retention::{LivingFunction, Observed, Policy, Report, Rules, Used};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{DEPLOYMENTS, PODS, inline},
    image::{Build, outcome, run},
    logs,
    registry::{DockerRegistry, PASSWORD, Served},
    world::{NAMESPACE, World},
};

const RULES: Rules = Rules { builds: 2, grace: Duration::from_secs(24 * 3600) };

/// Pulls an image with an independent program. Returns whether it is complete.
async fn pulls(image: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (format!("docker://{image}"), format!("dir:{}", directory.path().join("it").display()));
    let credentials = format!("anyone:{PASSWORD}");
    let options = ["--insecure-policy", "copy", "-q", "--src-tls-verify=false", "--src-creds", &credentials];
    let mut command = mainstay_testkit::isolated_async("skopeo");
    command.args([&options[..], &[&from, &to]].concat());
    command.output().await.expect("skopeo is installed (apt-get install skopeo)").status.success()
}

/// Pushes a build of a Function and returns its digest.
async fn pushed(registry: &DockerRegistry, build: &Build, repository: &str, version: usize) -> String {
    build.write("workspace/src/handler.js", &format!("module.exports = {{ main: () => '{repository} {version}' }}"));
    let tag = mainstay_function::registry::Digest::of(format!("{repository} {version}").as_bytes());
    let ended = outcome(&build.request(&format!("{}/{repository}:{}", registry.host(), tag.hex()))).await;
    ended
        .split(' ')
        .next()
        .filter(|digest| digest.starts_with("sha256:"))
        .unwrap_or_else(|| panic!("{ended}"))
        .to_owned()
}

/// Makes all files of the registry older.
fn age(registry: &DockerRegistry, by: Duration) {
    let mut open = vec![registry.images()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_modified(file.metadata().unwrap().modified().unwrap() - by).unwrap();
            }
        }
    }
}

/// Returns the bytes of all blobs.
fn blobs(registry: &DockerRegistry) -> u64 {
    let mut open = vec![registry.images().join("docker/registry/v2/blobs")];
    let mut bytes = 0;
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_dir() { open.push(entry.path()) } else { bytes += entry.metadata().unwrap().len() }
        }
    }
    bytes
}

fn used(digests: &[&str]) -> Used {
    let mut used = Used::default();
    for digest in digests {
        used.add(&json!({"spec": {"image": format!("r.io/any@{digest}")}}));
    }
    used
}

fn function(namespace: &str, name: &str) -> LivingFunction {
    LivingFunction { namespace: namespace.into(), name: name.into(), uid: name.into(), generation: 1 }
}

fn observed(functions: &[LivingFunction], in_use: Used) -> Observed {
    Observed { functions: functions.to_vec(), of_functions: in_use.clone(), in_use }
}

/// Returns a policy whose predecessor kept no other images.
fn policy(id: &str, at: Timestamp, functions: &[LivingFunction], in_use: &[&str]) -> Policy {
    let before = Policy::new("0".into(), at, RULES, observed(functions, used(&[])), None);
    Policy::new(id.into(), at, RULES, observed(functions, used(in_use)), Some(&before))
}

/// Runs the commands of the first two containers of the pod in `manifests/registry`.
async fn sweep(registry: &DockerRegistry, id: &str, policy: Option<&str>) -> Option<Report> {
    let room = tempfile::tempdir().unwrap();
    let path = |name: &str| room.path().join(name).display().to_string();
    if let Some(policy) = policy {
        std::fs::write(path("policy.json"), policy).unwrap();
    }
    std::os::unix::fs::symlink(which("docker-registry").await, path("registry")).unwrap();
    let images = registry.images().display().to_string();
    let places = [
        ("/var/lib/registry", images.as_str()),
        ("/etc/retention", room.path().to_str().unwrap()),
        ("/tmp/", &path("")),
        ("/dev/termination-log", &path("termination-log")),
        ("/etc/docker/registry/config.yml", &path("config.yml")),
    ];
    let config = "version: 0.1\nstorage: {filesystem: {rootdirectory: /nowhere}}\nhttp: {addr: ':0'}\n";
    std::fs::write(path("config.yml"), config).unwrap();
    // Each path is replaced once, because the temporary directory is inside of one of the paths.
    let placed = |text: &str| {
        let found = places.iter().filter(|(place, _)| text.contains(place)).collect::<Vec<_>>();
        let marked = found
            .iter()
            .enumerate()
            .fold(text.to_owned(), |text, (at, (place, _))| text.replace(place, &format!("\u{0}{at}\u{0}")));
        found.iter().enumerate().fold(marked, |text, (at, (_, there))| text.replace(&format!("\u{0}{at}\u{0}"), there))
    };
    let mut report = None;
    for container in containers() {
        let texts = |name: &str| {
            container[name]
                .as_array()
                .into_iter()
                .flatten()
                .map(|text| placed(text.as_str().unwrap()))
                .collect::<Vec<_>>()
        };
        let (command, args) = (texts("command"), texts("args"));
        let program = command.first().cloned().unwrap_or_else(|| env!("CARGO_BIN_EXE_mainstay").to_owned());
        let path_variable = format!("{}:{}", room.path().display(), std::env::var("PATH").unwrap());
        let mut process = mainstay_testkit::isolated_async(program);
        process.args(command.iter().skip(1)).args(args).env_clear().env("PATH", path_variable);
        for variable in container["env"].as_array().into_iter().flatten() {
            let value = variable["value"].as_str().map_or_else(|| id.to_owned(), placed);
            process.env(variable["name"].as_str().unwrap(), value);
        }
        let output = process.output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = std::fs::read_to_string(path("termination-log")).unwrap_or_default();
        match container["name"].as_str().unwrap() {
            "sweep" => report = serde_json::from_str(&said).ok(),
            _ => assert_eq!(said, "", "{output:?}"),
        }
        let _ = std::fs::remove_file(path("termination-log"));
    }
    report
}

async fn which(program: &str) -> PathBuf {
    let found = mainstay_testkit::isolated_async("sh")
        .args(["-c", &format!("command -v {program}")])
        .output()
        .await
        .unwrap()
        .stdout;
    Path::new(String::from_utf8(found).unwrap().trim()).to_owned()
}

/// Returns the containers that run before the registry.
fn containers() -> Vec<Value> {
    deployment()["spec"]["template"]["spec"]["initContainers"].as_array().unwrap().clone()
}

/// Returns the Deployment of `manifests/registry`.
fn deployment() -> Value {
    use serde::Deserialize as _;
    let text = include_str!("../../manifests/registry/registry.yaml");
    let mut documents = serde_yaml::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap());
    documents.find(|document| document["kind"] == "Deployment").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_of_the_installation_deletes_no_image_on_request() {
    let deployment = deployment();
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    let container = containers.iter().find(|container| container["name"] == "registry").unwrap();
    let variables = container["env"].as_array().unwrap();
    let deletes = variables.iter().find(|variable| variable["name"] == "REGISTRY_STORAGE_DELETE_ENABLED").unwrap();
    let status = async |deletes: bool| {
        let registry = DockerRegistry::deleting(deletes).await;
        let build = Build::new().registry(&registry.host());
        let digest = pushed(&registry, &build, "team-fn", 1).await;
        let url = format!("http://{}/v2/team-fn/manifests/{digest}", registry.host());
        reqwest::Client::builder().no_proxy().build().unwrap().delete(url).send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(true).await, 202, "the registry can");
    assert_eq!(status(deletes["value"].as_str().unwrap().parse().unwrap()).await, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_images_go_with_their_blobs_and_all_others_can_be_pulled() {
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let host = registry.host();
    let build = Build::new().registry(&host);
    let (mut living, mut deleted) = (Vec::new(), Vec::new());
    for version in 0..4 {
        living.push(pushed(&registry, &build, "shop-quote", version).await);
        deleted.push(pushed(&registry, &build, "shop-gone", version).await);
        // File times have a resolution of a few milliseconds.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A user's images: one in the repository of a deleted Function, and one of a Function under another name.
    let source = format!("docker://{host}/shop-gone@{}", deleted[1]);
    for to in ["shop-gone:keep-this", "team/app:v1"] {
        let to = format!("docker://{host}/{to}");
        let options = ["--insecure-policy", "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false"];
        run("skopeo", &[&options[..], &[&source, &to]].concat()).await;
    }
    age(&registry, Duration::from_secs(48 * 3600));
    // A build finds this image in the registry and reports it.
    assert_eq!(pushed(&registry, &build, "shop-gone", 2).await, deleted[2]);
    registry.kill().await;

    let at = Timestamp::now();
    // The Function runs two versions, and the newest is not one of them.
    let asked = policy("7", at, &[function("shop", "quote")], &[&living[0]]).text().unwrap();
    let before = blobs(&registry);
    for (id, policy) in [("", Some(asked.as_str())), ("6", Some(&asked)), ("7", None), ("7", Some("{}"))] {
        let report = sweep(&registry, id, policy).await;
        assert!(report.is_none_or(|report| report.problem.is_some() && report.manifests == 0), "{id:?} {policy:?}");
    }
    let stale = policy("7", at - SignedDuration::from_mins(31), &[], &[]).text().unwrap();
    let report = sweep(&registry, "7", Some(&stale)).await.unwrap();
    assert!(report.problem.unwrap().contains("or the clocks of the nodes differ"));
    assert_eq!(blobs(&registry), before);

    let report = sweep(&registry, "7", Some(&asked)).await.unwrap();
    assert_eq!((report.manifests, report.repositories, &report.problem), (3, 0, &None), "{report:?}");
    assert_eq!(before - blobs(&registry), report.bytes.unwrap(), "{report:?}");
    assert!(report.bytes.unwrap() > 0);
    let again = sweep(&registry, "7", Some(&asked)).await.unwrap();
    assert!(again.problem.unwrap().contains("an earlier pod already started it"));
    let again = sweep(&registry, "8", Some(&asked.replace("\"id\":\"7\"", "\"id\":\"8\""))).await.unwrap();
    assert_eq!((again.manifests, again.bytes, again.problem), (0, Some(0), None));

    registry.restart().await;
    let of = async |name: &str, digest: &str| pulls(&format!("{host}/{name}@{digest}")).await;
    for (at, stays) in [(0, true), (1, false), (2, true), (3, true)] {
        assert_eq!(of("shop-quote", &living[at]).await, stays, "shop-quote {at}");
    }
    for (at, stays) in [(0, false), (1, true), (2, true), (3, false)] {
        assert_eq!(of("shop-gone", &deleted[at]).await, stays, "shop-gone {at}");
    }
    assert!(pulls(&format!("{host}/team/app:v1")).await && pulls(&format!("{host}/shop-gone:keep-this")).await);
    // A removed image can be built again.
    assert_eq!(pushed(&registry, &build, "shop-quote", 1).await, living[1]);
    assert!(of("shop-quote", &living[1]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_function_leaves_no_repository_and_torn_files_keep_what_is_beside_them() {
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    for repository in ["shop-gone", "shop-torn"] {
        for version in 0..2 {
            pushed(&registry, &build, repository, version).await;
        }
    }
    age(&registry, Duration::from_secs(48 * 3600));
    registry.kill().await;
    let repositories = registry.images().join("docker/registry/v2/repositories");
    let torn = repositories.join("shop-torn/_manifests/tags");
    let torn = std::fs::read_dir(&torn).unwrap().next().unwrap().unwrap().path().join("current/link");
    let whole = std::fs::read(&torn).unwrap();
    std::fs::write(&torn, "").unwrap();
    // The target of a link stays untouched.
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(elsewhere.path().join("_manifests/revisions")).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), repositories.join("linked")).unwrap();
    let asked = |id: &str| policy(id, Timestamp::now(), &[], &[]).text().unwrap();
    let report = sweep(&registry, "7", Some(&asked("7"))).await.unwrap();
    assert_eq!((report.manifests, report.repositories), (0, 0), "{report:?}");
    assert!(report.problem.unwrap().contains("all of them"));
    std::fs::remove_file(repositories.join("linked")).unwrap();
    let report = sweep(&registry, "8", Some(&asked("8"))).await.unwrap();
    assert_eq!((report.manifests, report.repositories, report.bytes), (2, 1, None), "{report:?}");
    assert!(report.problem.unwrap().contains("shop-torn"));
    assert!(!repositories.join("shop-gone").exists() && repositories.join("shop-torn").exists());
    std::fs::write(&torn, whole).unwrap();
    std::fs::File::options()
        .write(true)
        .open(&torn)
        .unwrap()
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(48 * 3600))
        .unwrap();
    let report = sweep(&registry, "9", Some(&asked("9"))).await.unwrap();
    assert_eq!((report.manifests, report.repositories, &report.problem), (2, 1, &None), "{report:?}");
    assert!(!repositories.join("shop-torn").exists());
    assert_eq!(blobs(&registry), 0);
    registry.restart().await;
    pushed(&registry, &build, "shop-gone", 0).await;
}

const REGISTRY: &str = "serverless-docker-registry";
const POLICY: &str = "mainstay-image-retention";
const SWEEP: &str = "mainstay.dev/image-sweep";

/// Helpers of these tests.
trait RetentionWorld {
    fn policy(&self) -> Value;
    /// Returns the sweep for which the registry's pods are started.
    fn asked(&self) -> Option<String>;
    /// Moves the last check two days back.
    fn days_pass(&self);
    /// Waits until the agent requests a sweep, performs it like the registry's pod, and returns the report.
    async fn swept(&mut self, registry: &mut DockerRegistry) -> Report;
}

impl RetentionWorld for World {
    fn policy(&self) -> Value {
        let map = self.get("v1", "configmaps", POLICY);
        map.map_or(Value::Null, |map| serde_json::from_str(map["data"]["policy.json"].as_str().unwrap()).unwrap())
    }

    fn asked(&self) -> Option<String> {
        let deployment = self.get("apps/v1", "deployments", REGISTRY).unwrap();
        deployment["spec"]["template"]["metadata"]["annotations"][SWEEP].as_str().map(str::to_owned)
    }

    fn days_pass(&self) {
        let mut policy = self.policy();
        let at: Timestamp = policy["at"].as_str().unwrap().parse().unwrap();
        policy["at"] = (at - SignedDuration::from_hours(48)).to_string().into();
        self.edit("v1", "configmaps", POLICY, json!({"data": {"policy.json": policy.to_string()}}));
    }

    async fn swept(&mut self, registry: &mut DockerRegistry) -> Report {
        let before = self.asked();
        self.stop().await;
        self.days_pass();
        self.start();
        self.until("a sweep is asked for", |w| w.asked() != before).await;
        let id = self.asked().unwrap();
        let policy = self.policy();
        assert_eq!(policy["id"], id.as_str());
        registry.kill().await;
        let report = sweep(registry, &id, Some(&policy.to_string())).await.unwrap();
        registry.restart().await;
        let name = format!("registry-{id}");
        let labels = json!({"app.kubernetes.io/name": REGISTRY});
        let metadata = json!({"name": name, "labels": labels, "annotations": {SWEEP: id}});
        let spec = json!({"nodeName": "another", "containers": [{"name": "registry", "image": "registry:2.8.3"}]});
        self.create("v1", "pods", NAMESPACE, json!({"metadata": metadata, "spec": spec}));
        let ended = |name: &str, message: String| {
            let state = json!({"terminated": {"exitCode": 0, "message": message}});
            json!({"name": name, "ready": true, "restartCount": 0, "image": "i", "imageID": "i", "state": state})
        };
        let statuses = [ended("sweep", serde_json::to_string(&report).unwrap()), ended("collect", String::new())];
        let status = json!({"status": {"initContainerStatuses": statuses}});
        let call = Call::new("v1", "pods", NAMESPACE, &name, Action::Patch(Form::Merge, status)).on("status");
        self.try_as("kubelet", call).unwrap();
        let reported = |w: &Self| {
            let map = w.get("v1", "configmaps", POLICY).unwrap();
            map["data"]["report.json"].as_str().is_some_and(|text| text.contains(&id))
        };
        self.until("the report is kept", reported).await;
        report
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_of_a_function_go_when_they_are_old_and_all_of_them_after_it_was_deleted() {
    logs::keep();
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let mut world = World::with_processes().await;
    world.functions.retention =
        Retention { builds: 1, grace: Duration::ZERO, settle: Duration::from_millis(300), ..Retention::default() };
    let place = json!({"registryAddress": registry.host(), "serverAddress": registry.host()});
    world.edit("v1", "secrets", "serverless-registry-config-default", json!({"stringData": place}));
    let mut deployment = deployment();
    deployment["metadata"]["namespace"] = NAMESPACE.into();
    world.create("apps/v1", "deployments", NAMESPACE, deployment);
    world.start();
    world.until("the first look takes note", |w| w.policy() != Value::Null).await;
    let mut images = Vec::new();
    for version in 1..4 {
        let source = format!("module.exports = {{ main: () => 'version {version}' }}");
        match version {
            1 => _ = world.function("hello", inline(&source)),
            _ => _ = world.edit_function("hello", json!({"spec": {"source": source}})),
        }
        world.runs("hello").await;
        images.push(world.function_status("hello")["image"].as_str().unwrap().to_owned());
    }
    assert_eq!(world.asked(), None, "nothing goes at the first look");
    for image in &mut images {
        let (name, digest) = image.split_once('@').unwrap();
        *image = format!("{}@{digest}", name.rsplit_once(':').unwrap().0);
    }
    let old = world.swept(&mut registry).await;
    assert_eq!((old.manifests, old.repositories, &old.problem), (2, 0, &None), "{old:?}");
    assert!(!pulls(&images[0]).await && !pulls(&images[1]).await && pulls(&images[2]).await);
    assert!(world.is_running("hello"));

    world.delete_function("hello");
    world
        .until("its pods are gone", |w| {
            w.children("hello", PODS).is_empty() && w.children("hello", DEPLOYMENTS).is_empty()
        })
        .await;
    assert_eq!(world.swept(&mut registry).await.manifests, 0, "it was in use at the look before");
    let all = world.swept(&mut registry).await;
    assert_eq!((all.manifests, all.repositories, &all.problem), (1, 1, &None), "{all:?}");
    assert_eq!(blobs(&registry), 0);
    // The same image is built again.
    world.function("hello", inline("module.exports = { main: () => 'version 3' }"));
    world.runs("hello").await;
    assert!(pulls(&images[2]).await);
}

/// Returns the notes of Events about images that were not removed.
fn not_removed(world: &World) -> String {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let notes = events.iter().filter(|event| event["reason"] == "ImagesNotRemoved");
    notes.filter_map(|event| event["message"].as_str()).collect::<Vec<_>>().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_of_an_earlier_release_and_a_list_that_fails_are_reported_and_nothing_is_asked_for() {
    logs::keep();
    let mut world = World::with_functions().await;
    world.functions.retention.settle = Duration::from_millis(300);
    let mut deployment = deployment();
    deployment["metadata"]["namespace"] = NAMESPACE.into();
    let containers = deployment["spec"]["template"]["spec"]["initContainers"].take();
    world.create("apps/v1", "deployments", NAMESPACE, deployment);
    world.start();
    world.until("an Event", |w| not_removed(w).contains("has no container `sweep`")).await;
    assert_eq!(world.policy(), Value::Null);

    world.stop().await;
    let spec = json!({"spec": {"template": {"spec": {"initContainers": containers}}}});
    world.edit("apps/v1", "deployments", REGISTRY, spec);
    world.start();
    world.until("what is in use is written down", |w| w.policy() != Value::Null).await;
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.stop().await;
    world.days_pass();
    let before = world.policy();
    world.fail_next("list", "cronjobs", "", 403, 1000);
    world.start();
    world.until("another Event", |w| not_removed(w).contains("the used images are not known")).await;
    assert_eq!((world.asked(), world.policy()), (None, before));

    // An invalid policy counts as missing, so the next check writes one without a sweep.
    world.stop().await;
    world.levers().clear_faults();
    world.edit("v1", "configmaps", POLICY, json!({"data": {"policy.json": "{\"version\": 9}"}}));
    world.start();
    world.until("what is in use is written down", |w| w.policy()["id"].is_string()).await;
    assert_eq!(world.asked(), None);
}
