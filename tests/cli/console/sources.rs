//! The page of sources, images, Providers and Alerts, whose kinds are watched while it is open, in a browser.

use mainstay_testkit::world::NAMESPACE;
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    FORM, READS, WRITES,
    chromium::Tab,
    pages::{Desk, HOSTILE, looks_right},
    users::{ELSEWHERE, URL, Users},
};

const GROUP: &str = "mainstay.dev/v1alpha1";
const WHEN: &str = "2026-01-01T00:00:00Z";
const PAGE: &str = "/sources";

/// Creates an object with a `Ready` condition that is False.
fn create(desk: &Desk, (kind, resource): (&str, &str), name: &str, spec: Value, (reason, message): (&str, &str)) {
    let object = json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec});
    desk.users.world.create(GROUP, resource, NAMESPACE, object);
    let ready =
        json!({"type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": WHEN});
    desk.status((GROUP, resource), name, &json!({"conditions": [ready]}));
}

/// Makes the OCIRepository fail again, after it was ready.
fn fails_again(desk: &Desk) {
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "ArtifactFailed", "message": "the registry refuses the login",
        "lastTransitionTime": WHEN,
    });
    desk.status((GROUP, "ocirepositories"), "shop", &json!({"conditions": [ready]}));
}

/// Creates an OCIRepository that fails with this message, and an Alert that is suspended.
pub(super) fn fill(desk: &Desk, message: &str) {
    let url = json!({"url": "oci://registry.example.com/team/shop"});
    create(desk, ("OCIRepository", "ocirepositories"), "shop", url, ("ArtifactFailed", message));
    let artifact = json!({
        "revision": "v1.2.3@sha256:0123", "digest": "sha256:0123", "commit": "a".repeat(40), "lastUpdateTime": WHEN,
    });
    desk.status((GROUP, "ocirepositories"), "shop", &json!({"artifact": artifact}));
    let alert = json!({
        "providerRef": {"name": "chat"}, "eventSources": [{"kind": "GitSync", "name": "demo"}], "suspend": true,
    });
    create(desk, ("Alert", "alerts"), "quiet", alert, ("Suspended", "suspended: nothing is sent"));
}

/// Asserts that an open list follows a new object, a change and a deletion without a reload.
async fn follows_changes(desk: &Desk, tab: &Tab) {
    tab.open(&format!("{URL}{PAGE}")).await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    let policy = json!({"imageRepositoryRef": {"name": "web"}, "policy": {"semver": {"range": "1.x"}}});
    create(desk, ("ImagePolicy", "imagepolicies"), "newest", policy, ("ImageFailed", "no tag is in the range"));
    tab.shows("no tag is in the range").await;
    tab.shows("3 objects").await;
    let ready = json!({"type": "Ready", "status": "True", "reason": "Fetched", "message": "stored", "lastTransitionTime": WHEN});
    desk.status((GROUP, "ocirepositories"), "shop", &json!({"conditions": [ready]}));
    tab.until("document.body.innerText.includes('Fetched: stored')").await;
    desk.users.world.delete(GROUP, "imagepolicies", "newest");
    tab.shows("2 objects").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
}

/// Performs an action of an object's page, whose question has this text.
async fn act(tab: &Tab, (kind, name): (&str, &str), action: &str, question: &str) {
    tab.open(&format!("{URL}/object?group=mainstay.dev&kind={kind}&namespace={NAMESPACE}&name={name}")).await;
    tab.click("a.button", action).await;
    tab.until("Boolean(document.querySelector('form.confirm'))").await;
    tab.shows(question).await;
    tab.click("main button", action).await;
    tab.until("Boolean(document.querySelector('main [role=status]'))").await;
}

/// Asserts that the objects have the actions of their kinds.
async fn actions(desk: &Desk) {
    let receiver = json!({"type": "generic", "secretRef": {"name": "token"}});
    let object = json!({"apiVersion": GROUP, "kind": "Receiver", "metadata": {"name": "pushes"}, "spec": receiver});
    desk.users.world.create(GROUP, "receivers", NAMESPACE, object);
    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    let is_suspended = |resource: &str, name: &str| {
        desk.users.world.get(GROUP, resource, name).unwrap()["spec"]["suspend"].as_bool().unwrap_or(false)
    };
    act(&tab, ("Receiver", "pushes"), "Suspend", "refuses all deliveries with the status 503").await;
    assert!(is_suspended("receivers", "pushes"));
    act(&tab, ("Receiver", "pushes"), "Resume", "accepts deliveries again").await;
    assert!(!is_suspended("receivers", "pushes"));
    act(&tab, ("Alert", "quiet"), "Resume", "sends messages for this Alert again").await;
    assert!(!is_suspended("alerts", "quiet"));
    act(&tab, ("OCIRepository", "shop"), "Look up now", "without waiting for the interval").await;
    let shop = desk.users.world.get(GROUP, "ocirepositories", "shop").unwrap();
    assert!(shop["metadata"]["annotations"]["mainstay.dev/requestedAt"].is_string(), "{shop}");
    act(&tab, ("OCIRepository", "shop"), "Suspend", "The last artifact stays.").await;
    assert!(is_suspended("ocirepositories", "shop"));
    // A suspended source is not looked up.
    tab.open(&format!("{URL}/object?group=mainstay.dev&kind=OCIRepository&namespace={NAMESPACE}&name=shop")).await;
    let buttons = "Array.from(document.querySelectorAll('a.button')).map((one) => one.innerText).join()";
    assert_eq!(tab.value(buttons).await, "Resume");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_and_alerts_show_their_state_and_lead_to_their_conditions() {
    let desk = Desk::new().await;
    fill(&desk, "the registry refuses the login");
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.click("header a", "Sources").await;
    tab.until("document.querySelector('h1')?.innerText === 'Sources, images and alerts'").await;
    // The failed one is first. The states are those of the chips, too.
    let rows = "Array.from(document.querySelectorAll('tbody tr')).map((row) => row.children[0].innerText.trim().split(' ').pop() + ' ' \
                + row.children[1].innerText).join()";
    assert_eq!(tab.value(rows).await, "Failed OCIRepository,Suspended Alert");
    for text in ["the registry refuses the login", "v1.2.3", "2 objects", "you may not list them in all namespaces"] {
        tab.shows(text).await;
    }
    looks_right(&tab, "sources").await;
    follows_changes(&desk, &tab).await;
    fails_again(&desk);

    tab.open(&format!("{URL}{PAGE}?kind=Alert")).await;
    tab.shows("1 object").await;
    assert_eq!(tab.value(rows).await, "Suspended Alert");
    tab.click("form.filter a", "Clear").await;
    tab.until(&format!("location.pathname === '{PAGE}' && location.search === ''")).await;
    tab.click("tbody a", &format!("{NAMESPACE}/shop")).await;
    tab.shows("ArtifactFailed").await;
    tab.shows("oci://registry.example.com/team/shop").await;
    tab.shows("You may not change this object").await;
    // The page has the state of the list, and leads back to the list.
    assert_eq!(tab.value("document.querySelector('h1 .state').innerText.trim().split(' ').pop()").await, "Failed");
    let place = "Array.from(document.querySelectorAll('nav[aria-label=Place] a')).map((one) => one.pathname + one.search).join()";
    assert_eq!(tab.value(place).await, format!("{PAGE},{PAGE}?namespace={NAMESPACE}"));
    let text = tab.value("document.body.innerText").await.as_str().unwrap().to_owned();
    assert!(!text.contains("What happens next"), "{text}");
    assert_eq!(tab.value("document.querySelectorAll('a.button').length").await, 0);
    actions(&desk).await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_source_runs_no_script_and_is_not_shown_to_strangers() {
    let desk = Desk::new().await;
    desk.users.namespace(ELSEWHERE);
    fill(&desk, HOSTILE);
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.open(&format!("{URL}{PAGE}")).await;
    tab.shows("2 objects").await;
    let strange = "document.querySelectorAll('script:not([src]), img, svg, iframe, [onerror], [style]').length";
    assert_eq!(tab.value(strange).await, 0);
    assert_eq!(tab.value("typeof window.ran").await, "undefined");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());

    let stranger = desk.user(&desk.users.account(ELSEWHERE, "stranger", READS)).await;
    stranger.open(&format!("{URL}{PAGE}")).await;
    stranger.shows("0 objects").await;
    stranger.shows("OCIRepository objects cannot be read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_of_a_namespace_do_not_take_the_live_lists_of_others() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    let spec = json!({"url": "oci://registry.example.com/team/shop"});
    let source = json!({"apiVersion": GROUP, "kind": "OCIRepository", "metadata": {"name": "shop"}, "spec": spec});
    users.world.create(GROUP, "ocirepositories", NAMESPACE, source);
    let token = users.account(NAMESPACE, "reader", READS);
    let console = users.console(FORM).await;
    // Each open stream keeps the watches of its list.
    let (mut open, mut refused) = (Vec::new(), String::new());
    while refused.is_empty() && open.len() < 10 {
        let cookie = console.sign_in(&token).await;
        for list in ["sources", "served"] {
            let request = console.request(Method::GET, &format!("/events?list={list}")).header("cookie", &cookie);
            let answer = request.send().await.unwrap();
            if answer.status().as_u16() == 429 {
                refused.clone_from(&cookie);
            } else {
                assert_eq!(answer.status().as_u16(), 200);
                open.push(answer);
            }
        }
    }
    assert_eq!(open.len(), 8, "four sessions follow both lists");
    let page = console.get(PAGE, &refused).await.text;
    assert!(page.contains("does not follow changes") && page.contains("name=shop"), "{page}");
    let other = console.sign_in(&users.account(ELSEWHERE, "reader", READS)).await;
    let page = console.get(PAGE, &other).await.text;
    assert!(!page.contains("does not follow changes"), "{page}");
}
