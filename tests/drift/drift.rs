//! The backward loop, end to end: hand edits are reverted, and additions of other clients stay.

use std::sync::Arc;

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::drift::{fence, next_revert, patch_as, revert_of, synced, version};
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment};

/// A Deployment with lists that can be reordered.
fn listed() -> String {
    let init = |name: &str| format!("      - {{name: {name}, image: busybox}}\n");
    format!(
        "{}        command: [run, fast, far]\n      initContainers:\n{}{}",
        deployment("web", "nginx:1", 1),
        init("first"),
        init("second")
    )
}

const WEB: (&str, &str, &str) = ("apps/v1", "deployments", "web");
const A: (&str, &str, &str) = ("v1", "configmaps", "a");

fn web(world: &World) -> Value {
    (*world.get(WEB.0, WEB.1, WEB.2).unwrap()).clone()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_deleted_or_unlabelled_object_is_reverted() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the value is reverted", |w| w.data("a") == "1").await;
    world.delete("v1", "configmaps", "a");
    world.until("the object is created again", |w| w.data("a") == "1").await;
    world.edit("v1", "configmaps", "a", json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    world
        .until("the label is reverted", |w| {
            w.get("v1", "configmaps", "a")
                .is_some_and(|a| a["metadata"]["labels"]["mainstay.dev/sync"] == "mainstay-tests.demo")
        })
        .await;
    world.until("three reverts in the status", |w| w.status("demo")["reverted"] == 3).await;
    let status = world.status("demo");
    let edit = &status["lastReverts"][2];
    assert_eq!(edit["who"], "kubectl-edit");
    assert_eq!(edit["fields"], json!(["data.key"]));
    assert_eq!(edit["changes"], json!([{"field": "data.key", "found": "\"changed\"", "restored": "\"1\""}]));
    assert_eq!(status["lastReverts"][1]["fields"], json!(["(object)"]));
    assert!(edit["latencyMs"].as_i64().unwrap() >= 0);
    let age = jiff::Timestamp::now() - edit["when"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!((0..120).contains(&age.get_seconds()), "{age}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_of_others_to_an_object_stay() {
    let world = synced(&[("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", "nginx:1", 1))]).await;
    let theirs = json!({"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}, "data": {"other": "z"}});
    let edited = world.edit(A.0, A.1, A.2, theirs);
    let env = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "env": [{"name": "C", "value": "3"}]}]}}}});
    patch_as(&world, "kubectl-edit", WEB, Form::Strategic, env);
    fence(&world).await;
    assert_eq!(version(&world.get(A.0, A.1, A.2).unwrap()), version(&edited));
    // The Deployment has a separate watch. In that watch, this change comes after the earlier one.
    world.edit(WEB.0, WEB.1, WEB.2, json!({"metadata": {"labels": {"mainstay.dev/sync": "other"}}}));
    world
        .until("the label is ours again", |w| {
            web(w)["metadata"]["labels"]["mainstay.dev/sync"] == "mainstay-tests.demo"
        })
        .await;
    assert_eq!(names(&web(&world)["spec"]["template"]["spec"]["containers"][0]["env"]), ["C", "A", "B"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_of_our_items_is_reverted_without_an_author() {
    let mut world = synced(&[("web.yaml", listed())]).await;
    let swap = |path: &str| json!([{"op": "move", "from": format!("/spec/template/spec/{path}/0"), "path": format!("/spec/template/spec/{path}/1")}]);
    for path in ["containers/0/env", "initContainers"] {
        patch_as(&world, "kubectl-edit", WEB, Form::Json, swap(path));
        let (who, fields) = revert_of(&mut world, "web").await;
        assert_eq!(who, "unknown");
        assert!(fields.len() == 1 && fields[0].ends_with("(order)"), "{fields:?}");
    }
    let spec = web(&world)["spec"]["template"]["spec"].clone();
    assert_eq!(names(&spec["containers"][0]["env"]), ["A", "B"]);
    assert_eq!(names(&spec["initContainers"]), ["first", "second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_of_a_list_without_keys_is_reverted() {
    let mut world = synced(&[("web.yaml", listed())]).await;
    let command =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/command", "value": ["fast", "far", "run"]}]);
    patch_as(&world, "kubectl-edit", WEB, Form::Json, command);
    let expected = ("kubectl-edit".to_owned(), vec![r#"spec.template.spec.containers[name="web"].command"#.to_owned()]);
    assert_eq!(revert_of(&mut world, "web").await, expected);
    assert_eq!(web(&world)["spec"]["template"]["spec"]["containers"][0]["command"], json!(["run", "fast", "far"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_item_is_restored_without_an_author() {
    let mut world = synced(&[("web.yaml", listed())]).await;
    patch_as(
        &world,
        "kubectl-edit",
        WEB,
        Form::Json,
        json!([{"op": "remove", "path": "/spec/template/spec/containers/0/env/0"}]),
    );
    let (who, fields) = revert_of(&mut world, "web").await;
    assert_eq!(who, "unknown");
    assert!(fields.iter().any(|f| f.contains(r#"env[name="A"]"#)), "{fields:?}");
    assert_eq!(names(&web(&world)["spec"]["template"]["spec"]["containers"][0]["env"]), ["A", "B"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_under_our_field_manager_is_detected() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    patch_as(&world, "mainstay", A, Form::Merge, json!({"data": {"key": "updated"}}));
    assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
    assert_eq!(world.data("a"), "1");
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": "mainstay-tests.demo"}},
        "data": {"key": "applied"},
    });
    patch_as(&world, "mainstay", A, Form::Apply, applied);
    assert_eq!(revert_of(&mut world, "a").await, ("unknown".to_owned(), vec!["data.key".to_owned()]));
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wiped_managed_fields_are_claimed_again_and_nothing_of_others_is_lost() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, json!({"data": {"theirs": "x"}, "metadata": {"finalizers": ["example.org/keep"]}}));
    patch_as(&world, "someone", A, Form::Merge, json!({"metadata": {"managedFields": [{}]}}));
    assert_eq!(revert_of(&mut world, "a").await.1, ["metadata.managedFields"]);
    let a = world.get(A.0, A.1, A.2).unwrap();
    assert_eq!(a["data"], json!({"key": "1", "theirs": "x"}));
    assert_eq!(a["metadata"]["finalizers"], json!(["example.org/keep"]));
    let entries = a["metadata"]["managedFields"].as_array().unwrap();
    let before = entries.iter().find(|e| e["manager"] == "before-first-apply").unwrap();
    assert_eq!(before["fieldsV1"]["f:data"].get("f:key"), None, "{before:#}");
    assert!(before["fieldsV1"]["f:data"].get("f:theirs").is_some(), "{before:#}");
    // Only the agent removes fields that Git drops.
    world.remote.file("a.yaml", config_map("a", "1").replace("  key:", "  new:"));
    world.commit("demo", "another key").await;
    assert_eq!(world.get(A.0, A.1, A.2).unwrap()["data"], json!({"new": "1", "theirs": "x"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_the_server_normalises_are_no_drift() {
    let resources = "        resources: {limits: {cpu: 1000m, memory: 1024Mi}}\n";
    let web_file = format!("{}{resources}", deployment("web", "nginx:1", 1));
    let empty = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {}\ndata: {}\n".to_owned();
    let mut world = synced(&[("web.yaml", web_file), ("a.yaml", empty)]).await;
    assert_eq!(web(&world)["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"], "1");
    let edited = world.edit(A.0, A.1, A.2, json!({"metadata": {"annotations": {"x": "y"}}, "data": {"k": "v"}}));
    fence(&world).await;
    assert_eq!(version(&world.get(A.0, A.1, A.2).unwrap()), version(&edited));
    world.stop().await;
    let before = version(&web(&world));
    world.start();
    fence(&world).await;
    assert_eq!(version(&world.get(A.0, A.1, A.2).unwrap()), version(&edited));
    assert_eq!(version(&web(&world)), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn annotations_for_people_are_never_reverted() {
    let file = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations: {mainstay.dev/prune: disabled}\n\
                data:\n  key: \"1\"\n";
    let mut world = synced(&[("a.yaml", file.to_owned())]).await;
    let annotation = |w: &World| w.get(A.0, A.1, A.2).unwrap()["metadata"]["annotations"]["mainstay.dev/prune"].clone();
    for (theirs, found) in [(json!("enabled"), json!("enabled")), (json!(null), json!(null))] {
        let edited = world.edit(A.0, A.1, A.2, json!({"metadata": {"annotations": {"mainstay.dev/prune": theirs}}}));
        fence(&world).await;
        assert_eq!(version(&world.get(A.0, A.1, A.2).unwrap()), version(&edited));
        // The annotation is not reverted either when another field of the object is reverted.
        world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
        assert_eq!(revert_of(&mut world, "a").await.1, ["data.key"]);
        assert_eq!(annotation(&world), found);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_secrets_are_reported_nowhere() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: git-value}\n";
    let mut world = synced(&[("s.yaml", secret.to_owned())]).await;
    let hand = "aGFuZC12YWx1ZQ==";
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "apply".into(),
        resource: "secrets".into(),
        code: 500,
        times: 3,
        message: format!("cannot decode {hand} hand-value"),
        ..Default::default()
    });
    world.edit("v1", "secrets", "s", json!({"data": {"password": hand}}));
    world.until("the failed revert is in the status", |w| w.status("demo").to_string().contains("RevertFailed")).await;
    let failing = world.status("demo").to_string();
    let revert = next_revert(&mut world, "s").await;
    assert!(
        matches!(&revert, Message::Reverted { fields, changes, .. } if fields == &["data.password"] && changes.is_empty())
    );
    world.until("the revert is in the status", |w| w.status("demo")["reverted"] == 1).await;
    let reverted = |e: &Value| e["reason"] == "Reverted" && e["involvedObject"]["kind"] == "Secret";
    world.until("an Event tells", |w| w.server.objects("v1", "events", None).iter().any(|e| reverted(e))).await;
    let events = world.server.objects("v1", "events", None).iter().map(ToString::to_string).collect::<String>();
    let told = format!("{failing}{}{revert:?}{revert}{events}", world.status("demo"));
    for value in [hand, "hand-value", "git-value", "Z2l0LXZhbHVl"] {
        assert!(!told.contains(value), "{value} in {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_revert_makes_one_event_on_the_object_and_one_on_its_git_sync() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    for round in 0..3 {
        world.edit(A.0, A.1, A.2, json!({"data": {"key": format!("changed {round}")}}));
        assert_eq!(revert_of(&mut world, "a").await.0, "kubectl-edit");
    }
    // Events of an earlier world do not count. A killed agent may have sent them just before.
    let uid = |object: Option<Arc<Value>>| object.unwrap()["metadata"]["uid"].clone();
    let sync = world.get("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    let about = [uid(sync), uid(world.get("v1", "configmaps", "a")), uid(world.get("v1", "configmaps", "fence"))];
    let told = |w: &World| {
        let all = w.server.objects("v1", "events", None);
        let mut of = all
            .iter()
            .filter(|e| e["reason"] == "Reverted" && about.contains(&e["involvedObject"]["uid"]))
            .map(|e| e["involvedObject"]["kind"].clone())
            .collect::<Vec<_>>();
        of.sort_by_key(ToString::to_string);
        of
    };
    world.until("both are there", |w| told(w).len() >= 2).await;
    fence(&world).await;
    world.until("that of the fence too", |w| told(w).iter().filter(|kind| **kind == "ConfigMap").count() >= 2).await;
    // Events about the GitSync may be aggregated.
    let (of_objects, of_git_syncs): (Vec<_>, Vec<_>) = told(&world).into_iter().partition(|kind| *kind == "ConfigMap");
    assert_eq!((of_objects.len(), (1..=2).contains(&of_git_syncs.len())), (2, true), "{of_git_syncs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_scales_is_reverted_and_an_autoscaler_is_not() {
    let mut world = synced(&[("web.yaml", deployment("web", "nginx:1", 2))]).await;
    let scale = |world: &World, who: &str, count: u32| {
        let action = Action::Patch(Form::Merge, json!({"spec": {"replicas": count}}));
        world.try_as(who, Call::new(WEB.0, WEB.1, NAMESPACE, WEB.2, action).on("scale")).unwrap();
    };
    scale(&world, "kubectl", 5);
    assert_eq!(revert_of(&mut world, "web").await, ("kubectl".to_owned(), vec!["spec.replicas".to_owned()]));
    assert_eq!(web(&world)["spec"]["replicas"], 2);
    let autoscaler = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": NAMESPACE},
        "spec": {"minReplicas": 1, "maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, autoscaler);
    let owns_replicas = |w: &World| {
        let web = web(w);
        let entries = web["metadata"]["managedFields"].as_array().unwrap();
        entries.iter().any(|e| e["manager"] == "mainstay" && e["fieldsV1"]["f:spec"].get("f:replicas").is_some())
    };
    world.until("the count is given up", |w| !owns_replicas(w)).await;
    assert_eq!(web(&world)["spec"]["replicas"], 2, "and does not fall on the way");
    scale(&world, "kube-controller-manager", 7);
    // A change of one of Mainstay's fields is reverted, and the count still stays.
    world.edit(
        WEB.0,
        WEB.1,
        WEB.2,
        json!({"spec": {"minReadySeconds": 1, "template": {"metadata": {"labels": {"app": "web"}}}}}),
    );
    world.edit(WEB.0, WEB.1, WEB.2, json!({"metadata": {"labels": {"mainstay.dev/sync": "x"}}}));
    world
        .until("the label is ours again", |w| {
            web(w)["metadata"]["labels"]["mainstay.dev/sync"] == "mainstay-tests.demo"
        })
        .await;
    assert_eq!(web(&world)["spec"]["replicas"], 7);
    world.delete("autoscaling/v2", "horizontalpodautoscalers", "h");
    world.until("without it the count is ours again", |w| web(w)["spec"]["replicas"] == 2 && owns_replicas(w)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_controllers_and_outside_the_inventory_are_left_alone() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "fence", "uid": world.uid(A.0, A.1, "fence"), "controller": true});
    world.edit(A.0, A.1, A.2, json!({"metadata": {"ownerReferences": [owner]}}));
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    let foreign = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs"},
        "metadata": {"name": "foreign", "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": "mainstay-tests.demo"}},
    });
    let foreign = world.create("v1", "configmaps", NAMESPACE, foreign);
    fence(&world).await;
    assert_eq!(world.data("a"), "changed");
    // A restart does not revert the edit either.
    world.stop().await;
    world.start();
    fence(&world).await;
    world.remote.file("b.yaml", config_map("b", "1"));
    world.commit("demo", "one more").await;
    assert_eq!(world.data("a"), "changed");
    assert_eq!(*world.get("v1", "configmaps", "foreign").unwrap(), foreign);
}
