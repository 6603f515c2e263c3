//! Ownership of objects: takeover from users, handover between GitSyncs, and release.

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::ownership::{LABEL, delete_sync, label_of, prune_on_delete, sync_is_gone, two_directories};
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_between_two_syncs_of_one_branch_is_never_deleted() {
    let mut world = two_directories().await;
    let uid = world.uid("v1", "configmaps", "moving");
    for (from, to, value) in [("left", "right", "2"), ("right", "left", "2")] {
        world.remote.remove(&format!("{from}/moving.yaml"));
        world.remote.file(&format!("{to}/moving.yaml"), config_map("moving", value)).commit("move");
        world.look();
        world.ready("left").await;
        world.ready("right").await;
        assert_eq!(world.uid("v1", "configmaps", "moving"), uid);
        assert_eq!(
            (world.data("moving").as_str(), label_of(&world, "moving")),
            (value, format!("mainstay-tests.{to}").into())
        );
        assert_eq!(world.status(from)["objects"], 1, "{from} has its own left");
        world.edit("v1", "configmaps", "moving", json!({"data": {"key": "changed"}}));
        world.until("its new owner keeps it", |w| w.data("moving") == value).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_while_no_agent_runs_is_never_deleted() {
    let mut world = two_directories().await;
    let uid = world.uid("v1", "configmaps", "moving");
    for (from, to) in [("left", "right"), ("right", "left"), ("left", "right"), ("right", "left")] {
        world.stop().await;
        world.remote.remove(&format!("{from}/moving.yaml"));
        world.remote.file(&format!("{to}/moving.yaml"), config_map("moving", to)).commit("move");
        world.start();
        world.ready("left").await;
        world.ready("right").await;
        assert_eq!(world.uid("v1", "configmaps", "moving"), uid);
        assert_eq!(label_of(&world, "moving"), format!("mainstay-tests.{to}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_moves_between_repositories_is_handed_over_when_it_is_wanted_first() {
    let mut world = World::new().await;
    let mut other = mainstay_testkit::remote::Remote::new();
    world.repository("other", &other.path().display().to_string());
    world.remote.file("a.yaml", config_map("a", "1")).file("moving.yaml", config_map("moving", "1")).commit("one");
    other.file("b.yaml", config_map("b", "1")).commit("one");
    world.sync("here", json!({}));
    world.sync("there", json!({"gitRepository": "other"}));
    world.start();
    world.ready("here").await;
    world.ready_at("there", &other.head()).await;
    let uid = world.uid("v1", "configmaps", "moving");
    other.file("moving.yaml", config_map("moving", "2")).commit("claimed");
    world.ask("there").await;
    world.condition_is("there", "Ready", "False OwnershipConflict").await;
    let said = world.condition("there", "Ready");
    assert!(said.contains("mainstay-tests/here") && said.contains("mainstay-tests/moving"), "{said}");
    assert_eq!(world.data("moving"), "1");
    world.remote.remove("moving.yaml");
    world.commit("here", "given up").await;
    world.ready_at("there", &other.head()).await;
    assert_eq!((world.data("moving").as_str(), world.uid("v1", "configmaps", "moving")), ("2", uid));
    assert_eq!(label_of(&world, "moving"), "mainstay-tests.there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_two_syncs_claim_belongs_to_one_and_the_conflict_names_both() {
    let mut world = World::new().await;
    let files = [("left/x.yaml", config_map("x", "left")), ("right/x.yaml", config_map("x", "right"))];
    for (path, content) in files {
        world.remote.file(path, content);
    }
    world.remote.file("right/r.yaml", config_map("r", "1")).commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.start();
    world.ready("left").await;
    world.sync("right", json!({"baseDir": "/right"}));
    world.condition_is("right", "Ready", "False OwnershipConflict").await;
    let said = world.condition("right", "Ready");
    assert!(said.contains("mainstay-tests/left") && said.contains("mainstay-tests/x"), "{said}");
    assert_eq!((world.data("x").as_str(), world.data("r").as_str()), ("left", "1"), "the rest is applied");
    assert!(world.condition("left", "Ready").starts_with("True"));
    delete_sync(&world, "left");
    sync_is_gone(&world, "left").await;
    world.ready("right").await;
    assert_eq!((world.data("x").as_str(), label_of(&world, "x")), ("right", "mainstay-tests.right".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_label_alone_is_no_claim() {
    let mut world = World::new().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs"},
        "metadata": {"name": "a", "namespace": NAMESPACE, "labels": {LABEL: "mainstay-tests.nobody"}},
    });
    world.create("v1", "configmaps", NAMESPACE, theirs);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    assert_eq!((world.data("a").as_str(), label_of(&world, "a")), ("1", "mainstay-tests.demo".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn items_that_kubectl_apply_left_are_removed_at_adoption() {
    let mut world = World::new().await;
    let kubectl = "kubectl-client-side-apply";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "old", "stale": "x"},
        "metadata": {"name": "a", "namespace": NAMESPACE, "labels": {"stale": "x"}, "finalizers": ["example.org/keep"],
                     "annotations": {"stale": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
    });
    world.try_as(kubectl, Call::new("v1", "configmaps", NAMESPACE, "", Action::Create(map))).unwrap();
    let theirs = Action::Patch(Form::Merge, json!({"data": {"controller": "kept"}}));
    world.try_as("some-controller", Call::new("v1", "configmaps", NAMESPACE, "a", theirs)).unwrap();
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": NAMESPACE},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "nginx:0", "env": [
                {"name": "A", "value": "0"}, {"name": "STALE", "value": "x"}]}]},
        }},
    });
    world.try_as(kubectl, Call::new("apps/v1", "deployments", NAMESPACE, "", Action::Create(web))).unwrap();
    let without_replicas = deployment("web", "nginx:1", 2).replace("  replicas: 2\n", "");
    world.remote.file("a.yaml", config_map("a", "new")).file("web.yaml", without_replicas).commit("one");
    world.synced(json!({})).await;
    let map = world.get("v1", "configmaps", "a").unwrap();
    assert_eq!(map["data"], json!({"key": "new", "controller": "kept"}));
    assert_eq!(map["metadata"]["labels"], json!({LABEL: "mainstay-tests.demo"}));
    assert_eq!(map["metadata"]["annotations"], Value::Null);
    assert_eq!(map["metadata"]["finalizers"], json!(["example.org/keep"]));
    let web = world.get("apps/v1", "deployments", "web").unwrap();
    let names = |web: &Value| {
        let env = web["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        env.iter().map(|e| e["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((names(&web), &web["spec"]["replicas"]), (vec!["A".to_owned(), "B".to_owned()], &json!(3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_managed_fields_do_not_make_an_old_owner_of_everything() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1") + "  other: \"1\"\n").commit("one");
    world.synced(json!({})).await;
    let theirs = json!({"data": {"theirs": "kept"}, "metadata": {"managedFields": [{}]}});
    world.edit("v1", "configmaps", "a", theirs);
    let managers = |w: &World| {
        let fields = w.get("v1", "configmaps", "a").unwrap()["metadata"]["managedFields"].clone();
        let list = fields.as_array().cloned().unwrap_or_default();
        list.iter().map(|e| (e["manager"].clone(), e["fieldsV1"].clone())).collect::<Vec<_>>()
    };
    world.until("our entry is back", |w| managers(w).iter().any(|(manager, _)| manager == "mainstay")).await;
    world
        .until("the old entry does not co-own ours", |w| {
            managers(w).iter().all(|(manager, fields)| {
                manager != "before-first-apply"
                    || fields["f:data"].get("f:key").is_none() && fields["f:data"].get("f:other").is_none()
            })
        })
        .await;
    world.remote.file("a.yaml", config_map("a", "1"));
    world.commit("demo", "a field goes").await;
    assert_eq!(world.get("v1", "configmaps", "a").unwrap()["data"], json!({"key": "1", "theirs": "kept"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_outside_the_agents_namespace_may_touch_its_own_namespace_only() {
    let mut world = World::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mainstay-tests-team"}});
    world.create("v1", "namespaces", "", namespace);
    world
        .remote
        .file("own.yaml", config_map("own", "1"))
        .file("a.yaml", config_map("a", "1").replace("name: a", "name: a\n  namespace: mainstay-tests"));
    world
        .remote
        .file("n.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n")
        .commit("too much");
    let url = world.remote.path().display().to_string();
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": "mainstay-tests-team"}, "spec": {"url": url},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", "mainstay-tests-team", repository);
    let sync = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "demo", "namespace": "mainstay-tests-team"},
        "spec": {"gitRepository": "repo", "interval": "1s"},
    });
    world.create("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", sync);
    world.start();
    let ready = |w: &World| {
        let sync = w.server.object("mainstay.dev/v1alpha1", "gitsyncs", "mainstay-tests-team", "demo").unwrap();
        let conditions = sync["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.into_iter().find(|c| c["type"] == "Ready").unwrap_or_default();
        format!("{} {}", ready["status"], ready["message"])
    };
    world.until("it is refused", |w| ready(w).starts_with("\"False\"")).await;
    let said = ready(&world);
    assert!(said.contains("a.yaml") && said.contains("n.yaml") && !said.contains("own.yaml"), "{said}");
    assert!(world.server.object("v1", "configmaps", "mainstay-tests-team", "own").is_none());
    assert!(world.server.object("v1", "namespaces", "", "mainstay-tests-shop").is_none());
    world.remote.remove("a.yaml").remove("n.yaml").commit("own only");
    world.look();
    world.until("its own objects are applied", |w| ready(w).starts_with("\"True\"")).await;
    assert!(world.server.object("v1", "configmaps", "mainstay-tests-team", "own").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_one_of_two_syncs_that_claim_an_object_concurrently_gets_it() {
    let mut world = World::new().await;
    world
        .remote
        .file("left/x.yaml", config_map("x", "left"))
        .file("right/x.yaml", config_map("x", "right"))
        .commit("one");
    world.sync("left", json!({"baseDir": "/left"}));
    world.sync("right", json!({"baseDir": "/right"}));
    world.start();
    world
        .until("one is ready and the other is told", |w| {
            let said = ["left", "right"].map(|sync| w.condition(sync, "Ready"));
            said.iter().any(|s| s.starts_with("True")) && said.iter().any(|s| s.starts_with("False OwnershipConflict"))
        })
        .await;
    let winner = if world.condition("left", "Ready").starts_with("True") { "left" } else { "right" };
    assert_eq!((world.data("x").as_str(), label_of(&world, "x")), (winner, format!("mainstay-tests.{winner}").into()));
    world.kill().await;
    world.start();
    world.ask("left").await;
    world.ask("right").await;
    assert_eq!((world.data("x").as_str(), label_of(&world, "x")), (winner, format!("mainstay-tests.{winner}").into()));
    // A new agent does not change the owner.
    world.ready(winner).await;
    world.condition_is(if winner == "left" { "right" } else { "left" }, "Ready", "False OwnershipConflict").await;
}

/// A GitSync starts to want `moving` while an earlier deletion in the same prune is still pending.
async fn wanted_during_deletions(begin: impl AsyncFn(&mut World)) {
    let mut world = World::new().await;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-slow}\n";
    world.remote.file("left/web.yaml", deployment("web", "nginx:1", 1)).file("left/l.yaml", config_map("l", "1"));
    world.remote.file("left/moving.yaml", config_map("moving", "1"));
    world.remote.file("third/slow.yaml", namespace).file("third/moving.yaml", config_map("moving", "3")).commit("one");
    world.sync("left", json!({"baseDir": "/left", "wait": false}));
    world.start();
    world.ready("left").await;
    let uid = world.uid("v1", "configmaps", "moving");
    let slow = |verb: &str, resource: &str, millis: u64| devcluster::fault_injection::Fault {
        verb: verb.into(),
        resource: resource.into(),
        delay_millis: millis,
        ..devcluster::fault_injection::Fault::default()
    };
    world.levers().fail_next(slow("delete", "deployments.apps", 3000));
    world.levers().fail_next(slow("apply", "namespaces", 6000));
    begin(&mut world).await;
    let asked = |w: &World, what: &str| w.requests().iter().any(|(asked, _)| asked == what);
    world.until("a deletion is under way", |w| asked(w, "delete deployments.apps")).await;
    world.sync("third", json!({"baseDir": "/third"}));
    world.until("the other one is about to apply", |w| asked(w, "apply namespaces")).await;
    assert_eq!(world.data("moving"), "1");
    world.until("it is taken over", |w| w.data("moving") == "3").await;
    assert_eq!(world.uid("v1", "configmaps", "moving"), uid, "it was never deleted");
    world.until("it is the other one's", |w| label_of(w, "moving") == "mainstay-tests.third").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_another_sync_claims_during_a_prune_are_handed_over() {
    wanted_during_deletions(async |world| {
        world.remote.remove("left/web.yaml").remove("left/moving.yaml").commit("two go");
        world.request("left");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_another_sync_claims_during_a_deletion_are_handed_over() {
    wanted_during_deletions(async |world| {
        prune_on_delete(world, "left").await;
        delete_sync(world, "left");
    })
    .await;
}
