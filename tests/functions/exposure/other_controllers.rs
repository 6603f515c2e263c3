//! APIRules that another controller serves are left to it.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_controller_are_left_to_it() {
    let (world, _gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    let uid = world.uid(API, "apirules", "my-function");
    let owner = json!({"apiVersion": API, "kind": "APIRule", "name": "my-function", "uid": uid, "controller": true});
    let label = json!({"apirule.gateway.kyma-project.io/v1alpha1": format!("my-function.{NAMESPACE}")});
    let metadata =
        |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": label, "ownerReferences": [owner]});
    let theirs = json!({"apiVersion": SERVICES.0, "kind": "VirtualService", "metadata": metadata("my-function-x7k2p"), "spec": {"hosts": [HOST], "http": []}});
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs);
    let elsewhere =
        "Unknown ManagedElsewhere: another controller serves this APIRule: it created VirtualService my-function-x7k2p";
    world.rule_is(SERVED.0, elsewhere).await;
    let is_theirs = |w: &World| {
        w.all(SERVICES).len() == 1 && name(&w.all(SERVICES)[0]) == "my-function-x7k2p" && w.all(RULES).is_empty()
    };
    world.until("only theirs is left", is_theirs).await;
    world.delete(SERVICES.0, SERVICES.1, "my-function-x7k2p");
    world.rule_is(SERVED.0, SERVED.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apirule_whose_status_another_controller_writes_is_left_to_it_until_it_changes() {
    let (world, _gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    let later = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let status = |time: &str| json!({"status": {"lastProcessedTime": time}});
    let call = Call::new(API, "apirules", NAMESPACE, "my-function", Action::Patch(Form::Merge, status(&later)));
    world.try_as("kyma", call.on("status")).unwrap();
    world
        .rule_is(SERVED.0, "Unknown ManagedElsewhere: another controller serves this APIRule and writes its status")
        .await;
    // The other controller decides about reverts.
    world.delete(SERVICES.0, SERVICES.1, &name(&world.all(SERVICES)[0]));
    world.quiet().await;
    assert_eq!(world.all(SERVICES), Vec::<Arc<Value>>::new());
    let methods = json!([path("/.*", &["GET"], "noop", json!({}))]);
    world.change_rule(json!({"rules": methods}));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.until("it is served again", |w| w.all(SERVICES).len() == 1).await;
}
