//! Objects that leave the repository are pruned, except for those that guards hold.

use devcluster::{Action, Call, fault_injection::Fault, verbs::delete::DeleteOptions};
use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, config_map, definition};

/// Creates a world with this many applied ConfigMaps, one per file.
async fn with_maps(count: usize, spec: Value) -> World {
    let mut world = World::new().await;
    for i in 0..count {
        world.remote.file(&format!("{i:02}.yaml"), config_map(&format!("map-{i:02}"), "1"));
    }
    world.remote.commit("all");
    world.sync("demo", spec);
    world.start();
    world.ready("demo").await;
    world
}

/// Replaces a managed ConfigMap by a ConfigMap of another user with Mainstay's label.
fn replace_by_theirs(world: &World, name: &str) {
    world.delete("v1", "configmaps", name);
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs"},
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": "mainstay-tests.demo"}},
    });
    world.create("v1", "configmaps", NAMESPACE, theirs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_repository_deletes_nothing_until_that_is_allowed_for_the_commit() {
    let mut world = with_maps(3, json!({})).await;
    world.remote.clear().file("README.md", "nothing");
    let commit = world.try_commit("demo", "empty").await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains(&commit) && said.contains("map-00"), "{said}");
    assert!(world.condition("demo", "Stalled").starts_with("True"));
    assert_eq!(world.config_maps().len(), 3);
    world.allow_prune("demo", "0123456789012345678901234567890123456789").await;
    assert_eq!(world.config_maps().len(), 3, "another commit's permission does not count");
    world.allow_prune("demo", &commit).await;
    world.ready("demo").await;
    assert!(world.config_maps().is_empty());
    assert_eq!(world.status("demo")["objects"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_base_dir_deletes_nothing_until_that_is_allowed_for_the_commit() {
    let mut world = World::new().await;
    world.remote.file("app/a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
    world.synced(json!({"baseDir": "/app"})).await;
    assert_eq!(world.config_maps(), ["a"]);
    world.remote.remove("app");
    let commit = world.try_commit("demo", "gone").await;
    world.condition_is("demo", "Ready", "False SourceInvalid").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("/app") && said.contains(&commit), "{said}");
    assert!(said.contains("; the object that came from it is kept. Restore it"), "{said}");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the previous commit is still enforced", |w| w.data("a") == "1").await;
    world.allow_prune("demo", &commit).await;
    world.ready("demo").await;
    assert!(world.config_maps().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_of_other_tools_keep_objects() {
    let mut world = World::new().await;
    let annotations = [
        ("flux", "kustomize.toolkit.fluxcd.io/prune: disabled"),
        ("argo", "argocd.argoproj.io/sync-options: 'Validate=false, Prune=false'"),
        ("helm", "helm.sh/resource-policy: keep"),
        ("kpt", "client.lifecycle.config.k8s.io/deletion: detach"),
        ("goes", "argocd.argoproj.io/sync-options: Prune=true"),
    ];
    for (name, annotation) in annotations {
        let annotated =
            config_map(name, "1").replace("metadata:", &format!("metadata:\n  annotations: {{{annotation}}}"));
        world.remote.file(&format!("all/{name}.yaml"), annotated);
    }
    world.remote.file("stays.yaml", config_map("stays", "1")).commit("all");
    world.synced(json!({})).await;
    world.remote.remove("all");
    world.commit("demo", "all leave").await;
    assert_eq!(world.config_maps(), ["argo", "flux", "helm", "kpt", "stays"]);
    let held = world.status("demo")["held"].to_string();
    assert!(held.contains("ConfigMap mainstay-tests/argo: argocd.argoproj.io/sync-options: Prune=false"), "{held}");
    world.allow_prune("demo", &world.remote.head()).await;
    assert_eq!(world.config_maps(), ["argo", "flux", "helm", "kpt", "stays"], "whatever is allowed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_half_of_many_objects_are_held_and_named() {
    let mut world = with_maps(20, json!({})).await;
    for i in 0..11 {
        world.remote.remove(&format!("{i:02}.yaml"));
    }
    world.remote.file("new.yaml", config_map("new", "1"));
    let commit = world.try_commit("demo", "eleven go").await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("11") && said.contains(&commit), "{said}");
    assert_eq!(world.status("demo")["held"].as_array().unwrap().len(), 11);
    assert_eq!(world.config_maps().len(), 21, "what is new is applied all the same");
    world.allow_prune("demo", &commit).await;
    world.ready("demo").await;
    assert_eq!(world.config_maps().len(), 10);
    assert_eq!(world.status("demo")["held"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_object_that_comes_back_is_kept_as_the_repository_has_it() {
    let mut world = with_maps(20, json!({})).await;
    let first = world.remote.head();
    for i in 0..11 {
        world.remote.remove(&format!("{i:02}.yaml"));
    }
    world.try_commit("demo", "eleven go").await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    world.edit("v1", "configmaps", "map-03", json!({"data": {"key": "changed"}}));
    world.delete("v1", "configmaps", "map-04");
    world.remote.force(&first);
    world.ask("demo").await;
    world.ready("demo").await;
    world.until("what was changed meanwhile is reverted", |w| w.data("map-03") == "1" && w.data("map-04") == "1").await;
    assert_eq!(world.config_maps().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_repository_may_lose_most_of_its_objects() {
    let mut world = with_maps(8, json!({})).await;
    for i in 0..7 {
        world.remote.remove(&format!("{i:02}.yaml"));
    }
    world.commit("demo", "seven go").await;
    assert_eq!(world.config_maps(), ["map-07"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_definitions_and_volumes_are_held_while_others_go() {
    let mut world = World::new().await;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: disk}\nspec:\n  accessModes: [ReadWriteOnce]\n  \
                 resources: {requests: {storage: 1Gi}}\n";
    world.remote.file("namespace.yaml", namespace).file("claim.yaml", claim).file("crd.yaml", definition());
    world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("all");
    world.synced(json!({"wait": false})).await;
    world.remote.clear().file("a.yaml", config_map("a", "1"));
    world.remote.commit("nearly all go");
    world.ask("demo").await;
    world.until("the ConfigMap is pruned", |w| w.config_maps() == ["a"]).await;
    let definitions = "customresourcedefinitions";
    assert!(world.server.object("v1", "namespaces", "", "mainstay-tests-shop").is_some());
    assert!(world.get("v1", "persistentvolumeclaims", "disk").is_some());
    assert!(
        world.server.object("apiextensions.k8s.io/v1", definitions, "", "widgets.mainstay-tests.example.org").is_some()
    );
    let held = world.status("demo")["held"].to_string();
    for name in [
        "Namespace mainstay-tests-shop",
        "PersistentVolumeClaim mainstay-tests/disk",
        "widgets.mainstay-tests.example.org",
    ] {
        assert!(held.contains(name), "{name} in {held}");
        // An Event reports the object, too, and states the annotation that releases it at the newest commit.
        let is_told = |w: &World| {
            let events = w.server.objects("v1", "events", Some(NAMESPACE));
            let told: Vec<_> = events.iter().filter(|event| event["reason"] == "NotPruned").collect();
            let about = |event: &Value| event["message"].as_str().unwrap_or_default().contains(name);
            let release = format!("mainstay.dev/allow-prune={}", w.remote.head());
            let is_current = |event: &Value| event["message"].as_str().unwrap_or_default().contains(&release);
            told.iter().any(|event| about(event) && event["type"] == "Warning" && is_current(event))
        };
        world.until(&format!("an Event tells of {name}"), is_told).await;
    }
    let commit = world.remote.head();
    world.allow_prune("demo", &commit).await;
    world
        .until("everything is pruned", |w| {
            w.server.object("v1", "namespaces", "", "mainstay-tests-shop").is_none()
                && w.get("v1", "persistentvolumeclaims", "disk").is_none()
                && w.server
                    .object("apiextensions.k8s.io/v1", definitions, "", "widgets.mainstay-tests.example.org")
                    .is_none()
        })
        .await;
    world.until("nothing is held", |w| w.status("demo")["held"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_disabled_on_the_live_object_keeps_it() {
    let mut world = with_maps(3, json!({})).await;
    let keep = json!({"metadata": {"annotations": {"mainstay.dev/prune": "disabled"}}});
    world.edit("v1", "configmaps", "map-01", keep);
    world.remote.remove("01.yaml").remove("02.yaml");
    world.commit("demo", "two go").await;
    assert_eq!(world.config_maps(), ["map-00", "map-01"]);
    assert!(world.status("demo")["held"].to_string().contains("map-01"));
    world.edit("v1", "configmaps", "map-01", json!({"data": {"key": "mine now"}}));
    world.remote.file("03.yaml", config_map("map-03", "1"));
    world.commit("demo", "another").await;
    assert_eq!(world.data("map-01"), "mine now", "what left the repository is not reverted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prune_off_keeps_removed_objects_and_no_longer_reverts_them() {
    let mut world = with_maps(3, json!({"prune": false})).await;
    world.remote.remove("01.yaml");
    world.commit("demo", "one goes").await;
    assert_eq!(world.config_maps().len(), 3);
    world.edit("v1", "configmaps", "map-01", json!({"data": {"key": "mine now"}}));
    world.change("demo", json!({"prune": true})).await;
    world.until("it is pruned once pruning is on", |w| w.config_maps() == ["map-00", "map-02"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_replaced_by_somebody_is_not_pruned() {
    let mut world = with_maps(3, json!({"drift": "Ignore"})).await;
    world.stop().await;
    let old = world.uid("v1", "configmaps", "map-01");
    replace_by_theirs(&world, "map-01");
    assert_ne!(world.uid("v1", "configmaps", "map-01"), old);
    world.remote.remove("01.yaml").commit("one goes");
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("map-01"), "theirs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_without_our_label_is_not_pruned() {
    let mut world = with_maps(3, json!({"drift": "Ignore"})).await;
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world.remote.remove("01.yaml");
    world.commit("demo", "one goes").await;
    assert_eq!(world.config_maps().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deletion_keeps_the_object_in_the_inventory_and_is_tried_again() {
    let mut world = with_maps(3, json!({})).await;
    // The fault lasts until the failure is visible. The deletion is retried within a second.
    world.fail_next("delete", "configmaps", "map-01", 500, 1000);
    world.remote.remove("01.yaml");
    world.try_commit("demo", "one goes").await;
    let is_refused = |w: &World| w.failure("demo", "ConfigMap mainstay-tests/map-01").starts_with("PruneFailed");
    world.until("the deletion is refused", is_refused).await;
    world.levers().clear_faults();
    world.until("it is deleted at the second try", |w| w.config_maps() == ["map-00", "map-02"]).await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_a_policy_denies_is_answered_with_its_dry_run() {
    let mut world = with_maps(3, json!({})).await;
    let (version, name) = ("admissionregistration.k8s.io/v1", format!("mainstay-{NAMESPACE}-keeps"));
    let (policies, bindings) = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
    let config_maps =
        json!({"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}});
    let spec = json!({
        "matchConstraints": {"resourceRules": [config_maps], "namespaceSelector": here},
        "validations": [{"expression": "oldObject.metadata.name != 'map-01'", "message": "hush"}],
    });
    world.create(version, policies, "", json!({"metadata": {"name": name}, "spec": spec}));
    let binding = json!({"policyName": name, "validationActions": ["Deny"]});
    world.create(version, bindings, "", json!({"metadata": {"name": name}, "spec": binding}));
    let dry_run = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    let deletion = || Call::new("v1", "configmaps", NAMESPACE, "map-01", Action::Delete(dry_run.clone()));
    world.until("the policy is in effect", |w| w.try_as("t", deletion()).is_err()).await;
    world.remote.remove("01.yaml");
    world.try_commit("demo", "one goes").await;
    let failure = |w: &World| w.failure("demo", "ConfigMap mainstay-tests/map-01");
    world.until("the deletion is refused", |w| failure(w).starts_with("PruneFailed")).await;
    let said = failure(&world);
    assert!(said.contains("`kubectl delete --dry-run=server ConfigMap map-01 -n mainstay-tests` shows it"), "{said}");
    assert!(!said.contains("kubectl apply") && !said.contains("hush"), "{said}");
    for resource in [bindings, policies] {
        let delete = Action::Delete(DeleteOptions::default());
        world.write_as("t", Call::new(version, resource, "", &name, delete));
    }
    world.until("it is deleted at another try", |w| w.config_maps() == ["map-00", "map-02"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_a_finalizer_delays_is_awaited() {
    let mut world = with_maps(3, json!({})).await;
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"finalizers": ["example.org/wait"]}}));
    world.remote.remove("01.yaml");
    world.try_commit("demo", "one goes").await;
    world.condition_is("demo", "Reconciling", "True").await;
    assert!(world.get("v1", "configmaps", "map-01").unwrap()["metadata"]["deletionTimestamp"].is_string());
    world.edit("v1", "configmaps", "map-01", json!({"metadata": {"finalizers": null}}));
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["map-00", "map-02"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_base_dir_passes_the_same_guards() {
    let mut world = World::new().await;
    for i in 0..12 {
        world.remote.file(&format!("old/{i:02}.yaml"), config_map(&format!("old-{i:02}"), "1"));
    }
    world.remote.file("new/a.yaml", config_map("new", "1")).commit("both");
    world.synced(json!({"baseDir": "/old"})).await;
    world.change("demo", json!({"baseDir": "/new"})).await;
    world.condition_is("demo", "Ready", "False PruneHeld").await;
    assert_eq!(world.config_maps().len(), 13);
    world.allow_prune("demo", &world.remote.head()).await;
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["new"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_without_proof_of_ownership_is_held_and_explained_with_any_permission() {
    let mut world = with_maps(3, json!({})).await;
    // The object is created, but the agent is killed before it learns the UID.
    let lost =
        Fault { verb: "apply".into(), name: "new".into(), code: 500, times: 1000, after: true, ..Fault::default() };
    world.levers().fail_next(lost);
    world.remote.file("new.yaml", config_map("new", "1")).commit("one comes");
    world.look();
    world.until("it is created", |w| w.data("new") == "1").await;
    world.kill().await;
    world.levers().clear_faults();
    world.edit("v1", "configmaps", "new", json!({"metadata": {"managedFields": [{}]}}));
    world.remote.remove("new.yaml").commit("it goes");
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("new"), "1");
    let held = world.status("demo")["held"].to_string();
    assert!(held.contains("ConfigMap mainstay-tests/new: it carries Mainstay's label, but nothing proves"), "{held}");
    assert!(held.contains("to delete it: kubectl delete ConfigMap new -n mainstay-tests"), "{held}");
    world.allow_prune("demo", &world.remote.head()).await;
    world.ready("demo").await;
    assert_eq!(world.data("new"), "1");
    world.edit("v1", "configmaps", "new", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world.remote.file("more.yaml", config_map("more", "1"));
    world.commit("demo", "another").await;
    assert_eq!((world.data("new").as_str(), &world.status("demo")["held"]), ("1", &Value::Null), "it is let go");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_nothing_proves_ours_is_let_go_with_its_sync() {
    let mut world = with_maps(2, json!({})).await;
    mainstay_testkit::ownership::prune_on_delete(&world, "demo").await;
    world.stop().await;
    replace_by_theirs(&world, "map-01");
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    world.start();
    world.until("the GitSync is gone", |w| w.get("mainstay.dev/v1alpha1", "gitsyncs", "demo").is_none()).await;
    assert_eq!((world.data("map-00").as_str(), world.data("map-01").as_str()), ("absent", "theirs"));
    let left = world.get("v1", "configmaps", "map-01").unwrap();
    assert_eq!(left["metadata"]["labels"].get("mainstay.dev/sync"), None, "what nobody manages says so");
}
