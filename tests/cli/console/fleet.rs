//! A fleet of 2 000 GitSyncs in a browser.

use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    READS,
    pages::{Desk, SYNCS, looks_right},
    users::URL,
};

/// Number of GitSyncs.
const SIZE: usize = 2000;

fn ready(status: &str) -> Value {
    let message = "main@sha1:5f0c2a91d8f34b7e9a6c1d2e3f405162738495a6: 12 unchanged";
    json!({"objects": 12, "healthy": 12, "conditions": [{
        "type": "Ready", "status": status, "reason": "Applied", "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_of_2000_git_syncs_is_paged_searched_and_follows_changes() {
    let desk = Desk::new().await;
    for number in 0..SIZE {
        let name = format!("sync-{number:04}");
        desk.users.sync(NAMESPACE, &name);
        desk.status(SYNCS, &name, &ready("True"));
    }
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let rows = "document.querySelectorAll('tbody tr').length";
    let first = "document.querySelector('tbody th')?.innerText";
    let fleet = format!("{URL}/?kind=GitSync");
    tab.open(&fleet).await;
    tab.shows("2000 objects").await;
    tab.shows("Page 1 of 20").await;
    assert_eq!((tab.value(rows).await, tab.value(first).await), (json!(100), json!(format!("{NAMESPACE}/sync-0000"))));
    looks_right(&tab, "large-fleet").await;
    tab.click("a", "Next").await;
    tab.shows("Page 2 of 20").await;
    assert_eq!(tab.value(first).await, format!("{NAMESPACE}/sync-0100"));

    // A change comes to the first place without a reload.
    tab.open(&fleet).await;
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    tab.value("document.querySelector('tbody th a').focus()").await;
    desk.status(SYNCS, "sync-1234", &ready("False"));
    tab.until(&format!("{first} === '{NAMESPACE}/sync-1234'")).await;
    let message = "document.querySelector('td[data-label=Message]').innerText";
    assert_eq!(tab.value(message).await, "Applied: 12 unchanged");
    assert_eq!(tab.value("document.activeElement.innerText").await, format!("{NAMESPACE}/sync-0000"));
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");

    // A search that was begun keeps its text and the focus, and the page follows changes.
    tab.fill("q", "sync-1999").await;
    desk.status(SYNCS, "sync-1111", &ready("False"));
    tab.until(&format!("{first} === '{NAMESPACE}/sync-1111'")).await;
    assert_eq!(tab.value("document.activeElement.value").await, "sync-1999");

    // Selected text stays until the user has copied it.
    tab.value("getSelection().selectAllChildren(document.querySelector('h1'))").await;
    tab.until("document.getElementById('live').innerText === 'Paused: text is selected'").await;
    desk.status(SYNCS, "sync-1000", &ready("False"));
    tab.until("isDirty && !isReading").await;
    assert_eq!(tab.value(first).await, format!("{NAMESPACE}/sync-1111"));
    tab.value("getSelection().removeAllRanges()").await;
    tab.until(&format!("{first} === '{NAMESPACE}/sync-1000'")).await;

    // Another form keeps the page as it is.
    tab.fill("in", "x").await;
    tab.until("document.getElementById('live').innerText === 'Paused: the form has your input'").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");

    tab.open(&fleet).await;
    tab.fill("q", "sync-1999").await;
    tab.enter().await;
    tab.shows("1 object").await;
    assert_eq!((tab.value(rows).await, tab.value(first).await), (json!(1), json!(format!("{NAMESPACE}/sync-1999"))));
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
