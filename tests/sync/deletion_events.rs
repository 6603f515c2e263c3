//! Every deletion is reported: an Event with its reason, a count, and how to release a held object.

use std::sync::Arc;

use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, config_map};

async fn with_maps(count: usize, spec: Value) -> World {
    let mut world = World::new().await;
    for i in 0..count {
        world.remote.file(&format!("{i:02}.yaml"), config_map(&format!("map-{i:02}"), "1"));
    }
    world.remote.commit("all");
    world.synced(spec).await;
    world
}

/// Returns `<kind> <name>: <message>` of the Events with this reason.
fn events(world: &World, reason: &str) -> Vec<String> {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let text = |event: &Arc<Value>| {
        let about = &event["involvedObject"];
        let words = [&about["kind"], &about["name"], &event["message"]].map(|word| word.as_str().unwrap_or_default());
        format!("{} {}: {}", words[0], words[1], words[2])
    };
    events.iter().filter(|event| event["reason"] == reason).map(text).collect()
}

fn has(all: &[String], parts: &[&str]) -> bool {
    all.iter().any(|text| parts.iter().all(|part| text.contains(part)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_removed_object_gets_an_event() {
    let mut world = with_maps(3, json!({})).await;
    world.remote.remove("01.yaml").remove("02.yaml");
    world.commit("demo", "two go").await;
    let short = world.remote.head()[..12].to_owned();
    for name in ["map-01", "map-02"] {
        let about = format!("ConfigMap {name}: ");
        world.until("an Event on the object", |w| has(&events(w, "Pruned"), &[&about, &short])).await;
        let parts = ["GitSync demo: 2 objects pruned: ", &short, &format!("ConfigMap mainstay-tests/{name}")];
        world.until("an Event on the GitSync", |w| has(&events(w, "Pruned"), &parts)).await;
    }
    world.until("the count", |w| has(&events(w, "Applied"), &[&short, "2 pruned"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rounds_of_a_commit_add_up() {
    let mut world = with_maps(8, json!({})).await;
    world.fail_next("delete", "configmaps", "map-03", 500, 1);
    for i in 1..7 {
        world.remote.remove(&format!("{i:02}.yaml"));
    }
    world.commit("demo", "six go").await;
    let short = world.remote.head()[..12].to_owned();
    world.until("the count", |w| has(&events(w, "Applied"), &[&short, "6 pruned"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_id_is_refused_and_what_is_held_says_how_to_release_it() {
    let mut world = with_maps(3, json!({})).await;
    world.remote.clear().file("README.md", "nothing");
    let commit = world.try_commit("demo", "empty").await;
    let release =
        format!("kubectl annotate --overwrite gitsync demo -n mainstay-tests mainstay.dev/allow-prune={commit}");
    world.until("Ready says how", |w| w.condition("demo", "Ready").contains(&release)).await;
    world.allow_prune("demo", &commit[..8]).await;
    world
        .until("Ready says why not", |w| {
            let ready = w.condition("demo", "Ready");
            ready.starts_with("False PruneHeld")
                && ready.contains(&commit[..8])
                && ready.contains("not a full commit id")
        })
        .await;
    let told = |w: &World| has(&events(w, "AnnotationInvalid"), &["mainstay.dev/allow-prune", &commit[..8], &release]);
    world.until("an Event", told).await;
    assert_eq!(world.config_maps().len(), 3);
    world.allow_prune("demo", &commit).await;
    world.ready("demo").await;
    assert!(world.config_maps().is_empty());
    world.until("an Event says who allowed it", |w| has(&events(w, "Pruned"), &["mainstay.dev/allow-prune"])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_word_is_refused_even_while_nothing_is_held() {
    let world = with_maps(1, json!({})).await;
    world.allow_prune("demo", "yes\nplease").await;
    let said = |w: &World| {
        let ready = w.condition("demo", "Ready");
        ready.starts_with("True") && ready.contains(r#""yes\nplease" is not a full commit id"#)
    };
    world.until("Ready says so", said).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_held_object_says_how_to_release_it() {
    let mut world = World::new().await;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n";
    let kept =
        config_map("kept", "1").replace("metadata:", "metadata:\n  annotations: {helm.sh/resource-policy: keep}");
    world.remote.file("namespace.yaml", namespace).file("kept.yaml", kept).file("a.yaml", config_map("a", "1"));
    world.remote.commit("all");
    world.synced(json!({})).await;
    world.remote.remove("namespace.yaml").remove("kept.yaml");
    world.commit("demo", "two go").await;
    let held = world.status("demo")["held"].to_string();
    let (head, kept) = (world.remote.head(), "ConfigMap kept -n mainstay-tests helm.sh/resource-policy-");
    assert!(held.contains(&format!("mainstay.dev/allow-prune={head}")), "{held}");
    assert!(held.contains(&format!("kubectl annotate {kept}")), "{held}");
    world.change("demo", json!({"prune": false})).await;
    let off = |w: &World| w.status("demo")["held"].to_string().contains("spec.prune");
    world.until("it says which field to set", off).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_object_deleted_with_its_git_sync_gets_an_event() {
    let world = with_maps(2, json!({})).await;
    mainstay_testkit::ownership::prune_on_delete(&world, "demo").await;
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    world.until("the GitSync is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").is_none()).await;
    for name in ["map-00", "map-01"] {
        let about = format!("ConfigMap {name}: ");
        world.until("an Event", |w| has(&events(w, "Pruned"), &[&about, "mainstay.dev/on-delete: prune"])).await;
    }
}
