//! Syncs from the console: the page that asks, its options, and the sync of all GitSyncs that a filter shows.

use std::time::Duration;

use devcluster::{Action, Call, Simulation, verbs::patch::Form};
use mainstay_testkit::world::{NAMESPACE, World, config_map};
use serde_json::{Value, json};

use super::{
    FORM, READS, WRITES,
    pages::{HOSTILE, SYNCS},
    trees::overseer,
    users::{Console, ELSEWHERE, RBAC, Users},
};
use crate::page_answer::Answer;

const REQUESTED: &str = "mainstay.dev/requestedAt";
const IMAGE: &str = "example.org/job:1";

/// Returns the address of the page that asks before an action on the GitSync `demo`.
fn page_of(action: &str, more: &str) -> String {
    format!("/act?action={action}&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name=demo{more}")
}

/// Sends the form of an action on the GitSync `demo`.
async fn act(console: &Console, cookie: &str, action: &str, more: &[(&str, &str)]) -> Answer {
    let [group, kind] = [("group", "mainstay.dev"), ("kind", "GitSync")];
    let mut fields = vec![("action", action), group, kind, ("namespace", NAMESPACE), ("name", "demo")];
    fields.extend(more);
    console.post("/act", cookie, &fields).await
}

fn status(users: &Users, name: &str, status: &Value) {
    let patch = Action::Patch(Form::Merge, json!({"status": status}));
    users.world.write_as("test", Call::new(SYNCS.0, SYNCS.1, NAMESPACE, name, patch).on("status"));
}

fn annotations(users: &Users, namespace: &str, name: &str) -> Value {
    let all = users.world.server.objects(SYNCS.0, SYNCS.1, Some(namespace));
    let found = all.iter().find(|one| one["metadata"]["name"] == name).unwrap();
    found["metadata"]["annotations"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_before_a_sync_shows_deviations_and_decisions() {
    let users = Users::new().await;
    users.sync(NAMESPACE, "demo");
    let immutable = "allow its replacement: `annotations: {mainstay.dev/replace: enabled}` in the metadata of its manifest, \
                     or `replace: [Job.batch]` in the spec of the GitSync";
    let failures = json!([
        {"object": format!("Job.batch {NAMESPACE}/migrate"), "reason": "Immutable", "message": immutable},
        {"object": format!("Service {NAMESPACE}/web"), "reason": "ApplyFailed", "message": HOSTILE},
    ]);
    let commit = "c".repeat(40);
    let of_demo = json!({
        "failures": failures, "held": [format!("ConfigMap {NAMESPACE}/old: a guard keeps it")], "heldObjects": 3,
        "attemptedCommit": "b".repeat(40), "frozen": {"commit": commit, "by": HOSTILE},
    });
    status(&users, "demo", &of_demo);
    let console = users.console(FORM).await;
    let writer = console.sign_in(&users.account(NAMESPACE, "writer", WRITES)).await;
    let page = console.get(&page_of("sync", ""), &writer).await;
    for part in [
        "2 failed",
        "1 held",
        "/differences\">All differences</a>",
        "mainstay sync demo --dry-run",
        "<code>annotations: {mainstay.dev/replace: enabled}</code>",
        "<code>replace: [Job.batch]</code>",
        "Deletions that remain held",
        "and 2 more",
        "action=allow-prune",
        &format!("name=\"override-window\" value=\"{commit}\""),
    ] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains("<img") && !page.text.contains("\" checked"), "{}", page.text);
    // A link does not choose it. The page that asks again after a wrong form keeps the choice.
    let link = console.get(&page_of("sync", &format!("&override-window={commit}")), &writer).await.text;
    assert!(link.contains("name=\"override-window\"") && !link.contains("\" checked"), "{link}");
    let csrf = page.field("csrf");
    let wrong = [("csrf", &*csrf), ("override-window", &*commit), ("for", "1h")];
    let again = act(&console, &writer, "sync", &wrong).await;
    assert!(again.code == 422 && again.text.contains("\" checked"), "{}: {}", again.code, again.text);
    // Without the field, the window stays.
    assert_eq!(act(&console, &writer, "sync", &[("csrf", &csrf)]).await.code, 200);
    let written = annotations(&users, NAMESPACE, "demo");
    assert!(written[REQUESTED].is_string() && written.get("mainstay.dev/override-window").is_none(), "{written}");
    for wrong in ["main", "c"] {
        let sent = act(&console, &writer, "sync", &[("csrf", &csrf), ("override-window", wrong)]).await;
        assert_eq!(sent.code, 400, "{wrong}");
    }
    // A reader sees the deviations, and a grey button with the reason.
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let page = console.get(&page_of("sync", ""), &reader).await;
    assert!(page.text.contains("2 failed") && page.text.contains("You may not change this object"), "{}", page.text);
    assert_eq!(act(&console, &reader, "sync", &[("csrf", &page.field("csrf"))]).await.code, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_applies_the_commit_that_a_window_holds_and_the_status_names_the_user() {
    let mut users = Users::new().await;
    users.let_all_ask_who_they_are();
    let world = &mut users.world;
    world.remote.file("apps/map.yaml", config_map("map", "1"));
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    let windows = json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]);
    world.change("demo", json!({"windows": windows})).await;
    world.condition_is("demo", "Frozen", "False WindowOpen").await;
    world.remote.file("apps/map.yaml", config_map("map", "2"));
    let commit = world.try_commit("demo", "two").await;
    world.until("the commit is held", |w| w.status("demo")["frozen"]["commit"] == *commit).await;

    let console = users.console(FORM).await;
    let writer = console.sign_in(&users.account(NAMESPACE, "writer", WRITES)).await;
    let page = console.get(&page_of("sync", ""), &writer).await;
    assert!(page.text.contains("although a window holds it back") && page.text.contains(&commit), "{}", page.text);
    let csrf = page.field("csrf");
    let sent = act(&console, &writer, "sync", &[("csrf", &csrf), ("override-window", &commit)]).await;
    assert_eq!(sent.code, 200, "{}", sent.text);
    users.world.until("the commit is applied", |w| w.data("map") == "2").await;
    users.world.until("it is recorded", |w| w.status("demo")["windowOverride"]["commit"] == *commit).await;
    let user = format!("system:serviceaccount:{NAMESPACE}:writer");
    assert_eq!(users.world.status("demo")["windowOverride"]["claimedUser"], user);
    // The page offers it no longer.
    users.world.until("nothing is held", |w| w.status("demo").get("frozen").is_none_or(Value::is_null)).await;
    let page = console.get(&page_of("sync", ""), &writer).await;
    assert!(!page.text.contains("override-window"), "{}", page.text);
}

fn job(world: &World) -> Option<std::sync::Arc<Value>> {
    world.get("batch/v1", "jobs", "migrate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_job_runs_again_from_its_page() {
    let mut users = Users::new().await;
    let world = &mut users.world;
    let simulation = Simulation { exit_code: 0, termination_message: None, after: Duration::from_millis(500) };
    world.server.simulate(IMAGE, "main", simulation);
    let manifest = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: migrate\nspec:\n  template:\n    spec:\n      restartPolicy: \
         Never\n      containers: [{{name: main, image: '{IMAGE}', command: [once]}}]\n"
    );
    world.remote.file("apps/job.yaml", manifest);
    world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    let has_ended =
        |w: &World| job(w).is_some_and(|job| job["status"]["conditions"].to_string().contains("\"Complete\""));
    world.until("the Job has ended", has_ended).await;
    let first = job(world).unwrap()["metadata"]["uid"].clone();

    let rules =
        |verbs: &[&str]| json!([{"apiGroups": ["mainstay.dev", "batch", ""], "resources": ["*"], "verbs": verbs}]);
    let console = users.console(FORM).await;
    let writer = console.sign_in(&users.account_with(NAMESPACE, "writer", &rules(WRITES))).await;
    let reader = console.sign_in(&users.account_with(NAMESPACE, "reader", &rules(READS))).await;
    let object = format!("/object?group=batch&kind=Job&namespace={NAMESPACE}&name=migrate");
    let text = console.get(&object, &reader).await.text;
    assert!(text.contains("aria-disabled=\"true\">Run again</span>"), "{text}");
    let text = console.get(&object, &writer).await.text;
    assert!(text.contains("action=run-again") && text.contains(">Run again</a>"), "{text}");

    let name = format!("Job.batch {NAMESPACE}/migrate");
    let page = console.get(&page_of("run-again", &format!("&object=Job.batch%20{NAMESPACE}%2Fmigrate")), &writer).await;
    assert!(page.text.contains(&name), "{}", page.text);
    let csrf = page.field("csrf");
    let wrong = act(&console, &writer, "run-again", &[("csrf", &csrf), ("object", "Deployment.apps a/b")]).await;
    assert_eq!(wrong.code, 400);
    let sent = act(&console, &writer, "run-again", &[("csrf", &csrf), ("object", &name)]).await;
    assert_eq!(sent.code, 200, "{}", sent.text);
    let is_another = |w: &World| job(w).is_some_and(|job| job["metadata"]["uid"] != first);
    users.world.until("it runs again", is_another).await;
}

/// Lets the ServiceAccount `overseer` patch the GitSyncs of the namespace of the tests.
fn let_overseer_patch(users: &Users) {
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": ["mainstay.dev"], "resources": ["gitsyncs"], "verbs": ["patch"]}]);
    let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "syncs"}, "rules": rules});
    users.world.create(RBAC, "roles", NAMESPACE, role);
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "syncs"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "syncs"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "overseer"}],
    });
    users.world.create(RBAC, "rolebindings", NAMESPACE, binding);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_shown_git_syncs_are_synced_with_the_permissions_of_the_user() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    for name in ["first", "second", "asleep"] {
        users.sync(NAMESPACE, name);
    }
    users.sync(ELSEWHERE, "foreign");
    let suspended = json!([{
        "type": "Suspended", "status": "True", "reason": "Suspended", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    status(&users, "asleep", &json!({"conditions": suspended}));
    let token = overseer(&users);
    let_overseer_patch(&users);
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&token).await;
    let fleet = console.get("/?kind=GitSync", &cookie).await.text;
    assert!(fleet.contains("href=\"/sync?kind=GitSync\">Sync all shown</a>"), "{fleet}");
    let functions = console.get("/?kind=Function", &cookie).await.text;
    assert!(!functions.contains("Sync all shown"), "{functions}");
    let field = |namespace: &str, name: &str| format!("name=\"sync\" value=\"{namespace}/{name}\"");
    let narrow = console.get("/sync?q=second", &cookie).await.text;
    assert!(narrow.contains(&field(NAMESPACE, "second")) && !narrow.contains(&field(NAMESPACE, "first")), "{narrow}");

    let page = console.get("/sync", &cookie).await;
    for name in ["first", "second"] {
        assert!(page.text.contains(&field(NAMESPACE, name)), "{name}: {}", page.text);
    }
    for part in ["Sync 2 GitSyncs", "asleep</a>: it is suspended", "foreign</a>: You may not change this object"] {
        assert!(page.text.contains(part), "{part}: {}", page.text);
    }
    assert!(!page.text.contains(&field(ELSEWHERE, "foreign")), "{}", page.text);

    // A form that names the others, too, changes only what the user may change.
    let csrf = page.field("csrf");
    let names = ["first", "second", "asleep"].map(|name| format!("{NAMESPACE}/{name}"));
    let foreign = format!("{ELSEWHERE}/foreign");
    let mut fields = vec![("sync", &*foreign)];
    fields.extend(names.iter().map(|name| ("sync", name.as_str())));
    assert_eq!(console.post("/sync", &cookie, &fields).await.code, 403, "it has no token of the session");
    assert!(annotations(&users, NAMESPACE, "first")[REQUESTED].is_null());
    fields.push(("csrf", &csrf));
    let sent = console.post("/sync", &cookie, &fields).await;
    assert_eq!(sent.code, 409, "{}", sent.text);
    for part in
        ["Requested for 2 of 4 GitSyncs", "asleep</a>: it is suspended", "foreign</a>: ", "cannot patch resource"]
    {
        assert!(sent.text.contains(part), "{part}: {}", sent.text);
    }
    for name in ["first", "second"] {
        assert!(annotations(&users, NAMESPACE, name)[REQUESTED].is_string(), "{name}");
    }
    assert!(annotations(&users, NAMESPACE, "asleep")[REQUESTED].is_null());
    assert!(annotations(&users, ELSEWHERE, "foreign")[REQUESTED].is_null());
    let without = console.post("/sync", &cookie, &[("csrf", &*csrf)]).await;
    assert_eq!(without.code, 400, "{}", without.text);
}
