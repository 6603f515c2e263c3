//! GitSyncs with `spec.prevent`: the API server itself refuses hand edits of managed objects. Exempt are the agent, the
//! cluster's own controllers, and users of a paused object.

use std::time::{Duration, Instant};

use devcluster::fault_injection::Fault;
use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Cluster, Options};
use serde_json::{Value, json};

use mainstay_testkit::external::External;
use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::ownership::{LABEL, delete_sync, sync_is_gone};
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const POLICIES: &str = "validatingadmissionpolicies";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
/// A user with all permissions.
const JANE: &str = "jane";
/// A ServiceAccount with all permissions.
const OPERATOR: &str = "system:serviceaccount:tools:operator";
/// Name of the policy and the binding of the GitSync `demo`.
const NAME: &str = "mainstay-mainstay-tests.demo";
/// The namespace of a tenant.
const TEAM: &str = "mainstay-tests-team";
/// Another namespace.
const OTHER: &str = "mainstay-tests-other";

const DEPLOYMENT: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
        - name: web
          image: example.io/web:1
";

/// Creates a world in which the GitSync `demo` with `spec.prevent` has applied the ConfigMap `a`, and hand edits are
/// refused.
async fn prevented() -> World {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"prevent": true})).await;
    refused(&world, NAMESPACE, "a").await;
    world
}

fn edit_as(world: &World, user: &str, namespace: &str, name: &str, patch: Value) -> Result<Value, (u16, String)> {
    let call = Call::new("v1", "configmaps", namespace, name, Action::Patch(Form::Merge, patch));
    world.server.call_as(user, "kubectl-edit", call).map_err(|status| (status.code, status.message))
}

fn delete_as(world: &World, user: &str, version: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let call = Call::new(version, resource, namespace, name, Action::Delete(DeleteOptions::default()));
    match world.server.call_as(user, "kubectl", call) {
        Ok(_) => true,
        Err(status) if status.code == 403 => false,
        Err(status) => panic!("{resource} {name}: {status:?}"),
    }
}

/// Waits until Jane cannot change the data of a ConfigMap, because a policy takes effect with a delay. Returns the
/// message.
async fn refused(world: &World, namespace: &str, name: &str) -> String {
    world
        .until(&format!("changes of {name} to be refused"), |w| {
            let edited = edit_as(w, JANE, namespace, name, json!({"data": {"key": "by hand"}}));
            matches!(edited, Err((403, _)))
        })
        .await;
    let (_, message) = edit_as(world, JANE, namespace, name, json!({"data": {"key": "by hand"}})).unwrap_err();
    message
}

/// Waits until Jane can change a ConfigMap.
async fn allowed(world: &World, namespace: &str, name: &str) {
    let change = json!({"metadata": {"annotations": {"changed": "by hand"}}});
    let what = format!("changes of {name} to be allowed");
    world.until(&what, |w| edit_as(w, JANE, namespace, name, change.clone()).is_ok()).await;
}

fn policy(world: &World, resource: &str) -> Option<Value> {
    world.server.object(ADMISSION, resource, "", NAME).map(|found| (*found).clone())
}

/// Waits until both policy and binding are gone.
async fn gone(world: &World) {
    let none = |w: &World| policy(w, POLICIES).is_none() && policy(w, BINDINGS).is_none();
    world.until("policy and binding are gone", none).await;
}

/// Waits until the controller of a real cluster has checked the policy's expressions. It writes the result into the
/// status, which changes the version.
async fn checked(world: &World) {
    if !External::is_named() {
        return;
    }
    let is_checked = |w: &World| {
        policy(w, POLICIES)
            .is_some_and(|found| found["status"]["observedGeneration"] == found["metadata"]["generation"])
    };
    world.until("the expressions of the policy are checked", is_checked).await;
}

fn version(world: &World, resource: &str) -> String {
    policy(world, resource).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn namespace(world: &World, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    world.create("v1", "namespaces", "", namespace);
}

/// Creates the GitRepository of the tenant.
fn team_repository(world: &World) {
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": TEAM}, "spec": {"url": world.remote.path().display().to_string()},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", TEAM, repository);
}

/// Creates the GitSync of the tenant.
fn team_sync(world: &World, spec: Value) {
    let mut whole = json!({"gitRepository": "repo", "interval": "1h", "prevent": true});
    json_patch::merge(&mut whole, &spec);
    let metadata = json!({"name": "tenant", "namespace": TEAM});
    let sync = json!({"apiVersion": SYNCS.0, "kind": "GitSync", "metadata": metadata, "spec": whole});
    world.create(SYNCS.0, SYNCS.1, TEAM, sync);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_changes_nothing_that_is_in_git() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", DEPLOYMENT).commit("one");
    world.synced(json!({"prevent": true})).await;
    world.condition_is("demo", "Prevented", "True Prevented: hand edits are refused").await;
    if matches!(world.server, TestServer::Embedded(_)) {
        let said = world.condition("demo", "Prevented");
        assert!(said.ends_with("except those of admin, the user of the agent"), "{said}");
    }
    refused(&world, NAMESPACE, "a").await;
    let kubectl = Kubectl::of_user(&world.server, NAMESPACE, JANE).await;
    world.until("it is as it was", |w| w.data("a") == "1").await;

    let manifest = kubectl.file("a.yaml", &config_map("a", "by hand"));
    for arguments in [
        &["delete", "configmap", "a"][..],
        &["apply", "-f", &manifest],
        &["apply", "--server-side", "--force-conflicts", "-f", &manifest],
        &["replace", "-f", &manifest],
        &["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"key":"by hand"}}"#],
        &["label", "configmap", "a", "team=x"],
        &["label", "configmap", "a", "mainstay.dev/sync-"],
        &["annotate", "configmap", "a", "team=x"],
        &["delete", "configmap", "--selector", "mainstay.dev/sync"],
        &["set", "image", "deployment/web", "web=example.io/web:2"],
        &["set", "env", "deployment/web", "MORE=1"],
        &["delete", "deployment", "web"],
    ] {
        let error = kubectl.refused(arguments).await;
        assert!(error.contains("is kept as it is in Git by GitSync mainstay-tests/demo"), "{arguments:?}: {error}");
        assert!(error.contains("Forbidden") || error.contains("forbidden"), "{arguments:?}: {error}");
    }
    // kubectl shows the reason in the file that it reopens.
    let error = kubectl.edit_refused(&["edit", "configmap", "a"], "sed -i s/1/2/").await;
    assert!(error.contains("no valid changes were saved"), "{error}");
    assert_eq!(world.data("a"), "1");

    // Allowed: fields of other managers, objects outside of manifests, and requests without changes.
    kubectl.run(&["scale", "deployment/web", "--replicas=2"]).await;
    kubectl.run(&["rollout", "restart", "deployment/web"]).await;
    kubectl.run(&["annotate", "configmap", "a", "mainstay.dev/prune=disabled"]).await;
    kubectl.run(&["create", "configmap", "mine", "--from-literal=key=1"]).await;
    kubectl.run(&["label", "configmap", "mine", "team=x"]).await;
    kubectl.run(&["delete", "configmap", "mine"]).await;
    kubectl
        .run(&["patch", "configmap", "a", "--dry-run=server", "--type=merge", "-p", r#"{"data":{"key":"2"}}"#])
        .await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_the_git_sync_and_its_directory_and_the_way_around_it() {
    let mut world = World::new().await;
    world.remote.file("deploy/a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"prevent": true, "baseDir": "/deploy"})).await;
    let message = refused(&world, NAMESPACE, "a").await;
    let says = "ConfigMap mainstay-tests/a is kept as it is in Git by GitSync mainstay-tests/demo (directory /deploy \
                of \
                GitRepository mainstay-tests/repo, main): change it there; `mainstay trace` says in which file. To \
                change \
                it here all the same: `mainstay pause` for ConfigMap mainstay-tests/a first, and `mainstay resume` \
                afterwards";
    assert!(message.ends_with(says), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_lets_changes_through_until_it_is_over() {
    let world = prevented().await;
    let glass = |value: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": value}}});
    let mut both = glass(json!("disabled"));
    both["data"] = json!({"key": "by hand"});
    assert_eq!(edit_as(&world, JANE, NAMESPACE, "a", both).unwrap_err().0, 403);
    edit_as(&world, JANE, NAMESPACE, "a", glass(json!("disabled"))).unwrap();
    edit_as(&world, JANE, NAMESPACE, "a", json!({"data": {"key": "by hand"}})).unwrap();
    let is_paused = |w: &World| w.status("demo")["paused"] == json!([{"object": "ConfigMap mainstay-tests/a"}]);
    world.until("the status shows it", is_paused).await;
    assert_eq!(world.data("a"), "by hand");
    edit_as(&world, JANE, NAMESPACE, "a", glass(Value::Null)).unwrap();
    world.until("it is as in Git", |w| w.data("a") == "1").await;
    refused(&world, NAMESPACE, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_add_to_objects_and_change_nothing_that_is_in_git() {
    let world = prevented().await;
    let added = json!({
        "metadata": {"annotations": {"operator": "1"}, "labels": {"operator": "1"}, "finalizers": ["example.io/a"]},
        "data": {"more": "1"},
    });
    edit_as(&world, OPERATOR, NAMESPACE, "a", added).unwrap();
    for change in [
        json!({"data": {"key": "2"}}),
        json!({"data": {"key": null}}),
        json!({"metadata": {"labels": {LABEL: null}}}),
        json!({"metadata": {"managedFields": [{}]}}),
    ] {
        let edited = edit_as(&world, OPERATOR, NAMESPACE, "a", change.clone());
        assert_eq!(edited.unwrap_err().0, 403, "{change}");
    }
    assert!(!delete_as(&world, OPERATOR, "v1", "configmaps", NAMESPACE, "a"));
    edit_as(&world, OPERATOR, NAMESPACE, "a", json!({"metadata": {"finalizers": null}})).unwrap();
    // Users cannot change an object by wiping the proof of ownership, either.
    let wiped = edit_as(&world, JANE, NAMESPACE, "a", json!({"metadata": {"managedFields": [{}]}}));
    assert_eq!(wiped.unwrap_err().0, 403);
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_with_a_copied_label_is_not_protected() {
    let world = prevented().await;
    let label = world.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"][LABEL].clone();
    let copy = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", "labels": {LABEL: label}}});
    let create = Call::new("v1", "configmaps", NAMESPACE, "", Action::Create(copy));
    world.server.call_as(JANE, "kubectl-create", create).unwrap();
    edit_as(&world, JANE, NAMESPACE, "copy", json!({"data": {"key": "mine"}})).unwrap();
    assert!(delete_as(&world, JANE, "v1", "configmaps", NAMESPACE, "copy"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_goes_through_and_changes_neither_policy_nor_binding() {
    let mut world = prevented().await;
    checked(&world).await;
    let before = (version(&world, POLICIES), version(&world, BINDINGS));
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "1"));
    world.commit("demo", "two").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".to_owned(), "1".to_owned()));
    assert_eq!(edit_as(&world, JANE, NAMESPACE, "b", json!({"data": {"key": "2"}})).unwrap_err().0, 403);
    world.remote.remove("b.yaml");
    world.commit("demo", "three").await;
    world.until("what left is pruned", |w| w.data("b") == "absent").await;
    assert_eq!((version(&world, POLICIES), version(&world, BINDINGS)), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_finds_all_as_it_must_be() {
    let mut world = prevented().await;
    world.condition_is("demo", "Prevented", "True").await;
    checked(&world).await;
    let before = (version(&world, POLICIES), version(&world, BINDINGS));
    world.kill().await;
    assert_eq!(edit_as(&world, JANE, NAMESPACE, "a", json!({"data": {"key": "2"}})).unwrap_err().0, 403);
    world.start();
    world.remote.file("b.yaml", config_map("b", "1"));
    world.commit("demo", "two").await;
    world.condition_is("demo", "Prevented", "True").await;
    refused(&world, NAMESPACE, "b").await;
    assert_eq!((version(&world, POLICIES), version(&world, BINDINGS)), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_the_policy_are_reverted() {
    let world = prevented().await;
    let (spec, bound) =
        (policy(&world, POLICIES).unwrap()["spec"].clone(), policy(&world, BINDINGS).unwrap()["spec"].clone());
    let patch = |resource: &str, patch: Value| {
        let call = Call::new(ADMISSION, resource, "", NAME, Action::Patch(Form::Merge, patch));
        world.server.call_as(JANE, "kubectl-edit", call).unwrap();
    };
    patch(POLICIES, json!({"spec": {"failurePolicy": "Ignore", "matchConditions": []}}));
    world.until("the policy is back", |w| policy(w, POLICIES).is_some_and(|found| found["spec"] == spec)).await;
    patch(BINDINGS, json!({"spec": {"validationActions": ["Warn"]}}));
    world.until("the binding is back", |w| policy(w, BINDINGS).is_some_and(|found| found["spec"] == bound)).await;
    patch(BINDINGS, json!({"metadata": {"labels": null}}));
    let labelled = |w: &World| policy(w, BINDINGS).is_some_and(|found| found["metadata"]["labels"].is_object());
    world.until("its label is back", labelled).await;
    for resource in [BINDINGS, POLICIES] {
        assert!(delete_as(&world, JANE, ADMISSION, resource, "", NAME));
    }
    let back = |w: &World| policy(w, POLICIES).is_some() && policy(w, BINDINGS).is_some();
    world.until("both are back", back).await;
    refused(&world, NAMESPACE, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_deletions_of_the_policy_slow_its_reverts_and_are_reported() {
    let world = prevented().await;
    let began = Instant::now();
    for _ in 0..8 {
        assert!(delete_as(&world, JANE, ADMISSION, POLICIES, "", NAME));
        world.until("the policy is back", |w| policy(w, POLICIES).is_some()).await;
    }
    assert!(delete_as(&world, JANE, ADMISSION, POLICIES, "", NAME));
    // The last waits before are 0.25 s, 0.5 s, 1 s and 2 s.
    assert!(began.elapsed() > Duration::from_secs(2), "{:?}", began.elapsed());
    let says = format!(
        "False ApplyFailed: hand edits are not refused: ValidatingAdmissionPolicy {NAME} is changed or deleted \
         repeatedly"
    );
    world.condition_is("demo", "Prevented", &says).await;
    world.condition_is("demo", "Prevented", "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_may_not_be_created_is_tried_a_few_times_in_a_minute() {
    let mut world = World::new().await;
    world.levers().fail_next(Fault {
        verb: "create".into(),
        resource: POLICIES.into(),
        code: 422,
        message: "refused for the {nth}th time".into(),
        times: 10_000,
        ..Fault::default()
    });
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    let began = Instant::now();
    world.synced(json!({"prevent": true})).await;
    let tried = |w: &World| {
        let what = format!("create {POLICIES}.admissionregistration.k8s.io");
        w.requests().iter().find(|(asked, _)| *asked == what).map_or(0, |(_, count)| *count)
    };
    world.until("it was tried four times", |w| tried(w) >= 4).await;
    // The waits in between are 1 s, 2 s and 4 s, each ± 10 %.
    assert!(began.elapsed() > Duration::from_secs(6), "{:?}", began.elapsed());
    world.condition_is("demo", "Prevented", "False ApplyFailed: hand edits are not refused: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_are_admitted_without_prevention_and_while_the_git_sync_is_suspended() {
    let world = prevented().await;
    world.change("demo", json!({"suspend": true})).await;
    gone(&world).await;
    allowed(&world, NAMESPACE, "a").await;
    world.condition_is("demo", "Prevented", "False Suspended").await;
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"suspend": null}}));
    refused(&world, NAMESPACE, "a").await;
    world.condition_is("demo", "Prevented", "True").await;
    world.change("demo", json!({"prevent": false})).await;
    gone(&world).await;
    allowed(&world, NAMESPACE, "a").await;
    world.until("the status says nothing of it", |w| w.condition("demo", "Prevented") == "absent").await;
    world.until("drift is reverted as ever", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends_with_its_git_sync_and_the_objects_stay() {
    let world = prevented().await;
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    gone(&world).await;
    allowed(&world, NAMESPACE, "a").await;
    world
        .until("the object is let go", |w| {
            w.get("v1", "configmaps", "a").unwrap()["metadata"]["labels"].get(LABEL).is_none_or(Value::is_null)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_removes_what_a_git_sync_has_left_that_went_while_none_ran() {
    let mut world = prevented().await;
    world.kill().await;
    delete_sync(&world, "demo");
    sync_is_gone(&world, "demo").await;
    assert!(policy(&world, POLICIES).is_some());
    world.start();
    gone(&world).await;
    allowed(&world, NAMESPACE, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_of_somebody_else_is_not_taken() {
    let mut world = World::new().await;
    let foreign = json!({
        "apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "operations": ["CREATE"], "apiGroups": ["example.io"], "apiVersions": ["v1"], "resources": ["things"],
            }]},
            "validations": [{"expression": "true"}],
        },
    });
    let made = world.create(ADMISSION, POLICIES, "", foreign);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"prevent": true})).await;
    let says = format!("False NameConflict: ValidatingAdmissionPolicy {NAME} already exists");
    world.condition_is("demo", "Prevented", &says).await;
    assert_eq!(policy(&world, POLICIES).unwrap()["spec"], made["spec"]);
    assert_eq!(policy(&world, BINDINGS), None);
    assert!(world.condition("demo", "Ready").starts_with("True"));
    assert!(delete_as(&world, JANE, ADMISSION, POLICIES, "", NAME));
    world.condition_is("demo", "Prevented", "True").await;
    refused(&world, NAMESPACE, "a").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_prevents_nothing_outside_of_its_namespace() {
    let mut world = World::new().await;
    for name in [TEAM, OTHER] {
        namespace(&world, name);
    }
    team_repository(&world);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    team_sync(&world, json!({}));
    // A forged object in another namespace looks as if the tenant's GitSync had applied it.
    let forged = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {LABEL: format!("{TEAM}.tenant")}}, "data": {"key": "1"},
    });
    let apply = Call::new("v1", "configmaps", OTHER, "a", Action::Patch(Form::Apply, forged));
    world.try_as("mainstay", apply).unwrap();
    world.start();
    refused(&world, TEAM, "a").await;
    edit_as(&world, JANE, OTHER, "a", json!({"data": {"key": "2"}})).unwrap();
    assert!(delete_as(&world, JANE, "v1", "configmaps", OTHER, "a"));
    let binding = world.server.object(ADMISSION, BINDINGS, "", &format!("mainstay-{TEAM}.tenant")).unwrap();
    let about = &binding["spec"]["matchResources"];
    assert_eq!(about["namespaceSelector"]["matchExpressions"][0]["values"], json!([TEAM]));
    assert_eq!(about["resourceRules"][0]["scope"], "Namespaced");
    let is_ready = |w: &World| {
        let sync = w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
        condition_of(&sync["status"], "Ready").starts_with("True")
    };
    world.until("the tenant's GitSync is Ready", is_ready).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_go_with_their_namespace() {
    let mut world = World::new().await;
    namespace(&world, OTHER);
    let elsewhere = config_map("a", "1").replace("metadata:\n", &format!("metadata:\n  namespace: {OTHER}\n"));
    world.remote.file("a.yaml", elsewhere).commit("one");
    world.synced(json!({"prevent": true})).await;
    refused(&world, OTHER, "a").await;
    world.change("demo", json!({"drift": "Report"})).await;
    assert!(delete_as(&world, JANE, "v1", "namespaces", "", OTHER));
    let is_gone = |w: &World| w.server.object("v1", "configmaps", OTHER, "a").is_none();
    world.until("the namespace controller has deleted it", is_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_correct_policy_costs_no_request() {
    let mut world = prevented().await;
    world.condition_is("demo", "Prevented", "True").await;
    let of_policies = |w: &World| {
        let all = w.requests().into_iter().filter(|(what, _)| what.contains("validatingadmission"));
        all.collect::<Vec<_>>()
    };
    let before = of_policies(&world);
    world.remote.file("b.yaml", config_map("b", "1"));
    world.commit("demo", "two").await;
    world.remote.file("b.yaml", config_map("b", "2"));
    world.commit("demo", "three").await;
    assert_eq!(of_policies(&world), before);
    let mut writes = before.into_iter().filter(|(what, _)| !what.starts_with("list")).collect::<Vec<_>>();
    writes.sort();
    let created = [BINDINGS, POLICIES].map(|resource| (format!("create {resource}.admissionregistration.k8s.io"), 1));
    assert_eq!(writes, created.iter().rev().cloned().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_syncs_without_prevention_open_no_watches_of_policies() {
    let mut world = World::new().await;
    let names = ["two", "three", "four"];
    for name in names {
        world.remote.file(&format!("{name}/map.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.gate.record();
    world.synced(json!({"baseDir": "/two"})).await;
    let searched = |w: &World, resource: &str| w.gate.heard().iter().any(|heard| heard.asked.contains(resource));
    world
        .until("a new agent has looked for leftovers", |w| {
            searched(w, "/validatingadmissionpolicies?") && searched(w, "/validatingadmissionpolicybindings?")
        })
        .await;
    world.gate.record();
    for name in &names[1..] {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
        world.ready(name).await;
    }
    let asked = || world.gate.heard().into_iter().map(|heard| heard.asked);
    assert_eq!(asked().filter(|asked| asked.contains("validatingadmission")).collect::<Vec<_>>(), [""; 0]);
    world.edit(SYNCS.0, SYNCS.1, "four", json!({"spec": {"prevent": true}}));
    world.condition_is("four", "Prevented", "True").await;
    let of_policies =
        asked().filter(|asked| asked.contains("/validatingadmissionpolicies?") && asked.contains("sendInitialEvents"));
    assert_eq!(of_policies.count(), 1, "{:?}", asked().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_without_such_policies_is_reported_and_all_else_works() {
    let mut world = World::new().await;
    world.gate.hide("ValidatingAdmissionPolicy");
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"prevent": true})).await;
    world
        .condition_is("demo", "Prevented", "False NotSupported: this API server has no ValidatingAdmissionPolicies")
        .await;
    edit_as(&world, JANE, NAMESPACE, "a", json!({"data": {"key": "by hand"}})).unwrap();
    world.until("it is reverted", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_applies_and_prunes_where_others_are_refused() {
    let mut world = if External::is_named() {
        World::new().await
    } else {
        World::of(Cluster::new(Options { rbac: true, ..Options::default() }))
    };
    for name in [TEAM, OTHER] {
        namespace(&world, name);
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "patch", "delete"]});
        let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "deploys"}, "rules": [rule]});
        world.create(RBAC, "roles", name, role);
        let binding = json!({
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "deploys"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deploys"},
            "subjects": [{"kind": "ServiceAccount", "name": "deployer", "namespace": TEAM}],
        });
        world.create(RBAC, "rolebindings", name, binding);
    }
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": TEAM}});
    world.create("v1", "serviceaccounts", TEAM, account);
    team_repository(&world);
    let elsewhere =
        |value: &str| config_map("b", value).replace("metadata:\n", &format!("metadata:\n  namespace: {OTHER}\n"));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    team_sync(&world, json!({"serviceAccountName": "deployer"}));
    world.start();
    refused(&world, TEAM, "a").await;
    let namespaces = |w: &World| {
        let binding = w.server.object(ADMISSION, BINDINGS, "", &format!("mainstay-{TEAM}.tenant"));
        binding
            .map(|found| found["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"].clone())
    };
    assert_eq!(namespaces(&world), Some(json!([TEAM])));

    // Prevention covers each namespace with applied objects, and the GitSync's own writes succeed.
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", elsewhere("1")).commit("two");
    world.look();
    refused(&world, OTHER, "b").await;
    assert_eq!(namespaces(&world), Some(json!([OTHER, TEAM])));
    let data = |w: &World, namespace: &str, name: &str| {
        w.server.object("v1", "configmaps", namespace, name).map(|map| map["data"]["key"].clone())
    };
    world.until("its own change is applied", |w| data(w, TEAM, "a") == Some(json!("2"))).await;
    world.remote.remove("b.yaml").commit("three");
    world.look();
    world.until("what left is pruned", |w| data(w, OTHER, "b").is_none()).await;
    world.until("it prevents no further than it reaches", |w| namespaces(w) == Some(json!([TEAM]))).await;
}
