//! GitSyncs with `spec.serviceAccountName`: the agent impersonates that ServiceAccount to read and write their objects,
//! on a cluster with RBAC.

use devcluster::verbs::{delete::DeleteOptions, patch::Form};
use devcluster::{Action, Call, Cluster, Options};
use serde_json::{Value, json};

use mainstay_testkit::external::External;
use mainstay_testkit::ownership::LABEL;
use mainstay_testkit::world::{World, condition_of, config_map};

/// The tenant's namespace.
const TEAM: &str = "mainstay-tests-team";
/// A namespace in which the tenant has permissions.
const SHARED: &str = "mainstay-tests-shared";
/// A namespace of another tenant.
const FOREIGN: &str = "mainstay-tests-foreign";
const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const DEPLOYER: &str = "deployer";

/// Creates a world with the three namespaces, the tenant's repository and its ServiceAccount, which has no permissions
/// yet.
async fn world() -> World {
    let world = if External::is_named() {
        World::new().await
    } else {
        World::of(Cluster::new(Options { rbac: true, ..Options::default() }))
    };
    for name in [TEAM, SHARED, FOREIGN] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.create("v1", "namespaces", "", namespace);
    }
    let url = world.remote.path().display().to_string();
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": TEAM}, "spec": {"url": url},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", TEAM, repository);
    account(&world, DEPLOYER);
    world
}

fn account(world: &World, name: &str) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": TEAM}});
    world.create("v1", "serviceaccounts", TEAM, account);
}

/// Returns the permissions in the book.
fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "create", "patch", "delete"]}])
}

/// Grants the tenant's ServiceAccount the permissions in the book, in a namespace.
fn grant(world: &World, namespace: &str) {
    if world.server.object(RBAC, "roles", namespace, "deploys").is_none() {
        let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "deploys"}, "rules": rules()});
        world.create(RBAC, "roles", namespace, role);
    }
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": "deploys"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deploys"},
        "subjects": [{"kind": "ServiceAccount", "name": DEPLOYER, "namespace": TEAM}],
    });
    world.create(RBAC, "rolebindings", namespace, binding);
}

/// Takes the permissions in a namespace away, and waits until the API server denies such requests.
fn revoke(world: &World, namespace: &str) {
    delete(world, RBAC, "rolebindings", namespace, "deploys");
    world.until_denied((TEAM, DEPLOYER), namespace, &rules());
}

fn delete(world: &World, version: &str, resource: &str, namespace: &str, name: &str) {
    let action = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new(version, resource, namespace, name, action)).unwrap();
}

/// Adds the tenant's GitSync, and starts the agent.
fn begin(world: &mut World, spec: Value) {
    let mut whole = json!({"gitRepository": "repo", "interval": "1h"});
    json_patch::merge(&mut whole, &spec);
    let metadata = json!({"name": "tenant", "namespace": TEAM});
    let sync = json!({"apiVersion": SYNCS.0, "kind": "GitSync", "metadata": metadata, "spec": whole});
    world.create(SYNCS.0, SYNCS.1, TEAM, sync);
    world.start();
}

fn as_deployer() -> Value {
    json!({"serviceAccountName": DEPLOYER})
}

fn status(world: &World) -> Value {
    world.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").map(|sync| sync["status"].clone()).unwrap_or_default()
}

/// Waits until the tenant's Ready starts with `begins` and contains `says`.
async fn ready_is(world: &World, begins: &str, says: &str) {
    let is = |w: &World| {
        let ready = condition_of(&status(w), "Ready");
        ready.starts_with(begins) && ready.contains(says)
    };
    world.until(&format!("Ready to be {begins:?} and to say {says:?}"), is).await;
}

/// Returns a ConfigMap in a namespace, as a document.
fn map_in(namespace: &str, name: &str, value: &str) -> String {
    config_map(name, value).replace("metadata:\n", &format!("metadata:\n  namespace: {namespace}\n"))
}

/// Returns `data.key` of a ConfigMap, or "absent".
fn data(world: &World, namespace: &str, name: &str) -> String {
    let map = world.server.object("v1", "configmaps", namespace, name);
    map.map_or_else(|| "absent".to_owned(), |map| map["data"]["key"].as_str().unwrap_or_default().to_owned())
}

fn edit(world: &World, resource: (&str, &str), namespace: &str, name: &str, patch: Value) {
    let action = Action::Patch(Form::Merge, patch);
    world.try_as("kubectl-edit", Call::new(resource.0, resource.1, namespace, name, action)).unwrap();
}

fn edit_map(world: &World, namespace: &str, name: &str, value: &str) {
    edit(world, ("v1", "configmaps"), namespace, name, json!({"data": {"key": value}}));
}

/// Returns the agent's reports to the tenant: the status of its GitSync, and the Events of its namespace.
fn told(world: &World) -> String {
    let events = world.server.objects("v1", "events", Some(TEAM));
    let notes = events.iter().map(|event| event["message"].to_string());
    notes.chain([status(world).to_string()]).collect::<Vec<_>>().join("\n")
}

/// Makes a commit and lets the agent look it up.
fn commit(world: &mut World, message: &str) {
    world.remote.commit(message);
    world.look();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_reaches_as_far_as_its_account_and_no_further() {
    let mut world = world().await;
    grant(&world, TEAM);
    grant(&world, SHARED);
    let hidden =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}, "data": {"key": "hidden"}});
    world.create("v1", "configmaps", FOREIGN, hidden);
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", map_in(SHARED, "b", "1"));
    world.remote.file("there.yaml", map_in(FOREIGN, "there", "1"));
    world.remote.file("away.yaml", map_in(FOREIGN, "away", "1")).commit("one");
    begin(&mut world, as_deployer());

    let refused = format!("ServiceAccount {TEAM}/{DEPLOYER} may not list configmaps in namespace {FOREIGN}");
    ready_is(&world, "False ApplyFailed", &refused).await;
    world.until("the rest is applied", |w| data(w, TEAM, "a") == "1" && data(w, SHARED, "b") == "1").await;
    let failures = status(&world)["failures"].as_array().cloned().unwrap_or_default();
    let said = |name: &str| {
        let of = failures.iter().find(|failure| failure["object"].as_str().unwrap().ends_with(name)).unwrap();
        of["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(said("/there"), said("/away"), "nothing says which of them exists");
    assert!(
        said("/there").contains("RoleBinding") && said("/there").contains("resources: [configmaps]"),
        "{failures:?}"
    );
    assert!(!told(&world).contains("hidden"), "{}", told(&world));
    assert_eq!(
        (data(&world, FOREIGN, "there"), data(&world, FOREIGN, "away")),
        ("hidden".to_owned(), "absent".to_owned())
    );

    world.remote.remove("there.yaml").remove("away.yaml");
    commit(&mut world, "only where it may");
    ready_is(&world, "True", "").await;
    edit_map(&world, SHARED, "b", "theirs");
    world.until("reverted", |w| data(w, SHARED, "b") == "1").await;
    delete(&world, "v1", "configmaps", SHARED, "b");
    world.until("made again", |w| data(w, SHARED, "b") == "1").await;
    world.remote.remove("b.yaml");
    commit(&mut world, "without b");
    world.until("pruned", |w| data(w, SHARED, "b") == "absent").await;
    ready_is(&world, "True", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_are_missed_with_words_and_count_again_once_given_back() {
    let mut world = world().await;
    grant(&world, TEAM);
    grant(&world, SHARED);
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", map_in(SHARED, "b", "1")).commit("one");
    begin(&mut world, as_deployer());
    ready_is(&world, "True", "").await;

    revoke(&world, SHARED);
    edit_map(&world, SHARED, "b", "overheard");
    let refused = format!("ServiceAccount {TEAM}/{DEPLOYER} may not patch configmaps in namespace {SHARED}");
    ready_is(&world, "False RevertFailed", &refused).await;
    world.until("the drift remains", |w| status(w)["drifted"][0]["reason"] == "RevertFailed").await;
    assert_eq!(status(&world)["drifted"][0]["fields"], json!(["data.key"]));
    assert!(!told(&world).contains("overheard"), "{}", told(&world));
    grant(&world, SHARED);
    world.until("reverted", |w| data(w, SHARED, "b") == "1").await;
    ready_is(&world, "True", "").await;

    revoke(&world, SHARED);
    world.remote.remove("b.yaml");
    commit(&mut world, "without b");
    ready_is(&world, "False PruneFailed", &format!("may not get configmaps in namespace {SHARED}")).await;
    assert_eq!(data(&world, SHARED, "b"), "1");
    grant(&world, SHARED);
    world.until("pruned", |w| data(w, SHARED, "b") == "absent").await;
    ready_is(&world, "True", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_account_applies_nothing_again_and_makes_the_next_revert() {
    let mut world = world().await;
    grant(&world, TEAM);
    account(&world, "powerless");
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    begin(&mut world, as_deployer());
    ready_is(&world, "True", "").await;
    let version = |w: &World| {
        let map = w.server.object("v1", "configmaps", TEAM, "a").unwrap();
        map["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
    };
    let before = version(&world);
    edit(&world, SYNCS, TEAM, "tenant", json!({"spec": {"serviceAccountName": "powerless"}}));
    let is_seen = |w: &World| status(w)["observedGeneration"] == 2;
    world.until("it is seen", is_seen).await;
    ready_is(&world, "True", "").await;
    assert_eq!(version(&world), before);

    edit_map(&world, TEAM, "a", "theirs");
    let refused = format!("ServiceAccount {TEAM}/powerless may not patch configmaps in namespace {TEAM}");
    ready_is(&world, "False RevertFailed", &refused).await;
    edit(&world, SYNCS, TEAM, "tenant", json!({"spec": {"serviceAccountName": DEPLOYER}}));
    world.until("reverted", |w| data(w, TEAM, "a") == "1").await;
    ready_is(&world, "True", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_does_not_exist_writes_nothing_whatever_is_bound_to_its_name() {
    let mut world = world().await;
    grant(&world, TEAM);
    delete(&world, "v1", "serviceaccounts", TEAM, DEPLOYER);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    begin(&mut world, as_deployer());
    let missing = format!("ServiceAccount {TEAM}/{DEPLOYER} does not exist");
    ready_is(&world, "", &missing).await;
    assert_eq!(data(&world, TEAM, "a"), "absent");
    account(&world, DEPLOYER);
    ready_is(&world, "True", "").await;
    assert_eq!(data(&world, TEAM, "a"), "1");

    // If GitSync and account are deleted together, the objects stay, and nothing waits for them.
    let asked = json!({"metadata": {"annotations": {"mainstay.dev/on-delete": "prune"}}});
    edit(&world, SYNCS, TEAM, "tenant", asked);
    let sync = |w: &World| w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant");
    world.until("it has a finalizer", |w| sync(w).is_some_and(|s| s["metadata"]["finalizers"].is_array())).await;
    delete(&world, "v1", "serviceaccounts", TEAM, DEPLOYER);
    delete(&world, SYNCS.0, SYNCS.1, TEAM, "tenant");
    world.until("it is gone", |w| sync(w).is_none()).await;
    assert_eq!(data(&world, TEAM, "a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_git_sync_takes_its_label_off_with_the_rights_of_its_account() {
    let mut world = world().await;
    grant(&world, TEAM);
    grant(&world, SHARED);
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", map_in(SHARED, "b", "1")).commit("one");
    begin(&mut world, as_deployer());
    ready_is(&world, "True", "").await;
    delete(&world, SYNCS.0, SYNCS.1, TEAM, "tenant");
    let is_free = |w: &World, namespace, name| {
        let map = w.server.object("v1", "configmaps", namespace, name).unwrap();
        map["metadata"]["labels"][LABEL].is_null()
    };
    world.until("they are nobody's", |w| is_free(w, TEAM, "a") && is_free(w, SHARED, "b")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_account_a_git_sync_is_confined_unless_the_agent_has_a_default() {
    let mut world = world().await;
    grant(&world, TEAM);
    grant(&world, SHARED);
    world.remote.file("team/a.yaml", config_map("a", "1")).file("team/b.yaml", map_in(SHARED, "b", "1")).commit("one");
    begin(&mut world, json!({"baseDir": "/team"}));
    ready_is(&world, "False ManifestInvalid", &format!("a GitSync in namespace {TEAM} may touch objects of that"))
        .await;
    assert_eq!((data(&world, TEAM, "a"), data(&world, SHARED, "b")), ("absent".to_owned(), "absent".to_owned()));
    world.stop().await;

    // The agent's own GitSyncs keep its permissions.
    world.default_service_account = Some(DEPLOYER.to_owned());
    world.sync("demo", json!({"baseDir": "/platform"}));
    world.remote.file("platform/c.yaml", map_in(FOREIGN, "c", "1")).commit("one of the platform");
    world.start();
    ready_is(&world, "True", "").await;
    world.ready("demo").await;
    assert_eq!((data(&world, TEAM, "a"), data(&world, SHARED, "b")), ("1".to_owned(), "1".to_owned()));
    revoke(&world, SHARED);
    edit_map(&world, SHARED, "b", "theirs");
    ready_is(&world, "False RevertFailed", &format!("ServiceAccount {TEAM}/{DEPLOYER} may not patch")).await;
    assert_eq!(data(&world, FOREIGN, "c"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audits_use_the_rights_of_the_account() {
    let mut world = world().await;
    world.audit = std::time::Duration::from_secs(2);
    grant(&world, TEAM);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    begin(&mut world, as_deployer());
    ready_is(&world, "True", "").await;
    revoke(&world, TEAM);
    let refused = format!("ServiceAccount {TEAM}/{DEPLOYER} may not patch configmaps");
    world.until_or("the audit is refused", |w| told(w).contains(&refused), || told(&world)).await;
    assert!(told(&world).contains("cannot be audited"), "{}", told(&world));
    assert_eq!(data(&world, TEAM, "a"), "1");
}
