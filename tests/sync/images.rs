//! ImageRepositories and ImagePolicies: tags of a real registry are listed, and one of them is chosen.

use mainstay_engine::notification::Message;
use mainstay_testkit::docker_registry::{PASSWORD, Served, USER};
use mainstay_testkit::webhooks::{client, listening, push as git_push, send};
use mainstay_testkit::world::{NAMESPACE, World, condition_of};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::artifacts::{CONTENT, Pushed, packed};

const OURS: &str = "mainstay.dev/v1alpha1";

/// Pushes an image under tags, and returns its digest.
async fn push(pushed: &Pushed, tags: &[&str], content: &str) -> String {
    let mut digest = String::new();
    for tag in tags {
        digest = pushed.push(tag, &[(CONTENT, &packed(&[("a", content.as_bytes())]))]).await;
    }
    digest
}

fn image(pushed: &Pushed) -> String {
    pushed.url().trim_start_matches("oci://").to_owned()
}

fn create(world: &World, (kind, plural): (&str, &str), namespace: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    let object = json!({"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec});
    world.create(OURS, plural, namespace, object);
}

fn repository(world: &World, pushed: &Pushed, change: Value) {
    let mut spec = json!({"image": image(pushed), "insecure": true, "interval": "10s"});
    json_patch::merge(&mut spec, &change);
    create(world, ("ImageRepository", "imagerepositories"), NAMESPACE, "web", spec);
}

fn policy(world: &World, name: &str, change: Value) {
    let mut spec = json!({"imageRepositoryRef": {"name": "web"}});
    json_patch::merge(&mut spec, &change);
    create(world, ("ImagePolicy", "imagepolicies"), NAMESPACE, name, spec);
}

fn status(world: &World, plural: &str, name: &str) -> Value {
    world.get(OURS, plural, name).map_or(Value::Null, |live| live["status"].clone())
}

/// Waits until the policy has chosen this tag.
async fn chooses(world: &World, name: &str, tag: &str) {
    let shown = || format!("{} {}", status(world, "imagepolicies", name), status(world, "imagerepositories", "web"));
    let is_chosen = |world: &World| status(world, "imagepolicies", name)["latestRef"]["tag"] == tag;
    world.until_or(tag, is_chosen, shown).await;
}

/// Waits until an object is not ready for this reason.
async fn refused(world: &World, plural: &str, name: &str, part: &str) {
    let ready = |world: &World| condition_of(&status(world, plural, name), "Ready");
    let is_refused = |world: &World| ready(world).starts_with("False") && ready(world).contains(part);
    world.until_or(part, is_refused, || ready(world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_choose_from_one_listing_and_follow_new_tags() {
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0", "v1.1.0", "2.0.0", "main-a-100", "main-b-99", "sha256-aa.sig"], "one").await;
    let mut world = World::new().await;
    repository(&world, &pushed, json!({}));
    policy(&world, "stable", json!({"policy": {"semver": {"range": "1.x"}}}));
    policy(&world, "last", json!({"policy": {"alphabetical": {"order": "asc"}}}));
    let numbers = json!({"pattern": "^main-[a-z]+-(?P<n>[0-9]+)$", "extract": "$n"});
    policy(&world, "builds", json!({"policy": {"numerical": {"order": "asc"}}, "filterTags": numbers}));
    world.start();
    chooses(&world, "stable", "v1.1.0").await;
    chooses(&world, "last", "v1.1.0").await;
    chooses(&world, "builds", "main-a-100").await;
    let chosen = status(&world, "imagepolicies", "stable");
    assert_eq!(chosen["latestRef"], json!({"name": image(&pushed), "tag": "v1.1.0"}));
    assert!(condition_of(&chosen, "Ready").starts_with("True TagChosen: chose "), "{chosen}");
    let is_listed = |world: &World| !status(world, "imagerepositories", "web")["lastScanResult"].is_null();
    world.until("its status", is_listed).await;
    let listed = status(&world, "imagerepositories", "web");
    assert_eq!(
        (&listed["canonicalImageName"], &listed["lastScanResult"]["tagCount"]),
        (&json!(image(&pushed)), &json!(5))
    );
    assert_eq!(condition_of(&listed, "Ready"), "True TagsListed: found 5 tags");
    push(&pushed, &["1.2.0", "main-c-101"], "two").await;
    chooses(&world, "stable", "1.2.0").await;
    chooses(&world, "builds", "main-c-101").await;
    assert_eq!(status(&world, "imagepolicies", "stable")["observedPreviousRef"]["tag"], "v1.1.0");
    // A change of the policy needs no listing.
    world.edit(OURS, "imagerepositories", "web", json!({"spec": {"suspend": true}}));
    refused(&world, "imagerepositories", "web", "suspended").await;
    world.edit(OURS, "imagepolicies", "stable", json!({"spec": {"policy": {"semver": {"range": "2.x"}}}}));
    chooses(&world, "stable", "2.0.0").await;
    world.edit(OURS, "imagepolicies", "stable", json!({"spec": {"policy": {"semver": {"range": "3.x"}}}}));
    refused(&world, "imagepolicies", "stable", "is a version in the range 3.x").await;
    chooses(&world, "stable", "2.0.0").await;
    world.edit(OURS, "imagepolicies", "stable", json!({"spec": {"policy": {"numerical": {}}}}));
    refused(&world, "imagepolicies", "stable", "spec.policy: set exactly one of semver").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_status_is_written_again_without_another_listing() {
    const STATUS: &str = "imagerepositories.mainstay.dev/status";
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    repository(&world, &pushed, json!({"interval": "1h"}));
    world.fail_next("patch", STATUS, "web", 500, 2);
    world.start();
    let is_refused = |world: &World| world.requests().iter().any(|(what, _)| *what == format!("patch {STATUS}"));
    world.until("the first write is refused", is_refused).await;
    push(&pushed, &["1.1.0"], "two").await;
    let is_written = |world: &World| !status(world, "imagerepositories", "web")["lastScanResult"].is_null();
    world.until("the status is written", is_written).await;
    assert_eq!(status(&world, "imagerepositories", "web")["lastScanResult"]["tagCount"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_whose_status_was_refused_is_not_that_of_a_later_generation() {
    const STATUS: &str = "imagepolicies.mainstay.dev/status";
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0"], "one").await;
    // A registry that does not respond, so that the first listing does not end.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = World::new().await;
    repository(&world, &pushed, json!({"interval": "1h"}));
    let image = format!("{}/shop/web", silent.local_addr().unwrap());
    let spec = json!({"image": image, "insecure": true, "interval": "1h", "timeout": "5m"});
    create(&world, ("ImageRepository", "imagerepositories"), NAMESPACE, "silent", spec);
    policy(&world, "stable", json!({"policy": {"semver": {"range": "1.x"}}}));
    world.fail_next("patch", STATUS, "stable", 500, 3);
    world.start();
    let is_refused = |world: &World| world.requests().iter().any(|(what, _)| *what == format!("patch {STATUS}"));
    world.until("the first write is refused", is_refused).await;
    world.edit(OURS, "imagepolicies", "stable", json!({"spec": {"imageRepositoryRef": {"name": "silent"}}}));
    chooses(&world, "stable", "1.0.0").await;
    let written = status(&world, "imagepolicies", "stable");
    assert_eq!(
        (&written["observedGeneration"], &written["conditions"][0]["observedGeneration"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_registry_lists_the_tags_at_once() {
    const TOKEN: &str = "token-of-enough-bytes-for-a-hook";
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    world.receive = Some(listening());
    world.set_secret("hook", json!({"token": TOKEN}));
    repository(&world, &pushed, json!({"interval": "24h"}));
    policy(&world, "stable", json!({"policy": {"semver": {"range": "1.x"}}}));
    let resources = |name: &str| json!([{"kind": "ImageRepository", "name": name}]);
    for (name, kind, of) in [("harbor", "harbor", "web"), ("other", "quay", "api"), ("git", "github", "web")] {
        world.receiver(name, json!({"type": kind, "resources": resources(of)}));
    }
    world.start();
    chooses(&world, "stable", "1.0.0").await;
    push(&pushed, &["1.1.0"], "two").await;
    let deliver = async |name: &str, (header, value): (&'static str, &str), body: String| {
        let url = world.receiver_url(name).await;
        send(client().post(url).header(header, value).body(body)).await
    };
    let harbor = async |token: &str| deliver("harbor", ("Authorization", token), "{}".to_owned()).await;
    assert_eq!(harbor("guess").await.0, 400);
    let nobody = "nothing to do: no GitSync, Function or artifact of this Receiver follows";
    let other = deliver("other", ("X-Any", "a"), "{}".to_owned()).await;
    assert!(other.0 == 200 && other.1.starts_with(nobody), "{other:?}");
    // A push to a Git repository is no push of an image.
    let body = git_push("https://git.example/shop", "refs/heads/main");
    let signature = mainstay_testkit::webhooks::signature(TOKEN, &body);
    let git = deliver("git", ("X-Hub-Signature-256", &signature), body).await;
    assert_eq!(git.0, 200, "{git:?}");
    assert_eq!(status(&world, "imagepolicies", "stable")["latestRef"]["tag"], "1.0.0");
    assert_eq!(harbor(TOKEN).await, (200, "looking up the remote for ImageRepository web".to_owned()));
    chooses(&world, "stable", "1.1.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_reflects_the_digest_that_it_asks_for() {
    let pushed = Pushed::start(Served::Plainly).await;
    let first = push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    repository(&world, &pushed, json!({}));
    let semver = || json!({"semver": {"range": "1.x"}});
    policy(&world, "once", json!({"policy": semver(), "digestReflectionPolicy": "IfNotPresent"}));
    policy(&world, "always", json!({"policy": semver(), "digestReflectionPolicy": "Always", "interval": "10s"}));
    policy(&world, "wrong", json!({"policy": semver(), "interval": "10s"}));
    world.start();
    let digest = |world: &World, name: &str| status(world, "imagepolicies", name)["latestRef"]["digest"].clone();
    world.until("the digest", |world| digest(world, "once") == first && digest(world, "always") == first).await;
    refused(&world, "imagepolicies", "wrong", "spec.interval: has an effect only with").await;
    let second = push(&pushed, &["1.0.0"], "two").await;
    world.until("the new digest", |world| digest(world, "always") == second).await;
    assert_eq!(digest(&world, "once"), first);
    world.edit(OURS, "imagepolicies", "once", json!({"spec": {"digestReflectionPolicy": "Never"}}));
    world.until("no digest", |world| digest(world, "once").is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_another_namespace_needs_the_permission_of_the_repository() {
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    world.create(
        "v1",
        "namespaces",
        "",
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"team": "shop"}},
        }),
    );
    repository(&world, &pushed, json!({}));
    let spec = json!({
        "imageRepositoryRef": {"name": "web", "namespace": NAMESPACE}, "policy": {"semver": {"range": "1.x"}},
    });
    create(&world, ("ImagePolicy", "imagepolicies"), "other", "web", spec.clone());
    world.start();
    let chosen = |world: &World| {
        world.server.object(OURS, "imagepolicies", "other", "web").map_or(Value::Null, |live| live["status"].clone())
    };
    let denied = "does not exist, or does not permit the namespace other in spec.accessFrom";
    let ready = |world: &World| condition_of(&chosen(world), "Ready");
    world.until_or("denied", |world| ready(world).contains(denied), || ready(&world)).await;
    assert!(chosen(&world)["latestRef"].is_null());
    let access =
        |label: &str| json!({"spec": {"accessFrom": {"namespaceSelectors": [{"matchLabels": {"team": label}}]}}});
    world.edit(OURS, "imagerepositories", "web", access("shop"));
    world.until_or("permitted", |world| chosen(world)["latestRef"]["tag"] == "1.0.0", || ready(&world)).await;
    world.edit(OURS, "imagerepositories", "web", access("blog"));
    world
        .until_or(
            "denied",
            |world| ready(world).contains(denied) && chosen(world)["latestRef"].is_null(),
            || ready(&world),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_logs_in_with_a_secret_of_its_own_and_no_other() {
    let mut pushed = Pushed::start(Served::Safely).await;
    push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    world.set_secret("ca", json!({"ca.crt": pushed.authority()}));
    repository(&world, &pushed, json!({"insecure": false, "certSecretRef": {"name": "ca"}}));
    policy(&world, "web", json!({"policy": {"semver": {"range": "1.x"}}}));
    world.start();
    refused(&world, "imagerepositories", "web", "to a request without credentials").await;
    refused(&world, "imagepolicies", "web", "to a request without credentials").await;
    let login = |host: &str| {
        use base64::Engine as _;
        let auth = base64::prelude::BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}"));
        json!({".dockerconfigjson": json!({"auths": {host: {"auth": auth}}}).to_string()})
    };
    let change = |spec: Value| world.edit(OURS, "imagerepositories", "web", json!({"spec": spec}));
    change(json!({"secretRef": {"name": "login"}}));
    refused(&world, "imagerepositories", "web", "the Secret login does not exist").await;
    world.set_secret("login", login(image(&pushed).split('/').next().unwrap()));
    chooses(&world, "web", "1.0.0").await;
    world.set_secret("values", login(image(&pushed).split('/').next().unwrap()));
    world.sync("other", json!({"substituteFrom": [{"kind": "Secret", "name": "values"}]}));
    change(json!({"secretRef": {"name": "values"}}));
    refused(&world, "imagerepositories", "web", "the variables or charts of a GitSync").await;
    change(json!({"secretRef": {"name": "login"}, "provider": "aws"}));
    refused(&world, "imagerepositories", "web", "is not a registry of aws").await;
    change(json!({"provider": null}));
    world
        .until("listed", |world| condition_of(&status(world, "imagerepositories", "web"), "Ready").starts_with("True"))
        .await;
    pushed.kill().await;
    refused(&world, "imagerepositories", "web", "ImageFailed").await;
    chooses(&world, "web", "1.0.0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_agent_keeps_the_choice_until_it_has_listed_the_tags() {
    let pushed = Pushed::start(Served::Plainly).await;
    push(&pushed, &["1.0.0"], "one").await;
    let mut world = World::new().await;
    repository(&world, &pushed, json!({}));
    policy(&world, "web", json!({"policy": {"semver": {"range": "1.x"}}}));
    world.start();
    chooses(&world, "web", "1.0.0").await;
    world.stop().await;
    push(&pushed, &["1.1.0"], "two").await;
    world.start();
    chooses(&world, "web", "1.1.0").await;
    let failures = std::iter::from_fn(|| world.messages.try_recv().ok());
    let failures: Vec<_> = failures
        .filter(|message| matches!(message, Message::Stage { status, .. } if status == "False"))
        .map(|message| message.to_string())
        .collect();
    assert_eq!(failures, [""; 0]);
}
