//! ImageUpdateAutomations: the destinations of a push, its options, and signed commits.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc;
use std::time::Duration;

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Cluster as EmbeddedCluster, Options};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use mainstay_api::image_update_automation::SigningKeyType;
use mainstay_git::{
    CommitSigner, Consumer, ConsumerKind, Credentials, NewCommit, Reference, RemoteUrl, Settings, Snapshot, Source,
};
use mainstay_testkit::PATIENCE;
use mainstay_testkit::docker_registry::Served;
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::signers::{Gpg, SshKey};
use mainstay_testkit::world::{World, condition_of};
use serde_json::{Value, json};

use crate::artifacts::Pushed as Registry;
use crate::image_updates::{automation, create, deployment, edit, file, images, push, says, status};

/// A world with one image at version 1.0.0, and a Git server that takes pushes of anybody.
struct Setting {
    world: World,
    registry: Registry,
    server: GitServer,
    image: String,
}

/// Returns the setting with an automation that pushes as `git` says.
async fn setting(git: Value) -> Setting {
    setting_in(World::new().await, git).await
}

/// Returns the setting in a world.
async fn setting_in(mut world: World, git: Value) -> Setting {
    let registry = Registry::start(Served::Plainly).await;
    let image = registry.url().trim_start_matches("oci://").to_owned();
    push(&registry, "1.0.0").await;
    world.remote.configure("http.receivepack", "true").configure("receive.advertisePushOptions", "true");
    world
        .remote
        .file("apps/web.yaml", deployment(&format!("{image}:0.9.0")))
        .file("other.yaml", "a: 1\n")
        .commit("one");
    let server = GitServer::start(world.remote.root()).await;
    let login = json!({"username": "bot", "password": "s3cret"});
    world.set_secret("write", login.clone());
    world.set_secret("read", login);
    images(&world, &registry, &server.url(NAME), json!({"type": "basic", "secretName": "read"}));
    let mut push = json!({"git": {"push": {"secretRef": {"name": "write"}}}});
    json_patch::merge(&mut push, &json!({ "git": git }));
    automation(&world, push);
    Setting { world, registry, server, image }
}

fn repository(world: &World) -> git2::Repository {
    git2::Repository::open(world.remote.path()).unwrap()
}

/// Returns the commit of a reference; `None` if there is none.
fn commit_of(world: &World, reference: &str) -> Option<String> {
    repository(world).find_reference(reference).ok().map(|found| found.target().unwrap().to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automation_pushes_with_options_to_the_destination_of_a_refspec() {
    let options = json!({"merge_request.create": "", "merge_request.target": "main"});
    let git = json!({"push": {"refspec": "refs/heads/main:refs/heads/auto", "options": options}});
    let Setting { mut world, registry, server: _server, image } = setting(git).await;
    let (hook, sent) = (world.remote.path().join("hooks/pre-receive"), world.remote.path().join("options"));
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let script = "#!/bin/sh\necho \"$GIT_PUSH_OPTION_COUNT $GIT_PUSH_OPTION_0 $GIT_PUSH_OPTION_1\" > options\n";
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let first = world.remote.head();
    world.start();
    says(&world, "True ImagesUpdated: the branch auto agrees with 1 ImagePolicy; last push: ").await;
    assert_eq!(file(&world, "auto", "apps/web.yaml"), deployment(&format!("{image}:1.0.0")));
    assert_eq!(world.remote.head(), first, "the branch that is read stays");
    assert_eq!(fs::read_to_string(sent).unwrap(), "2 merge_request.create merge_request.target=main\n");
    // A server that takes no options gets no push.
    world.remote.configure("receive.advertisePushOptions", "false");
    push(&registry, "1.1.0").await;
    let why = "False UpdateFailed: push to auto: a push with options to this server is not supported";
    says(&world, why).await;
    // Both branches get the commit, but the one of the refspec loses none of its own.
    let both = json!({"branch": "images", "refspec": "refs/heads/images:refs/heads/auto", "options": null});
    edit(&world, json!({"git": {"push": both}}));
    says(&world, "False UpdateFailed: spec.git.push.refspec: auto has another commit than images").await;
    assert_eq!(commit_of(&world, "refs/heads/images"), None);
    repository(&world).find_reference("refs/heads/auto").unwrap().delete().unwrap();
    says(&world, "True ImagesUpdated: the branch images agrees with").await;
    let pushed = commit_of(&world, "refs/heads/images");
    assert_eq!(
        (pushed.as_deref(), commit_of(&world, "refs/heads/auto")),
        (status(&world)["lastPushCommit"].as_str(), pushed.clone())
    );
    push(&registry, "1.2.0").await;
    world.until("both", |world| file(world, "auto", "apps/web.yaml").contains(":1.2.0")).await;
    assert_eq!(commit_of(&world, "refs/heads/images"), commit_of(&world, "refs/heads/auto"));
    edit(&world, json!({"git": {"push": {"refspec": "+refs/heads/images:refs/heads/auto"}}}));
    says(&world, "False SpecInvalid: spec.git.push.refspec: a forced push").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_is_pushed_for_a_review_once() {
    let git = json!({"push": {"refspec": "HEAD:refs/for/main"}});
    let Setting { mut world, registry, server: _server, image } = setting(git).await;
    let first = world.remote.head();
    world.start();
    let says_review = "True ImagesUpdated: the branch main agrees with 1 ImagePolicy, or refs/for/main got a commit";
    says(&world, says_review).await;
    let pushed = commit_of(&world, "refs/for/main").unwrap();
    assert_eq!((status(&world)["lastPushCommit"].as_str(), world.remote.head()), (Some(&*pushed), first.clone()));
    let open = repository(&world);
    let commit = open.find_commit(git2::Oid::from_str(&pushed).unwrap()).unwrap();
    assert_eq!(commit.parent_id(0).unwrap().to_string(), first);
    assert!(commit.message().unwrap().contains("\n\nChange-Id: I"), "{:?}", commit.message());
    // Commits of others beside the directory do not repeat the push. The server would refuse a second one.
    world.remote.file("other.yaml", "a: 2\n").commit("two");
    let seen = |world: &World| status(world)["observedSourceRevision"] == format!("main@sha1:{}", world.remote.head());
    world.until("the commit is compared", seen).await;
    says(&world, says_review).await;
    assert_eq!(commit_of(&world, "refs/for/main").as_deref(), Some(&*pushed));
    // After the review, the branch has the images.
    world.remote.file("apps/web.yaml", deployment(&format!("{image}:1.0.0"))).commit("merged");
    world.until("the merge is compared", seen).await;
    says(&world, says_review).await;
    // A server without reviews keeps the reference, so it takes no second push.
    let why = "push to refs/for/main: the server shows refs/for/main, so it has no reviews; name a branch";
    push(&registry, "1.1.0").await;
    says(&world, &format!("False UpdateFailed: {why} in spec.git.push")).await;
    edit(&world, json!({"git": {"push": {"branch": "images"}}}));
    world.until("the change is compared", |world| status(world)["observedGeneration"] == 2).await;
    says(&world, &format!("False UpdateFailed: {why} in spec.git.push")).await;
    assert_eq!(commit_of(&world, "refs/for/main").as_deref(), Some(&*pushed));
    assert_eq!(commit_of(&world, "refs/heads/images"), None);
    edit(&world, json!({"git": {"push": {"refspec": null}}}));
    says(&world, "True ImagesUpdated: the branch images agrees with 1 ImagePolicy").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_during_a_failure_does_not_repeat_a_push_for_a_review() {
    let git = json!({"push": {"refspec": "HEAD:refs/for/main"}});
    let Setting { mut world, registry: _registry, server: _server, .. } = setting(git).await;
    world.start();
    let says_review = "True ImagesUpdated: the branch main agrees with 1 ImagePolicy, or refs/for/main got a commit";
    says(&world, says_review).await;
    let pushed = commit_of(&world, "refs/for/main");
    world.delete("v1", "secrets", "write");
    says(&world, "False SecretNotFound: spec.git.push.secretRef").await;
    world.kill().await;
    world.set_secret("write", json!({"username": "bot", "password": "s3cret"}));
    world.start();
    // A second push would fail, because the server of the test shows the reference.
    says(&world, says_review).await;
    assert_eq!(commit_of(&world, "refs/for/main"), pushed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_definition_takes_the_status_of_a_push_to_a_branch() {
    // The test changes the definition, so it needs a cluster of its own.
    let world = World::of(EmbeddedCluster::new(Options::default()));
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/comparedGeneration";
    let older = Action::Patch(Form::Json, json!([{"op": "remove", "path": field}]));
    let (version, definitions) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
    let definition = Call::new(version, definitions, "", "imageupdateautomations.mainstay.dev", older);
    world.try_as("test", definition).unwrap();
    let Setting { mut world, registry, server: _server, .. } = setting_in(world, json!({})).await;
    world.start();
    says(&world, "True ImagesUpdated: the branch main agrees with 1 ImagePolicy; last push: ").await;
    let first = status(&world)["lastPushCommit"].clone();
    push(&registry, "1.1.0").await;
    world.until("the next push is shown", |world| status(world)["lastPushCommit"] != first).await;
}

/// Returns the signature of a commit and the signed text.
fn signature(world: &World, commit: &str) -> (String, String) {
    let repository = repository(world);
    let (signature, payload) = repository.extract_signature(&git2::Oid::from_str(commit).unwrap(), None).unwrap();
    (signature.as_str().unwrap().to_owned(), payload.as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_are_signed_with_the_key_of_a_secret_and_verified() {
    let key = json!({"signingKey": {"secretRef": {"name": "key"}}});
    let Setting { mut world, registry, server, image } = setting(json!({ "commit": key })).await;
    let (gpg, ssh) = (Gpg::protected("canary-pass"), SshKey::new("ed25519"));
    world.set_secret("trusted", json!({"bot.asc": gpg.public(), "bot.sshpub": ssh.public()}));
    let verify = json!({"mode": "HEAD", "secretRef": {"name": "trusted"}});
    let spec = json!({"url": server.url(NAME), "auth": {"type": "basic", "secretName": "read"}, "verify": verify});
    create(&world, ("serverless.kyma-project.io/v1alpha1", "GitRepository", "gitrepositories"), "verified", spec);
    world.sync("apps", json!({"gitRepository": "verified", "baseDir": "/apps"}));
    let first = world.remote.head();
    world.start();
    let field = "spec.git.commit.signingKey.secretRef";
    says(&world, &format!("False SecretNotFound: {field}: the Secret key does not exist")).await;
    world.set_secret("key", json!({"other": "canary"}));
    says(&world, &format!("False SpecInvalid: {field}: key git.asc of Secret key: it is missing")).await;
    world.set_secret("key", json!({"git.asc": gpg.private("canary-pass")}));
    says(&world, &format!("False SpecInvalid: {field}: key passphrase of Secret key: it is missing")).await;
    world.set_secret("key", json!({"git.asc": gpg.private("canary-pass"), "passphrase": "canary-wrong"}));
    says(&world, "False UpdateFailed: spec.git.commit.signingKey: sign the commit: key git.asc of Secret key: ").await;
    // Upon an unsigned commit, nothing is signed for a repository that requires signatures.
    edit(&world, json!({"sourceRef": {"name": "verified"}}));
    says(&world, "it is not signed; sign it with a key that is in Secret trusted").await;
    edit(&world, json!({"sourceRef": {"name": "git"}}));
    world.set_secret("key", json!({"git.asc": gpg.private("canary-pass"), "passphrase": "canary-pass\n"}));
    world.until("an update is pushed", |world| world.remote.head() != first).await;
    let (signed, payload) = signature(&world, &world.remote.head());
    assert!(gpg.verifies(&payload, &signed));
    assert!(!gpg.verifies(&payload.replace(":1.0.0", ":6.6.6"), &signed), "another text has another signature");
    world.ready("apps").await;
    let applied = |world: &World, tag: &str| {
        world.get("v1", "configmaps", "web").is_some_and(|live| live["data"]["image"] == format!("{image}:{tag}"))
    };
    world.until("applied", |world| applied(world, "1.0.0")).await;
    // From now on, the branch has a signed commit, so the automation may follow the verified repository.
    world.set_secret("key", json!({"identity": ssh.private()}));
    edit(&world, json!({"sourceRef": {"name": "verified"}, "git": {"commit": {"signingKey": {"type": "ssh"}}}}));
    push(&registry, "1.1.0").await;
    world.until("applied with an SSH key", |world| applied(world, "1.1.0")).await;
    assert!(signature(&world, &world.remote.head()).0.starts_with("-----BEGIN SSH SIGNATURE-----"));
    // A commit that the verification would refuse is not pushed.
    let (other, head) = (SshKey::new("ed25519"), world.remote.head());
    world.set_secret("key", json!({"identity": other.private()}));
    push(&registry, "1.2.0").await;
    let field = "spec.git.commit.signingKey: spec.verify of GitRepository verified";
    says(&world, &format!("False UpdateFailed: {field} refuses the new commit: it is signed with SSH key ")).await;
    says(&world, &format!("{}, which is not in Secret trusted", other.fingerprint())).await;
    assert_eq!(world.remote.head(), head);
    world.set_secret("trusted", json!({"bot.sshpub": ssh.public(), "other.sshpub": other.public()}));
    world.until("applied with another key", |world| applied(world, "1.2.0")).await;
    edit(&world, json!({"git": {"commit": {"signingKey": null}}}));
    says(&world, "False SpecInvalid: GitRepository verified: requires signed commits (spec.verify); name a key").await;
    assert!(!format!("{}{}", status(&world), condition_of(&world.status("apps"), "Ready")).contains("canary"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_a_git_sync_or_a_receiver_uses_does_not_sign() {
    let key = json!({"signingKey": {"type": "ssh", "secretRef": {"name": "key"}}});
    let Setting { mut world, registry: _registry, server: _server, .. } = setting(json!({ "commit": key })).await;
    world.set_secret("key", json!({"identity": SshKey::new("ed25519").private(), "token": "canary"}));
    world.sync("other", json!({"substituteFrom": [{"kind": "Secret", "name": "key"}]}));
    let receiver = ("mainstay.dev/v1alpha1", "Receiver", "receivers");
    create(&world, receiver, "hook", json!({"type": "generic", "secretRef": {"name": "key"}}));
    let first = world.remote.head();
    world.start();
    let withheld = "spec.git.commit.signingKey.secretRef: the Secret key holds the credentials for";
    says(&world, &format!("{withheld} a Receiver, so it is not used for signing commits")).await;
    world.delete(receiver.0, receiver.2, "hook");
    says(&world, &format!("{withheld} the variables or charts of a GitSync, so it is not used for signing commits"))
        .await;
    assert_eq!(world.remote.head(), first);
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "other");
    // The images may still be unknown when the Secret signs.
    world.until("an update is pushed", |world| world.remote.head() != first).await;
    assert!(signature(&world, &world.remote.head()).0.starts_with("-----BEGIN SSH SIGNATURE-----"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_signed_while_no_other_work_needs_much_memory() {
    let mut remote = mainstay_testkit::remote::Remote::new();
    remote.file("a.yaml", "1").commit("one");
    let server = GitServer::start(remote.root()).await;
    let mirrors = tempfile::tempdir().unwrap();
    let source = Source::new(Settings::new(mirrors.path()));
    let read = mainstay_git::Remote::new(RemoteUrl::parse(&server.url(NAME)).unwrap(), Credentials::Anonymous);
    source.set_remote(&Consumer::new(ConsumerKind::GitSync, "a", "b"), Some(&read));
    let found = source.lookup(&read, &Reference::parse("refs/heads/main").unwrap(), Duration::ZERO).await.unwrap();
    let snapshot = source.fetch(&read, &found).await.unwrap();
    let data = BTreeMap::from([("identity".to_owned(), ByteString(SshKey::new("ed25519").private().into_bytes()))]);
    let signer = CommitSigner::read("key", SigningKeyType::Ssh, &data, Timestamp::UNIX_EPOCH).unwrap();
    let make = |snapshot: &Snapshot, signer: Option<&CommitSigner>| {
        let new = NewCommit { name: "a".into(), email: "b".into(), message: "m".into(), seconds: 1 };
        snapshot.with_files(&[("a.yaml".to_owned(), b"2".to_vec())].into(), &new, signer).unwrap()
    };
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (other, begun_other) = (source.for_namespace("other"), begun.clone());
    let large = tokio::spawn(async move {
        let work = move || {
            begun_other.send(()).unwrap();
            released.recv().unwrap();
        };
        other.run_alone(work).await.unwrap();
    });
    let wait = || tokio::task::block_in_place(|| begins.recv_timeout(PATIENCE).unwrap());
    wait();
    let signing = tokio::spawn({
        let snapshot = snapshot.clone();
        let work = move |snapshot: &Snapshot| {
            begun.send(()).unwrap();
            make(snapshot, Some(&signer))
        };
        async move { snapshot.blocking(work).await.unwrap() }
    });
    wait();
    let plain = snapshot.blocking(move |snapshot| make(snapshot, None)).await.unwrap();
    assert!(!signing.is_finished(), "another work has the memory");
    release.send(()).unwrap();
    large.await.unwrap();
    assert_ne!(signing.await.unwrap().commit, plain.commit);
}
