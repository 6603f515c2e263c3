//! The forms that connect and change a GitRepository, and that expose a Service.

use mainstay_testkit::{definitions::of_stream, world::NAMESPACE};
use serde_json::{Value, json};

use super::{
    FORM, READS,
    chromium::Tab,
    functions::EXPOSURE,
    owner,
    pages::{Desk, HOSTILE, looks_right},
    repositories::REPOSITORIES,
    users::{Console, URL, Users},
};
use crate::page_answer::Answer;

const RULES: (&str, &str) = ("gateway.kyma-project.io/v1beta1", "apirules");
const REMOTE: &str = "https://git.example.com/team/shop.git";
const ACCEPTED: &str = "The API server accepts the change (dry run).";

/// Sends the fields of a form with a step, and with the reviewed change of an earlier page.
pub(super) async fn send(
    console: &Console,
    path: &str,
    cookie: &str,
    page: &Answer,
    step: &str,
    fields: &[(&str, &str)],
) -> Answer {
    let hidden = |name: &str| {
        if page.text.contains(&format!("name=\"{name}\" value=\"")) { page.field(name) } else { String::new() }
    };
    let [csrf, generation, reviewed] = ["csrf", "generation", "reviewed"].map(hidden);
    let own = [("csrf", &*csrf), ("generation", &*generation), ("reviewed", &*reviewed), ("step", step)];
    console.post(path, cookie, &[&own[..], fields].concat()).await
}

fn secret(users: &Users, name: &str) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"username": "ada", "password": "hunter2"},
    });
    users.world.create("v1", "secrets", NAMESPACE, secret);
}

fn spec(users: &Users, (api_version, plural): (&str, &str), name: &str) -> Value {
    users.world.get(api_version, plural, name).map(|live| live["spec"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_is_connected_and_changed_after_a_review() {
    let users = Users::new().await;
    secret(&users, "git-login");
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    for list in ["/", "/sources"] {
        assert!(console.get(list, &cookie).await.text.contains("href=\"/connect\""), "{list}");
    }
    let path = format!("/connect?namespace={NAMESPACE}");
    let form = console.get(&path, &cookie).await;
    assert!(form.text.contains("<option value=\"git-login\">") && !form.text.contains("hunter2"), "{}", form.text);

    let fields = |url, auth, secret| [("name", "shop"), ("url", url), ("auth", auth), ("secret", secret)];
    for (wrong, code, expected) in [
        (fields("", "public", ""), 422, "URL: write the address of the repository."),
        (fields(REMOTE, "basic", ""), 422, "Secret: "),
        // These are the messages of the agent.
        (fields(REMOTE, "key", "git-login"), 200, "spec.auth: "),
        (
            fields("https://ada:hunter2@git.example.com/shop", "public", ""),
            200,
            "the address holds a user name or password",
        ),
    ] {
        let answer = send(&console, &path, &cookie, &form, "review", &wrong).await;
        assert!(answer.code == code && answer.text.contains(expected), "{}: {}", answer.code, answer.text);
        let applied = send(&console, &path, &cookie, &answer, "apply", &wrong).await;
        assert_eq!(applied.code, if code == 200 { 409 } else { code }, "{}", applied.text);
        assert_eq!(spec(&users, REPOSITORIES, "shop"), Value::Null);
    }
    let wanted = fields(REMOTE, "basic", "git-login");
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert!(review.text.contains(ACCEPTED) && review.text.contains("kind: GitRepository"), "{}", review.text);
    assert_eq!(spec(&users, REPOSITORIES, "shop"), Value::Null, "nothing was written yet");
    let created = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(created.code == 200 && created.text.contains("Created: GitRepository shop"), "{}", created.text);
    let auth = json!({"type": "basic", "secretName": "git-login"});
    assert_eq!(spec(&users, REPOSITORIES, "shop"), json!({"url": REMOTE, "auth": auth}));

    // A field that the form has not stays.
    users.world.edit(REPOSITORIES.0, REPOSITORIES.1, "shop", json!({"spec": {"lfs": true}}));
    let path = format!("/gitrepository/{NAMESPACE}/shop/edit");
    let form = console.get(&path, &cookie).await;
    assert!(form.text.contains(&format!("value=\"{REMOTE}\"")), "{}", form.text);
    let wanted = fields("https://git.example.com/team/moved.git", "public", "");
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert!(review.text.contains(ACCEPTED) && review.text.contains("moved.git"), "{}", review.text);
    // A change since the review.
    users.world.edit(REPOSITORIES.0, REPOSITORIES.1, "shop", json!({"spec": {"submodules": true}}));
    let late = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(late.code == 409 && late.text.contains("differs from what was reviewed"), "{}", late.text);
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    let applied = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(applied.code == 200 && applied.text.contains("Applied: GitRepository shop"), "{}", applied.text);
    let expected = json!({"url": "https://git.example.com/team/moved.git", "lfs": true, "submodules": true});
    assert_eq!(spec(&users, REPOSITORIES, "shop"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_gets_a_manifest_and_no_names_of_secrets() {
    let users = Users::new().await;
    secret(&users, "git-login");
    let repository = json!({
        "apiVersion": REPOSITORIES.0, "kind": "GitRepository", "metadata": {"name": "shop"}, "spec": {"url": REMOTE},
    });
    users.world.create(REPOSITORIES.0, REPOSITORIES.1, NAMESPACE, repository);
    let console = users.console(FORM).await;
    let rules =
        json!([{"apiGroups": ["mainstay.dev", "serverless.kyma-project.io"], "resources": ["*"], "verbs": READS}]);
    let cookie = console.sign_in(&users.account_with(NAMESPACE, "reader", &rules)).await;
    let wanted = [("name", "other"), ("url", "https://git.example.com/other"), ("auth", "public"), ("secret", "")];
    for (path, verb) in [
        (format!("/connect?namespace={NAMESPACE}"), "create"),
        (format!("/gitrepository/{NAMESPACE}/shop/edit"), "patch"),
    ] {
        let form = console.get(&path, &cookie).await;
        assert!(
            form.text.contains(&format!("<code>{verb}</code>")) && !form.text.contains("git-login"),
            "{}",
            form.text
        );
        let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
        assert!(review.text.contains("The API server has not checked the change."), "{}", review.text);
        assert!(review.text.contains("aria-label=\"Manifest\""), "{}", review.text);
        assert_eq!(send(&console, &path, &cookie, &review, "apply", &wanted).await.code, 409);
    }
    assert_eq!(spec(&users, REPOSITORIES, "other"), Value::Null);
    assert_eq!(spec(&users, REPOSITORIES, "shop"), json!({"url": REMOTE}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_of_a_git_sync_gets_a_manifest_and_its_file() {
    let mut users = Users::new().await;
    let world = &mut users.world;
    let manifest = format!(
        "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: GitRepository\nmetadata:\n  name: kept\nspec:\n  url: {REMOTE}\n"
    );
    world.remote.file("apps/kept.yaml", manifest);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "wait": false})).await;
    world.stop().await;
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let path = format!("/gitrepository/{NAMESPACE}/kept/edit");
    let form = console.get(&path, &cookie).await;
    assert!(form.text.contains("manages this GitRepository") && form.text.contains("apps/kept.yaml"), "{}", form.text);
    let wanted = [("url", "https://git.example.com/moved"), ("auth", "public"), ("secret", "")];
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert!(review.text.contains("url: https://git.example.com/moved"), "{}", review.text);
    let forged = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(forged.code == 409 && forged.text.contains("A GitSync manages this GitRepository"), "{}", forged.text);
    assert_eq!(spec(&users, REPOSITORIES, "kept")["url"], REMOTE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_exposed_after_a_review() {
    let users = Users::new().await;
    users.world.define(of_stream("apirules.gateway.kyma-project.io", EXPOSURE));
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "greeter"},
        "spec": {"ports": [{"port": 8080}], "selector": {"app": "greeter"}},
    });
    users.world.create("v1", "services", NAMESPACE, service);
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&owner(&users)).await;
    let page = console.get(&format!("/object?kind=Service&namespace={NAMESPACE}&name=greeter"), &cookie).await.text;
    let path = format!("/expose?namespace={NAMESPACE}&service=greeter&port=8080");
    assert!(page.contains(&path.replace('&', "&amp;")), "{page}");
    let form = console.get(&path, &cookie).await;
    assert!(form.text.contains("name=\"port\" value=\"8080\""), "{}", form.text);
    let fields = |access, path, issuer| {
        [
            ("name", "greeter"),
            ("service", "greeter"),
            ("port", "8080"),
            ("gateway", "kyma-system/kyma-gateway"),
            ("host", "greeter.example.com"),
            ("path", path),
            ("method", "GET"),
            ("method", "POST"),
            ("access", access),
            ("issuer", issuer),
        ]
    };
    let issuer = "https://login.example.com";
    for (wrong, code, expected) in [
        (fields("", "/.*", ""), 422, "Access: select who reaches the Service."),
        (fields("jwt", "/.*", ""), 422, "Issuer: "),
        // This is the message of the agent.
        (fields("noop", "x|/.*", ""), 200, "not a path of this host"),
    ] {
        let answer = send(&console, &path, &cookie, &form, "review", &wrong).await;
        assert!(answer.code == code && answer.text.contains(expected), "{}: {}", answer.code, answer.text);
    }
    let wanted = fields("jwt", "/.*", issuer);
    let review = send(&console, &path, &cookie, &form, "review", &wanted).await;
    assert!(review.text.contains(ACCEPTED) && review.text.contains("a valid token of the issuer"), "{}", review.text);
    assert_eq!(spec(&users, RULES, "greeter"), Value::Null);
    let created = send(&console, &path, &cookie, &review, "apply", &wanted).await;
    assert!(created.code == 200 && created.text.contains("Created: APIRule greeter"), "{}", created.text);
    let strategies = json!([{"handler": "jwt", "config": {"trusted_issuers": [issuer]}}]);
    let rules = json!([{"path": "/.*", "methods": ["GET", "POST"], "accessStrategies": strategies}]);
    let expected = json!({
        "gateway": "kyma-system/kyma-gateway", "host": "greeter.example.com", "service": {"name": "greeter", "port": 8080},
        "rules": rules,
    });
    assert_eq!(spec(&users, RULES, "greeter"), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_forms_look_right_and_run_no_script_of_a_url() {
    let desk = Desk::new().await;
    desk.users.world.define(of_stream("apirules.gateway.kyma-project.io", EXPOSURE));
    secret(&desk.users, "git-login");
    let tab = desk.user(&owner(&desk.users)).await;
    tab.open(&format!("{URL}/connect?namespace={NAMESPACE}")).await;
    tab.until("document.querySelector('h1')?.innerText === 'Connect a repository'").await;
    looks_right(&tab, "connect").await;
    let hostile: String = reqwest::Url::parse_with_params(
        &format!("{URL}/expose"),
        [("namespace", HOSTILE), ("service", HOSTILE), ("port", HOSTILE)],
    )
    .unwrap()
    .into();
    tab.open(&hostile).await;
    tab.until("document.querySelector('h1')?.innerText === 'Expose a Service'").await;
    assert_eq!(tab.value("typeof window.ran").await, "undefined");
    tab.open(&format!("{URL}/expose?namespace={NAMESPACE}&service=greeter")).await;
    tab.until("document.querySelector('h1')?.innerText === 'Expose a Service'").await;
    looks_right(&tab, "expose").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

/// Whether a field of the form is hidden, as an expression.
fn is_hidden(name: &str) -> String {
    format!("(document.querySelector('form.function [name={name}]').offsetParent === null)")
}

/// Sets a field of the form, as a statement.
fn set(name: &str, value: &str) -> String {
    format!("document.querySelector('form.function [name={name}]').value = {};", json!(value))
}

/// The fields with which the browser does not send the form, as an expression.
const INVALID: &str =
    "Array.from(document.querySelectorAll('form.function input:invalid')).map((one) => one.name).join()";

async fn review(tab: &Tab) {
    tab.value("window.isOld = true").await;
    tab.click("main button", "Review").await;
    tab.until("!window.isOld && document.readyState === 'complete'").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_public_repository_has_no_field_for_a_secret_and_required_fields_are_marked() {
    let desk = Desk::new().await;
    secret(&desk.users, "git-login");
    let tab = desk.user(&owner(&desk.users)).await;
    tab.open(&format!("{URL}/connect?namespace={NAMESPACE}")).await;
    tab.until(&is_hidden("secret")).await;
    assert_eq!(tab.value(INVALID).await, "name,url");
    let label = "document.querySelector('[name=url]').labels[0].innerText.trim()";
    assert_eq!(tab.value(label).await, "URL (required)");
    tab.value(&set("auth", "basic")).await;
    tab.until(&format!("!{}", is_hidden("secret"))).await;
    looks_right(&tab, "connect-login").await;

    // A value that does not apply is not sent unseen.
    let fields = [set("name", "shop"), set("url", REMOTE), set("secret", "git-login"), set("auth", "public")];
    tab.value(&fields.concat()).await;
    assert_eq!((tab.value(&is_hidden("secret")).await, tab.value(INVALID).await), (json!(false), json!("")));
    review(&tab).await;
    tab.shows("Secret: a public repository needs none.").await;
    assert_eq!(tab.value(&is_hidden("secret")).await, false);
    tab.value(&set("secret", "")).await;
    tab.until(&is_hidden("secret")).await;
    review(&tab).await;
    tab.shows(ACCEPTED).await;
    assert_eq!(tab.value(&is_hidden("secret")).await, true);
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exposed_service_has_only_the_fields_of_its_access() {
    let desk = Desk::new().await;
    desk.users.world.define(of_stream("apirules.gateway.kyma-project.io", EXPOSURE));
    let tab = desk.user(&owner(&desk.users)).await;
    tab.open(&format!("{URL}/expose?namespace={NAMESPACE}&service=greeter")).await;
    tab.until(&is_hidden("issuer")).await;
    assert_eq!(tab.value(&is_hidden("method")).await, false);
    assert_eq!(tab.value(INVALID).await, "access,access,access");
    tab.click("label.choice", "requests with a token of an issuer").await;
    tab.until(&format!("!{} && !{}", is_hidden("issuer"), is_hidden("keys"))).await;
    looks_right(&tab, "expose-token").await;

    tab.value(&set("issuer", "https://login.example.com")).await;
    tab.click("label.choice", "everybody, with all methods").await;
    tab.until(&is_hidden("method")).await;
    assert_eq!((tab.value(&is_hidden("issuer")).await, tab.value(INVALID).await), (json!(false), json!("")));
    review(&tab).await;
    tab.shows("Issuer: only requests with a token have one.").await;
    assert_eq!(tab.value(&is_hidden("issuer")).await, false);
    tab.value(&set("issuer", "")).await;
    tab.until(&is_hidden("issuer")).await;
    // The server refuses a form without a method, so the user has to see the methods.
    tab.click("label.choice", "everybody, with the methods below").await;
    tab.until(&format!("!{}", is_hidden("method"))).await;
    // A method that is not the default is sent, so the user has to see it.
    tab.value("document.querySelector('[name=method][value=POST]').checked = true").await;
    tab.click("label.choice", "everybody, with all methods").await;
    assert_eq!(tab.value(&is_hidden("method")).await, false);
    tab.value("document.querySelectorAll('[name=method]').forEach((one) => { one.checked = false; })").await;
    assert_eq!(tab.value(&is_hidden("method")).await, false);
    review(&tab).await;
    tab.shows("Methods: select at least one.").await;
    assert_eq!(tab.value(&is_hidden("method")).await, false);
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}
