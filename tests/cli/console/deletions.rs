//! The deletion of Functions, GitRepositories and APIRules: the question, rights, GitSyncs, owners, and changes since the
//! question.

use mainstay_testkit::{definitions::of_stream, world::NAMESPACE};
use serde_json::{Value, json};

use super::{
    FORM, READS,
    functions::{EXPOSURE, RULES},
    owner,
    pages::{FUNCTIONS, HOSTILE},
    repositories::REPOSITORIES,
    users::{Console, Users},
};
use crate::page_answer::Answer;

const GROUP: &str = "serverless.kyma-project.io";

/// Returns the question about a deletion.
fn question(group: &str, kind: &str, name: &str) -> String {
    format!("/act?action=delete&group={group}&kind={kind}&namespace={NAMESPACE}&name={name}")
}

/// Answers a question.
async fn confirm(
    console: &Console,
    cookie: &str,
    (group, kind, name): (&str, &str, &str),
    (csrf, uid, version): (&str, &str, &str),
) -> Answer {
    let fields = [
        ("action", "delete"),
        ("group", group),
        ("kind", kind),
        ("namespace", NAMESPACE),
        ("name", name),
        ("csrf", csrf),
        ("uid", uid),
        ("version", version),
    ];
    console.post("/act", cookie, &fields).await
}

/// Asks the question about a deletion, and confirms it. Returns the question and the result.
async fn delete(console: &Console, cookie: &str, object: (&str, &str, &str)) -> (Answer, Answer) {
    let asked = console.get(&question(object.0, object.1, object.2), cookie).await;
    let [csrf, uid, version] = ["csrf", "uid", "version"].map(|field| asked.field(field));
    let result = confirm(console, cookie, object, (&csrf, &uid, &version)).await;
    (asked, result)
}

fn function(users: &Users, metadata: Value) -> Value {
    let spec = json!({"runtime": "nodejs22", "source": "module.exports = { main: () => 'one' }\n"});
    let object = json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": metadata, "spec": spec});
    users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_deleted_after_a_question_that_names_what_goes_with_it() {
    let users = Users::new().await;
    let uid = function(&users, json!({"name": "greeter"}))["metadata"]["uid"].clone();
    let labels = json!({"serverless.kyma-project.io/function-name": "greeter"});
    let reference = json!([{"apiVersion": FUNCTIONS.0, "kind": "Function", "name": "greeter", "uid": uid}]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "greeter", "labels": labels, "ownerReferences": reference},
        "spec": {"ports": [{"port": 80}], "selector": labels},
    });
    users.world.create("v1", "services", NAMESPACE, service);
    users.sync(NAMESPACE, "demo");
    users.world.define(of_stream("apirules.gateway.kyma-project.io", EXPOSURE));
    let strategies = json!([{"handler": "noop"}]);
    let spec = json!({
        "gateway": "kyma-gateway.kyma-system.svc.cluster.local",
        "service": {"name": "greeter", "port": 80, "host": "greeter.example.com"},
        "rules": [{"path": "/.*", "methods": ["GET"], "accessStrategies": strategies}],
    });
    let rule = json!({"apiVersion": RULES.0, "kind": "APIRule", "metadata": {"name": "greeter"}, "spec": spec});
    users.world.create(RULES.0, RULES.1, NAMESPACE, rule);
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;

    let page = console.get(&format!("/function/{NAMESPACE}/greeter"), &cookie).await.text;
    assert!(page.contains("/act?action=delete") && page.contains("/expose?namespace="), "{page}");
    let (asked, result) = delete(&console, &cookie, (GROUP, "Function", "greeter")).await;
    for part in ["Service greeter", "APIRule greeter", "no longer reach it", "Its image stays in the registry."] {
        assert!(asked.text.contains(part), "{part}: {}", asked.text);
    }
    assert!(result.code == 200 && result.text.contains("Deleted."), "{}", result.text);
    assert_eq!(users.world.get(FUNCTIONS.0, FUNCTIONS.1, "greeter"), None);

    let page = console.get(&format!("/gitrepository/{NAMESPACE}/repo"), &cookie).await.text;
    assert!(page.contains("/act?action=delete"), "{page}");
    let (asked, result) = delete(&console, &cookie, (GROUP, "GitRepository", "repo")).await;
    assert!(asked.text.contains("GitSync demo"), "{}", asked.text);
    assert_eq!(result.code, 200, "{}", result.text);
    assert_eq!(users.world.get(REPOSITORIES.0, REPOSITORIES.1, "repo"), None);

    let (asked, result) = delete(&console, &cookie, ("gateway.kyma-project.io", "APIRule", "greeter")).await;
    assert!(asked.text.contains("greeter.example.com"), "{}", asked.text);
    assert_eq!(result.code, 200, "{}", result.text);
    assert_eq!(users.world.get(RULES.0, RULES.1, "greeter"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_version_of_the_question_is_deleted_by_a_user_with_the_right() {
    let users = Users::new().await;
    function(&users, json!({"name": "greeter"}));
    let console = users.console(FORM).await;
    let (reader, owner) = (users.account(NAMESPACE, "reader", READS), owner(&users));
    let (reader, owner) = (console.sign_in(&reader).await, console.sign_in(&owner).await);
    let object = (GROUP, "Function", "greeter");
    let exists = || users.world.get(FUNCTIONS.0, FUNCTIONS.1, "greeter").is_some();

    let page = console.get(&format!("/function/{NAMESPACE}/greeter"), &reader).await.text;
    assert!(page.contains("You may not delete this object") && !page.contains("action=delete"), "{page}");
    let (asked, refused) = delete(&console, &reader, object).await;
    assert!(asked.text.contains("<button type=\"submit\" disabled>"), "{}", asked.text);
    assert!(refused.code == 409 && refused.text.contains("Nothing was deleted") && exists(), "{}", refused.text);

    let asked = console.get(&question(object.0, object.1, object.2), &owner).await;
    let [csrf, uid, version] = ["csrf", "uid", "version"].map(|field| asked.field(field));
    assert_eq!(confirm(&console, &owner, object, ("0", &uid, &version)).await.code, 403);
    for (uid, version) in [("", &*version), (&*uid, ""), ("", "")] {
        assert_eq!(confirm(&console, &owner, object, (&csrf, uid, version)).await.code, 422);
    }
    users.world.edit(FUNCTIONS.0, FUNCTIONS.1, "greeter", json!({"spec": {"minReplicas": 2}}));
    let late = confirm(&console, &owner, object, (&csrf, &uid, &version)).await;
    assert!(late.code == 409 && late.text.contains("has changed since the question") && exists(), "{}", late.text);
    // The page with the refusal asks again, about the present version.
    let version = late.field("version");
    let other = confirm(&console, &owner, object, (&csrf, "another-uid", &version)).await;
    assert!(other.code == 409 && exists(), "{}", other.text);
    assert_eq!(confirm(&console, &owner, object, (&csrf, &uid, &version)).await.code, 200);
    assert!(!exists());
    let again = confirm(&console, &owner, object, (&csrf, &uid, &version)).await;
    assert!(again.code == 200 && again.text.contains("already gone"), "{}", again.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_waits_names_the_finalizers() {
    let users = Users::new().await;
    function(&users, json!({"name": "greeter", "finalizers": ["example.com/wait"]}));
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let (_, result) = delete(&console, &cookie, (GROUP, "Function", "greeter")).await;
    assert!(result.code == 200 && result.text.contains("finalizers are removed: example.com/wait"), "{}", result.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_repository_or_of_an_owner_has_no_button() {
    let mut users = Users::new().await;
    let world = &mut users.world;
    let manifest = "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata:\n  name: kept\nspec:\n  runtime: nodejs22\n  source: one\n";
    world.remote.file("apps/kept.yaml", manifest);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "wait": false})).await;
    world.stop().await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let uid = users.world.create("v1", "configmaps", NAMESPACE, map)["metadata"]["uid"].clone();
    let controller = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true});
    let owned = function(&users, json!({"name": "owned", "ownerReferences": [controller]}));
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let csrf = console.get("/create", &cookie).await.field("csrf");

    let kept = users.world.get(FUNCTIONS.0, FUNCTIONS.1, "kept").unwrap();
    for (name, live, expected) in
        [("kept", &*kept, "git rm -- apps/kept.yaml"), ("owned", &owned, "controls this object and would recreate it")]
    {
        let page = console.get(&format!("/function/{NAMESPACE}/{name}"), &cookie).await.text;
        assert!(!page.contains(">Delete</a>"), "{page}");
        let asked = console.get(&question(GROUP, "Function", name), &cookie).await.text;
        assert!(asked.contains(expected) && !asked.contains("action=\"/act\""), "{asked}");
        // A forged form deletes nothing, either.
        let [uid, version] = ["uid", "resourceVersion"].map(|field| live["metadata"][field].as_str().unwrap());
        let forged = confirm(&console, &cookie, (GROUP, "Function", name), (&csrf, uid, version)).await;
        assert!(forged.code == 409 && forged.text.contains(expected), "{}", forged.text);
        assert!(users.world.get(FUNCTIONS.0, FUNCTIONS.1, name).is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_has_no_followers_only_if_all_lists_are_known() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let owner = console.sign_in(&owner(&users)).await;
    let rules = json!([{"apiGroups": [GROUP], "resources": ["gitrepositories"], "verbs": ["get", "list", "delete"]}]);
    let other = console.sign_in(&users.account_with(NAMESPACE, "other", &rules)).await;
    let none = "No GitSync, no Function and no ImageUpdateAutomation follows it.";
    let path = question(GROUP, "GitRepository", "repo");
    let text = console.get(&path, &owner).await.text;
    assert!(text.contains(none), "{text}");
    let text = console.get(&path, &other).await.text;
    for part in [
        "Not known: which objects follow it.",
        "you may not list gitsyncs.mainstay.dev",
        "you may not list functions.serverless.kyma-project.io",
        "you may not list imageupdateautomations.mainstay.dev",
    ] {
        assert!(text.contains(part) && !text.contains(none), "{part}: {text}");
    }
    let author = json!({"email": "robot@example.com"});
    let automation = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "ImageUpdateAutomation", "metadata": {"name": "robot"},
        "spec": {"sourceRef": {"kind": "GitRepository", "name": "repo"}, "git": {"commit": {"author": author}}},
    });
    users.world.create("mainstay.dev/v1alpha1", "imageupdateautomations", NAMESPACE, automation);
    let text = console.get(&path, &owner).await.text;
    assert!(text.contains("ImageUpdateAutomation robot</a>") && !text.contains(none), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_in_a_question_are_texts() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    for (kind, code) in [("Function", &[404, 400, 502][..]), (HOSTILE, &[400][..])] {
        let pairs =
            [("action", "delete"), ("group", GROUP), ("kind", kind), ("namespace", NAMESPACE), ("name", HOSTILE)];
        let url = reqwest::Url::parse_with_params("https://console.example.com/act", pairs).unwrap();
        let answer = console.get(&format!("/act?{}", url.query().unwrap()), &cookie).await;
        assert!(
            code.contains(&answer.code) && !answer.text.contains("<script>window"),
            "{}: {}",
            answer.code,
            answer.text
        );
    }
}
