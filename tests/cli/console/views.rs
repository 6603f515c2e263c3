//! The views beside those of the history: sources, repositories, windows, the queue of builds, logs, calls, and files of
//! `mainstay ui`. `.ci/pictures` makes their pictures.

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::{
    git_server::GitServer,
    program::Program,
    remote::NAME,
    world::{NAMESPACE, World},
};
use serde_json::{Value, json};

use super::{
    calls::{CALLS, call, serving_with},
    chromium::Chromium,
    functions::{RULES, belongings, function},
    network::routed,
    pages::{Desk, FUNCTIONS},
    pictures::shows_well,
    repositories::{REPOSITORIES, repository, sync},
    sources::fill,
    trees::overseer,
    users::{URL, Users},
};

const WHEN: &str = "2026-01-01T00:00:00Z";

/// A desk with sources, a GitSync with a window, a Function that waits for its build, and what belongs to another one.
async fn busy() -> Desk {
    let desk = Desk::new().await;
    fill(&desk, "the registry refuses the login");
    repository(&desk, "shop", json!({"url": "https://git.example.com/team/shop.git"}));
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Found", "message": "main is at 0123", "lastTransitionTime": WHEN,
    });
    let status = json!({"lastLookup": WHEN, "revision": "main@sha1:0123", "conditions": [ready]});
    desk.status(REPOSITORIES, "shop", &status);
    sync(&desk, "linked", "shop", "Ada Lovelace");
    function(&desk, "queued", json!({"runtime": "nodejs22", "source": "module.exports = { main: () => 'one' }"}));
    let waits = json!({
        "type": "BuildReady", "status": "Unknown", "reason": "JobQueued", "message": "2 builds wait before it",
        "lastTransitionTime": WHEN,
    });
    desk.status(FUNCTIONS, "queued", &json!({"queue": 3, "conditions": [waits]}));
    let uid = function(&desk, "greeter", json!({"runtime": "nodejs22", "source": "x"}))["metadata"]["uid"].clone();
    belongings(&desk, &uid);
    desk.status(RULES, "own-rule", &json!({"APIRuleStatus": {"code": "ERROR", "desc": "no such gateway"}}));
    desk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_sources_repositories_windows_and_forms_look_right() {
    let desk = busy().await;
    let tab = desk.user(&overseer(&desk.users)).await;
    let of_object = |action: &str, (group, kind, name): (&str, &str, &str)| {
        format!("{URL}/act?action={action}&group={group}&kind={kind}&namespace={NAMESPACE}&name={name}")
    };
    let oci = format!("{URL}/object?group=mainstay.dev&kind=OCIRepository&namespace={NAMESPACE}&name=shop");
    for (name, url, text) in [
        ("sources", format!("{URL}/sources"), "the registry refuses the login"),
        ("served", format!("{URL}/served"), "APIRuleStatus is ERROR"),
        ("gitrepository", format!("{URL}/gitrepository/{NAMESPACE}/shop"), "https://git.example.com/team/shop.git"),
        ("ocirepository", oci, "oci://registry.example.com/team/shop"),
        ("windows", format!("{URL}/gitsync/{NAMESPACE}/linked#windows"), "Windows"),
        ("queue", format!("{URL}/function/{NAMESPACE}/queued"), "position 3, 2 builds wait before it"),
        ("connect", format!("{URL}/connect?namespace={NAMESPACE}"), "Connect a repository"),
        ("expose", format!("{URL}/expose?namespace={NAMESPACE}&service=greeter"), "Expose a Service"),
        ("delete", of_object("delete", ("serverless.kyma-project.io", "Function", "greeter")), "Its image stays"),
        ("sync", of_object("sync", ("mainstay.dev", "GitSync", "linked")), "Sync: GitSync"),
        ("sync-all", format!("{URL}/sync"), "Sync all shown"),
    ] {
        tab.open(&url).await;
        tab.shows(text).await;
        shows_well(&tab, name).await;
    }
    tab.open(&format!("{URL}/create?namespace={NAMESPACE}")).await;
    shows_well(&tab, "create").await;
    tab.click("label.choice", "In a Git repository").await;
    tab.until("document.querySelector('[name=source]').offsetParent === null").await;
    shows_well(&tab, "create-git").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_a_network_look_right() {
    let mut users = Users::new().await;
    routed(&mut users, "/orders").await;
    let desk = Desk::of(users).await;
    let tab = desk.user(&overseer(&desk.users)).await;
    tab.open(&format!("{URL}/gitsync/{NAMESPACE}/demo/network")).await;
    tab.shows("no such Service").await;
    shows_well(&tab, "network").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_a_log_and_of_a_call_with_its_result_look_right() {
    let (desk, _directory) = serving_with("ready to greet").await;
    let tab = desk.user(&desk.users.account(NAMESPACE, "caller", CALLS)).await;
    tab.open(&format!("{URL}/function/{NAMESPACE}/greeter")).await;
    tab.shows("ready to greet").await;
    shows_well(&tab, "log").await;
    tab.click("a.button", "Call").await;
    tab.until("Boolean(document.querySelector('[name=path]'))").await;
    shows_well(&tab, "call").await;
    call(&tab, "POST", "/hello?a=1", "a body").await;
    tab.shows("Response: 200").await;
    shows_well(&tab, "called").await;
    assert_eq!(desk.chromium.complaints(), Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_of_the_files_of_a_function_in_git_look_right() {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    world.repository("web", &server.url(NAME));
    let code =
        "// Greets the sender of the event.\nmodule.exports = {\n  main: (event) => `Hello ${event.data}`,\n};\n";
    world.remote.file("f/handler.js", code).file("f/package.json", "{\"name\": \"greeter\"}\n");
    let built = world.remote.commit("one");
    let spec = json!({"type": "git", "source": "web", "reference": "main", "baseDir": "f", "runtime": "nodejs22"});
    let function =
        json!({"apiVersion": FUNCTIONS.0, "kind": "Function", "metadata": {"name": "greeter"}, "spec": spec});
    world.create(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, function);
    let status = Action::Patch(Form::Merge, json!({"status": {"commit": built}}));
    world.write_as("test", Call::new(FUNCTIONS.0, FUNCTIONS.1, NAMESPACE, "greeter", status).on("status"));
    let program = Program::of(&world).await;
    // The server of the test is on this machine.
    program.set_dev_run(&world.remote.path());
    let mut command = program.start(&["ui", "--no-open"]);
    let line = command.line("Open http").await;
    let link = line.trim().strip_prefix("Open ").unwrap();
    let (base, _) = link.split_once("/open/").unwrap();
    let (_, port) = base.rsplit_once(':').unwrap();
    let chromium = Chromium::start("mainstay-console.localhost", &format!("127.0.0.1:{port}")).await;
    let tab = chromium.tab().await;
    tab.open(link).await;
    tab.until("document.querySelector('h1')?.innerText === 'Fleet'").await;
    tab.open(&format!("{base}/function/{NAMESPACE}/greeter")).await;
    tab.click("main a", "Files of this commit").await;
    tab.click("main a", "f/handler.js").await;
    tab.shows("Greets the sender of the event.").await;
    shows_well(&tab, "files").await;
    assert_eq!(chromium.complaints(), Vec::<Value>::new());
}
