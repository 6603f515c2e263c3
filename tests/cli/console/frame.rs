//! The frame of each page, and the buttons that copy a text, in a browser.

use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    READS,
    pages::{Desk, SYNCS},
    users::{URL, Users},
};

/// Counts the texts that can be copied, and the buttons.
const BUTTONS: &str =
    "document.querySelectorAll('[data-copy]').length + ' ' + document.querySelectorAll('button.copy').length";
/// Stands for the clipboard of the machine.
const CLIPBOARD: &str = "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}}); true";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_button_copies_a_document_or_a_command_and_says_so() {
    let desk = Desk::new().await;
    desk.users.world.create("v1", "configmaps", NAMESPACE, map("settings"));
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.open(&format!("{URL}/object?kind=ConfigMap&namespace={NAMESPACE}&name=settings")).await;
    assert_eq!(tab.value(BUTTONS).await, "1 1");
    tab.value(CLIPBOARD).await;
    tab.click("button.copy", "Copy").await;
    tab.until("document.getElementById('copied').textContent === 'Copied: the YAML of the object'").await;
    assert_eq!(tab.value("window.copied === document.querySelector('#yaml ~ pre').textContent").await, true);
    assert_eq!(tab.value("document.getElementById('copied').getAttribute('role')").await, "status");
    // Without its script, the page has no button.
    let text = tab.value("fetch(location.href).then((answer) => answer.text())").await;
    assert!(!text.as_str().unwrap().contains("class=\"copy"), "{text}");

    // New content has its buttons, too.
    desk.users.sync(NAMESPACE, "demo");
    let paused = |name: &str| json!({"paused": [{"object": format!("ConfigMap {NAMESPACE}/{name}")}]});
    desk.status(SYNCS, "demo", &paused("settings"));
    tab.open(&format!("{URL}/gitsync/{NAMESPACE}/demo")).await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    desk.status(SYNCS, "demo", &paused("others"));
    tab.shows(&format!("mainstay resume ConfigMap others -n {NAMESPACE}")).await;
    assert_eq!(tab.value(BUTTONS).await, "1 1");
    tab.value(CLIPBOARD).await;
    tab.click("button.copy", "Copy").await;
    tab.until(&format!("window.copied === 'mainstay resume ConfigMap others -n {NAMESPACE}'")).await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pages_of_a_narrow_window_are_in_one_row() {
    let desk = Desk::new().await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    tab.look(360, "light").await;
    let links = "Array.from(document.querySelectorAll('header nav a'))";
    let rows = format!("new Set({links}.map((one) => one.getBoundingClientRect().top)).size");
    assert_eq!(tab.value(&rows).await, 1);
    let lines = format!("{links}.every((one) => one.getClientRects().length === 1)");
    assert_eq!(tab.value(&lines).await, true, "no label is broken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_names_its_cluster() {
    let users = Users::new().await;
    let name = "production: <b>west</b>";
    let console = users.console(&["--url", URL, "--cluster-name", name]).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let page = console.get("/", &reader).await.text;
    assert!(page.contains("production: &lt;b&gt;west") && !page.contains("<b>west"), "{page}");
    assert!(page.contains("<title>Fleet · production"), "{page}");
}
