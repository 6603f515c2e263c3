//! The three containers of a build Job in sequence, with a registry.

use std::{fs, path::PathBuf};

use devcluster::{Cluster as EmbeddedCluster, Options, RegistryOptions, Serving};
use mainstay_api::build::{BuildReport, FailureReason};
use serde_json::Value;
use tempfile::TempDir;

use mainstay_testkit::build::{Job, Origin};

/// A registry with a directory of images.
struct Images {
    directory: TempDir,
    serving: Serving,
}

impl Images {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = Some(RegistryOptions { directory: directory.path().join("images") });
        let server = EmbeddedCluster::new(Options { registry, ..Options::default() });
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        Self { directory, serving }
    }

    fn repository(&self) -> String {
        format!("{}/default-hello", self.serving.address())
    }

    fn blob(&self, digest: &str) -> PathBuf {
        self.directory.path().join("images/default-hello/blobs").join(digest.replace(':', "/"))
    }

    fn layers(&self, image: &BuildReport) -> Vec<Value> {
        let manifest: Value = serde_json::from_slice(&fs::read(self.blob(&image.digest)).unwrap()).unwrap();
        manifest["layers"].as_array().unwrap().clone()
    }
}

/// Runs all three containers in a new Job. With a previous image, its dependencies may be reused.
async fn build(images: &Images, origin: &Origin, tag: &str, before: Option<&BuildReport>) -> (Job, BuildReport) {
    let job = Job::new();
    let mut fetch = origin.resolved("/");
    let mut push = vec![
        format!("--registry={}", job.path("registry").display()),
        format!("--image={}:{tag}", images.repository()),
    ];
    if let Some(before) = before {
        fetch.push(format!("--known-dependencies={}", before.dependencies));
        push.push(format!("--previous={}@{}", images.repository(), before.digest));
    }
    for (key, value) in [("isInternal", "true"), ("username", "u"), ("password", "hunter2")] {
        job.put(&format!("registry/{key}"), value);
    }
    job.put("registry/registryAddress", images.serving.address().to_string());
    let fetched = job.fetch("nodejs22", &fetch).await;
    job.install_well().await;
    let built = job.push("nodejs22", &push).await;
    assert_eq!(built.dependencies, fetched.dependencies);
    (job, built)
}

async fn origin() -> Origin {
    Origin::new(|remote| {
        remote.file("handler.js", "exports.main = () => require('plain')");
        remote.file("package.json", r#"{"dependencies":{"plain":"file:./plain"}}"#);
        remote.file("plain/package.json", r#"{"name":"plain","version":"1.0.0"}"#).file("plain/index.js", "");
    })
    .await
}

#[tokio::test]
async fn a_change_of_the_source_alone_gives_the_very_image_that_a_whole_build_gives() {
    let (images, mut origin) = (Images::new().await, origin().await);
    let (_, first) = build(&images, &origin, "one", None).await;
    assert_eq!(first.dependencies.len(), 64);

    origin.remote.file("handler.js", "exports.main = () => 2").commit("the source");
    let (job, second) = build(&images, &origin, "two", Some(&first)).await;
    assert!(job.names("workspace/deps").is_empty(), "nothing was installed");
    assert_ne!(second.digest, first.digest);
    let same = images.layers(&second).iter().filter(|layer| images.layers(&first).contains(layer)).count();
    assert_eq!(same, images.layers(&first).len() - 1, "only the source's layer is another");

    let other = Images::new().await;
    let (_, whole) = build(&other, &origin, "two", None).await;
    assert_eq!(whole.digest, second.digest);
}

#[tokio::test]
async fn a_registry_that_forgot_the_previous_image_asks_for_a_whole_build() {
    let (images, mut origin) = (Images::new().await, origin().await);
    let (_, first) = build(&images, &origin, "one", None).await;
    origin.remote.file("handler.js", "exports.main = () => 2").commit("the source");
    let job = Job::new();
    let mut fetch = origin.resolved("/");
    fetch.push(format!("--known-dependencies={}", first.dependencies));
    assert!(job.fetch("nodejs22", &fetch).await.reused);
    job.put("registry/registryAddress", images.serving.address().to_string());
    fs::remove_file(images.blob(&first.digest)).unwrap();
    let push = [
        format!("--registry={}", job.path("registry").display()),
        format!("--image={}:two", images.repository()),
        format!("--previous={}@{}", images.repository(), first.digest),
    ];
    let failure = job.failure("push", "nodejs22", &push).await;
    assert_eq!((failure.reason, failure.retry), (FailureReason::PreviousGone, true), "{}", failure.message);
}

#[tokio::test]
async fn an_empty_installation_is_not_reused_by_the_next_build() {
    let images = Images::new().await;
    let origin = Origin::new(|remote| {
        remote.file("handler.js", "exports.main = () => 1");
        remote.file("package.json", r#"{"optionalDependencies":{"far":"file:./far"}}"#);
        remote.file("far/package.json", r#"{"name":"far","version":"1.0.0","os":["aix"]}"#);
    })
    .await;
    let job = Job::new();
    let fetched = job.fetch("nodejs22", &origin.resolved("/")).await;
    assert_eq!(fetched.dependencies.len(), 64);
    job.install_well().await;
    job.put("registry/registryAddress", images.serving.address().to_string());
    let registry = format!("--registry={}", job.path("registry").display());
    let built = job.push("nodejs22", &[registry, format!("--image={}:one", images.repository())]).await;
    assert_eq!(built.dependencies, "");
}

#[tokio::test]
async fn an_image_without_dependencies_has_no_dependency_digest() {
    let images = Images::new().await;
    let origin = Origin::new(|remote| {
        remote.file("handler.js", "exports.main = () => 1").file("package.json", "{}");
    })
    .await;
    let (_, first) = build(&images, &origin, "one", None).await;
    let (_, again) = build(&images, &origin, "one", None).await;
    assert_eq!((first.dependencies.as_str(), again.reused), ("", true));
    assert_eq!(first.digest, again.digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_takes_as_long_as_all_of_its_containers() {
    let (images, origin) = (Images::new().await, origin().await);
    let (job, _) = build(&images, &origin, "v1", None).await;
    let push =
        [format!("--registry={}", job.path("registry").display()), format!("--image={}:v1", images.repository())];
    let begun = std::fs::File::open(job.path("workspace/begun")).unwrap();
    // Times in the future or long ago were written by code from packages.
    for (ago, least, most) in [(90, 90.0, 600.0), (400_000, 0.0, 80.0), (-400, 0.0, 80.0)] {
        begun.set_modified((jiff::Timestamp::now() - jiff::SignedDuration::from_secs(ago)).into()).unwrap();
        let seconds = job.push("nodejs22", &push).await.seconds;
        assert!((least..most).contains(&seconds), "{ago}: {seconds}");
    }
}
