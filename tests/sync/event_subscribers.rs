//! The readiness of a GitSync with Triggers and Subscriptions: it needs a controller that delivers their events.

use devcluster::{Action, Call, verbs::patch::Form};
use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World};

const KNATIVE: &str = "eventing.knative.dev/v1alpha1";
const KYMA: &str = "eventing.kyma-project.io/v1alpha2";

/// Creates a GitSync with this object, in a cluster without eventing.
async fn synced(object: Value) -> World {
    let mut world = World::new().await;
    let definitions = serde_yaml::Deserializer::from_str(mainstay_eventing::DEFINITIONS);
    world.define_only(definitions.map(|one| Value::deserialize(one).unwrap()).collect());
    world.remote.file("object.yaml", object.to_string()).commit("first");
    world.sync("demo", json!({"timeout": "2s"}));
    world.start();
    world
}

/// Sets the status of the object, as a controller of events does.
fn set_status(world: &World, api: &str, plural: &str, status: Value) {
    let action = Action::Patch(Form::Merge, json!({"status": status}));
    world.try_as("eventing", Call::new(api, plural, NAMESPACE, "mine", action).on("status")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_is_ready_once_its_trigger_can_deliver() {
    let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "shop"}});
    let metadata = json!({"name": "mine", "namespace": NAMESPACE});
    let spec = json!({"broker": "default", "subscriber": subscriber});
    let world = synced(json!({"apiVersion": KNATIVE, "kind": "Trigger", "metadata": metadata, "spec": spec})).await;
    world.condition_is("demo", "Ready", "False EventsNotDelivered").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("mine (no controller delivers its events: install Mainstay's component eventing"), "{said}");
    let is = |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": "Mine"}]});
    set_status(&world, KNATIVE, "triggers", is("True"));
    world.ready("demo").await;
    set_status(&world, KNATIVE, "triggers", is("False"));
    world.condition_is("demo", "Ready", "False EventsNotDelivered").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_git_sync_is_ready_once_its_subscription_can_deliver() {
    let metadata = json!({"name": "mine", "namespace": NAMESPACE});
    let sink = format!("http://shop.{NAMESPACE}.svc.cluster.local");
    let spec = json!({"sink": sink, "source": "shop", "types": ["order.created.v1"]});
    let world = synced(json!({"apiVersion": KYMA, "kind": "Subscription", "metadata": metadata, "spec": spec})).await;
    world.condition_is("demo", "Ready", "False EventsNotDelivered").await;
    set_status(&world, KYMA, "subscriptions", json!({"ready": true}));
    world.ready("demo").await;
}
