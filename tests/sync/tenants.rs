//! A GitSync restricted to its own namespace, beside an unrestricted GitSync of the platform. The restricted GitSync
//! neither delays nor overrides the unrestricted one.

use std::time::Duration;

use devcluster::{Action, Call, verbs::delete::DeleteOptions};
use devcluster::{fault_injection::Fault, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::git_server::{self, GitServer, On};
use mainstay_testkit::ownership::{LABEL, delete_sync, prune_on_delete, sync_is_gone};
use mainstay_testkit::remote::NAME;
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};

/// The tenant's namespace.
const TEAM: &str = "mainstay-tests-team";
/// Longer than any test.
const LONG: Duration = Duration::from_secs(600);
const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
/// The ConfigMap `limits` as each of the two GitSyncs wants it.
const OF_TENANT: &str = "tenant of mainstay-tests-team.tenant";
const OF_PLATFORM: &str = "platform of mainstay-tests.demo";

/// Adds the namespace of the tenant, with a GitRepository `repo` at an address.
fn team(world: &World, url: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    world.create("v1", "namespaces", "", namespace);
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": TEAM}, "spec": {"url": url},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", TEAM, repository);
}

/// Adds a GitSync of the tenant.
fn tenant(world: &World, spec: Value) {
    let mut whole = json!({"gitRepository": "repo", "interval": "1h"});
    json_patch::merge(&mut whole, &spec);
    let sync = json!({
        "apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": "tenant", "namespace": TEAM}, "spec": whole,
    });
    world.create(SYNCS.0, SYNCS.1, TEAM, sync);
}

/// Returns `<status> <reason>: <message>` of the tenant's Ready.
fn tenant_ready(world: &World) -> String {
    let sync = world.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
    condition_of(&sync["status"], "Ready")
}

/// Returns a ConfigMap of the tenant's namespace, as a document.
fn team_map(name: &str, value: &str) -> String {
    config_map(name, value).replace("metadata:\n", &format!("metadata:\n  namespace: {TEAM}\n"))
}

/// Returns `data.key` of a ConfigMap in the tenant's namespace with the label of its owner, or "absent".
fn team_data(world: &World, name: &str) -> String {
    world.server.object("v1", "configmaps", TEAM, name).map_or_else(
        || "absent".to_owned(),
        |map| {
            let label = map["metadata"]["labels"][LABEL].as_str().unwrap_or_default().to_owned();
            format!("{} of {label}", map["data"]["key"].as_str().unwrap_or_default())
        },
    )
}

/// Changes the spec of the tenant's GitSync, and waits until the change is handled.
async fn change_tenant(world: &World, spec: &Value) {
    let action = Action::Patch(Form::Merge, json!({"spec": spec}));
    let changed = world.write_as("kubectl-edit", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", action));
    let generation = changed["metadata"]["generation"].clone();
    let is_handled = |w: &World| {
        let sync = w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
        sync["status"]["observedGeneration"] == generation
    };
    world.until("the change is handled", is_handled).await;
}

/// Requests a sync of the tenant's GitSync, and waits until the status acknowledges it.
async fn ask_tenant(world: &World, request: &str) {
    let annotated = json!({"metadata": {"annotations": {"mainstay.dev/requestedAt": request}}});
    let action = Action::Patch(Form::Merge, annotated);
    world.write_as("kubectl-edit", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", action));
    let is_handled = |w: &World| {
        let sync = w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
        sync["status"]["lastHandledRequest"] == *request
    };
    world.until("the request is handled", is_handled).await;
}

fn edit_team_map(world: &World, name: &str, value: &str) {
    let action = Action::Patch(Form::Merge, json!({"data": {"key": value}}));
    world.try_as("kubectl-edit", Call::new("v1", "configmaps", TEAM, name, action)).unwrap();
}

/// Creates a world with a platform's GitSync `demo` of `/platform`, which has one object in each namespace.
async fn platform() -> World {
    let mut world = World::new().await;
    let url = world.remote.path().display().to_string();
    team(&world, &url);
    world.remote.file("platform/a.yaml", config_map("a", "1")).file("platform/b.yaml", config_map("b", "1"));
    world.remote.file("platform/role.yaml", team_map("role", "1")).file("platform/stays.yaml", team_map("stays", "1"));
    world.remote.file("team/own.yaml", config_map("own", "1")).commit("one");
    world.synced(json!({"baseDir": "/platform"})).await;
    world
}

/// Checks that objects that leave the platform's GitSync are pruned in both namespaces.
async fn platform_prunes(world: &mut World) {
    world.remote.remove("platform/b.yaml").remove("platform/role.yaml");
    world.commit("demo", "two go").await;
    world.until("what left is deleted", |w| w.config_maps() == ["a"] && team_data(w, "role") == "absent").await;
    assert_eq!(world.status("demo")["held"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_holds_the_commit_back_stops_no_pruning_of_the_platform() {
    let mut world = platform().await;
    let never = json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]);
    tenant(&world, json!({"baseDir": "/team"}));
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
    let closed = Action::Patch(Form::Merge, json!({"spec": {"windows": never}}));
    world.try_as("kubectl-edit", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", closed)).unwrap();
    let frozen = |w: &World| {
        let sync = w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
        sync["status"]["observedGeneration"] == sync["metadata"]["generation"]
    };
    world.until("its window is closed", frozen).await;
    world.remote.file("team/own.yaml", config_map("own", "2"));
    platform_prunes(&mut world).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_repository_never_answers_stops_neither_pruning_nor_the_deletion_of_a_git_sync() {
    let mut world = World::new().await;
    let server = GitServer::start(world.remote.root()).await;
    server.fail(On::Everything, git_server::Fault::Stall);
    world.deadlines.silence = LONG;
    world.deadlines.lookup = LONG;
    team(&world, &server.url(NAME));
    world.remote.file("platform/a.yaml", config_map("a", "1")).file("platform/b.yaml", config_map("b", "1"));
    world.remote.file("platform/role.yaml", team_map("role", "1")).commit("one");
    world.synced(json!({"baseDir": "/platform"})).await;
    tenant(&world, json!({}));
    world.until("the tenant is there", |w| w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").is_some()).await;
    platform_prunes(&mut world).await;
    prune_on_delete(&world, "demo").await;
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    assert_eq!(world.config_maps(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_outranks_the_platform_neither_at_once_nor_later_nor_after_a_restart() {
    let mut world = platform().await;
    world.remote.file("team/limits.yaml", config_map("limits", "tenant")).commit("the tenant is first");
    tenant(&world, json!({"baseDir": "/team"}));
    world.until("the tenant has it", |w| team_data(w, "limits") == format!("tenant of {TEAM}.tenant")).await;
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
    let uid = |w: &World| w.server.object("v1", "configmaps", TEAM, "limits").unwrap()["metadata"]["uid"].clone();
    let first = uid(&world);
    world.remote.file("platform/limits.yaml", team_map("limits", "platform"));
    world.commit("demo", "the platform wants it, too").await;
    let of_platform = "platform of mainstay-tests.demo";
    assert_eq!((team_data(&world, "limits"), uid(&world)), (of_platform.to_owned(), first.clone()));
    let told = "False OwnershipConflict";
    world.until("the tenant is told", |w| tenant_ready(w).starts_with(told)).await;
    assert!(tenant_ready(&world).contains("mainstay-tests/demo"), "{}", tenant_ready(&world));

    world.remote.file("team/limits.yaml", config_map("limits", "tenant again")).commit("the tenant insists");
    world.look();
    world.ready("demo").await;
    edit_team_map(&world, "limits", "changed");
    world.until("it is the platform's to revert", |w| team_data(w, "limits") == of_platform).await;
    world.kill().await;
    world.start();
    world.ready("demo").await;
    world.until("the tenant is told", |w| tenant_ready(w).starts_with(told)).await;
    edit_team_map(&world, "limits", "changed");
    world.until("it is the platform's to revert", |w| team_data(w, "limits") == of_platform).await;

    world.remote.remove("platform/limits.yaml");
    world.commit("demo", "the platform gives it up").await;
    let of_tenant = format!("tenant again of {TEAM}.tenant");
    world.until("it goes to the tenant", |w| team_data(w, "limits") == of_tenant).await;
    assert_eq!(uid(&world), first, "it was never deleted");
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
}

/// Returns a world in which a user deleted an object of the tenant, which does not recreate it because of `spec`.
async fn missing_object(spec: Value) -> World {
    let mut world = platform().await;
    world.remote.file("team/limits.yaml", config_map("limits", "tenant")).commit("the tenant is first");
    tenant(&world, json!({"baseDir": "/team"}));
    world.until("the tenant has it", |w| team_data(w, "limits") == OF_TENANT).await;
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
    change_tenant(&world, &spec).await;
    let deletion = Action::Delete(DeleteOptions::default());
    world.write_as("kubectl", Call::new("v1", "configmaps", TEAM, "limits", deletion));
    world.remote.file("platform/limits.yaml", team_map("limits", "platform"));
    world
}

/// Changes the spec of the tenant after the platform has created the tenant's missing object. The tenant learns that it
/// has lost the object, and does not write it until the platform gives it up.
async fn tenant_has_lost_the_object(mut world: World, over: Value) {
    let field = |w: &World, field: &str| {
        w.server.object("v1", "configmaps", TEAM, "limits").unwrap()["metadata"][field].clone()
    };
    let (uid, version) = (field(&world, "uid"), field(&world, "resourceVersion"));
    change_tenant(&world, &over).await;
    // The conflict of an attempt before the change does not count.
    ask_tenant(&world, "after the change").await;
    world.until("the tenant is told", |w| tenant_ready(w).starts_with("False OwnershipConflict")).await;
    assert!(tenant_ready(&world).contains("mainstay-tests/demo"), "{}", tenant_ready(&world));
    assert_eq!((team_data(&world, "limits").as_str(), field(&world, "resourceVersion")), (OF_PLATFORM, version));
    edit_team_map(&world, "limits", "changed");
    world.until("it is the platform's to revert", |w| team_data(w, "limits") == OF_PLATFORM).await;
    world.condition_is("demo", "Ready", "True").await;

    world.remote.remove("platform/limits.yaml");
    world.commit("demo", "the platform gives it up").await;
    world.until("it goes to the tenant", |w| team_data(w, "limits") == OF_TENANT).await;
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
    assert_eq!(field(&world, "uid"), uid, "it was not deleted again");
}

/// Tests that the platform creates an object that the tenant does not recreate because of `spec`, and keeps it when the
/// spec of the tenant is changed by `over`.
async fn a_missing_object_goes_to_the_platform(spec: Value, over: Value) {
    let mut world = missing_object(spec).await;
    world.commit("demo", "the platform wants it, too").await;
    assert_eq!(team_data(&world, "limits"), OF_PLATFORM);
    tenant_has_lost_the_object(world, over).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_of_a_suspended_tenant_goes_to_the_platform() {
    a_missing_object_goes_to_the_platform(json!({"suspend": true}), json!({"suspend": false})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_of_a_suspended_tenant_stays_with_the_platform_after_a_restart() {
    let mut world = missing_object(json!({"suspend": true})).await;
    world.commit("demo", "the platform wants it, too").await;
    world.kill().await;
    world.start();
    // The new agent reads the inventory of the platform before the tenant plans.
    world.ask("demo").await;
    tenant_has_lost_the_object(world, json!({"suspend": false})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_of_a_tenant_that_ignores_drift_goes_to_the_platform() {
    a_missing_object_goes_to_the_platform(json!({"drift": "Ignore"}), json!({"drift": "Revert"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_of_a_tenant_that_reports_drift_goes_to_the_platform() {
    a_missing_object_goes_to_the_platform(json!({"drift": "Report"}), json!({"drift": "Revert"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_object_that_the_platform_may_not_create_stays_with_the_tenant() {
    let mut world = missing_object(json!({"drift": "Report"})).await;
    // The platform does not try again until it is asked.
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        namespace: TEAM.into(),
        name: "limits".into(),
        code: 422,
        message: "a policy refuses it".into(),
        retry_after: Some(3600),
        ..Fault::default()
    });
    world.try_commit("demo", "the platform wants it, too").await;
    let refusal = |w: &World| w.failure("demo", &format!("ConfigMap {TEAM}/limits"));
    world.until("the platform is told", |w| refusal(w).contains("a policy refuses it")).await;
    assert_eq!(team_data(&world, "limits"), "absent");

    change_tenant(&world, &json!({"drift": "Revert"})).await;
    world.until("the tenant recreates it", |w| team_data(w, "limits") == OF_TENANT).await;
    edit_team_map(&world, "limits", "changed");
    world.until("it is the tenant's to revert", |w| team_data(w, "limits") == OF_TENANT).await;
    assert!(refusal(&world).starts_with("ApplyFailed"), "{}", refusal(&world));

    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(team_data(&world, "limits"), OF_PLATFORM);
    world.until("the tenant is told", |w| tenant_ready(w).starts_with("False OwnershipConflict")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_cannot_take_what_the_platform_gives_up_holds_up_no_commit_of_it() {
    let mut world = platform().await;
    tenant(&world, json!({"baseDir": "/team"}));
    world.until("the tenant is ready", |w| tenant_ready(w).starts_with("True")).await;
    // The tenant wants the Role before the platform gives it up, so the Role is handed over.
    world.remote.file("team/role.yaml", config_map("role", "2")).commit("the tenant wants it, too");
    world.look();
    world.until("the tenant is told", |w| tenant_ready(w).starts_with("False OwnershipConflict")).await;
    world.ready("demo").await;
    // The server always refuses the tenant's version of the Role.
    world.levers().fail_next(Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        name: "role".into(),
        code: 403,
        times: 1_000_000,
        ..Fault::default()
    });
    world.remote.remove("platform/role.yaml");
    world.commit("demo", "it moves to the tenant").await;
    assert_eq!(world.status("demo")["held"], Value::Null);
    assert!(world.server.object("v1", "configmaps", TEAM, "role").is_some(), "it is not deleted in between");
    world.remote.file("platform/a.yaml", config_map("a", "2"));
    world.commit("demo", "the platform goes on").await;
    world.levers().clear_faults();
    let action = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", action)).unwrap();
    world.until("the tenant is gone", |w| w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").is_none()).await;
}

/// Returns the list and watch requests with the label of GitSyncs, since the gate records.
fn listed(world: &World) -> Vec<String> {
    let heard = world.gate.heard();
    let asked = heard.iter().map(|heard| heard.asked.clone());
    asked.filter(|asked| asked.starts_with("GET ") && asked.contains("mainstay.dev%2Fsync")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_policy_lists_what_that_git_sync_has_and_nothing_of_others() {
    let mut world = World::new().await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {key: \"1\"}\n";
    world.remote.file("one/a.yaml", config_map("a", "1")).file("two/b.yaml", config_map("b", "1"));
    world.remote.file("two/s.yaml", secret).commit("one");
    world.sync("other", json!({"baseDir": "/two"}));
    world.sync("demo", json!({"baseDir": "/one", "drift": "Ignore"}));
    world.start();
    world.ready("demo").await;
    world.ready("other").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.ask("demo").await;
    assert_eq!(world.data("a"), "changed");
    // All kinds are watched now.
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "changed"}}));
    world.edit("v1", "secrets", "s", json!({"stringData": {"key": "changed"}}));
    let secret = |w: &World| w.get("v1", "secrets", "s").unwrap()["data"]["key"].clone();
    world.until("the others' are reverted", |w| w.data("b") == "1" && secret(w) == "MQ==").await;
    world.gate.record();
    for drift in ["Revert", "Ignore", "Revert"] {
        world.change("demo", json!({"drift": drift})).await;
    }
    world.until("what was passed over is reverted", |w| w.data("a") == "1").await;
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "changed"}}));
    world.until("the others' is reverted, too", |w| w.data("b") == "1").await;
    let listed = listed(&world);
    let is_own =
        |asked: &String| asked.contains("/configmaps") && asked.contains("mainstay.dev%2Fsync%3Dmainstay-tests.demo");
    assert!(!listed.is_empty() && listed.iter().all(is_own), "{listed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_depends_on_nothing_in_another_namespace_and_the_platform_on_a_tenant() {
    let mut world = platform().await;
    tenant(&world, json!({"baseDir": "/team", "dependsOn": [{"name": "demo", "namespace": NAMESPACE}]}));
    let refused =
        "False SpecInvalid: spec.dependsOn[0].namespace: a GitSync of this namespace depends on others of this";
    world.until("it is refused", |w| tenant_ready(w).starts_with(refused)).await;
    world.remote.file("after/after.yaml", config_map("after", "1")).commit("for later");
    world.sync("after", json!({"baseDir": "/after", "dependsOn": [{"name": "tenant", "namespace": TEAM}]}));
    world.condition_is("after", "Ready", "False DependencyNotReady").await;
    assert_eq!(world.data("after"), "absent");
    let own = Action::Patch(Form::Merge, json!({"spec": {"dependsOn": null}}));
    world.try_as("kubectl-edit", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", own)).unwrap();
    world.ready("after").await;
}
