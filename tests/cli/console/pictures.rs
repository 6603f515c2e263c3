//! The views of a cluster with a history, and the pictures of the book: `.ci/pictures` makes them again.

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use mainstay_testkit::world::{NAMESPACE, deployment};
use serde_json::{Value, json};

use super::{
    WRITES,
    chromium::Tab,
    pages::{Desk, FUNCTIONS, SYNCS, axe, sign_out},
    users::URL,
};

const COMMITS: [&str; 3] = [
    "5f0c2a91d8f34b7e9a6c1d2e3f405162738495a6",
    "a81be0c3475d6f1122334455667788990aabbccd",
    "03d7f3b1c5a9e8d7c6b5a49382716051403f2e1d",
];
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector:\n    app: web\n  ports:\n    - port: 80\n";
const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  currency: EUR\n";
const SOURCE: &str = "module.exports = { main: (event) => `Hello ${event.data}` };";

/// Returns the time so many minutes ago.
fn ago(minutes: i64) -> String {
    let time = Timestamp::now() - SignedDuration::from_mins(minutes);
    Timestamp::from_second(time.as_second()).unwrap().to_string()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, minutes: i64) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes)})
}

/// Returns a change of a field with both values as JSON, as a status has it.
fn change([field, found, restored]: [&str; 3]) -> Value {
    let json = |text: &str| text.parse::<u32>().map_or_else(|_| json!(text).to_string(), |number| number.to_string());
    json!({"field": field, "found": json(found), "restored": json(restored)})
}

fn revert(object: &str, who: &str, values: [&str; 3], minutes: i64, millis: i64) -> Value {
    json!({
        "object": object, "fields": [values[0]], "who": who, "when": ago(minutes), "latencyMs": millis,
        "changes": [change(values)],
    })
}

fn commit(at: usize, subject: &str, minutes: i64) -> Value {
    json!({
        "commit": COMMITS[at], "subject": subject, "reference": "refs/heads/main", "when": ago(minutes), "durationMs": 180,
        "created": at, "changed": 2 - at, "unchanged": 1, "pruned": 0, "author": "Ada Lovelace", "authoredAt": ago(minutes + 5),
    })
}

/// The status of a GitSync with hand edits of several people.
fn edited() -> Value {
    let web = format!("Deployment.apps {NAMESPACE}/web");
    let settings = format!("ConfigMap {NAMESPACE}/settings");
    let service = format!("Service {NAMESPACE}/web");
    json!({
        "appliedCommit": COMMITS[0], "attemptedCommit": COMMITS[0], "reverted": 6, "driftedObjects": 1, "history": [commit(0, "web: two replicas", 95), commit(1, "settings: prices in euros", 400)],
        "lastReverts": [
            revert(&web, "kubectl-scale", ["spec.replicas", "5", "2"], 22, 2),
            revert(&web, "alice", ["spec.template.spec.containers[name=web].image", "example.org/web:debug", "example.org/web:1"], 75, 3),
            revert(&service, "Lens", ["spec.ports[port=80].targetPort", "8081", "80"], 130, 2),
            revert(&settings, "alice", ["data.currency", "USD", "EUR"], 210, 1_140_000),
            revert(&web, "kubectl-scale", ["spec.replicas", "0", "2"], 300, 2),
            json!({"object": format!("Secret {NAMESPACE}/key"), "fields": ["data.password"], "who": "bob", "when": ago(340), "latencyMs": 3}),
        ],
        "drifted": [{
            "object": settings, "fields": ["data.currency"], "who": "bob", "since": ago(48), "reason": "Paused",
            "changes": [change(["data.currency", "GBP", "EUR"])],
        }],
        "paused": [{"object": settings, "until": ago(-60)}],
        "conditions": [
            condition("Ready", "True", "Applied", &format!("main@sha1:{}: 1 changed, 2 unchanged", COMMITS[0]), 95),
            condition("Healthy", "True", "Healthy", "3 objects are healthy", 94),
            condition("Drifted", "True", "Paused", &format!("{settings}: bob changed data.currency; its reconciliation is paused"), 48),
            condition("Contended", "False", "NotContended", "", 95),
        ],
    })
}

/// Makes GitSyncs and a Function in several states. No agent changes them.
fn neighbours(desk: &Desk) {
    let message = format!("main@sha1:{}: 12 unchanged", COMMITS[0]);
    let failed = format!("main@sha1:{}: Service {NAMESPACE}/payments: spec.clusterIP is immutable", COMMITS[1]);
    let contended =
        format!("horizontal-pod-autoscaler keeps writing to Deployment.apps {NAMESPACE}/search: spec.replicas");
    for (name, conditions) in [
        ("blog", vec![condition("Ready", "True", "Applied", &message, 900)]),
        ("monitoring", vec![condition("Ready", "True", "Applied", &message, 3000)]),
        ("payments", vec![condition("Ready", "False", "ApplyFailed", &failed, 12)]),
        ("platform", vec![condition("Ready", "Unknown", "Progressing", "2 of 40 objects are not healthy yet", 1)]),
        (
            "search",
            vec![
                condition("Ready", "True", "Applied", &message, 120),
                condition("Contended", "True", "Contended", &contended, 30),
            ],
        ),
        ("staging", vec![condition("Suspended", "True", "Suspended", "spec.suspend is set", 1500)]),
    ] {
        desk.users.sync(NAMESPACE, name);
        desk.status(
            SYNCS,
            name,
            &json!({"appliedCommit": COMMITS[0], "objects": 12, "healthy": 12, "conditions": conditions}),
        );
    }
    let function = json!({
        "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": "greeter"},
        "spec": {"runtime": "nodejs22", "source": SOURCE, "env": [{"name": "GREETING", "value": "Hello"}]},
    });
    desk.users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);
    let conditions =
        ["ConfigurationReady", "BuildReady", "Running"].map(|kind| condition(kind, "True", "Ready", "", 60));
    desk.status(FUNCTIONS, "greeter", &json!({"conditions": conditions}));
}

/// A cluster in which an agent has applied the GitSync `demo`, and in which people have edited its objects since.
async fn lived_in() -> Desk {
    let mut desk = Desk::new().await;
    let world = &mut desk.users.world;
    world.remote.file("apps/web.yaml", deployment("web", "example.org/web:1", 2)).file("apps/service.yaml", SERVICE);
    world.remote.file("apps/settings.yaml", MAP);
    world.remote.commit("web: two replicas");
    world.synced(json!({"baseDir": "apps", "drift": "Report"})).await;
    world.until("the pods are ready", |w| w.status("demo")["healthy"] == 3).await;
    world.stop().await;
    let pause = json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": ago(-60)});
    world.edit(
        "v1",
        "configmaps",
        "settings",
        json!({"metadata": {"annotations": pause}, "data": {"currency": "GBP"}}),
    );
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"drift": null}}));
    world.edit(
        FUNCTIONS.0,
        "gitrepositories",
        "repo",
        json!({"spec": {"url": "https://git.example.com/team/shop.git"}}),
    );
    desk.status(SYNCS, "demo", &edited());
    neighbours(&desk);
    desk
}

/// Asserts that a view fits and has no fault that axe-core finds. Writes its pictures for the book if they are wanted.
pub(super) async fn shows_well(tab: &Tab, name: &str) {
    let directory = std::env::var_os("MAINSTAY_PICTURES").map(PathBuf::from);
    for (size, width, height) in [("wide", 1280, 2000), ("narrow", 390, 2000)] {
        for theme in ["light", "dark"] {
            tab.look(width, theme).await;
            let wide = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
            assert_eq!(wide, 0, "{name} of {width} pixels is wider than its window");
            assert_eq!(tab.violations(&axe()).await, json!([]), "{name}, {width} pixels, {theme}");
            if let Some(directory) = &directory {
                tab.picture(&directory.join(format!("{name}-{size}-{theme}.webp")), height).await;
            }
        }
    }
}

/// Asserts that the edits of a selected field manager are shown alone.
async fn one_field_manager(tab: &Tab) {
    let select = "document.querySelector('[name=manager]')";
    assert_eq!(
        tab.value(&format!("Array.from({select}.options).map((one) => one.value).join()")).await,
        ",Lens,alice,bob,horizontal-pod-autoscaler,kubectl-scale"
    );
    tab.value(&format!("{select}.value = 'alice'")).await;
    tab.click("form.filter button", "Filter").await;
    tab.shows("2 edits").await;
    assert_eq!(tab.value("document.body.innerText.includes('Contended objects')").await, false);
    assert_eq!(tab.value(&format!("{select}.value")).await, "alice");
    let file = tab.value("document.querySelector('a[download]').search").await;
    assert_eq!(file, "?manager=alice");
    tab.click("form.filter a", "Clear").await;
    tab.shows("7 edits").await;
}

/// Asserts that the bars of the picture have texts and are links, also for the keyboard, and that its axis has times.
async fn bars_are_links(tab: &Tab) {
    let named = "Array.from(document.querySelectorAll('.marks a[aria-label]')).filter((one) => one.querySelector('rect title')).length";
    assert_eq!(tab.value(named).await, 7);
    assert_eq!(tab.value("document.querySelectorAll('.axis text').length > 0").await, true);
    let times = "document.querySelector('.axis').getAttribute('aria-label').startsWith('Times in UTC: ')";
    assert_eq!(tab.value(times).await, true);
    tab.value("document.querySelector('.marks a').focus()").await;
    assert_eq!(tab.value("document.activeElement === document.querySelector('.marks a')").await, true);
    tab.enter().await;
    tab.until("location.pathname === '/object'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_a_cluster_with_a_history_show_who_edited_what_and_how_long() {
    let desk = lived_in().await;
    let entrance = desk.chromium.tab().await;
    entrance.open(&format!("{URL}/drift")).await;
    shows_well(&entrance, "sign-in").await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    let sync = format!("{URL}/gitsync/{NAMESPACE}/demo");
    let object = format!("{URL}/object?kind=ConfigMap&namespace={NAMESPACE}&name=settings");
    let action = format!("{URL}/act?action=suspend&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo");
    for (name, url) in [
        ("fleet", &URL.to_owned()),
        ("drift", &format!("{URL}/drift")),
        ("gitsync", &sync),
        ("differences", &format!("{sync}/differences")),
        ("object", &object),
        ("function", &format!("{URL}/function/{NAMESPACE}/greeter")),
        ("action", &action),
        ("missing", &format!("{URL}/nowhere")),
    ] {
        tab.open(url).await;
        shows_well(&tab, name).await;
    }
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter/edit")).await;
    shows_well(&tab, "form").await;
    let changed = "document.querySelector('[name=source]').value = document.querySelector('[name=source]').value.replace('Hello', 'Welcome'); \
                   document.querySelector('[name=most]').value = '3'; window.isOld = true";
    tab.value(changed).await;
    tab.click("main button", "Review").await;
    tab.until("!window.isOld && document.readyState === 'complete'").await;
    tab.shows("The API server accepts the change (dry run).").await;
    shows_well(&tab, "review").await;
    let lanes =
        "Array.from(document.querySelectorAll('.marks')).map((one) => one.getAttribute('aria-label')).join('; ')";
    tab.open(&format!("{URL}/drift")).await;
    let all = tab.value(lanes).await;
    assert_eq!(
        all,
        "2 hand edits of alice, 0 remaining; 2 hand edits of bob, 1 remaining; 2 hand edits of kubectl-scale, 0 remaining; 1 hand edit of Lens, 0 remaining"
    );
    for text in [
        "horizontal-pod-autoscaler and Mainstay keep writing to spec.replicas",
        "reverted after 19 min",
        "data.currency: \"EUR\" → \"USD\"",
        "remains: Paused for ",
    ] {
        tab.shows(text).await;
    }
    let fought = "document.querySelector('.problems li a')";
    assert_eq!(tab.value(&format!("{fought}.innerText")).await, format!("Deployment.apps {NAMESPACE}/search"));
    assert_eq!(tab.value(&format!("new URL({fought}.href).pathname")).await, "/object");
    one_field_manager(&tab).await;
    // The mark of an edit is as long as it lasted.
    let widths = "Array.from(document.querySelectorAll('.mark.warn, .mark.good')).filter((one) => one.getAttribute('width') > 10).length";
    assert_eq!(tab.value(widths).await, 2);
    bars_are_links(&tab).await;
    tab.open(&sync).await;
    assert_eq!(tab.value(lanes).await, all);
    tab.open(&object).await;
    assert_eq!(tab.value(lanes).await, "1 hand edit of alice, 0 remaining; 1 hand edit of bob, 1 remaining");
    let html = tab.value("document.documentElement.outerHTML").await.as_str().unwrap().to_owned();
    assert!(!html.contains("style="), "{html}");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
    // The browser complains about the stream of a session that has ended.
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    sign_out(&tab).await;
    tab.until("document.getElementById('live').innerText === 'The session has ended'").await;
    shows_well(&tab, "ended").await;
}
