//! Objects of other GitOps tools: left to running tools, and taken over from removed ones.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::foreign::{define, keeper, without_finalizers};
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment};

const SYNC: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");

fn map(name: &str, metadata: &Value) -> Value {
    let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "theirs", "stale": "x"},
                         "metadata": {"name": name, "namespace": NAMESPACE}});
    json_patch::merge(&mut map["metadata"], metadata);
    map
}

fn applied(world: &World, manager: &str, name: &str, metadata: &Value) {
    let apply = Action::Patch(Form::Apply, map(name, metadata));
    world.write_as(manager, Call::new("v1", "configmaps", NAMESPACE, name, apply));
}

fn data(world: &World, name: &str) -> Value {
    world.get("v1", "configmaps", name).map_or(Value::Null, |map| map["data"].clone())
}

fn theirs() -> Value {
    json!({"key": "theirs", "stale": "x"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_another_tool_lists_is_left_to_it_until_it_lets_go() {
    let mut world = World::new().await;
    define(&world);
    let named = |kind: &str| json!({format!("{kind}.toolkit.fluxcd.io/name"): "theirs", format!("{kind}.toolkit.fluxcd.io/namespace"): NAMESPACE});
    let release = json!({"meta.helm.sh/release-name": "theirs", "meta.helm.sh/release-namespace": NAMESPACE});
    let cases = [
        (
            "flux",
            "kustomize-controller",
            json!({"labels": named("kustomize")}),
            "Kustomization",
            "kubectl delete kustomization theirs",
        ),
        ("argo", "argocd-controller", json!({}), "Application", "kubectl delete application theirs"),
        (
            "helm-release",
            "helm-controller",
            json!({"labels": named("helm")}),
            "HelmRelease",
            "kubectl delete helmrelease theirs",
        ),
        ("helm", "helm", json!({"annotations": release}), "Helm release", "kubectl delete secret"),
    ];
    for (name, manager, metadata, ..) in &cases {
        applied(&world, manager, name, metadata);
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
        keeper(&world, name, "theirs", &[name]);
    }
    world.remote.file("free.yaml", config_map("free", "1")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False OwnershipConflict").await;
    world.until("the rest is applied", |w| data(w, "free") == json!({"key": "1"})).await;
    for (name, _, _, keeper, way_out) in &cases {
        assert_eq!(data(&world, name), theirs(), "{name}");
        let said = world.failure("demo", &format!("ConfigMap {NAMESPACE}/{name}"));
        for part in [keeper, way_out, "contested", "spec.takeOver", "data.stale"] {
            assert!(said.contains(part), "{name}: {part}: {said}");
        }
    }
    // Objects with a conflict are not retried repeatedly, and no attempt in progress could find that the tools released
    // them.
    tokio::time::timeout(mainstay_testkit::PATIENCE, world.quiet()).await.expect("the agent sends no requests");
    // No sync is requested: watches show that the tools released them. Without watches, the next attempt is two minutes
    // away.
    for (name, ..) in &cases {
        without_finalizers(&world, name, "theirs");
    }
    world.ready("demo").await;
    for (name, ..) in &cases {
        assert_eq!(data(&world, name), json!({"key": "1"}), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_named_manager_gives_way_for_any_owner_of_the_object() {
    let mut world = World::new().await;
    define(&world);
    for (name, manager) in [("flux", "kustomize-controller"), ("mine", "my-deployer"), ("argo", "argocd-controller")] {
        applied(&world, manager, name, &json!({}));
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    keeper(&world, "flux", "theirs", &["flux", "mine", "argo"]);
    world.remote.commit("one");
    world.synced(json!({"takeOver": ["kustomize-controller", "my-deployer"]})).await;
    for (name, expected) in
        [("flux", json!({"key": "1"})), ("mine", json!({"key": "1"})), ("argo", json!({"key": "1", "stale": "x"}))]
    {
        assert_eq!(data(&world, name), expected, "{name}");
    }
    without_finalizers(&world, "flux", "theirs");
    let wrong = Action::Patch(Form::Merge, json!({"spec": {"takeOver": ["mainstay"]}}));
    world.write_as("t", Call::new(SYNC.0, SYNC.1, NAMESPACE, "demo", wrong));
    world.condition_is("demo", "Ready", "False SpecInvalid").await;
    assert!(world.condition("demo", "Ready").contains("spec.takeOver[0]"), "{}", world.condition("demo", "Ready"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_left_to_former_appliers_go_with_the_next_apply_unless_a_manager_keeps_them() {
    let mut world = World::new().await;
    define(&world);
    let names = ["flux", "kept", "kubectl-before", "kubectl-since", "named"];
    for name in names {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1") + "  stale: x\n");
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    let [long_ago, soon] = ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"];
    let left = [
        ("flux", "kustomize-controller", "Apply", soon),
        ("kept", "kustomize-controller", "Apply", soon),
        ("kubectl-before", "kubectl-client-side-apply", "Update", long_ago),
        ("kubectl-since", "kubectl-client-side-apply", "Update", soon),
        ("named", "my-deployer", "Update", soon),
    ];
    for (name, manager, operation, time) in left {
        world.server.rewrite("t", ("v1", "configmaps"), NAMESPACE, name, |live| {
            let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
            entries.push(json!({
                "manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:key": {}, "f:stale": {}}},
            }));
        });
    }
    keeper(&world, "flux", "theirs", &["kept"]);
    for name in names {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "2"));
    }
    world.commit("demo", "what is stale leaves").await;
    let (gone, there) = (json!({"key": "2"}), json!({"key": "2", "stale": "x"}));
    let expected = [&gone, &there, &gone, &there, &there];
    for (name, expected) in names.iter().zip(expected) {
        assert_eq!(data(&world, name), *expected, "{name}");
    }
    without_finalizers(&world, "flux", "theirs");
    world.change("demo", json!({"takeOver": ["my-deployer"]})).await;
    world.remote.file("named.yaml", config_map("named", "3"));
    world.commit("demo", "another value").await;
    assert_eq!(data(&world, "named"), json!({"key": "3"}));
}

/// Returns the messages of the GitSync's Events for takeovers.
fn notes(world: &World) -> Vec<String> {
    let events = world.server.objects("v1", "events", Some(NAMESPACE));
    let of =
        events.iter().filter(|event| event["reason"] == "TakenOver" && event["involvedObject"]["kind"] == "GitSync");
    of.filter_map(|event| event["message"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_the_server_refuses_to_remove_stay_with_their_applier_and_the_others_go() {
    let mut world = World::new().await;
    let set = |metadata: &Value, spec: &Value| {
        let pods =
            json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}});
        let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
            "replicas": 0, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": pods}});
        json_patch::merge(&mut set["metadata"], metadata);
        json_patch::merge(&mut set["spec"], spec);
        set
    };
    // This field is immutable.
    let theirs = set(&json!({"labels": {"old": "1"}}), &json!({"podManagementPolicy": "Parallel"}));
    let apply = Action::Patch(Form::Apply, theirs);
    world.write_as("kubectl", Call::new("apps/v1", "statefulsets", NAMESPACE, "db", apply));
    world.remote.file("db.json", set(&json!({}), &json!({})).to_string()).commit("one");
    world.synced(json!({})).await;
    let live = world.get("apps/v1", "statefulsets", "db").unwrap();
    assert_eq!(live["spec"]["podManagementPolicy"], "Parallel");
    assert_eq!(live["metadata"]["labels"], json!({"mainstay.dev/sync": format!("{NAMESPACE}.demo")}));
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let owns = |entry: &&Value| entry["fieldsV1"]["f:spec"]["f:podManagementPolicy"].is_object();
    let owners = entries.iter().filter(owns).map(|entry| entry["manager"].as_str().unwrap());
    assert_eq!(owners.collect::<Vec<_>>(), ["kubectl"]);
    let is_said = |w: &World| {
        let events = w.server.objects("v1", "events", Some(NAMESPACE));
        let mut notes = events.iter().filter(|event| event["reason"] == "NotRemoved");
        notes.any(|event| event["message"].as_str().unwrap_or_default().contains(&format!("{NAMESPACE}/db")))
    };
    world.until("an Event names the object", is_said).await;
}

/// The rewrite of `managedFields` and the apply are two requests. A controller that writes between them makes the apply
/// fail with a conflict.
/// Adopts a ConfigMap of kubectl. `meanwhile` is a write immediately before the second apply.
async fn adopted_despite(meanwhile: impl Fn(&TestServer) + Send + Sync + 'static) -> World {
    let mut world = World::new().await;
    let mut theirs = map("a", &json!({}));
    theirs["data"] = json!({"key": "theirs", "stale": "theirs"});
    world.write_as("kubectl", Call::new("v1", "configmaps", NAMESPACE, "a", Action::Patch(Form::Apply, theirs)));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    // The first apply finds out that the object exists, the second one follows the rewrite.
    let (server, count) = (world.server.clone(), AtomicU32::new(0));
    world.gate.before(["apply", "configmaps", "a"], 2, move || {
        if count.fetch_add(1, Relaxed) == 1 {
            meanwhile(&server);
        }
    });
    world.synced(json!({})).await;
    assert_eq!((world.gate.interferences_left(), data(&world, "a")), (0, json!({"key": "1"})));
    world
}

/// Waits for an Event that names a ConfigMap and these fields.
async fn named(world: &World, fields: &[&str]) {
    let object = format!("{NAMESPACE}/a");
    let is_said = |note: &String| note.contains(&object) && fields.iter().all(|field| note.contains(field));
    world.until_or("an Event names them", |w| notes(w).iter().any(is_said), || notes(world).join("\n")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_names_fields_that_only_a_second_apply_removed() {
    let world = adopted_despite(|server| {
        let patch = json!({"metadata": {"annotations": {"seen": "yes"}}});
        let patch = Call::new("v1", "configmaps", NAMESPACE, "a", Action::Patch(Form::Merge, patch));
        server.must_call("controller", patch);
    })
    .await;
    named(&world, &["data.stale"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_names_fields_of_each_takeover_of_an_object() {
    let world = adopted_despite(|server| {
        let mut more = map("a", &json!({}));
        more["data"] = json!({"later": "theirs"});
        server.must_call("kubectl", Call::new("v1", "configmaps", NAMESPACE, "a", Action::Patch(Form::Apply, more)));
    })
    .await;
    named(&world, &["data.later", "data.stale"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_names_the_fields_that_were_removed_of_each_object() {
    let mut world = World::new().await;
    let removed = [("a", "first"), ("b", "first"), ("c", "second"), ("d", "key")];
    for (name, field) in removed {
        let mut theirs = map(name, &json!({}));
        theirs["data"] = json!({"key": "theirs", field: "theirs"});
        world.write_as("kubectl", Call::new("v1", "configmaps", NAMESPACE, name, Action::Patch(Form::Apply, theirs)));
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    let named = |note: &str, name: &str| note.contains(&format!("ConfigMap {NAMESPACE}/{name}"));
    let all_named = |w: &World| removed.iter().all(|(name, _)| notes(w).iter().any(|note| named(note, name)));
    world.until_or("an Event names each object", all_named, || notes(&world).join("\n")).await;
    for note in notes(&world) {
        for (name, field) in removed.iter().filter(|(name, _)| named(&note, name)) {
            for other in ["first", "second"] {
                assert_eq!(note.contains(&format!("data.{other}")), other == *field, "{name}: {note}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_takeover_names_fields_that_are_gone_and_no_defaults_that_stay() {
    let mut world = World::new().await;
    let mut live: Value = serde_yaml::from_str(&deployment("web", "nginx:1", 2)).unwrap();
    live["metadata"]["labels"] = json!({"app.kubernetes.io/instance": "shop"});
    live["spec"]["revisionHistoryLimit"] = 3.into();
    // With an update, a field manager owns the defaults, too.
    let create = Action::Create(live);
    world.write_as("argocd-controller", Call::new("apps/v1", "deployments", NAMESPACE, "", create));
    world.remote.file("web.yaml", deployment("web", "nginx:1", 2)).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.ready("demo").await;
    let said = |w: &World| {
        let events = w.server.objects("v1", "events", Some(NAMESPACE));
        let found = events.into_iter().find(|event| event["reason"] == "TakenOver");
        found.and_then(|event| event["message"].as_str().map(str::to_owned))
    };
    world.until("the Event is written", |w| said(w).is_some()).await;
    let said = said(&world).unwrap();
    for (field, is_gone) in [
        ("metadata.labels[app.kubernetes.io/instance]", true),
        ("spec.revisionHistoryLimit", true),
        ("spec.progressDeadlineSeconds", false),
        ("spec.strategy", false),
        ("imagePullPolicy", false),
    ] {
        assert_eq!(said.contains(field), is_gone, "{field}: {said}");
    }
}
