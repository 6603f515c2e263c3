//! The forward loop, end to end: a commit is applied to the cluster.

use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, config_map, definition, deployment};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_applied_changed_and_pruned() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("two");
    world.synced(json!({})).await;
    assert_eq!((world.data("a"), world.data("b")), ("1".to_owned(), "1".to_owned()));
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml");
    world.commit("demo", "change one, remove the other").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".to_owned(), "absent".to_owned()));
    assert_eq!(world.status("demo")["objects"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_works_with_kubectl_wait() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "nginx:1", 2)).commit("one");
    world.synced(json!({})).await;
    let status = world.status("demo");
    let sync = world.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").unwrap();
    assert_eq!(status["observedGeneration"], sync["metadata"]["generation"]);
    for condition in status["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], sync["metadata"]["generation"], "{condition}");
        assert!(condition["lastTransitionTime"].is_string() && condition["reason"].is_string(), "{condition}");
    }
    for (kind, wanted) in
        [("Ready", "True"), ("Reconciling", "False"), ("Stalled", "False"), ("Healthy", "True"), ("Contended", "False")]
    {
        assert!(world.condition("demo", kind).starts_with(wanted), "{kind}: {}", world.condition("demo", kind));
    }
    assert_eq!((&status["objects"], &status["healthy"], &status["failed"]), (&json!(2), &json!(2), &json!(0)));
    assert_eq!(status["attemptedCommit"], world.remote.head());
    assert_eq!(status["appliedTreeId"].as_str().map(str::len), Some(40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_does_not_change_the_directory_moves_only_the_commit_in_the_status() {
    let mut world = World::new().await;
    world.remote.file("app/a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"baseDir": "/app"})).await;
    let (tree, version) = (world.status("demo")["appliedTreeId"].clone(), version_of(&world, "a"));
    world.remote.file("README.md", "elsewhere");
    world.commit("demo", "two").await;
    assert_eq!((world.status("demo")["appliedTreeId"].clone(), version_of(&world, "a")), (tree, version));
}

fn version_of(world: &World, config_map: &str) -> String {
    let map = world.get("v1", "configmaps", config_map).unwrap();
    map["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_ordered_by_kind_and_not_by_file_name() {
    let mut world = World::new().await;
    let inside = |document: String| document.replace("metadata:\n", "metadata:\n  namespace: mainstay-tests-shop\n");
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: r, namespace: mainstay-tests-shop}\n\
                   roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}\nsubjects: []\n";
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: r, namespace: mainstay-tests-shop}\nrules: []\n";
    world.remote.file(
        "a.yaml",
        inside(deployment("web", "nginx:1", 1)).replacen(
            "template:\n    metadata:\n  namespace: mainstay-tests-shop\n",
            "template:\n    metadata:\n",
            1,
        ),
    );
    world.remote.file("b.yaml", inside(config_map("settings", "1"))).file("c.yaml", binding).file("d.yaml", role);
    world
        .remote
        .file("z.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n")
        .commit("one");
    world.sync("demo", json!({}));
    world.gate.record();
    world.start();
    world.ready("demo").await;
    let asked = world.gate.heard().into_iter().map(|heard| heard.asked).collect::<Vec<_>>();
    let place = |path: &str| {
        let applied = |asked: &String| asked.split('?').next() == Some(&format!("PATCH {path}"));
        asked.iter().position(applied).unwrap_or_else(|| panic!("{path} in {asked:?}"))
    };
    let shop = "namespaces/mainstay-tests-shop";
    let order = [
        place(&format!("/api/v1/{shop}")),
        place(&format!("/apis/rbac.authorization.k8s.io/v1/{shop}/roles/r")),
        place(&format!("/apis/rbac.authorization.k8s.io/v1/{shop}/rolebindings/r")),
        place(&format!("/apis/apps/v1/{shop}/deployments/web")),
    ];
    let settings = place(&format!("/api/v1/{shop}/configmaps/settings"));
    assert!(order.is_sorted() && order[0] < settings && settings < order[3], "{asked:?}");
    assert!(world.condition("demo", "Ready").starts_with("True"));
    let failed = std::iter::from_fn(|| world.messages.try_recv().ok()).any(|m| matches!(m, Message::Failed { .. }));
    assert!(!failed, "nothing was refused on the way");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_and_its_objects_come_in_one_commit() {
    let mut world = World::new().await;
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    world.remote.file("a.yaml", widget).file("b.yaml", definition()).commit("one");
    world.synced(json!({})).await;
    assert_eq!(world.get("mainstay-tests.example.org/v1", "widgets", "w").unwrap()["spec"]["size"], 3);
    world.edit("mainstay-tests.example.org/v1", "widgets", "w", json!({"spec": {"size": 4}}));
    world
        .until("a custom resource is reverted", |w| {
            w.get("mainstay-tests.example.org/v1", "widgets", "w").unwrap()["spec"]["size"] == 3
        })
        .await;
    world.remote.remove("a.yaml");
    world.commit("demo", "the object goes").await;
    assert!(world.get("mainstay-tests.example.org/v1", "widgets", "w").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_kind_is_reported_and_applied_once_it_is_defined() {
    let mut world = World::new().await;
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    world.remote.file("a.yaml", config_map("a", "1")).file("w.yaml", widget).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("w.yaml") && said.contains("mainstay-tests.example.org/v1 Widget"), "{said}");
    assert_eq!(world.data("a"), "absent", "nothing of such a commit is applied");
    assert!(world.condition("demo", "Reconciling").starts_with("True ManifestInvalid"), "somebody else may define it");
    let definition = serde_json::from_str(&definition()).unwrap();
    world.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition);
    // No sync is requested.
    world.ready("demo").await;
    assert!(world.get("mainstay-tests.example.org/v1", "widgets", "w").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_problems_of_all_files_are_named_and_the_previous_commit_stays_enforced() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    let first = world.remote.head();
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml");
    world.remote.file("bad/syntax.yaml", "a: [1\nb: 2\n").file("bad/kind.json", "{\"apiVersion\": \"v1\"}");
    world.remote.file("bad/twice.yaml", config_map("a", "3"));
    world.remote.file("bad/generated.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: x-}\n");
    world.try_commit("demo", "broken").await;
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    assert!(world.condition("demo", "Stalled").starts_with("True ManifestInvalid"));
    let said = world.condition("demo", "Ready");
    for named in ["bad/syntax.yaml", "bad/kind.json", "bad/generated.yaml"] {
        assert!(said.contains(named), "{named} in {said}");
    }
    let unchanged = |w: &World| w.data("a") == "1" && w.data("b") == "1";
    assert!(unchanged(&world));
    assert_eq!(world.status("demo")["appliedCommit"], *first);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("what was applied is enforced", unchanged).await;
    world.kill().await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.delete("v1", "configmaps", "b");
    world.start();
    world.until("also by a new agent", unchanged).await;
    world.remote.remove("bad");
    world.commit("demo", "repaired").await;
    assert_eq!((world.data("a"), world.data("b")), ("2".to_owned(), "absent".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_in_two_files_is_a_problem_that_names_both() {
    let mut world = World::new().await;
    let placed = config_map("a", "2").replace("name: a", "name: a\n  namespace: mainstay-tests");
    world.remote.file("one.yaml", config_map("a", "1")).file("two.yaml", placed).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("one.yaml") && said.contains("two.yaml") && said.contains("mainstay-tests/a"), "{said}");
    assert_eq!(world.data("a"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_names_no_namespace_goes_to_the_target_namespace_and_moves_with_it() {
    let mut world = World::new().await;
    for name in ["mainstay-tests-shop", "mainstay-tests-stock"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        world.create("v1", "namespaces", "", namespace);
    }
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.remote.file("b.yaml", config_map("b", "1").replace("name: b", "name: b\n  namespace: mainstay-tests"));
    world.remote.commit("two");
    world.synced(json!({"targetNamespace": "mainstay-tests-shop"})).await;
    assert!(world.server.object("v1", "configmaps", "mainstay-tests-shop", "a").is_some());
    assert_eq!(world.config_maps(), ["b"]);
    world.change("demo", json!({"targetNamespace": "mainstay-tests-stock"})).await;
    world.ready("demo").await;
    assert!(world.server.object("v1", "configmaps", "mainstay-tests-stock", "a").is_some());
    assert!(world.server.object("v1", "configmaps", "mainstay-tests-shop", "a").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_sync_applies_and_reverts_nothing_until_it_is_resumed() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    world.change("demo", json!({"suspend": true})).await;
    world.condition_is("demo", "Suspended", "True Suspended").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.remote.file("b.yaml", config_map("b", "2")).commit("two");
    world.ask("demo").await;
    assert_eq!((world.data("a"), world.data("b")), ("changed".to_owned(), "1".to_owned()));
    world.change("demo", json!({"suspend": false})).await;
    world.ready("demo").await;
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
    assert_eq!(world.data("b"), "2");
}

/// A GitSync that another GitSync applies is suspended by hand. The other one is healthy at each later commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_sync_does_not_hold_the_sync_that_applies_it() {
    let mut world = World::new().await;
    let child = "apiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {name: child}\n\
                 spec: {gitRepository: repo, baseDir: /child}\n";
    world.remote.file("parent/child.yaml", child).file("child/a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"baseDir": "/parent"})).await;
    world.ready("child").await;
    let until = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
    let both = [("1", json!({"suspendUntil": until})), ("2", json!({"suspendUntil": null, "suspend": true}))];
    for (data, suspended) in both {
        world.change("child", suspended).await;
        world.condition_is("child", "Suspended", "True Suspended").await;
        world.remote.file("parent/b.yaml", config_map("b", data));
        world.commit("demo", "the parent changes").await;
        world.until("all are healthy", |w| w.status("demo")["healthy"] == 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_came_during_break_glass_is_applied_when_that_ends() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({})).await;
    let hold = |value: Value| json!({"metadata": {"annotations": {"mainstay.dev/reconcile": value}}});
    world.edit("v1", "configmaps", "a", hold("disabled".into()));
    world.until("the pause is seen", |w| w.status("demo")["paused"].to_string().contains("mainstay-tests/a")).await;
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "2"));
    world.try_commit("demo", "two").await;
    assert_eq!((world.data("a"), world.data("b")), ("1".to_owned(), "2".to_owned()));
    world.edit("v1", "configmaps", "a", hold(Value::Null));
    world.until("the newer commit is applied", |w| w.data("a") == "2").await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_sync_lists_each_kind_once_and_reads_no_object() {
    let mut world = World::new().await;
    for i in 0..30 {
        world.remote.file(&format!("{i}.yaml"), config_map(&format!("map-{i}"), "1"));
    }
    world.remote.file("web.yaml", deployment("web", "nginx:1", 1)).commit("one");
    world.synced(json!({})).await;
    let counts = world.requests();
    let of = |what: &str| counts.iter().filter(|(name, _)| name == what).map(|(_, count)| *count).sum::<u64>();
    // One list is for the plan, one for the missing inventory.
    assert!(of("list configmaps") <= 2 && of("list deployments.apps") <= 1, "{counts:?}");
    assert_eq!((of("get configmaps"), of("get deployments.apps")), (0, 0), "{counts:?}");
    // The objects, and the inventory before and after.
    assert!(of("apply configmaps") <= 32 && of("apply deployments.apps") == 1, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_commit_costs_no_request_and_a_changed_file_costs_its_objects_and_two() {
    let mut world = World::new().await;
    for i in 0..30 {
        world.remote.file(&format!("{i}.yaml"), config_map(&format!("map-{i}"), "1"));
    }
    world.remote.commit("one");
    world.synced(json!({"interval": "1s"})).await;
    world.until("what follows the first sync is written", |w| w.status("demo")["healthy"] == 30).await;
    let mut messages = world.messages.resubscribe();
    world.levers().reset_counts();
    // Another repository change is seen only after further lookups, which must cost no requests.
    world.remote.file("README.md", "nothing").commit("no object");
    world.ready("demo").await;
    let mut idle = world.requests();
    idle.retain(|(name, _)| !name.contains("events"));
    assert_eq!(idle.iter().map(|(_, count)| count).sum::<u64>(), 1, "only the status: {idle:?}");
    while messages.try_recv().is_ok() {}
    world.levers().reset_counts();
    world.remote.file("7.yaml", config_map("map-7", "2") + "---\n" + &config_map("map-new", "1")).commit("one file");
    world.ready("demo").await;
    let counts = world.requests();
    let events = counts.iter().filter(|(name, _)| name.contains("events")).map(|(_, count)| count).sum::<u64>();
    let all = counts.iter().map(|(_, count)| count).sum::<u64>() - events;
    // Two objects, status, inventory before (a new object) and after, one list for the new object.
    assert!(all <= 6, "{counts:?}");
    world.levers().reset_counts();
    world.remote.file("8.yaml", config_map("map-8", "2")).commit("one object");
    world.ready("demo").await;
    let mut counts = world.requests();
    counts.retain(|(name, _)| !name.contains("events"));
    let expected = [("apply configmaps".to_owned(), 2), ("patch gitsyncs.mainstay.dev/status".to_owned(), 1)];
    assert_eq!(counts, expected, "the object, the inventory and the status");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_applies_nothing() {
    let mut world = World::new().await;
    for i in 0..30 {
        world.remote.file(&format!("{i}.yaml"), config_map(&format!("map-{i}"), "1"));
    }
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
    world.remote.file("web.yaml", deployment("web", "nginx:1", 2)).file("secret.yaml", secret).commit("one");
    world.synced(json!({})).await;
    world.stop().await;
    world.levers().reset_counts();
    world.start();
    world.ask("demo").await;
    world.edit("v1", "configmaps", "map-3", json!({"data": {"key": "changed"}}));
    world.until("a change after the restart is reverted", |w| w.data("map-3") == "1").await;
    let applies = world.requests().into_iter().filter(|(name, _)| name.starts_with("apply"));
    assert_eq!(applies.map(|(_, count)| count).sum::<u64>(), 1, "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_reverts_objects_changed_deleted_or_unlabelled_meanwhile() {
    let mut world = World::new().await;
    for name in ["a", "b", "c", "d"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    world.kill().await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.delete("v1", "configmaps", "b");
    world.edit("v1", "configmaps", "c", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world.start();
    world
        .until("everything is as the branch says", |w| {
            let labelled =
                w.get("v1", "configmaps", "c").unwrap()["metadata"]["labels"]["mainstay.dev/sync"].is_string();
            w.data("a") == "1" && w.data("b") == "1" && labelled
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_waits_for_health_gives_up_after_the_timeout_and_a_newer_commit_ends_the_wait() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).file("web.yaml", deployment("web", "registry.invalid/web:1", 2));
    world.remote.commit("an image that nobody has");
    world.sync("demo", json!({"timeout": "1h"}));
    world.start();
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    assert!(world.condition("demo", "Ready").contains("mainstay-tests/web"), "{}", world.condition("demo", "Ready"));
    assert!(world.condition("demo", "Reconciling").starts_with("True"));
    assert_eq!(world.status("demo")["appliedCommit"], world.remote.head());
    assert_eq!((&world.status("demo")["objects"], &world.status("demo")["healthy"]), (&json!(2), &json!(1)));
    world.change("demo", json!({"timeout": "1s"})).await;
    world.condition_is("demo", "Ready", "False HealthTimeout").await;
    world.remote.file("a.yaml", config_map("a", "2")).file("web.yaml", deployment("web", "nginx:1", 2));
    world.commit("demo", "an image that there is").await;
    assert_eq!(world.data("a"), "2");
    assert!(world.condition("demo", "Healthy").starts_with("True"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_in_two_versions_is_a_problem_that_names_both() {
    let mut world = World::new().await;
    let scaler = |version: &str| {
        format!(
            "apiVersion: autoscaling/{version}\nkind: HorizontalPodAutoscaler\nmetadata: {{name: web}}\nspec:\n  maxReplicas: 3\n  \
             scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}\n"
        )
    };
    world.remote.file("one.yaml", scaler("v1")).file("two.yaml", scaler("v2")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("one.yaml") && said.contains("two.yaml"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_of_an_object_that_no_agent_has_seen_yet_is_respected_until_it_ends() {
    let mut world = World::new().await;
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "mine"},
        "metadata": {"name": "a", "namespace": NAMESPACE, "annotations": {"mainstay.dev/reconcile": "disabled"}},
    });
    world.create("v1", "configmaps", NAMESPACE, held);
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.until("the pause is told", |w| w.status("demo")["paused"].to_string().contains("mainstay-tests/a")).await;
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("mine", "1"));
    world.edit(
        "v1",
        "configmaps",
        "a",
        json!({"metadata": {"annotations": {"mainstay.dev/until": "2020-01-01T00:00:00Z"}}}),
    );
    world.until("it is applied once the time is over", |w| w.data("a") == "1").await;
}

/// The end of a pause by the clock changes no object, so no watch shows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_pause_applies_an_object_that_was_never_applied() {
    let mut world = World::new().await;
    // Also a busy machine shows the pause before it ends.
    let until = (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(15)).to_string();
    let annotations = json!({"mainstay.dev/reconcile": "disabled", "mainstay.dev/until": until});
    let metadata = json!({"name": "a", "namespace": NAMESPACE, "annotations": annotations});
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "mine"}, "metadata": metadata});
    world.create("v1", "configmaps", NAMESPACE, theirs);
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.until("the pause is told", |w| w.status("demo")["paused"].to_string().contains("mainstay-tests/a")).await;
    assert_eq!(world.data("a"), "mine");
    world.until("it is applied once the time is over", |w| w.data("a") == "1").await;
    world.until("no pause is left", |w| w.status("demo")["paused"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_dir_that_never_was_names_the_directories_that_are_there() {
    let mut world = World::new().await;
    world
        .remote
        .file("apps/web/a.yaml", config_map("a", "1"))
        .file("docs/b.md", "text")
        .file("c.yaml", "")
        .commit("one");
    world.sync("demo", json!({"baseDir": "/nope"}));
    world.start();
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains(": there is no /nope; / holds the directories apps, docs"), "{said}");
    assert!(!said.contains("delete"), "nothing was ever applied: {said}");
    for (base_dir, expected) in
        [("/apps/wep", ": there is no /apps/wep; /apps holds the directory web"), ("/c.yaml", ": /c.yaml is a file")]
    {
        world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"baseDir": base_dir}}));
        world.until(expected, |w| w.condition("demo", "Ready").ends_with(expected)).await;
    }
    world.change("demo", json!({"baseDir": "/apps/web"})).await;
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_dir_without_any_manifest_is_ready_and_says_that_it_is_empty() {
    let mut world = World::new().await;
    world.remote.file("docs/b.md", "text").file("docs/c.yaml", "# nothing\n").commit("one");
    world.synced(json!({"baseDir": "/docs"})).await;
    let said = world.condition("demo", "Ready");
    assert!(said.starts_with("True NoManifests") && said.contains("baseDir /docs holds no manifest"), "{said}");
    world.remote.file("elsewhere.md", "text");
    world.commit("demo", "two").await;
    let told = std::iter::from_fn(|| world.messages.try_recv().ok());
    let told = told.filter(|message| matches!(message, Message::NoManifests { .. })).count();
    assert_eq!(told, 1, "once, and not for each commit");
    world.remote.file("docs/a.yaml", config_map("a", "1"));
    world.commit("demo", "three").await;
    assert!(world.condition("demo", "Ready").starts_with("True Applied"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_with_the_syntax_of_selectors_are_applied_reverted_and_pruned() {
    const ROLES: (&str, &str) = ("rbac.authorization.k8s.io/v1", "roles");
    let mut world = World::new().await;
    let names = ["cn=admins,ou=groups", "a\\b", "!=x"];
    let role = |name: &str| {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
        json!({"apiVersion": ROLES.0, "kind": "Role", "metadata": {"name": name}, "rules": rules}).to_string()
    };
    // Objects that exist are read by name.
    for name in names {
        world.create(ROLES.0, ROLES.1, NAMESPACE, serde_json::from_str(&role(name)).unwrap());
    }
    world.remote.file("0/role.json", role(names[0])).commit("one");
    world.synced(json!({})).await;
    world.remote.file("1/role.json", role(names[1])).file("2/role.json", role(names[2]));
    world.commit("demo", "two").await;
    let verbs =
        |world: &World, name: &str| world.get(ROLES.0, ROLES.1, name).map(|role| role["rules"][0]["verbs"].clone());
    for name in names {
        assert_eq!(verbs(&world, name), Some(json!(["get"])), "{name}");
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
        world.edit(ROLES.0, ROLES.1, name, json!({"rules": rules}));
        world.until(&format!("{name} is reverted"), |w| verbs(w, name) == Some(json!(["get"]))).await;
    }
    world.remote.remove("1/role.json").remove("2/role.json");
    world.commit("demo", "three").await;
    assert_eq!(names.map(|name| verbs(&world, name).is_some()), [true, false, false]);
}
