//! `spec.additions`: additions to managed objects by user tools are removed, and additions by others stay.

use devcluster::verbs::patch::Form;
use serde_json::{Value, json};

use mainstay_testkit::drift::{fence, patch_as, revert_of};
use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment};

const WEB: (&str, &str, &str) = ("apps/v1", "deployments", "web");
const A: (&str, &str, &str) = ("v1", "configmaps", "a");

async fn with(spec: Value) -> World {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 1).replace("  replicas: 1\n", ""));
    world.remote.file("a.yaml", config_map("a", "1")).file("fence.yaml", config_map("fence", "1")).commit("one");
    let mut whole = json!({"wait": false, "additions": true});
    json_patch::merge(&mut whole, &spec);
    world.synced(whole).await;
    world
}

fn object(world: &World, of: (&str, &str, &str)) -> Value {
    (*world.get(of.0, of.1, of.2).unwrap()).clone()
}

fn env(world: &World) -> Vec<String> {
    let web = object(world, WEB);
    let all = web["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_of_people_are_removed_and_those_of_controllers_stay() {
    let mut world = with(json!({})).await;
    let theirs =
        json!({"metadata": {"labels": {"vpa": "1"}, "finalizers": ["example.org/theirs"]}, "data": {"auto": "1"}});
    patch_as(&world, "some-controller", A, Form::Merge, theirs);
    let mine = json!({"metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}}, "data": {"mine": "z"}});
    patch_as(&world, "kubectl-edit", A, Form::Merge, mine);
    let (who, mut fields) = revert_of(&mut world, "/a").await;
    fields.sort();
    assert_eq!(
        (&*who, fields),
        (
            "kubectl-edit",
            vec!["data.mine".to_owned(), "metadata.annotations.note".to_owned(), "metadata.labels.team".to_owned(),]
        )
    );
    let a = object(&world, A);
    assert_eq!(a["data"], json!({"key": "1", "auto": "1"}));
    assert_eq!((&a["metadata"]["labels"]["vpa"], &a["metadata"]["labels"]["team"]), (&json!("1"), &Value::Null));
    assert_eq!(a["metadata"]["finalizers"], json!(["example.org/theirs"]));
    let expected = json!({"field": "data.mine", "found": "\"z\"", "restored": "absent"});
    let shown = |w: &World| w.status("demo")["lastReverts"][0]["changes"].as_array().cloned().unwrap_or_default();
    world.until("the status shows what it was", |w| shown(w).contains(&expected)).await;
    // A commit that contains the removed addition applies the addition.
    world.remote.file("a.yaml", format!("{}  mine: git\n", config_map("a", "1")));
    world.commit("demo", "it is in Git now").await;
    fence(&world).await;
    assert_eq!(object(&world, A)["data"]["mine"], "git");
    patch_as(&world, "some-controller", A, Form::Merge, json!({"metadata": {"finalizers": null}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_restarts_and_scales_and_adds_nothing_else() {
    let world = with(json!({})).await;
    let kubectl = Kubectl::of(world.server.embedded(), NAMESPACE).await;
    kubectl.run(&["rollout", "restart", "deployment/web"]).await;
    kubectl.run(&["scale", "deployment/web", "--replicas=4"]).await;
    kubectl.run(&["set", "env", "deployment/web", "MORE=1"]).await;
    world.until("the variable is taken back", |w| env(w) == ["A", "B"]).await;
    kubectl.run(&["label", "deployment/web", "team=x"]).await;
    world.until("the label is taken back", |w| object(w, WEB)["metadata"]["labels"].get("team").is_none()).await;
    let web = object(&world, WEB);
    assert_eq!(web["spec"]["replicas"], 4);
    let annotations = &web["spec"]["template"]["metadata"]["annotations"];
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "{annotations}");
    kubectl.run(&["annotate", "configmap/a", "mainstay.dev/prune=disabled", "team=x"]).await;
    world.until("one is taken back", |w| object(w, A)["metadata"]["annotations"].get("team").is_none()).await;
    assert_eq!(object(&world, A)["metadata"]["annotations"], json!({"mainstay.dev/prune": "disabled"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_stay_until_they_are_to_be_taken_back_and_where_drift_is_only_reported() {
    let world = with(json!({"additions": false, "ignore": [{"paths": ["/data/ignored"]}]})).await;
    world.edit(A.0, A.1, A.2, json!({"data": {"mine": "1", "ignored": "1"}}));
    fence(&world).await;
    assert_eq!(object(&world, A)["data"], json!({"key": "1", "mine": "1", "ignored": "1"}));
    world.change("demo", json!({"additions": true, "drift": "Report"})).await;
    world.edit(A.0, A.1, A.2, json!({"data": {"key": "changed"}}));
    world.until("it differs", |w| w.status("demo")["driftedObjects"] == 1).await;
    assert_eq!(object(&world, A)["data"]["mine"], "1");
    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("it is taken back", |w| object(w, A)["data"] == json!({"key": "1", "ignored": "1"})).await;
    fence(&world).await;
    assert_eq!(object(&world, A)["data"], json!({"key": "1", "ignored": "1"}), "what is ignored is not taken back");
    world.until("nothing differs", |w| w.status("demo")["driftedObjects"] == 0).await;
}
