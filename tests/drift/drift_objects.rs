//! The backward loop, end to end: objects that are deleted, restored, or must stay deleted.

use devcluster::{Action, Call, verbs::delete::DeleteOptions, verbs::patch::Form};
use serde_json::json;

use mainstay_testkit::{
    drift::{fence, patch_as, revert_of, synced, version},
    world::{NAMESPACE, World, config_map, deployment},
};

const A: (&str, &str, &str) = ("v1", "configmaps", "a");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_being_deleted_is_created_again_when_it_is_gone() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, json!({"metadata": {"finalizers": ["example.org/slow"]}}));
    let uid = world.uid(A.0, A.1, A.2);
    world.delete(A.0, A.1, A.2);
    let edited = world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    fence(&world).await;
    assert_eq!(version(&world.get(A.0, A.1, A.2).unwrap()), version(&edited), "applying to it would help nobody");
    world.edit(A.0, A.1, A.2, json!({"metadata": {"finalizers": null}}));
    assert_eq!(revert_of(&mut world, "a").await, ("unknown".to_owned(), vec!["(object)".to_owned()]));
    assert_ne!(world.uid(A.0, A.1, A.2), uid);
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_lost_its_label_while_it_is_being_deleted_is_awaited_without_asking() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    world.edit(A.0, A.1, A.2, json!({"metadata": {"finalizers": ["example.org/slow"]}}));
    world.delete(A.0, A.1, A.2);
    world.edit(A.0, A.1, A.2, json!({"metadata": {"labels": {"mainstay.dev/sync": null}}}));
    fence(&world).await;
    assert_eq!(world.get(A.0, A.1, A.2).unwrap()["metadata"]["labels"].get("mainstay.dev/sync"), None);
    world.edit(A.0, A.1, A.2, json!({"metadata": {"finalizers": null}}));
    assert_eq!(revert_of(&mut world, "a").await.1, ["(object)"]);
    let gets = world.requests().into_iter().filter(|(what, _)| what == "get configmaps").map(|(_, count)| count);
    assert!(gets.sum::<u64>() <= 3, "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_namespace_is_restored_with_its_objects() {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-shop}\n".to_owned();
    let inside =
        |name: &str| config_map(name, "1").replace("metadata:\n", "metadata:\n  namespace: mainstay-tests-shop\n");
    let world = synced(&[("ns.yaml", namespace), ("a.yaml", inside("a")), ("b.yaml", inside("b"))]).await;
    let shop = |w: &World| w.server.object("v1", "namespaces", "", "mainstay-tests-shop");
    let uid = shop(&world).unwrap()["metadata"]["uid"].clone();
    world
        .try_as(
            "kubectl",
            Call::new("v1", "namespaces", "", "mainstay-tests-shop", Action::Delete(DeleteOptions::default())),
        )
        .unwrap();
    world
        .until("another namespace with the same content", |w| {
            shop(w).is_some_and(|shop| shop["metadata"]["uid"] != uid && shop["status"]["phase"] == "Active")
                && ["a", "b"].iter().all(|name| {
                    w.server
                        .object("v1", "configmaps", "mainstay-tests-shop", name)
                        .is_some_and(|map| map["data"]["key"] == "1")
                })
        })
        .await;
    world.condition_is("demo", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_was_deleted_comes_back_with_its_objects() {
    let definition = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.mainstay-tests.example.org}
spec:
  group: mainstay-tests.example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
";
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    let mut world = synced(&[("crd.yaml", definition.to_owned()), ("w.yaml", widget.to_owned())]).await;
    let size =
        |w: &World| w.get("mainstay-tests.example.org/v1", "widgets", "w").map(|widget| widget["spec"]["size"].clone());
    world.edit("mainstay-tests.example.org/v1", "widgets", "w", json!({"spec": {"size": 4}}));
    assert_eq!(revert_of(&mut world, "w").await.1, ["spec.size"]);
    let uid = |w: &World| {
        w.get("mainstay-tests.example.org/v1", "widgets", "w").map(|widget| widget["metadata"]["uid"].clone())
    };
    let before = uid(&world);
    let (version, definitions) = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
    let name = "widgets.mainstay-tests.example.org";
    let definition = |w: &World| {
        w.server.object(version, definitions, "", name).map(|definition| definition["metadata"]["uid"].clone())
    };
    let first = definition(&world);
    let action = Action::Delete(DeleteOptions::default());
    world.try_as("kubectl", Call::new(version, definitions, "", name, action)).unwrap();
    // A terminating definition may still accept a widget, which is deleted with it.
    world.until("another definition is there", |w| definition(w).is_some_and(|uid| Some(uid) != first)).await;
    world.until("another widget is there", |w| size(w) == Some(json!(3)) && uid(w) != before).await;
    world.condition_is("demo", "Ready", "True").await;
    world.edit("mainstay-tests.example.org/v1", "widgets", "w", json!({"spec": {"size": 5}}));
    world.until("and is kept", |w| size(w) == Some(json!(3))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_left_the_repository_is_never_brought_back() {
    let all = (0..30).map(|n| format!("a{n}")).collect::<Vec<_>>();
    let mut world = World::new().await;
    world.remote.file("fence.yaml", config_map("fence", "1"));
    for name in &all {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("all");
    world.synced(json!({})).await;
    // Hand edits and deletions happen while the objects are pruned.
    for leaving in all.chunks(5) {
        for name in leaving {
            world.remote.remove(&format!("{name}.yaml"));
        }
        world.remote.commit("some leave");
        world.look();
        for (n, name) in leaving.iter().enumerate() {
            let of = Call::new("v1", "configmaps", NAMESPACE, name, Action::Delete(DeleteOptions::default()));
            let edit = Action::Patch(Form::Merge, json!({"data": {"key": "changed"}}));
            // The objects may already be gone.
            let _ = if n % 2 == 0 {
                world.try_as("kubectl", of)
            } else {
                world.try_as("kubectl", Call { action: edit, ..of })
            };
        }
        world.ready("demo").await;
    }
    fence(&world).await;
    assert_eq!(world.config_maps(), ["fence"]);
    assert_eq!(world.status("demo")["objects"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_under_way_does_not_outlive_the_objects_departure() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    // The revert hangs in the server while the object leaves the repository.
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        name: "a".into(),
        delay_millis: 1500,
        ..Default::default()
    });
    let asked =
        |w: &World| w.requests().iter().filter(|(what, _)| what == "get configmaps").map(|(_, n)| *n).sum::<u64>();
    let before = asked(&world);
    world.delete(A.0, A.1, A.2);
    world.until("the revert has begun", |w| asked(w) > before).await;
    world.remote.remove("a.yaml");
    world.commit("demo", "it leaves").await;
    fence(&world).await;
    assert_eq!(world.config_maps(), ["fence"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_while_a_commit_is_applied_is_held_at_what_was_applied_last() {
    let all = (0..60).map(|n| format!("a{n}")).collect::<Vec<_>>();
    let mut world = World::new().await;
    let write = |world: &mut World, value: &str| {
        for name in &all[..30] {
            world.remote.file(&format!("{name}.yaml"), config_map(name, value));
        }
    };
    write(&mut world, "1");
    for name in &all[30..] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "0"));
    }
    world.remote.commit("all");
    world.synced(json!({})).await;
    write(&mut world, "2");
    world.remote.commit("half of them change");
    world.look();
    for name in &all {
        patch_as(&world, "kubectl-edit", (A.0, A.1, name), Form::Merge, json!({"data": {"key": "changed"}}));
    }
    world.ready("demo").await;
    world
        .until("all are as committed", |w| {
            all[..30].iter().all(|name| w.data(name) == "2") && all[30..].iter().all(|name| w.data(name) == "0")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_edits_at_once_are_reverted_once_each() {
    let file = |n: usize| (0..50).map(|i| config_map(&format!("m{}", n * 50 + i), "1") + "---\n").collect::<String>();
    let files = (0..10).map(|n| (format!("f{n}.yaml"), file(n))).collect::<Vec<_>>();
    let files = files.iter().map(|(path, content)| (path.as_str(), content.clone())).collect::<Vec<_>>();
    let world = synced(&files).await;
    world.levers().reset_counts();
    for n in 0..500 {
        let of = (A.0, A.1, &*format!("m{n}"));
        patch_as(&world, "kubectl-edit", of, Form::Merge, json!({"data": {"key": "changed"}}));
    }
    world.until("all are back", |w| (0..500).all(|n| w.data(&format!("m{n}")) == "1")).await;
    let applies = world.requests().into_iter().find(|(what, _)| what == "apply configmaps");
    let applies = applies.map_or(0, |(_, count)| count);
    assert!((500..=505).contains(&applies), "{applies}");
    world.until("all are told", |w| w.status("demo")["reverted"] == 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_that_took_the_place_of_a_value_makes_way_for_it_and_what_stands_beside_it_stays() {
    let mut world = synced(&[("web.yaml", deployment("web", "a:1", 1))]).await;
    let container = |w: &World| {
        let deployment = w.get("apps/v1", "deployments", "web").unwrap();
        deployment["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let reference = json!({"name": "A", "value": null, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    let theirs = json!({"name": "web", "command": ["theirs"], "env": [reference, {"name": "C", "value": "theirs"}]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [theirs]}}}});
    patch_as(&world, "kubectl-patch", ("apps/v1", "deployments", "web"), Form::Strategic, patch);
    let (_, fields) = revert_of(&mut world, "web").await;
    assert!(fields.len() == 1 && fields[0].ends_with(r#".env[name="A"].value"#), "{fields:?}");
    let found = container(&world);
    let variables = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "theirs"}]);
    let mut env = found["env"].as_array().unwrap().clone();
    env.sort_by_key(|entry| entry["name"].to_string());
    assert_eq!((json!(env), &found["command"]), (variables, &json!(["theirs"])));
    // The Deployment's controller has to see the revert first.
    let is_well =
        |w: &World| w.condition("demo", "Ready").starts_with("True") && w.status("demo")["failures"].is_null();
    world.until("it is ready and nothing failed", is_well).await;
}
