//! Kustomizations are built by the official tool. The tool sees only the content of the commit, and builds again only
//! after changes.

use serde_json::{Value, json};

use mainstay_testkit::world::{World, config_map};

const BASE: &str = "resources: [map.yaml]\n";
const OVERLAY: &str = "resources: [../../base]\nnamePrefix: prod-\nlabels: [{pairs: {tier: front}, includeSelectors: false}]\n\
    configMapGenerator:\n- name: settings\n  files: [motd.txt]\n  literals: [colour=blue]\n\
    patches:\n- patch: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: map}\n    data: {key: patched}\n";

/// Creates a repository with a base and an overlay.
async fn world() -> World {
    let mut world = World::new().await;
    world
        .remote
        .file("base/kustomization.yaml", BASE)
        .file("base/map.yaml", config_map("map", "base"))
        .file("apps/web/kustomization.yaml", OVERLAY)
        .file("apps/web/motd.txt", "hello\n")
        .file("apps/plain.yaml", config_map("plain", "1"))
        .commit("one");
    world
}

/// Returns the ConfigMaps that `kubectl kustomize` prints for a directory of the branch: names and data.
fn judged(world: &World, directory: &str) -> Vec<(String, Value)> {
    let checkout = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = mainstay_testkit::isolated(program).args(arguments).current_dir(checkout.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("git", &["clone", "--quiet", &world.remote.path().to_string_lossy(), "."]);
    let printed = run("kubectl", &["kustomize", directory]);
    let documents = printed.split("\n---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    documents.map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object["data"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overlay_becomes_what_the_official_tool_makes_of_it() {
    let mut world = world().await;
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    let expected = judged(&world, "apps/web");
    assert_eq!(expected.len(), 2);
    for (name, data) in &expected {
        let live = world.get("v1", "configmaps", name).unwrap();
        assert_eq!((&live["data"], &live["metadata"]["labels"]["tier"]), (data, &json!("front")), "{name}");
    }
    assert_eq!(world.data("plain"), "1");
    assert_eq!(world.status("demo")["objects"], 3);
    // A hand edit is reverted to the rendered state.
    world.edit("v1", "configmaps", "prod-map", json!({"data": {"key": "by hand"}}));
    world.until("it is reverted", |w| w.data("prod-map") == "patched").await;
    // The name of a generated object depends on its content. The old object is pruned.
    world.remote.file("apps/web/motd.txt", "good bye\n");
    world.commit("demo", "another text").await;
    let after = judged(&world, "apps/web");
    let name = |all: &[(String, Value)]| all.iter().find(|(name, _)| name.contains("settings")).unwrap().0.clone();
    assert_ne!(name(&after), name(&expected));
    assert_eq!(world.get("v1", "configmaps", &name(&after)).unwrap()["data"]["motd.txt"], "good bye\n");
    world.until("the old one is gone", |w| w.get("v1", "configmaps", &name(&expected)).is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_base_outside_of_the_directory_is_applied() {
    let mut world = world().await;
    world.remote.file("apps/web/kustomization.yaml", "resources: [../../base]\n").commit("plain overlay");
    world.sync("demo", json!({"baseDir": "/apps/web"}));
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("map"), "base");
    let tree = world.status("demo")["appliedTreeId"].clone();
    world.remote.file("base/map.yaml", config_map("map", "changed"));
    world.commit("demo", "the base").await;
    assert_eq!(world.data("map"), "changed");
    assert_ne!(world.status("demo")["appliedTreeId"], tree);
    // A change of unread files changes nothing.
    let tree = world.status("demo")["appliedTreeId"].clone();
    world.remote.file("base/unread.yaml", "{{").file("other.yaml", "{{");
    world.commit("demo", "not read").await;
    assert_eq!(world.status("demo")["appliedTreeId"], tree);
    // A new agent gets the same result.
    world.stop().await;
    world.start();
    world.remote.file("base/map.yaml", config_map("map", "again"));
    world.commit("demo", "after a restart").await;
    assert_eq!(world.data("map"), "again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_and_refused_kustomizations_change_no_object_and_say_where() {
    let mut world = world().await;
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    let secret = "hush-hush";
    let secret_patch = format!(
        "resources: [../../base]\npatches:\n- patch: |\n    - {{op: remove, path: /data/{secret}}}\n  target: {{kind: ConfigMap}}\n"
    );
    let cases: [(&str, &str); 12] = [
        (
            "resources:\n- ../../base\n- https://user:hush-hush@example.com/x.yaml\n",
            "apps/web/kustomization.yaml, line 3: it references a remote resource, which is not fetched",
        ),
        (
            "resources: [../../base]\nsecretGenerator:\n- name: s\n  files: [../../../../../../etc/passwd]\n",
            "apps/web/kustomization.yaml, line 4: it names ../../../../../../etc/passwd, which is not in the repository",
        ),
        (
            "resources: [../../base, nothing.yaml]\n",
            "apps/web/kustomization.yaml, line 1: it names nothing.yaml, which is not there",
        ),
        (
            "resources: [../../base]\nconfigMapGenerator:\n- name: s\n  files: [../plain.yaml]\n",
            "apps/web/kustomization.yaml: it reads the file apps/plain.yaml, which is not in or below its directory",
        ),
        ("resources: [../../base]\nfoo: 1\n", "apps/web/kustomization.yaml: the kustomization has no field foo"),
        (
            "resources: [../../base, ../plain.yaml, ../plain.yaml]\n",
            "apps/web/kustomization.yaml: it reads the file apps/plain.yaml",
        ),
        (
            "resources: [../../base]\npatches:\n- patch: |\n    apiVersion: v1\n    kind: Secret\n    metadata: {name: zz}\n    \
             stringData: {a: hush-hush}\n",
            "apps/web/kustomization.yaml: a patch is for Secret.v1.[noGrp]/zz.[noNs], which is not among the documents",
        ),
        (&secret_patch, "apps/web/kustomization.yaml: a patch changes a field that the object does not have"),
        (
            "resources: [../../base]\npatches: [{path: ops.yaml, target: {kind: ConfigMap}}]\n",
            "apps/web/ops.yaml, built by apps/web/kustomization.yaml: a patch changes a field that the object does not have",
        ),
        (
            "resources: [../../base]\npatches: [{path: other.yaml}]\n",
            "apps/web/other.yaml, built by apps/web/kustomization.yaml: a patch is for ConfigMap.v1.[noGrp]/other.[noNs]",
        ),
        (
            "resources: [../../base]\npatches: [{path: motd.txt}]\n",
            "apps/web/kustomization.yaml: the patch motd.txt is neither an object nor a list of operations",
        ),
        (
            "resources: [../../base]\ngenerators:\n- |\n  apiVersion: example.org/v1\n  kind: Evil\n  metadata:\n    name: x\n    \
             annotations: {config.kubernetes.io/function: \"exec: {path: /bin/sh}\"}\n",
            "apps/web/kustomization.yaml: ",
        ),
    ];
    world
        .remote
        .file("apps/web/ops.yaml", "- {op: replace, path: /data/none/deep, value: 1}\n")
        .file("apps/web/other.yaml", config_map("other", "1"));
    for (kustomization, expected) in cases {
        world
            .remote
            .file("apps/web/kustomization.yaml", kustomization)
            .file("apps/plain.yaml", config_map("plain", "2"));
        world.try_commit("demo", "broken").await;
        let said = |w: &World| w.condition("demo", "Ready");
        world.until_or(expected, |w| said(w).contains(expected), || said(&world)).await;
        assert!(
            said(&world).starts_with("False ManifestInvalid") && !said(&world).contains(secret),
            "{}",
            said(&world)
        );
        assert_eq!((world.data("prod-map"), world.data("plain")), ("patched".to_owned(), "1".to_owned()));
    }
    // Unreadable output stays a problem at every reconcile.
    let nameless = "resources: [../../base]\npatches:\n- target: {kind: ConfigMap}\n  patch: '[{op: remove, path: /apiVersion}]'\n";
    world.remote.file("apps/web/kustomization.yaml", nameless);
    world.try_commit("demo", "no version").await;
    for _ in 0..2 {
        world.condition_is("demo", "Ready", "False ManifestInvalid").await;
        world.ask("demo").await;
    }
    assert!(
        world.condition("demo", "Ready").contains("apps/web/kustomization.yaml"),
        "{}",
        world.condition("demo", "Ready")
    );
    world.remote.file("apps/web/kustomization.yaml", OVERLAY);
    world.commit("demo", "mended").await;
    assert_eq!(world.data("plain"), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_object_from_two_kustomizations_is_a_problem_that_names_both() {
    let mut world = world().await;
    world.remote.file("apps/web/kustomization.yaml", "resources: [../../base]\n").commit("the base twice");
    world.sync("demo", json!({}));
    world.start();
    let twice = "ConfigMap mainstay-tests/map is defined twice";
    world
        .until_or(
            twice,
            |w| w.condition("demo", "Ready").contains("is defined twice"),
            || world.condition("demo", "Ready"),
        )
        .await;
    assert_eq!(world.data("map"), "absent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_kustomization_is_at_the_file_that_holds_it() {
    let mut world = world().await;
    let broken = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {a: b}}\n  \
                  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: main, image: ''}]}\n";
    world
        .remote
        .file("base/kustomization.yaml", "resources: [map.yaml, web.yaml]\n")
        .file("base/web.yaml", broken)
        .commit("a container without an image");
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    let place = "Deployment.apps mainstay-tests/prod-web: base/web.yaml, built by apps/web/kustomization.yaml: ";
    world.until("Ready names the file", |w| w.condition("demo", "Ready").contains(place)).await;
    let ready = world.condition("demo", "Ready");
    assert!(ready.contains("spec.template.spec.containers[0].image"), "{ready}");
    // A value of a patch is not blamed on the base alone.
    world
        .remote
        .file("base/web.yaml", broken.replace("image: ''", "image: a"))
        .file("apps/web/image.yaml", "- {op: replace, path: /spec/template/spec/containers/0/image, value: ''}\n")
        .file(
            "apps/web/kustomization.yaml",
            "resources: [../../base]\nnamePrefix: prod-\npatches: [{path: image.yaml, target: {kind: Deployment}}]\n",
        );
    world.try_commit("demo", "the image is in a patch").await;
    let place = "prod-web: base/web.yaml, built by apps/web/kustomization.yaml with the patch apps/web/image.yaml: ";
    world.until("Ready names the patch", |w| w.condition("demo", "Ready").contains(place)).await;
    // Completely unreadable output is reported the same way.
    let unread = broken.replace("{name: web}", "{name: web, finalizers: all}");
    world
        .remote
        .file("base/web.yaml", unread)
        .file("apps/web/kustomization.yaml", "resources: [../../base]\nnamePrefix: prod-\n");
    world.try_commit("demo", "finalizers that are no list").await;
    let place = "False ManifestInvalid: base/web.yaml, built by apps/web/kustomization.yaml: Deployment prod-web: metadata.finalizers is a string, not a list";
    world.until("a problem names the file", |w| w.condition("demo", "Ready").contains(place)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_origin_of_an_object_reaches_the_cluster_only_if_the_kustomization_asks_for_it() {
    const ORIGIN: &str = "config.kubernetes.io/origin";
    let mut world = world().await;
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    let annotations = |w: &World| w.get("v1", "configmaps", "prod-map").unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations(&world), Value::Null);
    world.remote.file("apps/web/kustomization.yaml", format!("{OVERLAY}buildMetadata: [originAnnotations]\n"));
    world.commit("demo", "it is asked for").await;
    assert_eq!(annotations(&world)[ORIGIN], "path: ../../base/map.yaml\n");
}
