//! `spec.ignore`: an ignored field is neither applied, compared nor reverted. The rest of the object is.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use devcluster::{Action, Call, fault_injection::Fault, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::drift::{fence, patch_as, revert_of, version};
use mainstay_testkit::gate::after_every_write;
use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::world::{NAMESPACE, World, config_map, deployment};

const WEB: (&str, &str, &str) = ("apps/v1", "deployments", "web");
const REPLICAS: &str = "/spec/replicas";
const IMAGE: &str = "/spec/template/spec/containers/0/image";

/// Creates a world with the Deployment `web` (`nginx:1`, 3 replicas), the ConfigMaps `fence` and `a`, and these rules.
async fn with(ignore: Value) -> World {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 3));
    world.remote.file("fence.yaml", config_map("fence", "1")).file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"wait": false, "ignore": ignore})).await;
    world
}

fn web(world: &World) -> Value {
    (*world.get(WEB.0, WEB.1, WEB.2).unwrap()).clone()
}

fn replicas(world: &World) -> i64 {
    web(world)["spec"]["replicas"].as_i64().unwrap()
}

fn container(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]
}

fn image(world: &World) -> String {
    container(&web(world))["image"].as_str().unwrap().to_owned()
}

/// Changes replicas, image and an environment variable together, as a user.
fn edit_all(world: &World, count: i64, image: &str, env: &str) {
    let containers = json!([{"name": "web", "image": image, "env": [{"name": "A", "value": env}]}]);
    let patch = json!({"spec": {"replicas": count, "template": {"spec": {"containers": containers}}}});
    patch_as(world, "kubectl-edit", WEB, Form::Strategic, patch);
}

async fn env_is_back(world: &World) {
    world.until("the environment is reverted", |w| container(&web(w))["env"][0]["value"] == "1").await;
}

/// Returns whether the agent owns a field of the Deployment's spec or container.
fn is_ours(world: &World, field: &str) -> bool {
    let web = web(world);
    let entries = web["metadata"]["managedFields"].as_array().unwrap();
    let ours = entries.iter().find(|entry| entry["manager"] == "mainstay" && entry["operation"] == "Apply").unwrap();
    ours["fieldsV1"].to_string().contains(&format!("\"f:{field}\""))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ignored_field_is_left_alone_and_the_others_of_the_object_are_reverted() {
    let mut world = with(json!([{"paths": [REPLICAS, IMAGE], "target": {"kind": "Deployment"}}])).await;
    assert_eq!((replicas(&world), image(&world)), (3, "nginx:1".to_owned()), "it was created with Git's values");
    assert!(!is_ours(&world, "replicas") && !is_ours(&world, "image") && is_ours(&world, "env"));
    edit_all(&world, 5, "nginx:9", "changed");
    let (who, fields) = revert_of(&mut world, "web").await;
    assert_eq!(
        (&*who, fields),
        ("kubectl-edit", vec!["spec.template.spec.containers[name=\"web\"].env[name=\"A\"].value".to_owned()])
    );
    env_is_back(&world).await;
    assert_eq!((replicas(&world), image(&world)), (5, "nginx:9".to_owned()));
    // An edit of ignored fields only is not drift.
    edit_all(&world, 6, "nginx:10", "1");
    edit_all(&world, 6, "nginx:10", "changed again");
    env_is_back(&world).await;
    assert_eq!((replicas(&world), image(&world)), (6, "nginx:10".to_owned()));
    world.until("the status counts", |w| w.status("demo")["reverted"] == 2).await;
    assert_eq!(world.status("demo")["driftedObjects"], 0);
    // A deleted object is created with Git's values.
    world.delete(WEB.0, WEB.1, WEB.2);
    world.until("it is back", |w| w.get(WEB.0, WEB.1, WEB.2).is_some()).await;
    assert_eq!((replicas(&world), image(&world)), (3, "nginx:1".to_owned()));
    world.until("they are nobody's", |w| !is_ours(w, "replicas") && !is_ours(w, "image")).await;
    edit_all(&world, 7, "nginx:7", "changed");
    env_is_back(&world).await;
    assert_eq!((replicas(&world), image(&world)), (7, "nginx:7".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_changes_an_ignored_field_alone_does_not_touch_the_object() {
    let mut world = with(json!([{"paths": [REPLICAS, IMAGE]}])).await;
    let facts = |w: &World| {
        let applied = w.requests().into_iter().filter(|(what, _)| what.contains("deployments")).collect::<Vec<_>>();
        (web(w)["metadata"]["generation"].clone(), web(w)["spec"].clone(), applied)
    };
    let before = facts(&world);
    world.remote.file("web.yaml", deployment("web", "nginx:2", 4));
    world.commit("demo", "ignored fields").await;
    assert_eq!(facts(&world), before);
    world.remote.file("web.yaml", deployment("web", "nginx:3", 5).replace("value: \"1\"", "value: \"7\""));
    world.commit("demo", "others, too").await;
    assert_eq!(container(&web(&world))["env"][0]["value"], "7");
    assert_eq!((replicas(&world), image(&world)), (3, "nginx:1".to_owned()));
    // A new container is created with Git's values.
    let more = "      - name: log\n        image: log:1\n";
    let rule = json!([{"paths": [REPLICAS, IMAGE, "/spec/template/spec/containers/1/image"]}]);
    world.change("demo", json!({"ignore": rule})).await;
    world.remote.file("web.yaml", format!("{}{more}", deployment("web", "nginx:3", 5)));
    world.commit("demo", "another container").await;
    let images = |w: &World| {
        let web = web(w);
        let all = web["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
        all.iter().map(|one| one["image"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(images(&world), ["nginx:1", "log:1"]);
    world.remote.file("web.yaml", format!("{}{}", deployment("web", "nginx:3", 6), more.replace("log:1", "log:2")));
    world.commit("demo", "another version of it").await;
    assert_eq!(images(&world), ["nginx:1", "log:1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_added_keeps_what_is_there_and_one_that_goes_puts_the_manifest_back() {
    let world = with(json!([])).await;
    let lowest = Arc::new(AtomicI64::new(i64::MAX));
    let watching = {
        let (lowest, mut changes) = (Arc::clone(&lowest), world.server.changes(WEB.0, WEB.1));
        tokio::spawn(async move {
            loop {
                for object in changes.next().await {
                    lowest.fetch_min(object["spec"]["replicas"].as_i64().unwrap(), Ordering::Relaxed);
                }
            }
        })
    };
    assert!(is_ours(&world, "replicas") && is_ours(&world, "image"));
    world.change("demo", json!({"ignore": [{"paths": [REPLICAS, IMAGE]}]})).await;
    world.until("they are nobody's", |w| !is_ours(w, "replicas") && !is_ours(w, "image")).await;
    assert_eq!((replicas(&world), image(&world)), (3, "nginx:1".to_owned()));
    edit_all(&world, 5, "nginx:9", "changed");
    env_is_back(&world).await;
    assert_eq!((replicas(&world), image(&world)), (5, "nginx:9".to_owned()));
    assert_eq!(lowest.load(Ordering::Relaxed), 3, "the count never fell");
    world.change("demo", json!({"ignore": [{"paths": [IMAGE]}]})).await;
    world.until("the count is Git's", |w| replicas(w) == 3).await;
    assert_eq!(image(&world), "nginx:9");
    world.change("demo", json!({"ignore": null})).await;
    world.until("the image is Git's", |w| image(w) == "nginx:1").await;
    edit_all(&world, 5, "nginx:9", "1");
    world.until("they are reverted again", |w| replicas(w) == 3 && image(w) == "nginx:1").await;
    watching.abort();
}

/// If a policy refuses to release a field, the agent backs off, regardless of changing messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_cannot_be_given_up_stays_as_it_is_and_is_tried_less_and_less_often() {
    let world = with(json!([])).await;
    world.until("it is available", |w| web(w)["status"]["availableReplicas"] == 3).await;
    world.levers().fail_next(Fault {
        verb: "patch".into(),
        resource: "deployments.apps".into(),
        name: WEB.2.into(),
        code: 403,
        message: "a policy refuses this for the {nth} time".into(),
        times: 1_000,
        ..Fault::default()
    });
    world.levers().reset_counts();
    world.change("demo", json!({"ignore": [{"paths": [REPLICAS]}]})).await;
    world
        .until("it is said", |w| {
            w.failure("demo", "Deployment.apps mainstay-tests/web").contains("a policy refuses this")
        })
        .await;
    edit_all(&world, 5, "nginx:1", "changed");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked: u64 =
        world.requests().iter().filter(|(what, _)| what.ends_with("deployments.apps")).map(|(_, count)| count).sum();
    assert!(asked <= 20, "{:?}", world.requests());
    world.levers().clear_faults();
    world.ask("demo").await;
    world.until("it is nobody's", |w| !is_ours(w, "replicas")).await;
    patch_as(&world, "kubectl-scale", WEB, Form::Merge, json!({"spec": {"replicas": 7}}));
    edit_all(&world, 7, "nginx:1", "changed");
    env_is_back(&world).await;
    assert_eq!(replicas(&world), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_costs_requests_for_the_objects_that_it_touches_and_for_no_others() {
    let world = with(json!([])).await;
    // The Deployment's controller writes no more, so that no further reads are needed.
    world.until("it is available", |w| web(w)["status"]["availableReplicas"] == 3).await;
    let applies = |w: &World| {
        let all = w.requests().into_iter().filter(|(what, _)| {
            ["configmaps", "deployments"].iter().any(|of| what.ends_with(of) || what.contains("deployments"))
                && !what.starts_with("list")
        });
        all.collect::<std::collections::BTreeMap<_, _>>()
    };
    let versions = |w: &World| ["fence", "a"].map(|name| version(&w.get("v1", "configmaps", name).unwrap()));
    let before = (applies(&world), versions(&world));
    world.change("demo", json!({"ignore": [{"paths": [REPLICAS, "/data/none", "/metadata/labels/none"]}]})).await;
    world.until("it is nobody's", |w| !is_ours(w, "replicas")).await;
    fence_free(&world).await;
    let after = applies(&world);
    let count = |all: &std::collections::BTreeMap<String, u64>, what: &str| {
        all.iter().filter(|(key, _)| key.starts_with(what) && key.contains("deployments")).map(|(_, n)| n).sum::<u64>()
    };
    assert_eq!(count(&after, "get") - count(&before.0, "get"), 1, "{after:?}");
    assert_eq!(count(&after, "apply") - count(&before.0, "apply"), 1, "{after:?}");
    assert_eq!(versions(&world), before.1, "what it does not touch is not written");
    // The same rules again, and a commit elsewhere, cost no further requests.
    let settled = applies(&world);
    world.change("demo", json!({"ignore": [{"paths": ["/data/nothing", REPLICAS]}]})).await;
    let again = applies(&world);
    assert_eq!(count(&again, ""), count(&settled, ""), "{again:?}");
}

/// Waits until the agent has handled all events.
async fn fence_free(world: &World) {
    world.ask("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_is_for_the_objects_that_its_target_selects() {
    let mut world = World::new().await;
    let labelled = |name: &str, label: &str| {
        config_map(name, "1").replace("metadata:\n", &format!("metadata:\n  labels: {{tier: {label}}}\n"))
    };
    world.remote.file("fence.yaml", config_map("fence", "1"));
    world.remote.file("a.yaml", labelled("a-1", "front")).file("b.yaml", labelled("a-2", "back")).commit("one");
    let target = json!({"kind": "Config.*", "name": "a-.", "labelSelector": "tier in (front)"});
    world.synced(json!({"ignore": [{"paths": ["/data/key"], "target": target}]})).await;
    for name in ["a-1", "a-2"] {
        world.edit("v1", "configmaps", name, json!({"data": {"key": "changed"}}));
    }
    world.until("the other one is reverted", |w| w.data("a-2") == "1").await;
    fence(&world).await;
    assert_eq!(world.data("a-1"), "changed");
    // A changed label in Git changes the selected objects.
    world.remote.file("a.yaml", labelled("a-1", "back")).file("b.yaml", labelled("a-2", "front"));
    world.commit("demo", "the other way round").await;
    assert_eq!(world.data("a-1"), "1");
    world.edit("v1", "configmaps", "a-2", json!({"data": {"key": "changed"}}));
    fence(&world).await;
    assert_eq!(world.data("a-2"), "changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_none_is_refused_with_its_place_and_nothing_else_changes() {
    let mut world = with(json!([{"paths": [REPLICAS]}])).await;
    edit_all(&world, 5, "nginx:1", "1");
    let wrong =
        json!([{"paths": [REPLICAS, "spec/replicas", "/metadata/labels/mainstay.dev~1sync"], "target": {"name": "("}}]);
    world.remote.file("a.yaml", config_map("a", "2")).commit("meanwhile");
    world.change("demo", json!({"ignore": wrong})).await;
    world.condition_is("demo", "Stalled", "True SpecInvalid").await;
    let said = world.condition("demo", "Ready");
    for place in ["spec.ignore[0].paths[1] (spec/replicas)", "spec.ignore[0].paths[2]", "spec.ignore[0].target.name"] {
        assert!(said.contains(place), "{said}");
    }
    edit_all(&world, 6, "nginx:9", "changed");
    world.until("what is not ignored is reverted", |w| image(w) == "nginx:1").await;
    env_is_back(&world).await;
    assert_eq!((replicas(&world), world.data("a")), (6, "1".to_owned()));
    world.change("demo", json!({"ignore": [{"paths": [REPLICAS]}]})).await;
    world.ready("demo").await;
    assert_eq!((replicas(&world), world.data("a")), (6, "2".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_in_a_list_with_one_owner_is_left_and_the_rest_of_the_list_is_kept() {
    let ingress = |host: &str, path: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"},
            "spec": {"rules": [{"host": host, "http": {"paths": [{
                "path": path, "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}]}}]},
        })
    };
    let of = ("networking.k8s.io/v1", "ingresses", "web");
    let mut world = World::new().await;
    let fence = ingress("fence.example.org", "/")
        .to_string()
        .replace("\"name\":\"web\"},\"spec\"", "\"name\":\"fence\"},\"spec\"");
    world.remote.file("fence.yaml", fence);
    world.remote.file("web.yaml", ingress("a.example.org", "/").to_string()).commit("one");
    world.synced(json!({"wait": false, "ignore": [{"paths": ["/spec/rules/0/host"]}]})).await;
    assert!(world.get(of.0, of.1, "fence").is_some());
    let rule = |w: &World| {
        let web = w.get(of.0, of.1, of.2).unwrap();
        let rule = &web["spec"]["rules"][0];
        (rule["host"].as_str().unwrap().to_owned(), rule["http"]["paths"][0]["path"].as_str().unwrap().to_owned())
    };
    let is = |host: &str, path: &str| (host.to_owned(), path.to_owned());
    assert_eq!(rule(&world), is("a.example.org", "/"));
    let rules = |host: &str, path: &str| json!({"spec": {"rules": ingress(host, path)["spec"]["rules"]}});
    let edited = world.edit(of.0, of.1, of.2, rules("b.example.org", "/"));
    for _ in 0..2 {
        world.edit(of.0, of.1, "fence", rules("fence.example.org", "/changed"));
        let path =
            |w: &World| w.get(of.0, of.1, "fence").unwrap()["spec"]["rules"][0]["http"]["paths"][0]["path"].clone();
        world.until("the fence is reverted", |w| path(w) == "/").await;
    }
    assert_eq!(version(&world.get(of.0, of.1, of.2).unwrap()), version(&edited), "nothing is written");
    world.edit(of.0, of.1, of.2, rules("c.example.org", "/changed"));
    world.until("the path is reverted", |w| rule(w).1 == "/").await;
    assert_eq!(rule(&world), is("c.example.org", "/"));
    let reverts = |w: &World| w.status("demo")["lastReverts"].as_array().cloned().unwrap_or_default();
    let of_web = |revert: &Value| revert["object"].as_str().unwrap().ends_with("/web");
    world.until("its revert is told", |w| reverts(w).iter().any(of_web)).await;
    let fields = reverts(&world).iter().filter(|one| of_web(one)).map(|one| one["fields"].clone()).collect::<Vec<_>>();
    assert_eq!(fields, [json!(["spec.rules"])]);
    world.remote.file("web.yaml", ingress("z.example.org", "/new").to_string());
    world.commit("demo", "another path").await;
    assert_eq!(rule(&world), is("c.example.org", "/new"));
    world.edit(of.0, of.1, of.2, rules("d.example.org", "/new"));
    let before = world.get(of.0, of.1, of.2).unwrap();
    world.stop().await;
    world.start();
    world.remote.file("other.yaml", config_map("other", "1"));
    world.commit("demo", "something else").await;
    assert_eq!(world.get(of.0, of.1, of.2).unwrap(), before, "a new agent sees no drift in it either");
    world.change("demo", json!({"ignore": null})).await;
    world.until("all of it is Git's", |w| rule(w) == is("z.example.org", "/new")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_agent_leaves_what_is_ignored_as_it_finds_it() {
    let mut world = with(json!([{"paths": [REPLICAS, IMAGE]}])).await;
    edit_all(&world, 5, "nginx:9", "1");
    let edited = web(&world);
    world.stop().await;
    edit_all(&world, 6, "nginx:9", "1");
    world.start();
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "something else").await;
    fence(&world).await;
    assert_eq!((replicas(&world), image(&world)), (6, "nginx:9".to_owned()));
    assert_eq!(
        web(&world)["metadata"]["managedFields"][0]["manager"],
        edited["metadata"]["managedFields"][0]["manager"]
    );
    world.until("the fence is counted", |w| w.status("demo")["reverted"].as_i64() >= Some(2)).await;
    let reverts = world.status("demo")["lastReverts"].clone();
    let fence = format!("ConfigMap {NAMESPACE}/fence");
    assert!(reverts.as_array().unwrap().iter().all(|revert| revert["object"] == fence), "{reverts:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_there_before_keeps_what_is_ignored_of_it() {
    let mut world = World::new().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": NAMESPACE, "annotations": {"example.org/note": "theirs", "old": "x"}},
        "data": {"key": "theirs", "mine": "theirs", "other": "theirs"},
    });
    let create = Call::new("v1", "configmaps", NAMESPACE, "", Action::Create(theirs));
    world.try_as("kubectl-create", create).unwrap();
    world
        .remote
        .file("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: '1', mine: '1'}\n")
        .commit("one");
    let paths = ["/data/mine", "/data/other", "/metadata/annotations/example.org~1note"];
    world.synced(json!({"ignore": [{"paths": paths}]})).await;
    let map = world.get("v1", "configmaps", "a").unwrap();
    assert_eq!(map["data"], json!({"key": "1", "mine": "theirs", "other": "theirs"}));
    assert_eq!(map["metadata"]["annotations"], json!({"example.org/note": "theirs"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_fields_are_not_reported() {
    let world = with(json!([{"paths": [REPLICAS, IMAGE]}])).await;
    world.change("demo", json!({"drift": "Report"})).await;
    edit_all(&world, 5, "nginx:9", "1");
    edit_all(&world, 5, "nginx:9", "changed");
    world.until("one object differs", |w| w.status("demo")["driftedObjects"] == 1).await;
    let expected = json!(["spec.template.spec.containers[name=\"web\"].env[name=\"A\"].value"]);
    assert_eq!(world.status("demo")["drifted"][0]["fields"], expected);
    edit_all(&world, 6, "nginx:10", "1");
    world.until("nothing differs", |w| w.status("demo")["driftedObjects"] == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_scales_and_annotates_what_is_ignored() {
    let mut world = World::new().await;
    let annotated = deployment("web", "nginx:1", 3)
        .replace("metadata:\n  name", "metadata:\n  annotations: {example.org/note: git}\n  name");
    world.remote.file("web.yaml", annotated).file("fence.yaml", config_map("fence", "1")).commit("one");
    let paths = [REPLICAS, "/metadata/annotations/example.org~1note"];
    world.synced(json!({"wait": false, "ignore": [{"paths": paths}]})).await;
    let kubectl = Kubectl::of(world.server.embedded(), NAMESPACE).await;
    kubectl.run(&["scale", "deployment/web", "--replicas=7"]).await;
    kubectl.run(&["annotate", "deployment/web", "example.org/note=theirs", "--overwrite"]).await;
    kubectl.run(&["set", "image", "deployment/web", "web=nginx:9"]).await;
    world.until("the image is reverted", |w| image(w) == "nginx:1").await;
    assert_eq!((replicas(&world), &web(&world)["metadata"]["annotations"]["example.org/note"]), (7, &json!("theirs")));
    // A user who applies the released field meets no conflict.
    let file = tempfile::NamedTempFile::new().unwrap();
    let mine = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "free"}, "data": {"key": "theirs"},
    });
    world.remote.file("free.yaml", config_map("free", "1"));
    world.change("demo", json!({"ignore": [{"paths": ["/data/key"], "target": {"name": "free"}}]})).await;
    world.commit("demo", "another object").await;
    std::fs::write(file.path(), mine.to_string()).unwrap();
    kubectl.run(&["apply", "--server-side", "-f", file.path().to_str().unwrap()]).await;
    fence(&world).await;
    assert_eq!(world.data("free"), "theirs");
}

/// Kills the agent after this many writes, while a rule applies to a new object and then to an existing one. Returns
/// whether it was killed.
async fn killed_after(writes: u64) -> bool {
    let mut world = World::new().await;
    world.remote.file("web.yaml", deployment("web", "nginx:1", 3)).file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"wait": false, "ignore": [{"paths": [REPLICAS, IMAGE]}]}));
    world.gate.shut_after(writes);
    world.start();
    let was_killed = world.cut_off_or(async |w| w.ready("demo").await).await;
    // Later writes of this agent are lost, too.
    world.kill().await;
    world.gate.open();
    world.start();
    world.ready("demo").await;
    world.change("demo", json!({"ignore": [{"paths": [REPLICAS, IMAGE, "/data/key"]}]})).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "theirs"}}));
    edit_all(&world, 5, "nginx:9", "changed");
    env_is_back(&world).await;
    assert_eq!((replicas(&world), image(&world)), (5, "nginx:9".to_owned()), "killed after {writes}");
    world.remote.file("web.yaml", deployment("web", "nginx:2", 4));
    world.commit("demo", "ignored fields").await;
    assert_eq!((replicas(&world), image(&world), world.data("a")), (5, "nginx:9".to_owned(), "theirs".to_owned()));
    was_killed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_between_any_two_writes_leaves_what_is_ignored_to_others() {
    after_every_write(killed_after, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_names_the_rule_that_leaves_out_everything() {
    let mut world = World::new().await;
    world.remote.file("apps/a.yaml", config_map("a", "1")).file("apps/b.yaml", config_map("b", "1"));
    world.remote.file("apps/.mainstayignore", "# all\n*.yaml\n").commit("one");
    world.synced(json!({"baseDir": "/apps"})).await;
    let said = world.condition("demo", "Ready");
    let why = "baseDir /apps holds no manifest: 2 files are left out, apps/a.yaml by the rule \"*.yaml\" (apps/.mainstayignore:2)";
    assert!(said.starts_with("True NoManifests") && said.contains(why), "{said}");
}
