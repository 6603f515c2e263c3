//! The data that the agent receives from namespaces with Functions: its own objects, and all autoscalers, which may own
//! a Deployment's replicas.

use devcluster::fault_injection::Fault;
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::scaled,
    world::{NAMESPACE, World},
};

/// A word in every foreign object, its pods and its Events.
const MARK: &str = "none-of-the-agents-business";
/// Number of foreign objects of each kind.
const MANY: usize = 10;
/// The kinds with their versions.
const KINDS: [(&str, &str); 8] = [
    ("v1", "configmaps"),
    ("v1", "secrets"),
    ("v1", "services"),
    ("v1", "pods"),
    ("v1", "events"),
    ("batch/v1", "jobs"),
    ("apps/v1", "deployments"),
    ("autoscaling/v1", "horizontalpodautoscalers"),
];

/// Returns a foreign object of a kind.
fn foreign(version: &str, resource: &str, namespace: &str, n: usize) -> Value {
    let name = format!("{MARK}-{n}");
    // Half of the objects have the same label with another value.
    let managed = if n.is_multiple_of(2) { json!({"serverless.kyma-project.io/managed-by": MARK}) } else { json!({}) };
    let mut labels = managed;
    labels["app"] = json!(name);
    let pod = json!({"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Always"});
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
    let rest = match resource {
        "configmaps" => json!({"data": {"key": MARK}}),
        "secrets" => json!({"stringData": {"password": MARK}}),
        "services" => json!({"spec": {"ports": [{"port": 80}], "selector": {"app": name}}}),
        "pods" => json!({"spec": pod}),
        "events" => json!({
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": name},
            "reason": "FailedCreate", "type": "Warning", "message": MARK,
        }),
        "jobs" => {
            let mut template = template;
            template["spec"]["restartPolicy"] = json!("Never");
            json!({"spec": {"template": template}})
        }
        "deployments" => json!({"spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}),
        _ => json!({"spec": {
            "maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        }}),
    };
    let mut object = json!({
        "apiVersion": version, "kind": kind(resource),
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
    });
    json_patch::merge(&mut object, &rest);
    object
}

fn kind(resource: &str) -> &str {
    match resource {
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "services" => "Service",
        "pods" => "Pod",
        "events" => "Event",
        "jobs" => "Job",
        "deployments" => "Deployment",
        _ => "HorizontalPodAutoscaler",
    }
}

fn create(world: &World, namespace: &str, numbers: std::ops::Range<usize>) {
    for (version, resource) in KINDS {
        for n in numbers.clone() {
            world.create(version, resource, namespace, foreign(version, resource, namespace, n));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_objects_of_a_namespace_are_not_sent_to_the_agent() {
    let mut world = World::with_functions().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    world.create("v1", "namespaces", "", namespace);
    for namespace in [NAMESPACE, "other"] {
        create(&world, namespace, 0..MANY);
    }
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    // A missing pod makes the agent read Events.
    world.server.embedded().faults().fail_next(Fault {
        verb: "create".into(),
        resource: "pods".into(),
        namespace: NAMESPACE.into(),
        code: 403,
        message: "exceeded quota: q".into(),
        times: 10_000,
        ..Fault::default()
    });
    world.gate.record();
    world.start();
    world.function("inline", scaled("1"));
    world.git_function("git", "/hello");
    let refused = |w: &World, name: &str| w.said(name, "BuildReady").contains("exceeded quota: q");
    world.until_function("no pods", |w| refused(w, "inline") && refused(w, "git")).await;
    world.server.embedded().faults().clear_faults();
    world.runs("inline").await;
    world.runs("git").await;
    // Changes arrive through open watches.
    create(&world, NAMESPACE, MANY..2 * MANY);
    for (version, resource) in KINDS.into_iter().filter(|(_, resource)| *resource != "events") {
        let name = format!("{MARK}-0");
        world.edit(version, resource, &name, json!({"metadata": {"annotations": {"a": "b"}}}));
        world.delete(version, resource, &name);
    }
    // Once this change is handled, the agent has received all earlier changes.
    world.edit_function("inline", json!({"spec": {"source": "2", "labels": {"a": "b"}}}));
    world.runs("inline").await;
    world.quiet().await;
    let heard = world.gate.heard();
    let told = heard.iter().filter(|heard| heard.answer().contains(MARK)).map(|heard| &*heard.asked);
    // Autoscalers of all owners matter, because the replicas of their targets are not reverted.
    let may = |asked: &&str| asked.starts_with("GET /apis/autoscaling/v2/horizontalpodautoscalers?");
    assert_eq!(told.filter(|asked| !may(asked)).collect::<Vec<_>>(), Vec::<&str>::new());
    // The record is complete: it contains the agent's own objects of every kind.
    for (_, resource) in KINDS {
        let own = match resource {
            "secrets" => "serverless-registry-config-default",
            "events" => "exceeded quota: q",
            _ => "inline",
        };
        let is_read =
            |asked: &str| asked.starts_with("GET ") && asked.contains(&format!("/{resource}?")) && !may(&asked);
        let sent = heard.iter().any(|heard| is_read(&heard.asked) && heard.answer().contains(own));
        let asked = heard.iter().map(|heard| &heard.asked).filter(|asked| is_read(asked)).collect::<Vec<_>>();
        assert!(sent, "{resource}: {asked:?}");
    }
}
