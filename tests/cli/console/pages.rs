//! The pages of `mainstay console` in a browser: layout, accessibility, scripts, actions, and sessions.

use std::{path::PathBuf, sync::Arc};

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::{tls::PrivateCa, world::NAMESPACE};
use serde_json::{Value, json};

use super::{
    FORM, READS, WRITES,
    chromium::{Chromium, Tab},
    users::{Console, URL, Users},
};

pub(super) const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
pub(super) const FUNCTIONS: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "functions");
/// A text that would run a script in each place of a page, and has no space to break at.
pub(super) const HOSTILE: &str =
    "\"'><script>window.ran=1</script><img/src=x/onerror=window.ran=1><svg/onload=window.ran=1>javascript:window.ran=1";
const WHEN: &str = "2026-01-01T00:00:00Z";

/// A cluster, its console over TLS, and a browser.
pub(super) struct Desk {
    pub(super) users: Users,
    pub(super) chromium: Arc<Chromium>,
    _console: Console,
    _certificate: tempfile::TempDir,
}

impl Desk {
    pub(super) async fn new() -> Self {
        Self::of(Users::new().await).await
    }

    pub(super) async fn of(users: Users) -> Self {
        let certificate = tempfile::tempdir().unwrap();
        let pair = PrivateCa::new().issue("console.example.com");
        std::fs::write(certificate.path().join("tls.crt"), &pair.certificate).unwrap();
        std::fs::write(certificate.path().join("tls.key"), &pair.key).unwrap();
        let directory = certificate.path().to_str().unwrap();
        let console = users.console(&["--url", URL, "--tls", directory]).await;
        let chromium = Chromium::start("console.example.com", &console.address).await;
        Self { users, chromium, _console: console, _certificate: certificate }
    }

    /// Opens a tab, and signs in by the form.
    pub(super) async fn user(&self, token: &str) -> Tab {
        let tab = self.chromium.tab().await;
        tab.open(URL).await;
        tab.shows("kubectl create token").await;
        tab.fill("token", token).await;
        tab.enter().await;
        tab.until("document.querySelector('h1')?.innerText === 'Fleet'").await;
        tab
    }

    pub(super) fn status(&self, (api_version, resource): (&str, &str), name: &str, status: &Value) {
        let patch = Action::Patch(Form::Merge, json!({"status": status}));
        self.users.world.write_as("test", Call::new(api_version, resource, NAMESPACE, name, patch).on("status"));
    }

    /// Creates objects in which every string is `text`.
    fn fill(&self, text: &str) {
        self.users.sync(NAMESPACE, "demo");
        let window = json!({"kind": "Deny", "schedule": text, "duration": "1h", "timeZone": text});
        self.users.world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"windows": [window]}}));
        let fight = format!("{text} keeps writing to Service shop/api: {text}");
        let status = json!({
            "appliedCommit": "a".repeat(40), "attemptedCommit": "b".repeat(40), "objects": 3, "healthy": 1, "failed": 1,
            "conditions": [condition("Ready", "False", "ApplyFailed", text), condition("Drifted", "True", "Paused", text),
                condition("Contended", "True", "Contended", &fight)],
            "failures": [{"object": format!("Service {NAMESPACE}/{text}"), "reason": "ApplyFailed", "message": text}],
            "held": [format!("ConfigMap {NAMESPACE}/{text}")], "heldObjects": 3,
            "frozen": {"commit": "c".repeat(40), "by": text},
            "paused": [{"object": "Deployment.apps shop/web", "until": text}],
            "lastReplacements": [{"object": text, "fields": [text], "uid": "u", "allowedBy": "Spec", "when": WHEN}],
            "lastDecisions": [{"object": text, "decided": "SlowedDown", "who": text, "times": 2, "when": WHEN}],
            "drifted": [{"object": "Service shop/api", "fields": [text], "who": text, "since": WHEN, "reason": "Paused"}],
            "lastReverts": [{
                "object": "Deployment.apps shop/web", "fields": ["spec.replicas"], "who": text, "when": WHEN, "latencyMs": 7,
                "changes": [{"field": "spec.replicas", "found": text, "restored": "2"}],
            }],
        });
        self.status(SYNCS, "demo", &status);
        let function = json!({
            "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": "greeter", "namespace": NAMESPACE},
            "spec": {"runtime": "nodejs22", "source": text, "env": [{"name": "A", "value": text}]},
        });
        self.users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);
        let failed = json!({"conditions": [condition("BuildReady", "False", "JobFailed", text)], "warnings": [text]});
        self.status(FUNCTIONS, "greeter", &failed);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "annotations": {"a": text}},
            "data": {"a": text, "long": "x".repeat(3000)},
        });
        self.users.world.create("v1", "configmaps", NAMESPACE, map);
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "settings"}, "type": "Warning", "reason": text,
            "message": text, "involvedObject": {"kind": "ConfigMap", "namespace": NAMESPACE, "name": "settings"},
        });
        self.users.world.create("v1", "events", NAMESPACE, event);
        let failed = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "demo"}, "type": "Warning", "reason": "Failed", "message": text,
            "lastTimestamp": WHEN, "involvedObject": {"kind": "GitSync", "namespace": NAMESPACE, "name": "demo"},
        });
        self.users.world.create("v1", "events", NAMESPACE, failed);
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": WHEN})
}

/// The views by name.
fn views() -> Vec<(&'static str, String)> {
    let sync = format!("group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo");
    vec![
        ("fleet", format!("{URL}/")),
        ("gitsync", format!("{URL}/gitsync/{NAMESPACE}/demo")),
        ("network", format!("{URL}/gitsync/{NAMESPACE}/demo/network")),
        ("function", format!("{URL}/function/{NAMESPACE}/greeter")),
        ("object", format!("{URL}/object?kind=ConfigMap&namespace={NAMESPACE}&name=settings")),
        ("call", format!("{URL}/function/{NAMESPACE}/greeter/call")),
        ("edit", format!("{URL}/function/{NAMESPACE}/greeter/edit")),
        ("create", format!("{URL}/create?namespace=elsewhere")),
        ("drift", format!("{URL}/drift")),
        ("question", format!("{URL}/act?action=allow-prune&{sync}")),
        ("suspend", format!("{URL}/act?action=suspend&{sync}")),
        ("sync", format!("{URL}/act?action=sync&{sync}")),
        ("sync-all", format!("{URL}/sync")),
        ("missing", format!("{URL}/nowhere")),
        ("absent", format!("{URL}/gitsync/{NAMESPACE}/absent")),
    ]
}

/// Ends the session of a tab, as another tab does that signs out.
pub(super) async fn sign_out(tab: &Tab) {
    let form = "new URLSearchParams(new FormData(document.querySelector('header form')))";
    tab.value(&format!("fetch('/sign-out', {{method: 'POST', body: {form}}}).then(() => true)")).await;
}

pub(super) fn axe() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/axe.min.js"))
}

/// Asserts that a view is as wide as its window in both themes, and that axe-core finds no violation.
pub(super) async fn looks_right(tab: &Tab, name: &str) {
    let pictures = std::env::var_os("MAINSTAY_PICTURES").map(PathBuf::from);
    for (width, theme) in
        [(360, "light"), (768, "dark"), (1070, "light"), (1280, "dark"), (1280, "light"), (2560, "light")]
    {
        tab.look(width, theme).await;
        let wide = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(wide, 0, "{name} of {width} pixels is wider than its window");
        if ![1070, 2560].contains(&width) {
            let violations = tab.violations(&axe()).await;
            assert_eq!(violations, json!([]), "{name}, {width} pixels, {theme}");
        }
        if let Some(directory) = &pictures {
            tab.picture(&directory.join(format!("{name}-{theme}-{width}.png")), 4000).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_view_fits_its_window_in_both_themes_and_for_screen_readers() {
    let desk = Desk::new().await;
    desk.fill("could not apply: the field spec.ports is immutable");
    let stranger = desk.chromium.tab().await;
    stranger.open(URL).await;
    looks_right(&stranger, "sign-in").await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    for (name, url) in views() {
        tab.open(&url).await;
        looks_right(&tab, name).await;
        assert_eq!(tab.value("document.querySelectorAll('header nav a').length").await, 4, "{name} has its navigation");
        let broken =
            "Array.from(document.querySelectorAll('.anchors a')).filter((a) => !document.querySelector(a.hash)).length";
        assert_eq!(tab.value(broken).await, 0, "{name}");
    }
    for (path, label) in [("", "Fleet"), ("/sources", "Sources"), ("/served", "APIs and events"), ("/drift", "Drift")] {
        tab.open(&format!("{URL}{path}")).await;
        assert_eq!(tab.value("document.querySelector('header [aria-current=page]')?.innerText").await, label);
    }
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_tenants_run_no_script_and_break_no_layout() {
    let desk = Desk::new().await;
    desk.fill(HOSTILE);
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let query: String = reqwest::Url::parse_with_params(URL, [("q", HOSTILE), ("label", HOSTILE)]).unwrap().into();
    let more = [("filter", query), ("of nobody", format!("{URL}/object?kind=%3Cscript%3E&name=%3Cscript%3E"))];
    for (name, url) in views().into_iter().chain(more) {
        tab.open(&url).await;
        let strange = "document.querySelectorAll('script:not([src]), img, svg:not(.marks, .axis), iframe, [onerror], [onload], [style]').length \
                       + Array.from(document.links).filter((link) => link.origin !== location.origin).length";
        assert_eq!(tab.value(strange).await, 0, "{name}");
        assert_eq!(tab.value("typeof window.ran").await, "undefined", "{name}");
        for width in [360, 1280] {
            tab.look(width, "light").await;
            let wide = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
            assert_eq!(wide, 0, "{name} of {width} pixels is wider than its window");
        }
    }
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new(), "a script of a text was blocked, or ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_users_act_side_by_side_and_see_changes_without_a_reload() {
    let desk = Desk::new().await;
    desk.fill("a text");
    let writer = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    let reader = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let page = format!("{URL}/gitsync/{NAMESPACE}/demo");
    for tab in [&writer, &reader] {
        tab.open(&page).await;
        tab.until("document.getElementById('live').innerText === 'Live'").await;
    }
    reader.shows("You may not change this object").await;
    assert_eq!(reader.value("document.querySelectorAll('a.button').length").await, 0);
    reader.value("window.isSame = true").await;

    writer.click("a.button", "Suspend").await;
    writer.shows("In the cluster ").await;
    let titled = "document.title.endsWith(` · ${document.querySelector('.cluster').lastChild.data} · Mainstay`)";
    assert_eq!(writer.value(titled).await, true);
    writer.fill("for", "1h").await;
    writer.click("button", "Suspend").await;
    writer.shows("Suspended.").await;
    assert!(desk.users.spec("demo")["suspendUntil"].is_string());
    reader.shows("Suspended until").await;
    assert_eq!(reader.value("window.isSame").await, true, "it was not loaded again");

    for (action, result) in [("Sync", "Requested."), ("Approve the held deletions", "Approved.")] {
        writer.open(&page).await;
        writer.click("a.button", action).await;
        writer.click("main button", action).await;
        writer.shows(result).await;
    }
    let live = desk.users.world.get(SYNCS.0, SYNCS.1, "demo").unwrap();
    let annotations = live["metadata"]["annotations"].to_string();
    assert!(annotations.contains(&"b".repeat(40)), "{annotations}");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_says_that_its_session_has_ended_and_a_link_of_another_site_opens_it_again() {
    let desk = Desk::new().await;
    desk.fill("a text");
    let token = desk.users.account(NAMESPACE, "reader", READS);
    let tab = desk.user(&token).await;
    let link = format!("data:text/html,<a href='{URL}/drift'>open</a>");
    tab.open(&link).await;
    tab.click("a", "open").await;
    tab.until("document.querySelector('h1')?.innerText === 'Drift'").await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;

    // The same user signs in with a separate session: a tab of the same browser would share the cookie.
    let other = desk.user(&token).await;
    desk.users.world.delete("v1", "serviceaccounts", "reader");
    desk.users.console(FORM).await.refuses(&token).await;
    other.open(&format!("{URL}/gitsync/{NAMESPACE}/demo")).await;
    other.shows("kubectl create token").await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    tab.shows("kubectl create token").await;

    // A page that is open in the meantime shows the end of the session by itself.
    let token = desk.users.account(NAMESPACE, "second", READS);
    let tab = desk.user(&token).await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    sign_out(&tab).await;
    tab.until("document.getElementById('live').innerText === 'The session has ended'").await;
    tab.click("header a", "Open again").await;
    tab.shows("kubectl create token").await;
}
