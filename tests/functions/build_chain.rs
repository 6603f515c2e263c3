//! The three containers of a build Job in sequence, with a registry.

use std::{fs, path::PathBuf};

use devcluster::{Cluster as EmbeddedCluster, Options, RegistryOptions, Serving};
use mainstay_api::build::{BuildReport, FailureReason};
use serde_json::Value;
use tempfile::TempDir;

use crate::function_children::install_command;
use mainstay_testkit::build::{Job, Origin, wheel};

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
async fn an_inline_function_without_fetch_gives_the_very_image() {
    let images = Images::new().await;
    let job = |with_fetch: bool| {
        let job = Job::new();
        job.put("sources/source", "import word\nmain = lambda event, context: word.word\n");
        job.put("sources/dependencies", "word==1.0\n").put("word-1.0-py3-none-any.whl", wheel("word", ""));
        let links = job.path("").display().to_string();
        job.put("package-registry/pip.conf", format!("[install]\nno-index = true\nfind-links = {links}\n"));
        for (key, value) in [("isInternal", "true"), ("username", "u"), ("password", "hunter2")] {
            job.put(&format!("registry/{key}"), value);
        }
        job.put("registry/registryAddress", images.serving.address().to_string());
        let tag = if with_fetch { "fetched" } else { "installed" };
        let registry = format!("--registry={}", job.path("registry").display());
        (job, vec![registry, format!("--image={}:{tag}", images.repository())])
    };

    let (fetching, push) = job(true);
    let fetched = fetching.fetch("python312", &fetching.inline_arguments(None)).await;
    fetching.install_well().await;
    let expected = fetching.push("python312", &push).await;
    assert_eq!((fetched.dependencies.len(), &expected.dependencies), (64, &fetched.dependencies));

    let (direct, mut push) = job(false);
    fs::create_dir(direct.path("workspace/deps")).unwrap();
    let command = install_command();
    let [program, option, script, name, paths @ ..] = &command[..] else { panic!("{command:?}") };
    assert_eq!([program, option, name], ["sh", "-c", "install"]);
    let mut install = direct.command(program);
    install.args([option, script, name]).args(paths.iter().map(|path| direct.path(path.trim_start_matches('/'))));
    let output = tokio::task::spawn_blocking(move || install.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    push.extend([format!("--inline={}", direct.path("sources").display()), "--installed".to_owned()]);
    let built = direct.push("python312", &push).await;
    assert_eq!(images.layers(&built), images.layers(&expected));
    assert_eq!((&built.digest, &built.dependencies), (&expected.digest, &expected.dependencies));
    assert!(!direct.exists("workspace/deps/.work"), "the copy with the inputs is removed");

    // Without the option, dependencies that nothing has installed are an error.
    push.retain(|argument| argument != "--installed");
    let failure = direct.failure("push", "python312", &push).await;
    assert!(failure.message.contains("the dependencies of the source are not installed"), "{}", failure.message);
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
