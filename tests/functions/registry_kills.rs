//! Docker's registry is killed during pushes, several builds push the same image at once, and files are torn. Every
//! image that was reported as pushed can be pulled completely, and all others are pushed in the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use devcluster::{Cluster as EmbeddedCluster, Options, RegistryOptions};
use mainstay_function::build::push::{Request, push};
use serde_json::json;

use mainstay_testkit::{
    functions::inline,
    image::{Build, outcome, run},
    logs,
    random::random,
    registry::{DockerRegistry, PASSWORD, Served},
    world::World,
};

const KILLS: usize = 20;
/// Bytes of a source. Pushing them takes a while.
const LARGE: usize = 6 << 20;

/// Pulls an image with an independent program that checks all digests.
async fn is_whole(image: &str) {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (format!("docker://{image}"), format!("dir:{}", directory.path().join("it").display()));
    let credentials = format!("anyone:{PASSWORD}");
    let options = ["--insecure-policy", "copy", "-q", "--src-tls-verify=false", "--src-creds", &credentials];
    run("skopeo", &[&options[..], &[&from, &to]].concat()).await;
}

/// Pushes like builds with retries, and returns the digest.
async fn pushed(request: &Request) -> String {
    loop {
        match push(request).await {
            Ok(report) => return report.digest,
            Err(error) => {
                let failure = error.failure();
                assert!(failure.retry, "{}", failure.message);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_of_a_registry_during_pushes_lose_nothing_that_was_reported() {
    let mut random = random();
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let mut reported = Vec::new();
    let mut during = 0;
    for kill in 0..KILLS {
        let mut content = vec![0; LARGE];
        random.fill(&mut content);
        fs::write(build.path("workspace/src/data"), content).unwrap();
        let request = build.request(&format!("{}/ns-fn:v{kill}", registry.host()));
        let (ends, killed) = (std::cell::Cell::new(false), random.u64(..400));
        let pushing = async {
            let digest = pushed(&request).await;
            ends.set(true);
            digest
        };
        let killing = async {
            tokio::time::sleep(Duration::from_millis(killed)).await;
            registry.kill().await;
            during += usize::from(!ends.get());
            registry.restart().await;
        };
        let (digest, ()) = tokio::join!(pushing, killing);
        reported.push(format!("{}/ns-fn@{digest}", registry.host()));
        is_whole(reported.last().unwrap()).await;
    }
    println!("{during} of {KILLS} kills met a push");
    assert!(during >= KILLS / 4, "only {during} kills met a push");
    for image in &reported {
        is_whole(image).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builds_go_on_by_themselves_after_kills_of_their_registry() {
    logs::keep();
    let mut random = random();
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let mut world = World::with_processes().await;
    world.functions.requeue = Duration::from_millis(300);
    let place = json!({"registryAddress": registry.host(), "serverAddress": registry.host()});
    world.edit("v1", "secrets", "serverless-registry-config-default", json!({"stringData": place}));
    world.start();
    world.function("hello", inline("module.exports = { main: () => 'version 0' }"));
    for version in 1..5 {
        world.runs("hello").await;
        is_whole(&by_digest(&world)).await;
        let source = format!("module.exports = {{ main: () => 'version {version}' }}");
        world.edit_function("hello", json!({"spec": {"source": source}}));
        world.says("hello", "BuildReady", "Unknown JobRunning").await;
        tokio::time::sleep(Duration::from_millis(random.u64(..300))).await;
        registry.kill().await;
        tokio::time::sleep(Duration::from_millis(random.u64(..500))).await;
        registry.restart().await;
    }
    world.runs("hello").await;
    is_whole(&by_digest(&world)).await;
}

/// Returns the image of the Function without its tag, because skopeo accepts only tag or digest.
fn by_digest(world: &World) -> String {
    let image = world.function_status("hello")["image"].as_str().unwrap().to_owned();
    let (name, digest) = image.split_once('@').unwrap();
    format!("{}@{digest}", name.rsplit_once(':').unwrap().0)
}

/// Pushes the same image into one repository and into several, concurrently.
async fn push_at_once(build: &Build, host: &str) {
    let names: Vec<String> = (0..6).map(|at| format!("{host}/ns-fn-{}:v{at}", at % 3)).collect();
    let pushes = names.iter().map(|name| {
        let request = build.request(name);
        async move { outcome(&request).await }
    });
    let outcomes = futures::future::join_all(pushes).await;
    for (name, outcome) in names.iter().zip(&outcomes) {
        assert!(outcome.starts_with("sha256:"), "{name}: {outcome}");
        assert_eq!(outcome.split(' ').next(), outcomes[0].split(' ').next());
        is_whole(name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_push_the_same_blobs_at_once_all_succeed() {
    let registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    fs::write(build.path("workspace/src/data"), vec![7; LARGE]).unwrap();
    push_at_once(&build, &registry.host()).await;

    let build = Build::new();
    let options = Some(RegistryOptions { directory: build.path("images") });
    let server = EmbeddedCluster::new(Options { registry: options, ..Options::default() });
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some(PASSWORD.to_owned())).await.unwrap();
    let build = build.registry(&serving.address().to_string());
    fs::write(build.path("workspace/src/data"), vec![7; LARGE]).unwrap();
    push_at_once(&build, &serving.address().to_string()).await;
}

/// Collects all files in a directory.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_a_kill_left_with_a_torn_file_never_gets_an_image_reported_that_is_not_whole() {
    let mut registry = DockerRegistry::start(Served::Plainly).await;
    let build = Build::new().registry(&registry.host());
    let name = format!("{}/ns-fn:t", registry.host());
    let digest = outcome(&build.request(&name)).await;
    let manifest = format!("/{}/data", digest.trim_start_matches("sha256:"));
    let mut all = Vec::new();
    files(&registry.images(), &mut all);
    let mut told = 0;
    // The registry moves complete layers into place, but writes links and manifests in place.
    for path in all {
        let is_manifest = path.ends_with(manifest.trim_start_matches('/'));
        if !path.ends_with("link") && !is_manifest {
            continue;
        }
        let whole = fs::read(&path).unwrap();
        fs::write(&path, "").unwrap();
        registry.kill().await;
        registry.restart().await;
        let ended = outcome(&build.request(&name)).await;
        println!("{}: {ended}", path.display());
        if ended.starts_with("sha256:") {
            is_whole(&format!("{}/ns-fn@{digest}", registry.host())).await;
            is_whole(&name).await;
        } else {
            assert!(is_manifest && ended.starts_with("Registry, again: "), "{}: {ended}", path.display());
            told += 1;
        }
        fs::write(&path, whole).unwrap();
    }
    assert!(told <= 1);
}
