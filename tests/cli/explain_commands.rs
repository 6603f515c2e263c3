//! `mainstay tree`, `mainstay trace` and `mainstay events`: objects, their sources and their events.

use std::sync::Arc;

use serde_json::{Value, json};

use mainstay_testkit::{
    drift::{fence, synced},
    program::Program,
    world::{NAMESPACE, World, config_map, deployment},
};

/// Applies two ConfigMaps in one file and a Deployment with a Pod by the GitSync `demo`. Returns the commit.
async fn deployed() -> (World, String) {
    let mut world = World::new().await;
    let two = format!("# first\n{}---\n{}", config_map("a", "1"), config_map("b", "1"));
    world.remote.file("apps/maps.yaml", two).file("apps/web.yaml", deployment("web", "example.org/web:1", 1));
    let commit = world.remote.commit("one");
    world.synced(json!({"baseDir": "apps"})).await;
    (world, commit)
}

fn find<'a>(tree: &'a Value, kind: &str) -> Option<&'a Value> {
    if tree["kind"] == kind {
        return Some(tree);
    }
    tree["children"].as_array()?.iter().find_map(|child| find(child, kind))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_names_the_file_that_an_object_was_moved_to() {
    let (mut world, _) = deployed().await;
    let program = Program::of(&world).await;
    let check = async |object: &str, file: &str, commit: String| {
        let place = program.json(&["trace", object, "-n", NAMESPACE]).await["managedBy"]["place"].clone();
        assert_eq!((&place["file"], &place["commit"]), (&json!(file), &json!(commit)));
    };
    let web = |name: &str| deployment(name, "example.org/web:1", 1);
    world.remote.remove("apps/web.yaml").file("apps/shop/site.yaml", web("web"));
    let moved = world.try_commit("demo", "only the file moves").await;
    check("deploy/web", "apps/shop/site.yaml", moved).await;
    world.remote.remove("apps/shop/site.yaml").file("apps/more/front.yaml", web("front"));
    let renamed = world.try_commit("demo", "the name changes with the file").await;
    check("deploy/front", "apps/more/front.yaml", renamed).await;
    world.stop().await;
    world.remote.remove("apps/more/front.yaml").file("apps/front.yaml", web("front"));
    let commit = world.remote.commit("the file moves while no agent runs");
    world.start();
    world.ready_at("demo", &commit).await;
    check("deploy/front", "apps/front.yaml", commit).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_built_object_is_at_the_file_that_holds_it_in_traces_comparisons_and_events() {
    let mut world = World::new().await;
    let broken = ["web", "site"].map(|name| deployment(name, "''", 1)).join("---\n");
    world
        .remote
        .file("base/kustomization.yaml", "resources: [map.yaml]\n")
        .file("base/map.yaml", config_map("map", "1"))
        .file("base/web.yaml", &broken)
        .file("apps/web/kustomization.yaml", "resources: [../../base]\nnamePrefix: prod-\n")
        .commit("one");
    world.synced(json!({"baseDir": "/apps"})).await;
    let program = Program::of(&world).await;
    let trace = program.json(&["trace", "configmap/prod-map", "-n", NAMESPACE]).await;
    let place = &trace["managedBy"]["place"];
    assert_eq!((&place["file"], &place["line"]), (&json!("base/map.yaml"), &Value::Null), "{trace}");
    let (_, text, _) = program.run(&["trace", "configmap/prod-map", "-n", NAMESPACE]).await;
    assert!(text.contains("  file        base/map.yaml\n"), "{text}");

    let clone = tempfile::tempdir().unwrap();
    let mut git = mainstay_testkit::isolated("git");
    git.args(["clone", "--quiet", &world.remote.path().to_string_lossy(), "."]).current_dir(clone.path());
    assert!(git.status().unwrap().success());
    let write = |name: &str, text: &str| std::fs::write(clone.path().join(name), text).unwrap();
    let compare = ["diff", "demo", "-n", NAMESPACE, "--path", clone.path().to_str().unwrap()];
    write("base/map.yaml", &config_map("map", "2"));
    let (code, text, error) = program.run_with_tools(&compare).await;
    assert!(
        code == 1 && text.contains("changed    ConfigMap mainstay-tests/prod-map (base/map.yaml)\n"),
        "{text}{error}"
    );
    // The words of the tool are shown in full where they can reveal nothing.
    write("apps/web/kustomization.yaml", "resources: [../../base]\nreplicas: [{name: hush, count: 2}]\n");
    let (code, text, error) = program.run_with_tools(&compare).await;
    assert!(code == 2 && format!("{text}{error}").contains("name hush"), "{text}{error}");

    world.remote.file("base/kustomization.yaml", "resources: [map.yaml, web.yaml]\n");
    world.try_commit("demo", "two containers without an image").await;
    let place = "base/web.yaml, built by apps/web/kustomization.yaml: ";
    let events = |w: &World| w.server.objects("v1", "events", Some(NAMESPACE));
    let is_named = |w: &World| events(w).iter().any(|event| event["message"].to_string().contains(place));
    world.until("an Event names the file", is_named).await;
    assert!(world.condition("demo", "Ready").contains(place), "{}", world.condition("demo", "Ready"));
    let is_ours =
        |event: &&Arc<Value>| event["source"]["component"].as_str().unwrap_or_default().starts_with("mainstay");
    let all = events(&world);
    let ours: Vec<_> = all.iter().filter(is_ours).map(|event| event["message"].as_str().unwrap()).collect();
    assert!(!ours.is_empty() && ours.iter().all(|message| !message.contains('\n')), "{ours:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_goes_down_to_the_pods() {
    let (world, _) = deployed().await;
    let program = Program::of(&world).await;
    let (code, text, error) = program.run(&["tree", "demo", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{text}{error}");
    let lines: Vec<&str> = text.lines().collect();
    let line = |start: &str| lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(
        lines[0].starts_with("GitSync.mainstay.dev mainstay-tests/demo ") && lines[0].ends_with(" Healthy"),
        "{text}"
    );
    assert!(line("├─ ConfigMap mainstay-tests/a ") < line("├─ ConfigMap mainstay-tests/b "));
    let web = line("└─ Deployment.apps mainstay-tests/web ");
    assert!(lines[web + 1].starts_with("   └─ ReplicaSet.apps mainstay-tests/web-"), "{text}");
    assert!(lines[web + 2].starts_with("      └─ Pod mainstay-tests/web-"), "{text}");

    let (_, bare, _) = program.run(&["tree", "-n", NAMESPACE, "--no-children"]).await;
    assert!(bare.contains("Deployment") && !bare.contains("ReplicaSet"), "{bare}");
    let facts = program.json(&["tree", "-A"]).await;
    let pod = find(&facts["items"][0], "Pod").unwrap();
    assert_eq!((&pod["health"], &pod["namespace"]), (&json!("Healthy"), &json!(NAMESPACE)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_names_file_line_commit_and_what_is_next() {
    let (mut world, first) = deployed().await;
    let program = Program::of(&world).await;
    let trace = program.json(&["trace", "configmap/b", "-n", NAMESPACE]).await;
    let place =
        json!({"commit": first, "file": "apps/maps.yaml", "document": 2, "line": trace["managedBy"]["place"]["line"]});
    assert_eq!(trace["managedBy"]["place"], place);
    let line = usize::try_from(place["line"].as_u64().unwrap()).unwrap();
    let file = format!("# first\n{}---\n{}", config_map("a", "1"), config_map("b", "1"));
    assert!(line > file.lines().position(|line| line == "---").unwrap(), "{line}\n{file}");
    assert_eq!((&trace["managedBy"]["appliedCommit"], &trace["next"]["action"]), (&json!(first), &json!("Revert")));
    assert!(trace["applied"].is_string(), "{trace}");

    let pod = world.server.objects("v1", "pods", None)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let (code, text, _) = program.run(&["trace", "pod", &pod, "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{text}");
    let owners: Vec<&str> = text.lines().filter(|line| line.contains("child of")).collect();
    assert!(owners.len() == 2 && owners[1].ends_with("Deployment.apps mainstay-tests/web"), "{text}");
    assert!(text.contains("  file        apps/web.yaml, document 1, line 1\n"), "{text}");

    // The next commit moves the file.
    world.remote.remove("apps/web.yaml").file("apps/new.yaml", deployment("web", "example.org/web:2", 1));
    let second = world.try_commit("demo", "two").await;
    let moved = program.json(&["trace", "deploy", "web", "-n", NAMESPACE]).await;
    let place = &moved["managedBy"]["place"];
    assert_eq!((&place["file"], &place["commit"]), (&json!("apps/new.yaml"), &json!(second)));

    let edited = json!({"data": {"key": "9", "more": "x"}, "metadata": {"labels": {"theirs": "x"}}});
    world.edit("v1", "configmaps", "a", edited);
    world
        .until("it was reverted", |w| w.status("demo")["lastReverts"][0]["object"] == "ConfigMap mainstay-tests/a")
        .await;
    let (code, said, _) = program.run(&["pause", "cm/a", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{said}");
    let (_, text, _) = program.run(&["trace", "cm/a", "-n", NAMESPACE]).await;
    assert!(text.contains("after kubectl-edit changed data.key"), "{text}");
    assert!(text.contains("  others      kubectl-edit owns data.more, metadata.labels.theirs\n"), "{text}");
    assert!(text.contains("nothing until `mainstay resume ConfigMap/a -n mainstay-tests`: it is paused"), "{text}");

    let metadata =
        json!({"name": "foreign", "namespace": NAMESPACE, "labels": {"mainstay.dev/sync": "mainstay-tests.demo"}});
    world.create("v1", "configmaps", NAMESPACE, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    let (code, text, _) = program.run(&["trace", "cm/foreign", "-n", NAMESPACE]).await;
    assert!(code == 1 && text.contains("no GitSync manages it"), "a label proves nothing: {text}");
    let (code, _, error) = program.run(&["trace", "cm/nobody", "-n", NAMESPACE]).await;
    assert!(code == 2 && error.contains("ConfigMap mainstay-tests/nobody does not exist"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_lists_the_last_decisions_newest_first_and_after_a_restart() {
    let mut world = synced(&[("a.yaml", config_map("a", "1"))]).await;
    let program = Program::of(&world).await;
    let decided = async || {
        let trace = program.json(&["trace", "cm/a", "-n", NAMESPACE]).await;
        let all = trace["managedBy"]["decisions"].as_array().unwrap().clone();
        all.iter().map(|one| one["decision"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let newest = |w: &World| w.status("demo")["lastDecisions"][0]["decided"].clone();
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "9"}}));
    world
        .until("it was reverted", |w| w.status("demo")["lastReverts"][0]["object"] == "ConfigMap mainstay-tests/a")
        .await;
    let (code, said, _) = program.run(&["pause", "cm/a", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{said}");
    world.until("the status has the pause", |w| newest(w) == "Paused").await;
    assert_eq!(decided().await, ["Paused", "Reverted", "Created"]);

    world.stop().await;
    world.start();
    // The new agent has seen the pause once it reverts a later change of the same kind.
    fence(&world).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "8"}}));
    let (code, said, _) = program.run(&["resume", "cm/a", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{said}");
    world
        .until("the status has the end of the pause and the revert", |w| {
            newest(w) == "Resumed" && w.status("demo")["lastReverts"][0]["object"] == "ConfigMap mainstay-tests/a"
        })
        .await;
    let (code, said, _) = program.run(&["pause", "cm/a", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{said}");
    world.until("the status has the second pause", |w| newest(w) == "Paused").await;
    // Times have a precision of one second, so a revert and a pause of the same second have no order.
    let in_order = async || {
        let (reverted, others): (Vec<_>, Vec<_>) = decided().await.into_iter().partition(|one| one == "Reverted");
        (reverted.len(), others)
    };
    let all = || (2_usize, ["Paused", "Resumed", "Paused", "Created"].map(str::to_owned).to_vec());
    assert_eq!(in_order().await, all());
    let (_, text, _) = program.run(&["trace", "cm/a", "-n", NAMESPACE]).await;
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("  decided     ")).collect();
    let ends = [
        "ago: resumed, because its pause had ended",
        "ago: paused until it is resumed",
        "ago: reverted, after kubectl-edit changed data.key",
    ];
    assert!(rows.len() == 6 && ends.iter().all(|end| rows.iter().any(|row| row.ends_with(end))), "{text}");
    assert!(rows[5].contains("ago: created for commit "), "{text}");

    world.stop().await;
    world.start();
    fence(&world).await;
    assert_eq!(in_order().await, all(), "a new agent records no known pause");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_the_git_sync_and_of_what_it_manages_come_in_their_order() {
    let (world, _) = deployed().await;
    let program = Program::of(&world).await;
    let mut follow = program.start(&["events", "-A", "--watch"]);
    follow.line("GitSync.mainstay.dev mainstay-tests/demo").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "9"}}));
    follow.line("Reverted  ConfigMap mainstay-tests/a").await;
    assert_eq!(follow.interrupt().await, 0);
    let event = |name: &str, object: &str, message: &str| {
        let about = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": NAMESPACE, "name": object});
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let mut event = json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata, "involvedObject": about});
        event["message"] = json!(message);
        event["reason"] = json!("Last");
        event["lastTimestamp"] = json!("2999-01-01T00:00:00Z");
        world.create("v1", "events", NAMESPACE, event);
    };
    event("hostile", "b", "one\u{1b}[2J\u{202e}\ntwo");
    event("foreign", "of-nobody", "not shown");
    let (code, text, error) = program.run(&["events", "demo", "-n", NAMESPACE]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.contains("ConfigMap mainstay-tests/b") && last.ends_with("one\\u{1b}[2J\\u{202e}…"), "{text}");
    assert!(!text.contains("not shown"), "{text}");
    let facts = program.json(&["events", "-n", NAMESPACE]).await;
    let items = facts["items"].as_array().unwrap();
    assert!(items.iter().any(|item| item["reason"] == "Reverted" && item["object"]["name"] == "a"), "{facts}");
    assert_eq!(items.last().unwrap()["message"], "one\u{1b}[2J\u{202e}\ntwo");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_is_suggested_for_what_others_changed_and_works_as_it_is_printed() {
    let (world, _) = deployed().await;
    let program = Program::of(&world).await;
    let ask = ["ignore-for", "deploy", "web", "-n", NAMESPACE];
    let (code, text, _) = program.run(&ask).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.starts_with("# no drift of Deployment.apps mainstay-tests/web was seen"), "{text}");

    let edit = |count: u32, image: &str| {
        let containers = json!([{"name": "web", "image": image}]);
        let patch = json!({"spec": {"replicas": count, "template": {"spec": {"containers": containers}}}});
        let of = ("apps/v1", "deployments", "web");
        mainstay_testkit::drift::patch_as(&world, "kubectl-edit", of, devcluster::verbs::patch::Form::Strategic, patch);
    };
    edit(5, "example.org/web:9");
    world.until("it was reverted", |w| !w.status("demo")["lastReverts"][0].is_null()).await;
    let (code, text, error) = program.run(&ask).await;
    assert_eq!((code, &*error), (1, ""), "{text}");
    assert!(text.contains("# spec.replicas: changed by kubectl-edit, reverted at "), "{text}");
    let printed: Value = serde_yaml::from_str(&text).unwrap();
    let rule = json!({
        "paths": ["/spec/replicas", "/spec/template/spec/containers/0/image"],
        "target": {"group": "apps", "kind": "Deployment", "name": "web", "namespace": NAMESPACE},
    });
    assert_eq!(printed, json!({"spec": {"ignore": [rule]}}));
    let (_, facts, _) = program.run(&[&ask[..], &["-o", "json"]].concat()).await;
    assert_eq!(serde_json::from_str::<Value>(&facts).unwrap(), printed);

    world.change("demo", printed["spec"].clone()).await;
    edit(5, "example.org/web:9");
    let (_, text, _) = program.run(&ask).await;
    assert!(text.contains("it is ignored already") && !text.contains("spec:"), "{text}");
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "9"}}));
    world.until("something else was reverted", |w| w.data("a") == "1").await;
    let web = world.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!(web["spec"]["replicas"], 5);

    let (code, text, error) = program.run(&["ignore-for", "ns", NAMESPACE]).await;
    assert_eq!((code, &*text), (2, ""));
    assert!(error.contains("no GitSync manages Namespace mainstay-tests"), "{error}");
}
