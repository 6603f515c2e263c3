//! The page with the differences of all objects of a GitSync.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::world::{NAMESPACE, deployment};
use serde_json::{Value, json};

use super::{
    FORM, READS,
    pages::{Desk, HOSTILE, SYNCS, looks_right},
    users::{ELSEWHERE, URL, Users},
};

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  currency: EUR\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: key\nstringData:\n  password: hunter2\n";

/// The GitSync `demo` with an edited ConfigMap, an edited Secret, and a deleted Deployment.
async fn edited(users: &mut Users) {
    let world = &mut users.world;
    world.remote.file("apps/web.yaml", deployment("web", "example.org/web:1", 1));
    world.remote.file("apps/map.yaml", MAP).file("apps/key.yaml", SECRET);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "drift": "Report"})).await;
    world.edit("v1", "configmaps", "settings", json!({"data": {"currency": "USD"}}));
    let patch = Action::Patch(Form::Merge, json!({"data": {"password": "c3dvcmRmaXNo"}}));
    world.write_as("intruder", Call::new("v1", "secrets", NAMESPACE, "key", patch));
    world.until("the drift is known", |w| w.status("demo")["driftedObjects"] == 2).await;
    world.delete("apps/v1", "deployments", "web");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_page_has_the_difference_of_each_object_and_no_value_of_a_secret() {
    let mut users = Users::new().await;
    edited(&mut users).await;
    users.namespace(ELSEWHERE);
    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let git_sync = format!("/gitsync/{NAMESPACE}/demo");
    let text = console.get(&git_sync, &reader).await.text;
    assert!(text.contains("/differences\">Differences</a>"), "{text}");
    let text = console.get(&format!("{git_sync}/differences"), &reader).await.text;
    for part in [
        "3 objects",
        &format!("Deployment.apps {NAMESPACE}/web"),
        "</span> missing</span>",
        "The object does not exist in the cluster.",
        &format!("ConfigMap {NAMESPACE}/settings"),
        "<del>−   currency: USD</del>",
        "<ins>+   currency: EUR</ins>",
        "kubectl-edit",
        &format!("Secret {NAMESPACE}/key"),
        "intruder",
        "data.password",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for value in ["hunter2", "aHVudGVyMg", "swordfish", "c3dvcmRmaXNo"] {
        assert!(!text.contains(value), "{value}: {text}");
    }
    // The missing object is the worst one.
    assert!(text.find("/web").unwrap() < text.find("/settings").unwrap(), "{text}");
    let stranger = console.sign_in(&users.account(ELSEWHERE, "stranger", READS)).await;
    let refused = console.get(&format!("{git_sync}/differences"), &stranger).await;
    assert!(refused.code == 403 && !refused.text.contains("currency"), "{}", refused.text);
    // A user without the right to an object sees why, and the other objects.
    let rules = json!([
        {"apiGroups": ["mainstay.dev"], "resources": ["*"], "verbs": READS},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": READS},
    ]);
    let narrow = console.sign_in(&users.account_with(NAMESPACE, "narrow", &rules)).await;
    let text = console.get(&format!("{git_sync}/differences"), &narrow).await.text;
    assert!(text.contains("currency: USD") && text.contains("forbidden"), "{text}");
    assert_eq!(console.get(&format!("/gitsync/{NAMESPACE}/none/differences"), &reader).await.code, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_differences_follow_the_status_and_hostile_texts_stay_texts() {
    let desk = Desk::new().await;
    desk.users.sync(NAMESPACE, "demo");
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": HOSTILE}});
    desk.users.world.create("v1", "configmaps", NAMESPACE, map);
    let settings = format!("ConfigMap {NAMESPACE}/settings");
    let status = json!({
        "failures": [{"object": HOSTILE, "reason": "ApplyFailed", "message": HOSTILE}], "held": [HOSTILE, format!("{settings}: {HOSTILE}")],
        "drifted": [{"object": settings, "fields": [HOSTILE], "who": HOSTILE, "since": "2026-01-01T00:00:00Z", "reason": "Report"}],
        "heldObjects": 30,
    });
    desk.status(SYNCS, "demo", &status);
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.open(&format!("{URL}/gitsync/{NAMESPACE}/demo/differences")).await;
    tab.shows("up to 28 more deviate").await;
    let strange =
        "document.querySelectorAll('script:not([src]), img, svg, iframe, [onerror], [onload], [style]').length";
    assert_eq!((tab.value(strange).await, tab.value("typeof window.ran").await), (json!(0), json!("undefined")));
    looks_right(&tab, "differences").await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    desk.status(SYNCS, "demo", &json!({"failures": null, "held": null, "drifted": null, "heldObjects": null}));
    tab.shows("Not known: the agent has not compared the objects yet.").await;
    // The agent has compared the objects, but their inventory is gone.
    let condition = json!({
        "type": "Drifted", "status": "False", "reason": "NoDrift", "message": "no drift",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    desk.status(SYNCS, "demo", &json!({"objects": 3, "conditions": [condition]}));
    tab.shows("No difference is known among the objects that were checked.").await;
    tab.shows(&format!("{NAMESPACE}/demo is missing, so its objects are not checked")).await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
