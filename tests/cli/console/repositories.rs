//! The page of a GitRepository, the commit on the page of a GitSync, and the filter of its tree, in a browser.

use mainstay_testkit::world::{NAMESPACE, config_map, deployment};
use serde_json::{Value, json};

use super::{
    READS, WRITES,
    chromium::Tab,
    pages::{Desk, FUNCTIONS, HOSTILE, SYNCS, looks_right},
    users::URL,
};

pub(super) const REPOSITORIES: (&str, &str) = ("serverless.kyma-project.io/v1alpha1", "gitrepositories");
const WHEN: &str = "2026-01-01T00:00:00Z";

pub(super) fn repository(desk: &Desk, name: &str, spec: Value) {
    let repository =
        json!({"apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": {"name": name}, "spec": spec});
    desk.users.world.create(REPOSITORIES.0, REPOSITORIES.1, NAMESPACE, repository);
}

/// Creates a GitSync that follows a repository, and has applied a commit to 13 objects. The author is also the name of a
/// Secret.
pub(super) fn sync(desk: &Desk, name: &str, repository: &str, author: &str) {
    let sync = json!({
        "apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": name},
        "spec": {"gitRepository": repository, "interval": "7m", "windows": [{"kind": "Allow", "schedule": "* * * * *", "duration": "2m"}]},
    });
    desk.users.world.create(SYNCS.0, SYNCS.1, NAMESPACE, sync);
    let commit = "a".repeat(40);
    let history = json!([{
        "commit": commit, "subject": "web: two replicas", "author": author, "authoredAt": WHEN, "when": WHEN, "durationMs": 7,
        "created": 12, "changed": 0, "unchanged": 0, "pruned": 1, "objects": [
            {"object": format!("Deployment.apps {NAMESPACE}/web"), "change": "Created"},
            {"object": format!("Secret {author}"), "change": "Pruned"},
        ],
    }]);
    desk.status(SYNCS, name, &json!({"appliedCommit": commit, "attemptedCommit": commit, "history": history}));
}

async fn html(tab: &Tab) -> String {
    tab.value("document.documentElement.outerHTML").await.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_repository_shows_its_address_without_a_login_its_keys_and_its_followers() {
    let desk = Desk::new().await;
    let auth = json!({"type": "basic", "secretName": "git-login"});
    let url = "https://user:hunter2@github.com/team/shop.git?token=hunter2";
    repository(&desk, "shop", json!({"url": url, "auth": auth}));
    let key = json!({"host": "git.example.com", "key": "ssh-ed25519 AAAA", "fingerprint": "SHA256:abc (ED25519)", "pinnedAt": WHEN});
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "AuthenticationFailed", "message": "the server refused the password",
        "lastTransitionTime": WHEN,
    });
    let status =
        json!({"lastLookup": WHEN, "revision": "main@sha1:0123", "pinnedHostKeys": [key], "conditions": [ready]});
    desk.status(REPOSITORIES, "shop", &status);
    sync(&desk, "linked", "shop", "Ada Lovelace");
    sync(&desk, "other", "absent", "Ada Lovelace");
    let function = json!({
        "apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": "greeter"},
        "spec": {"runtime": "nodejs22", "type": "git", "source": "shop", "baseDir": "/", "reference": "main"},
    });
    desk.users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);

    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    // The GitSync and its repository in the fleet.
    let lookups = "Array.from(document.querySelectorAll('[data-label=\"Next lookup\"]')).filter((one) => one.innerText.includes('within 8m')).map((one) => one.parentElement.children[2].innerText).sort().join()";
    tab.until(&format!("{lookups} === '{NAMESPACE}/linked,{NAMESPACE}/other,{NAMESPACE}/shop'")).await;
    tab.click("tbody a", &format!("{NAMESPACE}/shop")).await;
    tab.until("document.querySelector('h1')?.innerText.startsWith('GitRepository shop')").await;
    for text in [
        "https://github.com/team/shop.git",
        "basic, Secret git-login",
        "SHA256:abc (ED25519)",
        "Pinned for git.example.com",
        "the server refused the password",
        "within 8m, or at a push",
        "linked",
        "greeter",
    ] {
        tab.shows(text).await;
    }
    let page = html(&tab).await;
    assert!(!page.contains("hunter2") && !page.contains(">other<"), "{page}");
    looks_right(&tab, "gitrepository").await;

    // The page follows its object without a reload.
    tab.until("document.getElementById('live').innerText === 'Live'").await;
    tab.value("window.isSame = true").await;
    desk.status(REPOSITORIES, "shop", &json!({"revision": "main@sha1:4567"}));
    tab.shows("main@sha1:4567").await;
    assert_eq!(tab.value("window.isSame").await, true, "it was not loaded again");

    tab.shows("You may not change this object").await;
    let buttons = "Array.from(document.querySelectorAll('a.button')).map((one) => one.innerText).join()";
    assert_eq!(tab.value(buttons).await, "Edit", "the form writes a manifest to copy");

    tab.click("tbody a", "linked").await;
    tab.shows("web: two replicas by Ada Lovelace").await;
    for text in [
        "Open: new commits are applied now.",
        "Allow: new commits are applied while it is active",
        "active until ",
        "UTC",
    ] {
        tab.shows(text).await;
    }
    tab.shows("within 8m, or at a push").await;
    let link = "document.querySelector('.facts a[rel]')";
    let page = format!("https://github.com/team/shop/commit/{}", "a".repeat(40));
    assert_eq!(tab.value(&format!("{link}.href + ' ' + {link}.rel")).await, format!("{page} noopener noreferrer"));
    let history = "Array.from(document.querySelectorAll('.timeline a[rel]')).map((one) => one.href).join()";
    assert_eq!(tab.value(history).await, page, "the commit of the history");
    tab.shows("12 created, 0 changed, 0 unchanged, 1 pruned").await;
    let list = "document.querySelector('.timeline details')";
    assert_eq!(tab.value(&format!("{list}.open")).await, false);
    tab.click(".timeline summary", "Changed objects").await;
    tab.shows("created Deployment.apps").await;
    let text = tab.value(&format!("{list}.querySelector('ul').innerText")).await;
    let lines: Vec<&str> = text.as_str().unwrap().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let web = format!("created Deployment.apps {NAMESPACE}/web");
    // A name that is not one of an object has no link.
    assert_eq!(lines, [&*web, "pruned Secret Ada Lovelace", "and 11 more"]);
    let links = format!("Array.from({list}.querySelectorAll('a')).map((one) => one.pathname + one.search).join()");
    let address = format!("/object?group=apps&kind=Deployment&namespace={NAMESPACE}&name=web");
    assert_eq!(tab.value(&links).await, address);
    looks_right(&tab, "gitsync-objects").await;
    let page = html(&tab).await;
    assert!(!page.contains("hunter2") && page.contains(&format!("git revert --no-edit {}", "a".repeat(40))), "{page}");
    tab.click(".facts a", "shop").await;
    tab.until("document.querySelector('h1')?.innerText.startsWith('GitRepository shop')").await;

    let writer = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    writer.open(&format!("{URL}/gitrepository/{NAMESPACE}/shop")).await;
    writer.click("a.button", "Look up now").await;
    writer.shows("without waiting for the interval").await;
    writer.click("main button", "Look up now").await;
    writer.shows("Requested.").await;
    let live = desk.users.world.get(REPOSITORIES.0, REPOSITORIES.1, "shop").unwrap();
    assert!(live["metadata"]["annotations"]["mainstay.dev/requestedAt"].is_string(), "{live}");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_repository_runs_no_script_and_leads_nowhere() {
    let desk = Desk::new().await;
    repository(
        &desk,
        "shop",
        json!({"url": format!("https://github.com/team/{HOSTILE}"), "auth": {"type": "basic", "secretName": HOSTILE}}),
    );
    let key = json!({"host": HOSTILE, "key": HOSTILE, "fingerprint": HOSTILE, "pinnedAt": WHEN});
    desk.status(REPOSITORIES, "shop", &json!({"revision": HOSTILE, "hostKey": HOSTILE, "pinnedHostKeys": [key]}));
    sync(&desk, "linked", "shop", HOSTILE);
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let query: String = reqwest::Url::parse_with_params(
        &format!("{URL}/gitsync/{NAMESPACE}/linked"),
        [("q", HOSTILE), ("kind", HOSTILE), ("health", HOSTILE)],
    )
    .unwrap()
    .into();
    for url in [format!("{URL}/gitrepository/{NAMESPACE}/shop"), query] {
        tab.open(&url).await;
        tab.value("document.querySelectorAll('details').forEach((one) => { one.open = true; })").await;
        let strange = "document.querySelectorAll('script:not([src]), img, svg:not(.marks, .axis), [onerror], [style]').length \
                       + Array.from(document.links).filter((link) => link.origin !== location.origin).length";
        assert_eq!(tab.value(strange).await, 0, "{url}");
        assert_eq!(tab.value("typeof window.ran").await, "undefined", "{url}");
        for width in [360, 1280] {
            tab.look(width, "light").await;
            let wide = tab.value("document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
            assert_eq!(wide, 0, "{url} of {width} pixels is wider than its window");
        }
    }
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_of_2000_objects_is_filtered_and_opened_with_the_keyboard() {
    let mut desk = Desk::new().await;
    let world = &mut desk.users.world;
    let maps: Vec<String> = (1..2000).map(|number| config_map(&format!("map-{number:04}"), "x")).collect();
    world
        .remote
        .file("apps/maps.yaml", maps.join("---\n"))
        .file("apps/web.yaml", deployment("web", "example.org/web:1", 2));
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "reader", READS)).await;
    let page = format!("{URL}/gitsync/{NAMESPACE}/demo");
    tab.open(&page).await;
    let rows = "document.querySelectorAll('.tree > li').length";
    assert_eq!(tab.value(rows).await, 2000);
    tab.shows(" old").await;
    tab.shows("one by ").await;

    tab.fill("q", "MAP-1234").await;
    tab.enter().await;
    tab.shows("1 of 20").await;
    assert_eq!(tab.value(rows).await, 1);
    tab.open(&format!("{page}?kind=Pod")).await;
    tab.shows("2 of 20").await;
    tab.until("document.querySelector('.tree details').open").await;
    assert_eq!(tab.value(rows).await, 1, "the Deployment of the pods");
    tab.value("document.querySelector('.tree summary').focus()").await;
    tab.enter().await;
    tab.until("!document.querySelector('.tree details').open").await;
    tab.enter().await;
    tab.until("document.querySelector('.tree details').open").await;
    looks_right(&tab, "tree").await;
    tab.open(&format!("{page}?health=failed")).await;
    tab.shows("0 of 20").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
