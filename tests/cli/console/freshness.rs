//! The mark of a page while the API server or the agent is away, in a browser.

use devcluster::fault_injection::Fault;
use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    READS,
    pages::{Desk, SYNCS},
    users::{RBAC, URL},
};

const LIVE: &str = "document.getElementById('live').innerText === 'Live'";

/// Returns whether the mark says that the page is old, for this reason.
fn old(why: &str) -> String {
    format!("/^Not live since .*: {why}/.test(document.getElementById('live').innerText)")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_not_live_while_the_api_server_does_not_respond_and_comes_back_by_itself() {
    let desk = Desk::new().await;
    desk.users.sync(NAMESPACE, "demo");
    let token = desk.users.account(NAMESPACE, "reader", READS);
    let (sync, fleet) = (desk.user(&token).await, desk.user(&token).await);
    sync.open(&format!("{URL}/gitsync/{NAMESPACE}/demo")).await;
    for tab in [&sync, &fleet] {
        tab.until(LIVE).await;
        tab.value("window.isSame = true").await;
    }
    // The open watches stay open, and bring nothing: only a request shows that the server is away.
    let faults = desk.users.world.server.embedded().faults();
    faults.fail_next(Fault { code: 503, times: u32::MAX, ..Fault::default() });
    for tab in [&sync, &fleet] {
        tab.until(&old("the API server does not respond")).await;
        assert_eq!(tab.value("document.getElementById('live').className").await, "live old");
    }
    // The content stays, and a page that is opened in the meantime says why it is not shown.
    sync.value("read().then(() => true)").await;
    sync.until("document.querySelector('h1').innerText.startsWith('GitSync demo')").await;
    sync.until(&old("the API server does not respond")).await;
    let late = &fleet;
    late.open(&format!("{URL}/gitsync/{NAMESPACE}/demo")).await;
    late.until("document.querySelector('h1').innerText.startsWith('GitSync.mainstay.dev')").await;
    late.value("window.isSame = true").await;

    faults.clear_faults();
    desk.status(SYNCS, "demo", &json!({"objects": 41}));
    for tab in [&sync, late] {
        tab.shows("41, 0 healthy").await;
        tab.until(LIVE).await;
        assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
    }
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_not_live_without_an_agent_for_a_user_who_may_read_the_lease() {
    let desk = Desk::new().await;
    desk.users.sync(NAMESPACE, "demo");
    let token = desk.users.account(NAMESPACE, "reader", READS);
    let home = "mainstay-system";
    if !desk.users.world.server.objects("v1", "namespaces", None).iter().any(|one| one["metadata"]["name"] == home) {
        desk.users.namespace(home);
    }
    let rules = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}]);
    let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "leases"}, "rules": rules});
    desk.users.world.create(RBAC, "roles", home, role);
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "leases"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "reader"}],
    });
    desk.users.world.create(RBAC, "rolebindings", home, binding);
    let spec = |renewed: &str| json!({"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": renewed});
    let lease = json!({"metadata": {"name": "mainstay"}, "spec": spec("2026-01-01T00:00:00.000000Z")});
    desk.users.world.create("coordination.k8s.io/v1", "leases", home, lease);

    let tab = desk.user(&token).await;
    tab.until(&old("no agent runs")).await;
    let stranger = desk.user(&desk.users.account(NAMESPACE, "stranger", READS)).await;
    stranger.until(LIVE).await;

    renew(&desk, home, &spec("2099-01-01T00:00:00.000000Z"));
    tab.until(LIVE).await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

fn renew(desk: &Desk, namespace: &str, spec: &Value) {
    use devcluster::{Action, Call, verbs::patch::Form};
    let patch = Action::Patch(Form::Merge, json!({"spec": spec}));
    desk.users.world.write_as("agent", Call::new("coordination.k8s.io/v1", "leases", namespace, "mainstay", patch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_whose_stream_has_failed_is_not_live_while_it_asks_why() {
    let desk = Desk::new().await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.until(LIVE).await;
    tab.value("window.isSame = true; window.own = window.fetch; true").await;
    // A path without a stream, and a server that does not respond to the question why there is none.
    let silent = "window.fetch = (url, options) => url.includes('/absent') \
                  ? new Promise((_, fail) => options.signal.addEventListener('abort', () => fail(options.signal.reason))) \
                  : window.own(url, options); main.dataset.live = '/absent'; listen(); true";
    tab.value(silent).await;
    tab.until("document.getElementById('live').innerText === 'Reconnecting'").await;
    // The question has a maximum time. The page is then read again, with the path of its stream.
    tab.until(LIVE).await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_without_a_stream_says_that_too_many_are_open_and_tries_again() {
    let desk = Desk::new().await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.until(LIVE).await;
    tab.value("window.isSame = true; window.own = window.fetch; window.live = main.dataset.live; true").await;
    // A path without a stream, and the response of a server that has no more streams.
    let full = "window.fetch = async () => ({status: 429}); main.dataset.live = '/absent'; listen(); true";
    tab.value(full).await;
    tab.until(&old("too many pages are open")).await;
    tab.until("refusals > 0").await;
    tab.value("window.fetch = window.own; main.dataset.live = window.live; true").await;
    tab.until(LIVE).await;
    assert_eq!(tab.value("[window.isSame, refusals]").await, json!([true, 0]));
}
