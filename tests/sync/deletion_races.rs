//! Changes between the agent's read of an object and its deletion. In every deletion path, only the examined state is
//! deleted, and a changed object is examined again.

use std::sync::Arc;
use std::time::Duration;

use devcluster::{Action, Call, Caller, Simulation, verbs::delete::DeleteOptions, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, JOBS, Kind, inline, scaled},
    ownership::{LABEL, delete_sync, prune_on_delete, sync_is_gone},
    world::{NAMESPACE, World, config_map},
};

const IMAGE: &str = "example.org/job:1";
const BREAK_GLASS: &str = "mainstay.dev/reconcile";

/// The path by which the agent comes to delete an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The object left the repository.
    Prune,
    /// The GitSync is deleted and prunes its objects.
    Finalizer,
    /// The GitSync is deleted and should prune its objects, but has no finalizer yet.
    Farewell,
    /// The manifest of a finished Job requests another run.
    Replacement,
    /// The GitSync requests another run.
    RunAgain,
    /// The Function no longer needs the object.
    Child,
}

const WAYS: [Way; 6] = [Way::Prune, Way::Finalizer, Way::Farewell, Way::Replacement, Way::RunAgain, Way::Child];

/// Returns the manifest of a Job with the token of its run.
fn job(token: &str) -> String {
    json!({
        "apiVersion": JOBS.0, "kind": "Job",
        "metadata": {"name": "work", "annotations": {"mainstay.dev/rerun": token}},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": IMAGE}],
        }}},
    })
    .to_string()
}

fn is_finished(world: &World) -> bool {
    world.get(JOBS.0, JOBS.1, "work").is_some_and(|job| job["status"]["conditions"].to_string().contains("Complete"))
}

impl Way {
    /// Returns the kind of the deleted object, and its qualified resource name in requests.
    fn kind(self) -> (Kind, &'static str) {
        match self {
            Self::Prune | Self::Finalizer | Self::Farewell => (CONFIG_MAPS, "configmaps"),
            Self::Replacement | Self::RunAgain => (JOBS, "jobs.batch"),
            Self::Child => (AUTOSCALERS, "horizontalpodautoscalers.autoscaling"),
        }
    }

    /// Creates a world with a managed object. Returns the name of the object, too.
    async fn begin(self) -> (World, String) {
        match self {
            Self::Prune | Self::Finalizer | Self::Farewell => {
                let mut world = World::new().await;
                world.remote.file("a.yaml", config_map("a", "1")).file("b.yaml", config_map("b", "1")).commit("one");
                world.synced(json!({})).await;
                if self == Self::Finalizer {
                    prune_on_delete(&world, "demo").await;
                }
                if self != Self::Prune {
                    world.annotate_sync("demo", "mainstay.dev/allow-prune", &world.remote.head());
                    world.ready("demo").await;
                }
                (world, "b".to_owned())
            }
            Self::Replacement | Self::RunAgain => {
                let mut world = World::new().await;
                let simulation =
                    Simulation { exit_code: 0, termination_message: None, after: Duration::from_millis(50) };
                world.server.simulate(IMAGE, "main", simulation);
                world.remote.file("job.yaml", job("1")).commit("one");
                world.synced(json!({})).await;
                world.until("it finished", is_finished).await;
                world.ready("demo").await;
                (world, "work".to_owned())
            }
            Self::Child => {
                let world = World::running(scaled("1")).await;
                let name = world.child_name("hello", AUTOSCALERS);
                (world, name)
            }
        }
    }

    /// Makes the agent delete the object.
    fn cause(self, world: &mut World) {
        match self {
            Self::Prune => {
                world.remote.remove("b.yaml").commit("it leaves");
                world.request("demo");
            }
            Self::Finalizer => delete_sync(world, "demo"),
            Self::Farewell => {
                world.fail_next("patch", "gitsyncs.mainstay.dev", "demo", 500, 1000);
                world.annotate_sync("demo", "mainstay.dev/on-delete", "prune");
                delete_sync(world, "demo");
            }
            Self::Replacement => {
                world.remote.file("job.yaml", job("2")).commit("once more");
                world.request("demo");
            }
            Self::RunAgain => world.annotate_sync("demo", "mainstay.dev/rerun", "work two"),
            Self::Child => _ = world.edit_function("hello", json!({"spec": inline("1")})),
        }
    }

    /// Waits until the agent has finished.
    async fn end(self, world: &World) {
        match self {
            Self::Prune | Self::Replacement => world.ask("demo").await,
            Self::Finalizer => sync_is_gone(world, "demo").await,
            Self::Farewell => {
                world.until("the other one went with it", |w| w.get("v1", "configmaps", "a").is_none()).await;
                world.quiet().await;
            }
            Self::RunAgain => {
                let said = |w: &World| w.status("demo")["lastHandledRerun"] == "work two";
                world.until("the request is answered", said).await;
            }
            Self::Child => {
                world.edit_function("hello", json!({"spec": inline("2")}));
                world.until_function("it serves what is new", |w| w.children("hello", JOBS).len() == 1).await;
                world.runs("hello").await;
            }
        }
    }
}

/// A change right before a deletion: a merge patch as `kubectl`, or a replacement by another object.
#[derive(Clone, Debug)]
enum Change {
    Patch(Value),
    Replace,
}

/// Changes an object right before its deletion, this many times.
fn before_deletion(world: &World, way: Way, name: &str, times: u32, change: Change) {
    let (kind, resource) = way.kind();
    let (server, name) = (world.server.clone(), name.to_owned());
    let asked = ["delete", resource, &name.clone()];
    world.gate.before(asked, times, move || {
        let call = |action: Action| {
            let call = Call::new(kind.0, kind.1, NAMESPACE, &name, action);
            server.call(&Caller::new("kubectl-edit"), call).unwrap()
        };
        match &change {
            Change::Patch(patch) => {
                let mut patch = patch.clone();
                patch["metadata"]["annotations"]["example.org/at"] = json!(format!("{:?}", std::time::Instant::now()));
                call(Action::Patch(Form::Merge, patch));
            }
            Change::Replace => {
                let mut theirs = call(Action::Get);
                let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": theirs["metadata"]["labels"]});
                call(Action::Delete(DeleteOptions::default()));
                theirs["metadata"] = metadata;
                theirs["status"].take();
                let create = Call::new(kind.0, kind.1, NAMESPACE, "", Action::Create(theirs));
                server.call(&Caller::new("kubectl-create"), create).unwrap();
            }
        }
    });
}

fn object(world: &World, way: Way, name: &str) -> Option<Arc<Value>> {
    let (kind, _) = way.kind();
    world.get(kind.0, kind.1, name)
}

fn uid(object: Option<&Arc<Value>>) -> Option<String> {
    object.and_then(|object| object["metadata"]["uid"].as_str().map(str::to_owned))
}

/// Checks that a change right before a deletion is detected: the object stays as changed.
async fn stays(way: Way, change: Change) {
    let (mut world, name) = way.begin().await;
    let before = uid(object(&world, way, &name).as_ref());
    before_deletion(&world, way, &name, 1, change.clone());
    way.cause(&mut world);
    world.until_function("somebody was faster", |w| w.gate.interferences_left() == 0).await;
    way.end(&world).await;
    let found = object(&world, way, &name);
    assert!(found.is_some(), "{way:?}, {change:?}: it is gone");
    let is_same = uid(found.as_ref()) == before;
    assert_eq!(is_same, !matches!(change, Change::Replace), "{way:?}, {change:?}: {found:#?}");
    let annotations = &found.unwrap()["metadata"]["annotations"];
    assert!(!is_same || annotations["example.org/at"].is_string(), "{way:?}, {change:?}: {annotations}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn break_glass_that_is_set_right_before_a_deletion_is_seen() {
    for way in WAYS {
        stays(way, Change::Patch(json!({"metadata": {"annotations": {BREAK_GLASS: "disabled"}}}))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_another_owner_takes_right_before_its_deletion_is_theirs() {
    for way in WAYS {
        let owners = json!([{"apiVersion": "v1", "kind": "Thing", "name": "theirs", "uid": "1", "controller": true}]);
        let labels = json!({LABEL: "mainstay-tests.other"});
        let theirs = if way == Way::Child { json!({"ownerReferences": owners}) } else { json!({"labels": labels}) };
        stays(way, Change::Patch(json!({"metadata": theirs}))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_kept_by_an_annotation_right_before_its_deletion_stays() {
    for way in [Way::Prune, Way::Finalizer, Way::Farewell] {
        stays(way, Change::Patch(json!({"metadata": {"annotations": {"mainstay.dev/prune": "disabled"}}}))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_replaces_another_right_before_its_deletion_stays() {
    for way in [Way::Prune, Way::Finalizer, Way::Farewell, Way::Child] {
        stays(way, Change::Replace).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_changed_all_the_time_goes_all_the_same() {
    for way in WAYS {
        let (mut world, name) = way.begin().await;
        let before = uid(object(&world, way, &name).as_ref());
        // More often than the agent reads again in two attempts.
        before_deletion(&world, way, &name, 12, Change::Patch(json!({})));
        way.cause(&mut world);
        let is_gone = |w: &World| uid(object(w, way, &name).as_ref()) != before;
        world.until_function(&format!("{way:?}: it goes"), is_gone).await;
        assert_eq!(world.gate.interferences_left(), 0, "{way:?}");
    }
}

/// While no agent runs, another object with equal content replaces the applied one. Without proof that the agent
/// applied it, no path deletes the new object, even with permission to prune.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_never_applied_is_not_deleted_in_any_way() {
    for way in [Way::Prune, Way::Finalizer, Way::Replacement, Way::RunAgain] {
        let (mut world, name) = way.begin().await;
        world.stop().await;
        let (kind, _) = way.kind();
        let mut theirs = object(&world, way, &name).unwrap().as_ref().clone();
        let metadata = &theirs["metadata"];
        let metadata = json!({
            "name": name, "namespace": NAMESPACE, "labels": metadata["labels"], "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        });
        world.delete(kind.0, kind.1, &name);
        world.until("ours is gone", |w| object(w, way, &name).is_none()).await;
        theirs["metadata"] = metadata;
        theirs["status"].take();
        if kind == JOBS {
            // The server adds these fields again.
            theirs["spec"] = serde_json::from_str::<Value>(&job("1")).unwrap()["spec"].take();
        }
        world.create(kind.0, kind.1, NAMESPACE, theirs);
        world.until("it is as far as ours was", |w| kind != JOBS || is_finished(w)).await;
        let before = uid(object(&world, way, &name).as_ref());
        way.cause(&mut world);
        world.start();
        if way == Way::Prune {
            world.allow_prune("demo", &world.remote.head()).await;
        }
        way.end(&world).await;
        assert_eq!(uid(object(&world, way, &name).as_ref()), before, "{way:?}");
    }
}
