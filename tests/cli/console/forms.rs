//! The forms that change and create Functions: review, rights, GitSyncs, and requests that are not of the form.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::world::NAMESPACE;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{
    FORM, READS, WRITES,
    functions::function,
    pages::{Desk, FUNCTIONS, looks_right},
    users::{ELSEWHERE, URL, Users},
};

/// The verbs of a user who also creates.
const CREATES: &[&str] = &["get", "list", "watch", "patch", "create"];

fn spec() -> Value {
    let env =
        json!([{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]);
    json!({"runtime": "nodejs22", "source": "module.exports = { main: () => 'one' }\n", "env": env})
}

fn live(users: &Users, name: &str) -> Value {
    users.world.get(FUNCTIONS.0, FUNCTIONS.1, name).map(|live| (*live).clone()).unwrap_or_default()
}

fn edit_of(name: &str) -> String {
    format!("/function/{NAMESPACE}/{name}/edit")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_edited_after_a_review_of_the_difference_and_of_the_build() {
    let desk = Desk::new().await;
    function(&desk, "greeter", spec());
    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    tab.click("a.button", "Edit").await;
    tab.until("document.querySelector('h1')?.innerText === 'Edit the Function greeter'").await;
    looks_right(&tab, "edit").await;
    let set =
        |selector: &str, value: &str| format!("document.querySelector({}).value = {};", json!(selector), json!(value));
    let press = async |text: &str| {
        tab.value("window.isOld = true").await;
        tab.click("main button", text).await;
        tab.until("!window.isOld && document.readyState === 'complete'").await;
    };
    press("Review").await;
    tab.shows("Nothing changes.").await;
    tab.click("summary", "CPU, memory, Secrets as files, and labels of the pods").await;
    let pods = [
        ("[name=request-cpu]", "50m"),
        ("[name=limit-memory]", "128Mi"),
        ("[name=mount-secret]", "tls"),
        ("[name=mount-directory]", "/etc/tls"),
        ("[name=labels]", "team=web"),
    ];
    tab.value(&pods.map(|(field, value)| set(field, value)).concat()).await;
    tab.value(&[set("[name=env-value]", "two\nlines"), set("[name=most]", "3")].concat()).await;
    press("Review").await;
    tab.shows("No image is built").await;
    tab.value(&set("[name=source]", "module.exports = { main: () => 'two' }\n")).await;
    press("Review").await;
    tab.shows("The image is rebuilt, because this changes: the code.").await;
    tab.shows("The API server accepts the change (dry run).").await;
    let lines = tab.value("document.querySelector('pre.lines').innerText").await.as_str().unwrap().to_owned();
    assert!(
        lines.contains("− ") && lines.contains("'one'") && lines.contains("'two'") && lines.contains("maxReplicas: 3"),
        "{lines}"
    );
    assert_eq!(live(&desk.users, "greeter")["spec"]["source"], spec()["source"], "nothing was written yet");
    looks_right(&tab, "review").await;
    press("Apply").await;
    tab.shows("Applied: Function greeter").await;
    let written = live(&desk.users, "greeter");
    assert_eq!(written["spec"]["source"], "module.exports = { main: () => 'two' }\n");
    assert_eq!(written["spec"]["env"], json!([{"name": "A", "value": "two\nlines"}, spec()["env"][1]]));
    assert_eq!(written["spec"]["maxReplicas"], 3);
    assert_eq!(written["spec"]["resources"], json!({"requests": {"cpu": "50m"}, "limits": {"memory": "128Mi"}}));
    assert_eq!(written["spec"]["secretMounts"], json!([{"secretName": "tls", "mountPath": "/etc/tls"}]));
    assert_eq!(written["spec"]["labels"], json!({"team": "web"}));
    let managers = written["metadata"]["managedFields"].to_string();
    assert!(managers.contains("mainstay-console"), "{managers}");
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_created_where_the_user_may_create() {
    let desk = Desk::new().await;
    desk.users.namespace(ELSEWHERE);
    let tab = desk.user(&desk.users.account(NAMESPACE, "maker", CREATES)).await;
    tab.open(&format!("{URL}/")).await;
    tab.click("a.button", "Create a Function").await;
    tab.until("document.querySelector('h1')?.innerText === 'Create a Function'").await;
    looks_right(&tab, "create").await;
    let set = |name: &str, value: &str| {
        format!("document.querySelector('form.function [name={name}]').value = {};", json!(value))
    };
    let press = async |text: &str| {
        tab.value("window.isOld = true").await;
        tab.click("main button", text).await;
        tab.until("!window.isOld && document.readyState === 'complete'").await;
    };
    tab.value(&set("name", "Not A Name")).await;
    press("Review").await;
    tab.shows("Name: ").await;
    tab.value(
        &[
            set("name", "made"),
            set("runtime", "python312"),
            set("source", "def main(event, context):\n  return 'hi'\n"),
        ]
        .concat(),
    )
    .await;
    press("Review").await;
    tab.shows("Its image is built").await;
    tab.shows("The API server accepts the change (dry run).").await;
    assert_eq!(live(&desk.users, "made"), Value::Null);
    press("Create").await;
    tab.shows("Created: Function made").await;
    assert_eq!(
        live(&desk.users, "made")["spec"],
        json!({"runtime": "python312", "source": "def main(event, context):\n  return 'hi'\n"})
    );
    // The same name again, and a namespace without the right.
    tab.open(&format!("{URL}/create?namespace={NAMESPACE}")).await;
    tab.value(&[set("name", "made"), set("source", "x")].concat()).await;
    press("Review").await;
    tab.shows("The API server refuses the change").await;
    tab.open(&format!("{URL}/create?namespace={ELSEWHERE}")).await;
    tab.shows(&format!("You may not create Function objects in the namespace {ELSEWHERE}: that needs the verb create"))
        .await;
    tab.value(&[set("name", "made"), set("source", "x")].concat()).await;
    press("Review").await;
    tab.shows("kind: Function").await;
    assert_eq!(
        tab.value("Array.from(document.querySelectorAll('button[disabled]')).map((one) => one.innerText).join()").await,
        "Create"
    );
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_git_is_created_with_its_repository_and_no_login_in_a_url() {
    let desk = Desk::new().await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "maker", CREATES)).await;
    tab.open(&format!("{URL}/create?namespace={NAMESPACE}")).await;
    let is_hidden = |name: &str| format!("document.querySelector('[name={name}]').offsetParent === null");
    assert_eq!(
        (tab.value(&is_hidden("source")).await, tab.value(&is_hidden("url")).await),
        (json!(false), json!(true))
    );
    tab.click("label.choice", "In a Git repository").await;
    tab.until(&is_hidden("source")).await;
    looks_right(&tab, "create-git").await;
    let set = |name: &str, value: &str| {
        format!("document.querySelector('form.function [name={name}]').value = {};", json!(value))
    };
    let press = async |text: &str| {
        tab.value("window.isOld = true").await;
        tab.click("main button", text).await;
        tab.until("!window.isOld && document.readyState === 'complete'").await;
    };
    let fields = [
        set("name", "of-git"),
        set("url", "https://me:hunter2@git.example.com/team/shop.git"),
        set("reference", "main"),
        set("directory", "functions/a"),
        set("secret", "login"),
    ];
    tab.value(&fields.concat()).await;
    press("Review").await;
    tab.shows("URL of a repository: it contains a login.").await;
    // The choice and the fields stay.
    assert_eq!(tab.value(&is_hidden("source")).await, true);
    tab.value(&set("url", "https://git.example.com/team/shop.git")).await;
    press("Review").await;
    tab.shows("The API server accepts the change (dry run).").await;
    tab.shows("secretName: login").await;
    assert_eq!(live(&desk.users, "of-git"), Value::Null);
    press("Create").await;
    tab.shows("Created: Function of-git").await;
    let own = json!({
        "url": "https://git.example.com/team/shop.git", "auth": {"type": "basic", "secretName": "login"},
    });
    assert_eq!(
        live(&desk.users, "of-git")["spec"],
        json!({"type": "git", "source": "", "reference": "main", "baseDir": "functions/a", "gitRepository": own})
    );
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_of_a_git_sync_gets_a_manifest_and_its_file() {
    let mut desk = Desk::new().await;
    let world = &mut desk.users.world;
    let manifest = "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: Function\nmetadata:\n  name: kept\nspec:\n  runtime: nodejs22\n  source: one\n";
    world.remote.file("apps/kept.yaml", manifest);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps", "wait": false})).await;
    world.stop().await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "writer", WRITES)).await;
    tab.open(&format!("{URL}{}", edit_of("kept"))).await;
    tab.shows("manages this Function").await;
    tab.shows("Change its file in Git: apps/kept.yaml").await;
    tab.value("document.querySelector('[name=source]').value = 'two'; window.isOld = true").await;
    tab.click("main button", "Review").await;
    tab.until("!window.isOld && document.readyState === 'complete'").await;
    tab.shows("The image is rebuilt").await;
    let manifest =
        tab.value("document.querySelector('[aria-label=Manifest]').innerText").await.as_str().unwrap().to_owned();
    assert!(
        manifest.contains("source: two") && !manifest.contains("mainstay.dev/sync") && !manifest.contains("uid"),
        "{manifest}"
    );
    // A forged form changes nothing, either.
    let fetch = "fetch(location.pathname, {method: 'POST', body: (() => { const form = new URLSearchParams(new FormData(document.querySelector('form.function'))); form.set('step', 'apply'); return form; })()}).then(async (answer) => answer.status + await answer.text())";
    let answer = tab.value(fetch).await.as_str().unwrap().to_owned();
    assert!(
        answer.starts_with("409") && answer.contains("A GitSync manages this Function, so nothing was changed."),
        "{answer}"
    );
    assert_eq!(live(&desk.users, "kept")["spec"]["source"], "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_reviewed_change_of_a_user_with_the_right_is_written() {
    let users = Users::new().await;
    let metadata = json!({"name": "greeter", "namespace": NAMESPACE});
    let object = json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": metadata, "spec": spec()});
    users.world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, object);
    let console = users.console(FORM).await;
    let path = edit_of("greeter");
    let [reader, writer] =
        [("reader", READS), ("writer", WRITES)].map(|(name, verbs)| users.account(NAMESPACE, name, verbs));
    let (reader, writer) = (console.sign_in(&reader).await, console.sign_in(&writer).await);
    let send = async |cookie: &str, csrf: &str, step: &str, source: &str, page: &str| {
        let field = |name: &str| {
            let found = page.split(&format!("name=\"{name}\" value=\"")).nth(1);
            found.and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned()
        };
        let [generation, reviewed, least] = ["generation", "reviewed", "least"].map(field);
        let fields = [
            ("csrf", csrf),
            ("step", step),
            ("source", source),
            ("runtime", "nodejs22"),
            ("least", &least),
            ("generation", &generation),
            ("reviewed", &reviewed),
        ];
        console.post(&path, cookie, &fields).await
    };
    let form = console.get(&path, &writer).await;
    let csrf = form.field("csrf");
    assert_eq!(send(&writer, "0", "apply", "two", &form.text).await.code, 403);
    let origin = console
        .request(reqwest::Method::POST, &path)
        .header("cookie", &writer)
        .header("origin", "https://evil.example");
    assert_eq!(console.send(origin.body(format!("csrf={csrf}&step=apply&source=two"))).await.code, 403);
    assert_eq!(send(&writer, &csrf, "apply", "two", &form.text).await.code, 409, "it was not reviewed");
    let review = send(&writer, &csrf, "review", "two", &form.text).await;
    assert_eq!(review.code, 200);
    assert_eq!(send(&writer, &csrf, "apply", "three", &review.text).await.code, 409, "another change was reviewed");

    // Another change of the Function in the meantime.
    let patch = Action::Patch(Form::Merge, json!({"spec": {"minReplicas": 2}}));
    users.world.write_as("kubectl", Call::new(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, "greeter", patch));
    let late = send(&writer, &csrf, "apply", "two", &review.text).await;
    assert!(late.code == 409 && late.text.contains("differs from what was reviewed"), "{}", late.text);
    assert_eq!(live(&users, "greeter")["spec"]["source"], spec()["source"]);

    // A reader gets the manifest, and may not apply it.
    let form = console.get(&path, &reader).await;
    assert!(form.text.contains("You may not change this object"), "{}", form.text);
    let own = form.field("csrf");
    let review = send(&reader, &own, "review", "two", &form.text).await;
    assert!(review.text.contains("The API server has not checked the change."), "{}", review.text);
    assert_eq!(send(&reader, &own, "apply", "two", &review.text).await.code, 409);
    assert_eq!(live(&users, "greeter")["spec"]["source"], spec()["source"]);

    let form = console.get(&path, &writer).await;
    let review = send(&writer, &csrf, "review", "two", &form.text).await;
    assert_eq!(send(&writer, &csrf, "apply", "two", &review.text).await.code, 200);
    let written = live(&users, "greeter");
    assert_eq!((&written["spec"]["source"], &written["spec"]["minReplicas"]), (&json!("two"), &json!(2)));
}

/// Begins a form without a session, whose body does not arrive.
async fn slow_form(address: &str) -> TcpStream {
    let host = URL.strip_prefix("https://").unwrap();
    let head = format!(
        "POST /sign-in HTTP/1.1\r\nHost: {host}\r\nOrigin: {URL}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nt"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_send_slowly_keep_no_user_and_no_probe_out() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let token = users.account(NAMESPACE, "reader", READS);
    // More forms than are read at the same time.
    let mut slow = Vec::new();
    for _ in 0..100 {
        slow.push(slow_form(&console.address).await);
    }
    let cookie = console.sign_in(&token).await;
    assert_eq!(console.get("/", &cookie).await.code, 200);
    assert_eq!(console.get("/healthz", "").await.code, 200);
    // Those that gave way, or did not arrive in time, get a response.
    for mut stream in slow {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }
    let large = "x".repeat(16 << 10);
    assert_eq!(console.post("/sign-in", "", &[("token", &large)]).await.code, 400);
}
