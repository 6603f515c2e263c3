//! ImageUpdateAutomations: the choices of ImagePolicies become commits of a real Git server, with credentials that may
//! write.

use std::fs;
use std::time::Duration;

use mainstay_git::{
    Consumer, ConsumerKind, Credentials, NewCommit, PushTarget, Pushed, Reference, RemoteUrl, Settings, Source,
};
use mainstay_testkit::docker_registry::Served;
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::ssh_server::{SshServer, generate};
use mainstay_testkit::world::{NAMESPACE, World, condition_of};
use serde_json::{Value, json};

use crate::artifacts::{CONTENT, Pushed as Registry, packed};

const OURS: &str = "mainstay.dev/v1alpha1";
const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";
const PLURAL: &str = "imageupdateautomations";

pub(crate) async fn push(registry: &Registry, tag: &str) {
    registry.push(tag, &[(CONTENT, &packed(&[("a", tag.as_bytes())]))]).await;
}

pub(crate) fn create(world: &World, (version, kind, plural): (&str, &str, &str), name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let object = json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec});
    world.create(version, plural, NAMESPACE, object);
}

/// Creates an ImageRepository, the ImagePolicy `web` of versions 1.x, and a GitRepository.
pub(crate) fn images(world: &World, registry: &Registry, url: &str, auth: Value) {
    let image = registry.url().trim_start_matches("oci://").to_owned();
    let spec = json!({"image": image, "insecure": true, "interval": "10s"});
    create(world, (OURS, "ImageRepository", "imagerepositories"), "web", spec);
    let spec = json!({"imageRepositoryRef": {"name": "web"}, "policy": {"semver": {"range": "1.x"}}});
    create(world, (OURS, "ImagePolicy", "imagepolicies"), "web", spec);
    create(world, (SERVERLESS, "GitRepository", "gitrepositories"), "git", json!({"url": url, "auth": auth}));
}

pub(crate) fn automation(world: &World, change: Value) {
    let mut spec = json!({
        "sourceRef": {"kind": "GitRepository", "name": "git"}, "interval": "10s",
        "git": {
            "checkout": {"ref": {"branch": "main"}},
            "commit": {"author": {"name": "Image Bot", "email": "bot@example.org"}},
        },
        "update": {"path": "./apps", "strategy": "Setters"},
    });
    json_patch::merge(&mut spec, &change);
    create(world, (OURS, "ImageUpdateAutomation", PLURAL), "images", spec);
}

pub(crate) fn status(world: &World) -> Value {
    world.get(OURS, PLURAL, "images").map_or(Value::Null, |live| live["status"].clone())
}

/// Waits until the condition Ready has this text.
pub(crate) async fn says(world: &World, part: &str) {
    let ready = |world: &World| condition_of(&status(world), "Ready");
    world.until_or(part, |world| ready(world).contains(part), || ready(world)).await;
}

pub(crate) fn edit(world: &World, spec: Value) {
    world.edit(OURS, PLURAL, "images", json!({"spec": spec}));
}

/// Returns a file of a branch.
pub(crate) fn file(world: &World, branch: &str, path: &str) -> String {
    let repository = git2::Repository::open(world.remote.path()).unwrap();
    let Ok(commit) = repository.find_reference(&format!("refs/heads/{branch}")) else { return String::new() };
    let tree = commit.peel_to_tree().unwrap();
    let blob = tree.get_path(std::path::Path::new(path)).unwrap().to_object(&repository).unwrap();
    String::from_utf8(blob.as_blob().unwrap().content().to_vec()).unwrap()
}

fn commit(world: &World) -> (String, String, usize) {
    let repository = git2::Repository::open(world.remote.path()).unwrap();
    let commit = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
    let mut walk = repository.revwalk().unwrap();
    walk.push(commit.id()).unwrap();
    (commit.author().to_string(), commit.message().unwrap().to_owned(), walk.count())
}

pub(crate) fn deployment(image: &str) -> String {
    format!(
        "# The shop.\nkind: ConfigMap\napiVersion: v1\nmetadata: {{name: web,   labels: {{a: b}}}}\ndata:\n  \
         image: {image}   # {{\"$imagepolicy\": \"{NAMESPACE}:web\"}}\n  # the end\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automation_pushes_new_images_with_credentials_of_its_own_only() {
    let registry = Registry::start(Served::Plainly).await;
    let image = registry.url().trim_start_matches("oci://").to_owned();
    push(&registry, "1.0.0").await;
    let mut world = World::new().await;
    world.remote.configure("http.receivepack", "true");
    world
        .remote
        .file("apps/web.yaml", deployment(&format!("{image}:0.9.0")))
        .file("other.yaml", "a: 1\n")
        .commit("one");
    let server = GitServer::start(world.remote.root()).await;
    let basic = |user: &str| json!({"username": user, "password": format!("{user}-s3cret")});
    let header = |user: &str| {
        use base64::Engine as _;
        format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(format!("{user}:{user}-s3cret")))
    };
    server.require_any(&[&header("reader"), &header("writer")]);
    world.set_secret("read", basic("reader"));
    images(&world, &registry, &server.url(NAME), json!({"type": "basic", "secretName": "read"}));
    automation(&world, json!({}));
    world.sync("apps", json!({"gitRepository": "git", "baseDir": "/apps"}));
    world.start();
    let first = world.remote.head();
    says(&world, "False PushDisabled: spec.git.push.secretRef: names no Secret with write access").await;
    world.ready("apps").await;
    assert_eq!(world.remote.head(), first);
    edit(&world, json!({"git": {"push": {"secretRef": {"name": "write"}}}}));
    says(&world, "False SecretNotFound: spec.git.push.secretRef: the Secret write does not exist").await;
    world.set_secret("write", json!({"username": "writer"}));
    says(&world, "False SpecInvalid: spec.git.push.secretRef").await;
    world.set_secret("write", json!({"username": "writer", "password": "wrong-s3cret"}));
    says(&world, "False UpdateFailed: push to main: ").await;
    assert!(!status(&world).to_string().contains("s3cret"));
    world.set_secret("write", basic("writer"));
    says(&world, "True ImagesUpdated: the branch main agrees with 1 ImagePolicy; last push: ").await;
    assert_eq!(file(&world, "main", "apps/web.yaml"), deployment(&format!("{image}:1.0.0")));
    assert_eq!(file(&world, "main", "other.yaml"), "a: 1\n");
    let (author, message, commits) = commit(&world);
    assert_eq!(author, "Image Bot <bot@example.org>");
    assert_eq!(message, format!("Update 1 image\n\napps/web.yaml:6: {image}:0.9.0 -> {image}:1.0.0\n"));
    assert_eq!((commits, status(&world)["lastPushCommit"].as_str().unwrap()), (2, &*world.remote.head()));
    // The GitSync applies the commit without waiting for its interval.
    let applied = |world: &World, tag: &str| {
        world.get("v1", "configmaps", "web").is_some_and(|live| live["data"]["image"] == format!("{image}:{tag}"))
    };
    world.until("applied", |world| applied(world, "1.0.0")).await;
    push(&registry, "1.1.0").await;
    world.until("the next version is applied", |world| applied(world, "1.1.0")).await;
    assert_eq!(commit(&world).2, 3, "each change is one commit");
    others_push(&mut world, &image).await;
}

/// Pushes commits of others, with and without another image.
async fn others_push(world: &mut World, image: &str) {
    // Somebody else sets another image.
    world.remote.file("apps/web.yaml", deployment(&format!("{image}:0.1.0"))).commit("other");
    world.until("set again", |world| file(world, "main", "apps/web.yaml").contains(":1.1.0")).await;
    says(world, "True ImagesUpdated").await;
    let commits = commit(world).2;
    world
        .remote
        .file("apps/web.yaml", deployment(&format!("{image}:1.1.0")))
        .file("other.yaml", "a: 2\n")
        .commit("same");
    let seen = |world: &World| status(world)["observedSourceRevision"] == format!("main@sha1:{}", world.remote.head());
    world.until("the commit is compared", seen).await;
    assert_eq!(commit(world).2, commits + 1, "no change, no commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automation_pushes_over_ssh_to_another_branch_and_reports_faulty_markers() {
    let registry = Registry::start(Served::Plainly).await;
    push(&registry, "1.0.0").await;
    let mut world = World::new().await;
    let tag = format!("tag: \"x\" # {{\"$imagepolicy\": \"{NAMESPACE}:web:tag\"}}\n");
    world
        .remote
        .file("apps/values.yaml", &tag)
        .file("apps/bad.yaml", format!("a: 1\nb: [x] {}", &tag[9..]))
        .commit("one");
    let server = SshServer::start(world.remote.root()).await;
    let key = world.remote.root().join("key");
    generate(&key, "ed25519", &[]);
    server.authorize(&fs::read_to_string(key.with_extension("pub")).unwrap());
    let secret = json!({"key": fs::read_to_string(&key).unwrap(), "known_hosts": server.known_hosts(&["ed25519"])});
    world.set_secret("git", secret);
    images(&world, &registry, &server.url(NAME), json!({"type": "key", "secretName": "git"}));
    // The user names the Secret of the GitRepository.
    let template =
        "Images of {{ .Values.cluster }}\n\n{{ range .Changed.Changes }}{{ .OldValue }} -> {{ .NewValue }}{{ end }}";
    automation(
        &world,
        json!({"git": {
            "push": {"branch": "images", "secretRef": {"name": "git"}},
            "commit": {"messageTemplate": template, "messageTemplateValues": {"cluster": "prod"}},
        }}),
    );
    world.start();
    let fault = "False UpdateFailed: apps/bad.yaml:2: the marker is not behind a value in plain style or in quotes";
    says(&world, fault).await;
    world.remote.remove("apps/bad.yaml").commit("two");
    says(&world, "True ImagesUpdated: the branch images agrees with").await;
    assert_eq!(file(&world, "images", "apps/values.yaml"), tag.replace('x', "1.0.0"));
    assert_eq!(file(&world, "main", "apps/values.yaml"), tag);
    push(&registry, "1.2.0").await;
    world.until("the next version", |world| file(world, "images", "apps/values.yaml").contains("1.2.0")).await;
    let repository = git2::Repository::open(world.remote.path()).unwrap();
    let commit = repository.find_reference("refs/heads/images").unwrap().peel_to_commit().unwrap();
    assert_eq!(commit.message().unwrap(), "Images of prod\n\n1.0.0 -> 1.2.0\n");
    assert_eq!(commit.parent(0).unwrap().parent(0).unwrap().id().to_string(), world.remote.head());
    // A branch that the server protects.
    let hook = world.remote.path().join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    push(&registry, "1.3.0").await;
    says(&world, "False UpdateFailed: push to images: the server refused it: pre-receive hook declined").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_changes_a_branch_only_if_it_has_the_expected_commit() {
    let mut remote = mainstay_testkit::remote::Remote::new();
    remote.configure("http.receivepack", "true").file("a/b/c.yaml", "1").file("a/d.yaml", "2").commit("one");
    let server = GitServer::start(remote.root()).await;
    let mirrors = tempfile::tempdir().unwrap();
    let source = Source::new(Settings::new(mirrors.path()));
    let read = mainstay_git::Remote::new(RemoteUrl::parse(&server.url(NAME)).unwrap(), Credentials::Anonymous);
    source.set_remote(&Consumer::new(ConsumerKind::GitSync, "a", "b"), Some(&read));
    let found = source.lookup(&read, &Reference::parse("refs/heads/main").unwrap(), Duration::ZERO).await.unwrap();
    let snapshot = source.fetch(&read, &found).await.unwrap();
    let new = || NewCommit { name: "a".into(), email: "b".into(), message: "m".into(), seconds: 1 };
    let files = |path: &str| [(path.to_owned(), b"changed".to_vec())].into();
    let upload = snapshot.with_files(&files("a/b/c.yaml"), &new(), None).unwrap();
    for (path, name) in [("a/x.yaml", "a"), ("a/b", "a"), ("a/b/c.yaml", "a <b>\nc")] {
        let refused = snapshot.with_files(&files(path), &NewCommit { name: name.into(), ..new() }, None);
        assert!(refused.is_err(), "{path}");
    }
    let old = remote.commit("two");
    let target = |branch: &str, old| PushTarget { reference: format!("refs/heads/{branch}"), old };
    let to = async |targets: &[PushTarget]| source.push(&read, targets, &[], &upload).await.unwrap();
    assert_eq!(to(&[target("main", Some(found.commit))]).await, Pushed::Moved);
    assert_eq!(to(&[target("main", None)]).await, Pushed::Moved);
    // Either both branches change or none.
    assert_eq!(to(&[target("new", None), target("main", Some(found.commit))]).await, Pushed::Moved);
    assert_eq!(remote.head(), old);
    assert_eq!(to(&[target("new", Some(found.commit))]).await, Pushed::Moved);
    assert_eq!(to(&[target("new", None), target("other", None)]).await, Pushed::Done);
    let repository = git2::Repository::open(remote.path()).unwrap();
    let made = repository.find_reference("refs/heads/new").unwrap().peel_to_commit().unwrap();
    assert_eq!(
        (made.id().to_string(), made.parent_id(0).unwrap().to_string()),
        (upload.commit.to_string(), found.commit.to_string())
    );
    let tree = made.tree().unwrap();
    let text = |path: &str| {
        let object = tree.get_path(std::path::Path::new(path)).unwrap().to_object(&repository).unwrap();
        String::from_utf8(object.as_blob().unwrap().content().to_vec()).unwrap()
    };
    assert_eq!((text("a/b/c.yaml"), text("a/d.yaml")), ("changed".to_owned(), "2".to_owned()));
}
