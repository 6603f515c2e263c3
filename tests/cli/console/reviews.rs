//! The review of a form: it is of one object, hides logins, and does not change an object that is not the user's to change.

use devcluster::fault_injection::Fault;
use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};

use super::{
    FORM,
    creations::send,
    owner,
    repositories::REPOSITORIES,
    trees::overseer,
    users::{Console, Users},
};

const URL: &str = "https://git.example.com/team/shop.git";

/// Creates a GitRepository with these metadata. Returns the path of its form.
fn repository(users: &Users, metadata: &Value, url: &str) -> String {
    let object =
        json!({"apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": metadata, "spec": {"url": url}});
    users.world.create(REPOSITORIES.0, REPOSITORIES.1, NAMESPACE, object);
    format!("/gitrepository/{NAMESPACE}/{}/edit", metadata["name"].as_str().unwrap())
}

fn url_of(users: &Users, name: &str) -> Value {
    users.world.get(REPOSITORIES.0, REPOSITORIES.1, name).map(|live| live["spec"]["url"].clone()).unwrap_or_default()
}

/// Sends a forged form. Returns the code and the page.
async fn forge(console: &Console, path: &str, cookie: &str) -> (u16, String) {
    let csrf = console.get("/connect", cookie).await.field("csrf");
    let fields = [("csrf", &*csrf), ("step", "apply"), ("url", "https://evil.example.com"), ("auth", "public")];
    let answer = console.post(path, cookie, &fields).await;
    (answer.code, answer.text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_is_not_of_an_object_that_was_created_again() {
    let users = Users::new().await;
    let metadata = json!({"name": "shop"});
    let path = repository(&users, &metadata, URL);
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let form = console.get(&path, &cookie).await;
    let wanted = [("url", "https://git.example.com/team/moved.git"), ("auth", "public"), ("secret", "")];
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert_eq!(review.code, 200, "{}", review.text);
    users.world.delete(REPOSITORIES.0, REPOSITORIES.1, "shop");
    repository(&users, &metadata, URL);
    let late = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(late.code == 409 && late.text.contains("differs from what was reviewed"), "{}", late.text);
    assert_eq!(url_of(&users, "shop"), URL);
    let review = send(&console, &path, &cookie, &review, "review", &wanted).await;
    assert!(review.text.contains("The object was changed meanwhile."), "{}", review.text);
    assert_eq!(send(&console, &path, &cookie, &review, "apply", &wanted).await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_hides_the_login_of_an_address() {
    let users = Users::new().await;
    let path = repository(&users, &json!({"name": "shop"}), "https://ada:hunter2@git.example.com/shop");
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let form = console.get(&path, &cookie).await;
    let hidden = "https://git.example.com/shop (login hidden)";
    assert!(form.text.contains("which is not shown") && !form.text.contains("name=\"keep\""), "{}", form.text);
    let clean = "https://git.example.com/shop";
    // A forged form keeps the address, which the agent would refuse.
    for (url, keep, is_hidden) in [("", "1", true), (URL, "", false), (clean, "", false)] {
        let wanted = [("url", url), ("keep", keep), ("auth", "basic"), ("secret", "login")];
        let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
        assert!(review.code == 200 && !review.text.contains("hunter2"), "{}", review.text);
        // The difference has the mark, too.
        assert!(review.text.contains(hidden), "{}", review.text);
        assert_eq!(review.text.contains("data-copy=\"the manifest\""), !is_hidden, "{}", review.text);
        assert_eq!(review.text.contains("name=\"step\" value=\"apply\""), !is_hidden, "{}", review.text);
        let applied =
            if url == clean { Some(send(&console, &path, &cookie, &review, "apply", &wanted).await) } else { None };
        assert!(applied.is_none_or(|applied| applied.code == 200), "{url}");
    }
    let live = users.world.get(REPOSITORIES.0, REPOSITORIES.1, "shop").unwrap();
    assert_eq!(live["spec"], json!({"url": clean, "auth": {"type": "basic", "secretName": "login"}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_change_is_not_written_and_shows_no_login() {
    let users = Users::new().await;
    let url = "https://hunter2@git.example.com/shop";
    let path = repository(&users, &json!({"name": "shop"}), url);
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let form = console.get(&path, &cookie).await;
    assert!(!form.text.contains("hunter2") && form.text.contains("name=\"keep\" value=\"1\" checked"), "{}", form.text);
    let wanted = [("url", ""), ("keep", "1"), ("auth", "basic"), ("secret", "login")];
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert!(review.code == 200 && review.text.contains("name=\"step\" value=\"apply\""), "{}", review.text);
    let faults = users.world.server.embedded().faults();
    let message = format!("Invalid value: {url}");
    let patch = Fault { verb: "patch".into(), resource: REPOSITORIES.1.into(), code: 422, message, ..Fault::default() };
    let dry_run = Fault { query: "dryRun".into(), ..patch.clone() };
    let passes = Fault { code: 0, ..dry_run.clone() };
    for (all, expected) in [
        (vec![dry_run], "The API server refuses the change in a dry run, so nothing was changed."),
        (vec![passes, patch], "Nothing was changed: the reason may contain the login in the address"),
    ] {
        for fault in all {
            faults.fail_next(fault);
        }
        let refused = send(&console, &path, &cookie, &review, "apply", &wanted).await;
        assert!(refused.code == 409 && refused.text.contains(expected), "{}: {}", refused.code, refused.text);
        assert!(!refused.text.contains("hunter2"), "{}", refused.text);
    }
    let live = users.world.get(REPOSITORIES.0, REPOSITORIES.1, "shop").unwrap();
    assert_eq!(live["spec"], json!({"url": url}));
    assert_eq!(send(&console, &path, &cookie, &review, "apply", &wanted).await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_controller_or_one_that_ends_is_not_changed() {
    let users = Users::new().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let uid = users.world.create("v1", "configmaps", NAMESPACE, map)["metadata"]["uid"].clone();
    let controller = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true});
    let owned = repository(&users, &json!({"name": "owned", "ownerReferences": [controller]}), URL);
    let ending = repository(&users, &json!({"name": "ending", "finalizers": ["example.com/wait"]}), URL);
    users.world.delete(REPOSITORIES.0, REPOSITORIES.1, "ending");
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    for (path, name, expected) in [
        (owned, "owned", "The ConfigMap owner controls it and would revert a change."),
        (ending, "ending", "It is being deleted."),
    ] {
        let form = console.get(&path, &cookie).await;
        assert!(form.code == 409 && form.text.contains(expected), "{}: {}", form.code, form.text);
        let (code, text) = forge(&console, &path, &cookie).await;
        assert!(code == 409 && text.contains(expected), "{code}: {text}");
        assert_eq!(url_of(&users, name), URL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_without_an_inventory_keeps_the_objects_with_its_label() {
    let users = Users::new().await;
    users.sync(NAMESPACE, "demo");
    let label = json!({"mainstay.dev/sync": format!("{NAMESPACE}.demo")});
    let path = repository(&users, &json!({"name": "shop", "labels": label}), URL);
    let console = users.console(FORM).await;
    // This user may read all inventories.
    let cookie = console.sign_in(&overseer(&users)).await;
    let missing = format!("the inventory of GitSync {NAMESPACE}/demo is missing");
    let form = console.get(&path, &cookie).await.text;
    assert!(form.contains("manages this GitRepository") && form.contains(&missing), "{form}");
    let (code, text) = forge(&console, &path, &cookie).await;
    assert!(code == 409 && text.contains("A GitSync manages this GitRepository"), "{code}: {text}");
    let question = format!(
        "/act?action=delete&group=serverless.kyma-project.io&kind=GitRepository&namespace={NAMESPACE}&name=shop"
    );
    let text = console.get(&question, &cookie).await.text;
    assert!(text.contains(&missing) && !text.contains("action=\"/act\""), "{text}");
}
