//! `mainstay check`: the followed reference of a repository, signatures, pinned host keys, and events on NATS;
//! Receivers.

use std::fs;

use devcluster::fault_injection::Fault;
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};
use serde_json::{Value, json};

use mainstay_testkit::{
    git_daemon::GitDaemon,
    git_server::GitServer,
    program::mainstay,
    remote::NAME,
    signers::SshKey,
    ssh_server::{SshServer, generate},
    webhooks::listening,
    world::{NAMESPACE, World, condition_of, config_map},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";

async fn check(world: &World, arguments: &[&str]) -> (i32, String) {
    mainstay(world, &[&["check"], arguments].concat()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followed_references_are_looked_up_and_their_signatures_judged() {
    let mut world = World::with_functions().await;
    let server = GitServer::start(world.remote.root()).await;
    let url = server.url(NAME);
    let alice = SshKey::new("ed25519");
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).signed("one", |raw| alice.sign(raw));
    world.remote.tag("v1");
    let two = world.remote.file("apps/a.yaml", config_map("a", "2")).commit("two");
    world.repository("web", &url);
    let verify = json!({"verify": {"mode": "HEAD", "secretRef": {"name": "keys"}}});
    world.edit(API, "gitrepositories", "web", json!({"spec": verify}));
    let named = format!("GitRepository {NAMESPACE}/web: ");
    let web: &[&str] = &["--repository", "web"];
    let missing = format!("wrong  {named}Secret {NAMESPACE}/keys does not exist\n");
    let (code, said) = check(&world, web).await;
    assert!(code == 2 && said.starts_with(&missing), "{said}");

    world.set_secret("keys", json!({"alice.sshpub": alice.public()}));
    let answers = |name: &str, commit: &str| format!("{url} answers: {name} is at {}", &commit[..12]);
    let unsigned = format!("verify commit {two} of {url}: it is not signed; sign it with a key that is in Secret keys");
    let expected = format!("ok     {named}{}\nwrong  {named}{unsigned}\n", answers("main", &two));
    assert_eq!(check(&world, web).await, (2, expected), "nobody follows it: its default branch");

    // The followed reference.
    world.sync("demo", json!({"gitRepository": "web", "reference": "v1", "baseDir": "/apps"}));
    let signed = "signed by a key of Secret keys";
    let expected = format!("ok     {named}{}, {signed}\n", answers("v1", &one));
    assert_eq!(check(&world, web).await, (0, expected.clone()));
    assert_eq!(check(&world, &["--repository", &format!("{NAMESPACE}/web")]).await, (0, expected));
    let (code, said) = check(&world, &["--repository", "web", "--reference", "main"]).await;
    assert!(code == 2 && said.contains(&unsigned), "{said}");
    let (code, said) = check(&world, &["--repository", "none"]).await;
    assert!(code == 2 && said.contains(&format!("GitRepository {NAMESPACE}/none does not exist")), "{said}");

    // The same commits are checked without a GitRepository.
    let flags: &[&str] = &["--git-url", &url, "--verify-secret", "keys", "--reference"];
    let expected = format!("ok     {}, {signed}\n", answers("v1", &one));
    assert_eq!(check(&world, &[flags, &["v1"]].concat()).await, (0, expected));
    let (code, said) = check(&world, &[flags, &["main"]].concat()).await;
    assert!(code == 2 && said.ends_with(&format!("wrong  {unsigned}\n")), "{said}");
    let (code, said) = check(&world, &[flags, &["v1", "--verify-mode", "Tag"]].concat()).await;
    assert!(code == 2 && said.contains("the tag v1 at commit"), "{said}");
    let (code, said) = check(&world, &[flags, &["v1", "--verify-mode", "none"]].concat()).await;
    assert!(code == 2 && said.contains("must be HEAD, Tag or TagAndHEAD"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_key_that_is_pinned_at_first_use_is_named() {
    let mut world = World::new().await;
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).commit("one");
    let server = SshServer::start(world.remote.root()).await;
    let path = world.remote.root().join("key");
    generate(&path, "ed25519", &[]);
    server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
    world.set_secret("git", json!({"key": fs::read_to_string(path).unwrap()}));
    let url = server.url(NAME);
    let spec = json!({"url": url, "auth": {"type": "key", "secretName": "git"}, "hostKeys": "PinAtFirstUse"});
    let metadata = json!({"name": "private", "namespace": NAMESPACE});
    let object = json!({"apiVersion": API, "kind": "GitRepository", "metadata": metadata, "spec": spec});
    world.create(API, "gitrepositories", NAMESPACE, object);

    let (named, print) = (format!("GitRepository {NAMESPACE}/private: "), server.fingerprint("ed25519"));
    let arguments: &[&str] = &["--repository", "private"];
    let (code, said) = check(&world, arguments).await;
    let first = format!(
        "ok     {named}the host {} is unknown; the agent pins its key at first use: it presents {print}, which is not \
         verified; compare",
        server.name()
    );
    let answers = format!("ok     {named}{url} answers: main is at {}", &one[..12]);
    assert!(
        code == 0 && said.starts_with(&first) && said.ends_with(&format!("{answers} (the host is not verified)\n")),
        "{said}"
    );
    let pinned = |w: &World| !w.get(API, "gitrepositories", "private").unwrap()["status"].is_null();
    assert!(!pinned(&world), "nothing is written");

    world.sync("demo", json!({"gitRepository": "private", "baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    let expected = format!("{answers} (host key pinned at first use: {print})\n");
    assert_eq!(check(&world, arguments).await, (0, expected));
    server.rotate(&["ed25519"]);
    let (code, said) = check(&world, arguments).await;
    assert!(code == 2 && said.contains(&format!("known is {print} (pinned at first use, at ")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_daemon_is_said_to_be_unauthenticated_unless_commits_are_verified() {
    let mut world = World::new().await;
    let alice = SshKey::new("ed25519");
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).signed("one", |raw| alice.sign(raw));
    let daemon = GitDaemon::start(world.remote.root());
    let url = daemon.url(NAME);
    let answers = format!("ok     {url} answers: main is at {}", &one[..12]);
    let flags: &[&str] = &["--git-url", &url, "--reference", "main"];
    let expected = format!("{answers} (git:// is neither encrypted nor authenticated)\n");
    assert_eq!(check(&world, flags).await, (0, expected));
    world.set_secret("keys", json!({"alice.sshpub": alice.public()}));
    let expected = format!("{answers}, signed by a key of Secret keys\n");
    assert_eq!(check(&world, &[flags, &["--verify-secret", "keys"]].concat()).await, (0, expected));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_to_nats_is_checked_by_the_pods_of_events() {
    const HOME: &str = "kyma-system";
    const DEPLOYMENT: &str = "mainstay-eventing-publisher";
    let world = World::new().await;
    world.create("v1", "namespaces", "", json!({"metadata": {"name": HOME}}));
    let (_, said) = check(&world, &[]).await;
    assert!(!said.contains("NATS"), "{said}");

    let labels = json!({"app.kubernetes.io/name": DEPLOYMENT});
    let env = json!([{"name": "MAINSTAY_NATS_URL", "value": "tls://nats:4222"}]);
    let pod = json!({"containers": [{"name": "eventing", "image": "mainstay", "env": env}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let spec = json!({"replicas": 0, "selector": {"matchLabels": labels}, "template": template});
    world.create("apps/v1", "deployments", HOME, json!({"metadata": {"name": DEPLOYMENT}, "spec": spec}));
    let (code, said) = check(&world, &[]).await;
    let expected = format!("wrong  no pod of Deployment {HOME}/{DEPLOYMENT} is running");
    assert!(code == 2 && said.contains(&expected), "{said}");

    let scaled = Action::Patch(Form::Merge, json!({"spec": {"replicas": 1}}));
    world.write_as("kubectl-edit", Call::new("apps/v1", "deployments", HOME, DEPLOYMENT, scaled));
    let is_ready = |world: &World| {
        let pods = world.server.objects("v1", "pods", Some(HOME));
        pods.iter().any(|pod| pod["status"]["containerStatuses"][0]["ready"] == true)
    };
    world.until("the pod is ready", is_ready).await;
    let (_, said) = check(&world, &[]).await;
    let expected = format!("ok     NATS at tls://nats:4222 responds to 1 of 1 pods of Deployment {HOME}/{DEPLOYMENT}");
    assert!(said.contains(&expected), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_without_its_source_is_named() {
    let mut world = World::with_functions().await;
    world.receive = Some(listening());
    world.set_secret("hook", json!({"token": "token-of-enough-bytes"}));
    world.receiver("broken", json!({"repositories": ["none"]}));
    world.receiver("fine", json!({}));
    world.start();
    world.receiver_is("broken", "True SourceNotFound").await;
    world.receiver_url("fine").await;
    let (_, said) = check(&world, &[]).await;
    let broken = format!(
        "wrong  Receiver {NAMESPACE}/broken: SourceNotFound: no delivery has an effect; no GitRepository, OCIRepository or HelmChart of \
         this namespace is named none"
    );
    assert!(said.contains(&broken), "{said}");
    assert!(said.contains(&format!("ok     Receiver {NAMESPACE}/fine: receives for all sources")), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_every_kind_that_do_not_work_are_named_with_a_remedy() {
    const OURS: &str = "mainstay.dev/v1alpha1";
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", "kind: [").commit("one");
    world.sync("demo", json!({}));
    let create = |world: &World, kind: &str, resource: &str, spec: Value| {
        let metadata = json!({"name": "broken", "namespace": NAMESPACE});
        let object = json!({"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec});
        world.create(OURS, resource, NAMESPACE, object);
    };
    let missing = json!({"name": "none"});
    let all = [
        (
            "OCIRepository",
            "ocirepositories",
            json!({"url": "oci://ghcr.io/a/b", "interval": "5m", "secretRef": missing}),
        ),
        (
            "HelmChart",
            "helmcharts",
            json!({"repository": "https://charts.example.com", "name": "a", "interval": "5m", "secretRef": missing}),
        ),
        ("ImageRepository", "imagerepositories", json!({"image": "ghcr.io/a/b", "secretRef": missing})),
        (
            "ImagePolicy",
            "imagepolicies",
            json!({"imageRepositoryRef": missing, "policy": {"semver": {"range": ">=1"}}}),
        ),
        (
            "ImageUpdateAutomation",
            "imageupdateautomations",
            json!({
                "interval": "5m", "sourceRef": {"kind": "GitRepository", "name": "none"},
                "git": {"commit": {"author": {"email": "a@example.com"}}}, "update": {"strategy": "Setters"},
            }),
        ),
        (
            "Provider",
            "providers",
            json!({"type": "slack", "address": "https://hooks.example.com", "secretRef": missing}),
        ),
        ("Alert", "alerts", json!({"providerRef": missing, "eventSources": [{"kind": "Kustomization", "name": "*"}]})),
    ];
    for (kind, resource, spec) in &all {
        create(&world, kind, resource, spec.clone());
    }
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    for (_, resource, _) in &all {
        let what = format!("{resource} broken is not ready");
        let is_failed = |w: &World| {
            let status = w.get(OURS, resource, "broken").map(|object| object["status"].clone()).unwrap_or_default();
            condition_of(&status, "Ready").starts_with("False ")
        };
        world.until(&what, is_failed).await;
    }
    let (code, said) = check(&world, &[]).await;
    assert_eq!(code, 2, "{said}");
    for kind in
        all.iter().map(|(kind, ..)| format!("{kind} {NAMESPACE}/broken")).chain([format!("GitSync {NAMESPACE}/demo")])
    {
        let line = said.lines().position(|line| line.starts_with(&format!("wrong  {kind}: ")));
        let line = line.unwrap_or_else(|| panic!("{kind}: {said}"));
        assert!(said.lines().nth(line + 1).is_some_and(|remedy| remedy.starts_with("       ")), "{kind}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_git_sync_is_no_problem() {
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", "kind: [").commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let wrong = format!("wrong  GitSync {NAMESPACE}/demo: ");
    let (_, said) = check(&world, &[]).await;
    assert!(said.contains(&wrong), "{said}");
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"suspend": true}}));
    world.condition_is("demo", "Suspended", "True Suspended").await;
    assert!(world.condition("demo", "Ready").starts_with("False ManifestInvalid"));
    let (_, said) = check(&world, &[]).await;
    assert!(!said.contains(&wrong), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_waits_for_a_window_or_another_one_is_no_problem() {
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let windows = json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]);
    world.sync("first", json!({"windows": windows}));
    world.sync("second", json!({"dependsOn": [{"name": "first"}]}));
    world.start();
    world.condition_is("first", "Ready", "False WindowClosed").await;
    world.condition_is("second", "Ready", "False DependencyNotReady").await;
    let (_, said) = check(&world, &[]).await;
    assert!(!said.contains("wrong  GitSync"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_that_waits_for_one_that_does_not_exist_is_named() {
    const OURS: &str = "mainstay.dev/v1alpha1";
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.create("v1", "namespaces", "", json!({"metadata": {"name": "infra"}}));
    let (metadata, spec) = (json!({"name": "platform", "namespace": "infra"}), json!({"gitRepository": "none"}));
    let platform = json!({"apiVersion": OURS, "kind": "GitSync", "metadata": metadata, "spec": spec});
    world.create(OURS, "gitsyncs", "infra", platform);
    world.sync("waits", json!({"dependsOn": [{"name": "platform", "namespace": "infra"}]}));
    world.sync("stuck", json!({"dependsOn": [{"name": "waits"}, {"name": "none"}]}));
    world.sync("abroad", json!({"dependsOn": [{"name": "none", "namespace": "infra"}]}));
    world.start();
    for name in ["waits", "stuck", "abroad"] {
        world.condition_is(name, "Ready", "False DependencyNotReady").await;
    }
    let (code, said) = check(&world, &[]).await;
    assert!(code == 2 && !said.contains(&format!("GitSync {NAMESPACE}/waits: ")), "{said}");
    for (name, missing) in [("stuck", format!("{NAMESPACE}/none")), ("abroad", "infra/none".to_owned())] {
        let wrong = format!("wrong  GitSync {NAMESPACE}/{name}: DependencyNotReady: ");
        let line = said.lines().position(|line| line.starts_with(&wrong));
        let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
        let remedy = format!("       create GitSync {missing}, or remove it from spec.dependsOn");
        assert_eq!(said.lines().nth(line + 1), Some(&*remedy), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_cannot_be_listed_hides_no_other_finding() {
    let mut world = World::with_functions().await;
    world.remote.file("a.yaml", "kind: [").commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let (verb, resource) = ("list".to_owned(), "imagepolicies".to_owned());
    let fault = Fault { verb, resource, code: 500, message: "no storage".to_owned(), times: 100, ..Fault::default() };
    world.server.embedded().faults().fail_next(fault);
    let (code, said) = check(&world, &[]).await;
    let unlisted = format!("wrong  imagepolicies.mainstay.dev of {NAMESPACE} cannot be listed: ");
    let remedy = format!("       kubectl -n {NAMESPACE} get imagepolicies.mainstay.dev\n");
    assert!(code == 2 && said.contains(&unlisted) && said.contains(&remedy), "{said}");
    assert!(said.contains(&format!("wrong  GitSync {NAMESPACE}/demo: ManifestInvalid: ")), "{said}");
}
