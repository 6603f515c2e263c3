//! Previews show each object with the outcome that it will have: created, changed, replaced, deleted, held, left alone or
//! failed.

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_deletions_are_shown_with_the_reason() {
    let keeps =
        config_map("kept", "1").replace("metadata:\n", "metadata:\n  annotations: {mainstay.dev/prune: disabled}\n");
    let files = [
        ("a.yaml", config_map("a", "1")),
        ("b.yaml", config_map("b", "1")),
        ("kept.yaml", keeps),
        ("gone.yaml", config_map("gone", "1")),
    ];
    let world = world(&files, json!({})).await;
    let clone = Clone::of(&world);
    clone.remove("kept.yaml").remove("b.yaml").remove("gone.yaml");
    world.delete("v1", "configmaps", "gone");
    let preview = ["diff", "demo", "--path", &clone.text()];
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("left alone ConfigMap mainstay-tests/kept\n  mainstay.dev/prune: disabled; to delete it:"),
        "{out}"
    );
    assert!(
        out.contains("deleted    ConfigMap mainstay-tests/b\n") && out.contains("1 deleted, 1 left alone, 1 unchanged"),
        "{out}"
    );

    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"prune": false}}));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 0 && out.contains("spec.prune is false"), "{out}");
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"prune": true}}));
    clone.remove("a.yaml");
    let (code, out) = mainstay(&world, &preview).await;
    // A work tree has no commit that `allow-prune` could name.
    let allowed = "mainstay.dev/allow-prune=$(git rev-parse HEAD) # once it is committed";
    assert!(code == 0 && out.contains("held by a guard") && out.contains(allowed), "{out}");
    assert_eq!(out.matches("allow-prune=").count(), out.matches(allowed).count(), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_whose_namespace_or_definition_comes_along_are_no_failure_and_refused_ones_are() {
    let world = world(&[("a.yaml", config_map("a", "1"))], json!({})).await;
    let clone = Clone::of(&world);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: mainstay-tests-later}\n";
    let within = config_map("within", "1").replace("metadata:\n", "metadata:\n  namespace: mainstay-tests-later\n");
    let widget = "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n";
    clone
        .file("n.yaml", namespace)
        .file("within.yaml", within)
        .file("d.yaml", open_definition())
        .file("w.yaml", widget);
    let preview = ["diff", "demo", "--path", &clone.text()];
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("its namespace does not exist yet") && out.contains("its kind does not exist yet"), "{out}");
    assert!(out.contains("4 created, 1 unchanged"), "{out}");

    clone.file("a.yaml", config_map("a", "1").replace("\ndata:", "\nunknown: {a: 1}\ndata:"));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(
        code == 2 && out.contains("failed     ConfigMap mainstay-tests/a (a.yaml:1") && out.contains("unknown"),
        "{out}"
    );
    clone.file("a.yaml", "a: [\n").file("w.yaml", "apiVersion: v1\nkind: ConfigMap\n");
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 2 && out.contains("a.yaml") && out.contains("w.yaml"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn existing_objects_of_people_and_other_git_syncs_are_compared_as_the_agent_adopts_them() {
    let files = [("one/a.yaml", config_map("a", "1")), ("two/b.yaml", config_map("b", "1"))];
    let mut world = World::new().await;
    for (path, text) in &files {
        world.remote.file(path, text);
    }
    world.remote.commit("one");
    world.sync("other", json!({"baseDir": "/two"}));
    world.synced(json!({"baseDir": "/one"})).await;
    world.ready("other").await;
    world.stop().await;
    let by_hand: Value = serde_yaml::from_str(&config_map("hand", "1")).unwrap();
    world.create("v1", "configmaps", NAMESPACE, by_hand);
    world.delete("v1", "configmaps", "a");
    let clone = Clone::of(&world);
    clone.file("one/b.yaml", config_map("b", "2")).file("one/hand.yaml", config_map("hand", "1"));
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 2, "{out}");
    assert!(
        out.contains(
            "failed     ConfigMap mainstay-tests/b (one/b.yaml:1 (document 1))\n  GitSync mainstay-tests/other manages it\n"
        ),
        "{out}"
    );
    assert!(
        out.contains("changed    ConfigMap mainstay-tests/hand") && out.contains("+    mainstay.dev/sync"),
        "{out}"
    );
    assert!(out.contains("created    ConfigMap mainstay-tests/a "), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_go_at_an_adoption_are_shown_before_they_go() {
    let world = world(&[("a.yaml", config_map("a", "1"))], json!({})).await;
    let git = deployment("web", "nginx:1", 1);
    let mut theirs: Value = serde_yaml::from_str(&git).unwrap();
    theirs["metadata"]["labels"] = json!({"stale": "x"});
    let pods = &mut theirs["spec"]["template"]["spec"];
    pods["serviceAccountName"] = "nobody".into();
    pods["containers"].as_array_mut().unwrap().push(json!({"name": "sidecar", "image": "busybox:1"}));
    let call = |name: &str, action| Call::new("apps/v1", "deployments", NAMESPACE, name, action);
    world.write_as("kubectl-create", call("", Action::Create(theirs)));
    let controller = json!({"spec": {"minReadySeconds": 7}});
    world.write_as("some-controller", call("web", Action::Patch(Form::Merge, controller)));
    let clone = Clone::of(&world);
    clone.file("web.yaml", git);
    let mut writes = Writes::of(&world);
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("their fields that are not in the manifest are removed"), "{out}");
    let removed = out.lines().filter(|line| line.trim_start().starts_with('-')).collect::<Vec<_>>().join("\n");
    for part in ["stale: x", "sidecar", "busybox:1", "serviceAccount: nobody", "serviceAccountName: nobody"] {
        assert!(removed.contains(part), "{part}: {out}");
    }
    assert!(!removed.contains("minReadySeconds"), "{out}");
    writes.are_none(&world);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn immutable_paused_and_scaled_objects_are_shown_as_the_agent_treats_them() {
    let files = [
        ("web.yaml", deployment("web", "nginx:1", 1)),
        ("scaled.yaml", deployment("scaled", "nginx:1", 1)),
        ("paused.yaml", config_map("paused", "1")),
    ];
    let world = world(&files, json!({})).await;
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "scaled"},
        "spec": {"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "scaled"}}});
    world.create("autoscaling/v2", "horizontalpodautoscalers", NAMESPACE, scaler);
    world.edit("apps/v1", "deployments", "scaled", json!({"spec": {"replicas": 3}}));
    let pause =
        json!({"metadata": {"annotations": {"mainstay.dev/reconcile": "disabled"}}, "data": {"key": "by hand"}});
    world.edit("v1", "configmaps", "paused", pause);
    let clone = Clone::of(&world);
    clone.file("web.yaml", deployment("web", "nginx:1", 1).replace("app: web", "app: other"));
    let preview = ["diff", "demo", "--path", &clone.text()];
    let before = world.get("apps/v1", "deployments", "web").unwrap();
    let (code, out) = mainstay(&world, &preview).await;
    assert_eq!(code, 2, "{out}");
    for line in [
        "failed     Deployment.apps mainstay-tests/web (web.yaml:1 (document 1))\n  an immutable field differs; ",
        "left alone ConfigMap mainstay-tests/paused (paused.yaml:1 (document 1))\n  it is paused",
        "1 left alone, 1 failed, 1 unchanged\n",
    ] {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"spec": {"replace": ["Deployment.apps"]}}));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 1 && out.contains("replaced   Deployment.apps mainstay-tests/web"), "{out}");
    assert!(
        out.contains("spec.replace allows the replacement of the object") && out.contains("+      app: other"),
        "{out}"
    );
    let after = world.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!((&after["metadata"]["uid"], &after["spec"]), (&before["metadata"]["uid"], &before["spec"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_removed_for_a_manifest_are_shown() {
    let files = [("apps/web.yaml", deployment("web", "nginx:1", 4))];
    let world = world(&files, json!({"baseDir": "/apps"})).await;
    let clone = Clone::of(&world);
    let web =
        deployment("web", "nginx:1", 4).replace("spec:\n  replicas: 4\n", "spec:\n  strategy: {type: Recreate}\n");
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"maxReplicas": 9, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    clone.file("apps/web.yaml", web).file("apps/hpa.json", hpa.to_string());
    let mut writes = Writes::of(&world);
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert_eq!(code, 1, "{out}");
    for line in ["1 created, 1 changed", "-    rollingUpdate:\n", "-    type: RollingUpdate\n", "+    type: Recreate\n"]
    {
        assert!(out.contains(line), "{line:?} is not in\n{out}");
    }
    assert!(!out.contains("replicas: 4"), "the count stays for the autoscaler: {out}");
    writes.are_none(&world);
}
