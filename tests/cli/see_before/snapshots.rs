//! Previews against a saved cluster, without a connection to it.

use super::*;

/// Runs the program without a cluster. Returns exit code and output.
fn without_cluster(arguments: &[&str]) -> (i32, String) {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    let output = command.args(arguments).args(["-n", NAMESPACE]).env_clear().output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout) + &text(&output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_saved_cluster_is_compared_as_the_cluster_itself() {
    let labelled = config_map("a", "1").replace("metadata:\n", "metadata:\n  labels: {team: one}\n");
    let widget = |size: u32| {
        format!(
            "apiVersion: mainstay-tests.example.org/v1\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: {size}}}\n"
        )
    };
    let files = [
        ("a.yaml", labelled),
        ("b.yaml", config_map("b", "n-${N}")),
        ("old.yaml", config_map("old", "1")),
        ("web.yaml", deployment("web", "nginx:1", 1)),
        ("d.yaml", open_definition()),
        ("w.yaml", widget(3)),
    ];
    let world = World::new().await;
    let values = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "values"}, "data": {"N": "1"}});
    world.create("v1", "configmaps", NAMESPACE, values);
    let world = applied(world, &files, json!({"substituteFrom": [{"kind": "ConfigMap", "name": "values"}]})).await;
    world.edit("v1", "configmaps", "b", json!({"data": {"key": "by hand"}}));
    let clone = Clone::of(&world);
    clone
        .file("a.yaml", config_map("a", "1"))
        .file("new.yaml", config_map("new", "n-${N}"))
        .file("web.yaml", deployment("web", "nginx:2", 1))
        .file("w.yaml", widget(4))
        .remove("old.yaml");
    let kinds = "configmaps,secrets,deployments,replicasets,pods,services,customresourcedefinitions,\
        widgets.mainstay-tests.example.org,gitsyncs.mainstay.dev,gitrepositories.serverless.kyma-project.io";
    let kubectl = Kubectl::of_world(&world.server, NAMESPACE).await;
    let place = tempfile::tempdir().unwrap();
    let save = async |name: &str, more: &[&str]| {
        let saved = kubectl.run(&[&["get", kinds, "-A", "-o", "yaml"], more].concat()).await;
        let file = place.path().join(name);
        fs::write(&file, saved).unwrap();
        file.display().to_string()
    };
    let saved = save("saved.yaml", &["--show-managed-fields"]).await;
    let path = clone.text();
    let (code, there) = mainstay(&world, &["diff", "demo", "--path", &path]).await;
    assert!(code == 1 && there.contains("1 created, 4 changed, 1 deleted, 1 unchanged"), "{there}");
    let preview = ["diff", "demo", "--path", &path, "--snapshot"];
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert_eq!((code, here), (1, there.replace("against the cluster", "against the snapshot")));

    // Without managed fields, the output names the limitation.
    let saved = save("without.yaml", &[]).await;
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert!(code == 1 && here.contains("note: the snapshot has no managedFields"), "{here}");
    assert!(here.contains("changed    Widget.mainstay-tests.example.org") && !here.contains("deleted    "), "{here}");

    // Missing objects of the snapshot are reported, and no variable remains unsubstituted.
    let text =
        fs::read_to_string(&saved).unwrap().replace("name: values\n    namespace:", "name: others\n    namespace:");
    fs::write(&saved, text).unwrap();
    let (code, here) = without_cluster(&[&preview[..], &[&saved]].concat());
    assert!(code == 2 && here.contains("spec.substituteFrom[0]: ConfigMap values does not exist"), "{here}");
    let unknown = place.path().join("unknown.yaml").display().to_string();
    fs::write(&unknown, "apiVersion: example.org/v1\nkind: Unknown\nmetadata: {name: a}\n").unwrap();
    let (code, here) = without_cluster(&[&preview[..], &[&saved, "--snapshot", &unknown]].concat());
    assert!(
        code == 2 && here.contains("example.org/v1 Unknown") && here.contains("CustomResourceDefinition"),
        "{here}"
    );
}
