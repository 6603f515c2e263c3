//! Receivers that select the objects of a delivery by their labels, or by an expression about the delivery.

use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::webhooks::{client, send};
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};
use serde_json::{Value, json};

use crate::receivers::followed_in;

const REPOSITORIES: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");

/// Creates a world whose GitSyncs `demo` and `second` follow the GitRepositories `shop` and `other`.
async fn two() -> (World, GitServer) {
    let (world, server, _) = followed_in(World::with_functions().await).await;
    world.repository("other", &server.url(NAME));
    world.sync("second", json!({"gitRepository": "other", "baseDir": "/objects", "interval": "10m", "suspend": true}));
    world.receiver("any", json!({"type": "generic", "repositories": ["other"]}));
    let url = world.receiver_url("any").await;
    let followed = async {
        while send(client().post(&url)).await.1 != "looking up the remote for GitSync second" {
            tokio::time::sleep(std::time::Duration::from_millis(25)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, followed).await.is_ok(), "the second one is followed");
    (world, server)
}

fn describe(world: &World, repository: &str, metadata: Value) {
    world.edit(REPOSITORIES.0, REPOSITORIES.1, repository, json!({"metadata": metadata}));
}

/// Creates a generic Receiver, and returns its URL.
async fn receiver(world: &World, name: &str, spec: Value) -> String {
    world.receiver(name, json!({"type": "generic"}));
    world.change_receiver(name, spec);
    let generation =
        |w: &World| w.get("mainstay.dev/v1alpha1", "receivers", name).unwrap()["metadata"]["generation"].clone();
    world.until("the change is seen", |w| w.receiver_status(name)["observedGeneration"] == generation(w)).await;
    world.receiver_url(name).await
}

async fn deliver(url: &str, body: &Value) -> (u16, String) {
    send(client().post(url).header("Content-Type", "application/json").body(body.to_string())).await
}

fn events_of(world: &World, name: &str) -> String {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let own = events.iter().filter(|event| event["involvedObject"]["name"] == name);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    own.map(|event| format!("{} {}\n", text(event, "reason"), text(event, "message"))).collect::<Vec<_>>().concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_wakes_the_sources_that_have_the_labels_at_that_time() {
    let (mut world, _server) = two().await;
    let labelled = json!([{"kind": "GitRepository", "name": "*", "matchLabels": {"app": "web", "tier": "front"}}]);
    let url = receiver(&world, "labelled", json!({"resources": labelled})).await;
    world.receiver_is("labelled", "True Receiving: receives for the GitRepositories that spec.resources selects").await;
    describe(&world, "other", json!({"labels": {"app": "web"}}));
    let (status, text) = deliver(&url, &json!({})).await;
    let nobody = "nothing to do: no object of this namespace has the labels";
    assert!(status == 200 && text.starts_with(nobody), "{status} {text}");

    describe(&world, "shop", json!({"labels": {"app": "web", "tier": "front"}}));
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let woken = |sync: &str| (200, format!("looking up the remote for GitSync {sync}"));
    assert_eq!(deliver(&url, &json!({})).await, woken("demo"));
    world.until("the push is applied", |w| w.data("a") == "2").await;

    describe(&world, "shop", json!({"labels": {"tier": "back"}}));
    describe(&world, "other", json!({"labels": {"tier": "front"}}));
    assert_eq!(deliver(&url, &json!({})).await, woken("second"));

    world.fail_next("list", "gitrepositories", "", 403, 1000);
    let (status, text) = deliver(&url, &json!({})).await;
    assert!(
        status == 503 && text.starts_with("the objects that the Receiver selects cannot be listed now"),
        "{status} {text}"
    );
    world.levers().clear_faults();

    // A name besides the labels counts, too, and a kind has its own objects.
    let more = json!([labelled[0], {"kind": "GitRepository", "name": "shop"}, {"kind": "OCIRepository", "name": "*"}]);
    let url = receiver(&world, "more", json!({"resources": more})).await;
    assert_eq!(deliver(&url, &json!({})).await, woken("demo, GitSync second"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_selects_the_sources_that_the_body_concerns() {
    let (world, _server) = two().await;
    let filter = "req.tag.split('/').last().value().split(':').first().value() == res.metadata.name";
    let all = json!([{"kind": "GitRepository", "name": "*"}]);
    let url = receiver(&world, "tags", json!({"resources": all, "resourceFilter": filter})).await;
    for (tag, sync) in [("registry.example/shop:1", "demo"), ("registry.example/other:1", "second")] {
        let woken = (200, format!("looking up the remote for GitSync {sync}"));
        assert_eq!(deliver(&url, &json!({"tag": tag})).await, woken);
    }
    let (status, text) = deliver(&url, &json!({"tag": "registry.example/unknown:1"})).await;
    assert_eq!(
        (status, &*text),
        (200, "nothing to do: spec.resourceFilter is false for all 3 objects of this Receiver")
    );
    let (status, text) = send(client().post(&url).body(r#"{"tag": "registry.example/shop:1"}"#)).await;
    assert!(
        status == 500 && text.contains("`req` is empty, because the Content-Type of the delivery is not JSON"),
        "{text}"
    );
    let (status, text) = deliver(&url, &json!({"image": "canary-of-a-body"})).await;
    assert_eq!(status, 500, "{text}");
    assert!(text.starts_with("spec.resourceFilter cannot be evaluated for GitRepository other and "), "{text}");
    assert!(text.ends_with("line 1, column 5: there is no field `tag`"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_without_a_result_is_not_looked_up_and_the_others_are() {
    let (world, _server) = two().await;
    describe(&world, "shop", json!({"annotations": {"update-image": "canary-of-an-image"}}));
    let filter = "res.metadata.annotations['update-image'] == req.image";
    let named = json!([{"kind": "GitRepository", "name": "shop"}, {"kind": "GitRepository", "name": "other"}]);
    let url = receiver(&world, "images", json!({"resources": named, "resourceFilter": filter})).await;
    let (status, text) = deliver(&url, &json!({"image": "canary-of-an-image"})).await;
    let expected = "looking up the remote for GitSync demo; spec.resourceFilter cannot be evaluated for GitRepository other, which \
                    is not looked up: line 1, column ";
    assert!(status == 500 && text.starts_with(expected), "{status} {text}");
    let why = "DeliveryIncomplete a delivery had no effect on some objects: spec.resourceFilter cannot be evaluated for \
               GitRepository other";
    world.until("an Event has the reason", |w| events_of(w, "images").contains(why)).await;
    assert!(!events_of(&world, "images").contains("canary") && !text.contains("canary"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_of_a_git_host_says_that_it_wakes_no_git_sync() {
    let (world, _server, _) = followed_in(World::with_functions().await).await;
    world.receiver("images", json!({"resources": [{"kind": "ImageRepository", "name": "*"}]}));
    let ready = "True Receiving: receives for the ImageRepositories that spec.resources selects; a push wakes no GitSync, because \
                 spec.resources names no GitRepository";
    world.receiver_is("images", ready).await;
    let more = json!([{"kind": "ImageRepository", "name": "*"}, {"kind": "GitRepository", "name": "shop"}]);
    world.change_receiver("images", json!({"resources": more}));
    let ready = "True Receiving: receives for the GitRepositories, ImageRepositories that spec.resources selects";
    world.receiver_is("images", ready).await;
    let absent = json!([{"kind": "ImageRepository", "name": "web"}, more[1], {"kind": "Kustomization", "name": "web"}]);
    world.change_receiver("images", json!({"resources": absent}));
    let ready = "True SourceNotFound: receives for 1 of the GitRepositories, ImageRepositories that spec.resources selects; entries \
                 of spec.resources with the kind Kustomization have no effect: name their source; this namespace has no \
                 ImageRepository web (spec.resources): create it, or correct the name";
    world.receiver_is("images", ready).await;
    world.change_receiver("images", json!({"resources": [more[1], {"kind": "GitRepositry", "name": "web"}]}));
    world
        .receiver_is("images", "False SpecInvalid: spec.resources[1].kind is GitRepositry, which does not exist")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deliveries_to_a_receiver_with_labels_are_all_accepted() {
    let (world, _server) = two().await;
    describe(&world, "shop", json!({"labels": {"app": "web"}}));
    let labelled = json!([{"kind": "GitRepository", "name": "*", "matchLabels": {"app": "web"}}]);
    let url = receiver(&world, "many", json!({"resources": labelled})).await;
    let body = json!({});
    let all = futures::future::join_all((0..16).map(|_| deliver(&url, &body))).await;
    let woken = (200, "looking up the remote for GitSync demo".to_owned());
    assert!(all.iter().all(|one| *one == woken), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_filter_is_refused_with_its_position() {
    let (world, _server, _) = followed_in(World::with_functions().await).await;
    world.receiver("wrong", json!({"resourceFilter": "req.tag ="}));
    world.receiver_is("wrong", "False SpecInvalid: spec.resourceFilter: line 1, column 9: ").await;
    assert!(condition_of(&world.receiver_status("wrong"), "Stalled").starts_with("True SpecInvalid"));
    world.change_receiver("wrong", json!({"resourceFilter": "request.tag == 'a'"}));
    let unknown = "there is no variable `request`; there is `req` and `res`; correct the expression";
    world.receiver_is("wrong", &format!("False SpecInvalid: spec.resourceFilter: line 1, column 1: {unknown}")).await;
    let named = json!([{"kind": "GitRepository", "name": "shop", "matchLabels": {"app": "web"}}]);
    world.change_receiver("wrong", json!({"resourceFilter": null, "resources": named}));
    world.receiver_is("wrong", "False SpecInvalid: spec.resources[0].matchLabels selects among all objects").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_body_cannot_exceed_the_bounds_of_a_filter() {
    let (world, _server) = two().await;
    let filter = "has(req.l) && req.l.all(x, x != res.metadata.name) || !has(req.l) && res.metadata.name == 'shop'";
    let url = receiver(&world, "hostile", json!({"resourceFilter": filter})).await;
    let (status, text) = deliver(&url, &json!({"l": vec![0; 50_000]})).await;
    assert_eq!(status, 500, "{text}");
    assert!(text.ends_with("the expression takes more than 20000 steps with this object"), "{text}");
    let deep = format!(r#"{{"l": {}{}}}"#, "[".repeat(1000), "]".repeat(1000));
    for (body, expected) in [
        (json!({"l": vec![0; 500_000]}).to_string(), "the body has more values"),
        (deep, "the body has more values, or is nested deeper"),
        ("[]".to_owned(), "the body is not a payload"),
        ("{".to_owned(), "the body is not a payload"),
    ] {
        let (status, text) = send(client().post(&url).header("Content-Type", "application/json").body(body)).await;
        assert!(status == 400 && text.starts_with(expected), "{status} {text}");
    }
    // As in Flux, a body of another type is empty.
    let woken = (200, "looking up the remote for GitSync demo".to_owned());
    assert_eq!(send(client().post(&url).body("hostile")).await, woken);
}
