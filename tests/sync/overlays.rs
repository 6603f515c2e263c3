//! The changes of a GitSync to its directory equal those of the official tool with the same kustomization.

use serde_json::{Value, json};

use mainstay_testkit::listener::metrics_are;
use mainstay_testkit::world::{World, config_map, free_address};

const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, annotations: {team: old}}\nspec:\n  replicas: 1\n  \
    selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      \
    - {name: web, image: 'nginx:1', envFrom: [{configMapRef: {name: map}}]}\n";
/// A component in its own directory, which changes ConfigMaps.
const COMPONENT: &str = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n\
    - target: {kind: ConfigMap}\n  patch: |\n    - {op: add, path: /data/part, value: one}\n";

fn changes() -> Value {
    json!({
        "namePrefix": "prod-",
        "images": [{"name": "nginx", "newName": "registry.example.org/nginx", "newTag": "2"}],
        "patches": [
            {"patch": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\ndata: {key: patched}\n"},
            {"patch": "- {op: replace, path: /spec/replicas, value: 3}\n", "target": {"kind": "Deployment", "name": "we.*"}},
        ],
        "components": ["../parts"],
    })
}

fn with(changes: &Value, more: Value) -> Value {
    let mut all = more;
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    all
}

/// Returns the output of `kubectl kustomize` for a directory of the branch with this kustomization.
fn judged(world: &World, directory: &str, kustomization: &Value) -> Vec<Value> {
    let checkout = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = mainstay_testkit::isolated(program).args(arguments).current_dir(checkout.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("git", &["clone", "--quiet", &world.remote.path().to_string_lossy(), "."]);
    let file = checkout.path().join(directory).join("kustomization.yaml");
    std::fs::write(file, kustomization.to_string()).unwrap();
    run("kubectl", &["kustomize", directory]).split("\n---\n").map(|text| serde_yaml::from_str(text).unwrap()).collect()
}

/// Returns whether a value contains all desired fields.
fn is_within(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| is_within(value, live)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| is_within(wanted, live))
        }
        (wanted, live) => wanted == live,
    }
}

fn assert_live(world: &World, wanted: &[Value]) {
    for object in wanted {
        let (version, name) = (object["apiVersion"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let live = world.get(version, &plural, name).unwrap_or_else(|| panic!("{plural} {name} is not there"));
        assert!(is_within(object, &live), "{object:#}\nis not in\n{live:#}");
    }
}

fn plain(world: &mut World) {
    world
        .remote
        .file("apps/web.yaml", WEB)
        .file("apps/more/map.yaml", config_map("map", "{{ one }}"))
        .file("parts/kustomization.yaml", COMPONENT)
        .commit("plain manifests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_manifests_are_changed_and_rendered_again_only_for_what_they_read() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    plain(&mut world);
    let mut spec = with(&changes(), json!({"baseDir": "/apps", "timeout": "3s"}));
    spec["commonMetadata"] = json!({"labels": {"tier": "front"}, "annotations": {"team": "shop"}});
    world.sync("demo", spec);
    world.start();
    world.until("it is applied", |w| w.status("demo")["appliedCommit"].is_string()).await;
    let root = with(&changes(), json!({"resources": ["web.yaml", "more/map.yaml"]}));
    let mut wanted = judged(&world, "apps", &root);
    assert_eq!(wanted.len(), 2);
    for object in &mut wanted {
        object["metadata"]["labels"]["tier"] = "front".into();
        object["metadata"]["annotations"]["team"] = "shop".into();
    }
    assert_live(&world, &wanted);
    let web = world.get("apps/v1", "deployments", "prod-web").unwrap();
    assert_eq!(web["spec"]["template"]["metadata"].get("annotations"), None, "in the metadata of the object only");
    assert_eq!(world.status("demo")["objects"], 2);
    renders_are(&world, 1).await;

    world.remote.file("unread.yaml", "{{").file("parts/unread.yaml", "{{");
    world.commit("demo", "nothing that is read").await;
    renders_are(&world, 1).await;
    world.remote.file("parts/kustomization.yaml", COMPONENT.replace("value: one", "value: two"));
    world.commit("demo", "the component").await;
    assert_eq!(world.get("v1", "configmaps", "prod-map").unwrap()["data"]["part"], "two");
    renders_are(&world, 2).await;
    // A changed prefix changes the names, and the old objects are pruned.
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"namePrefix": "test-"}}));
    world.until("renamed", |w| w.get("v1", "configmaps", "test-map").is_some()).await;
    world.until("the old one is gone", |w| w.get("v1", "configmaps", "prod-map").is_none()).await;
}

async fn renders_are(world: &World, count: u64) {
    let line = format!("mainstay_renders_total {count}\n");
    metrics_are(world, &line, |text| text.contains(&line)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kustomization_in_the_directory_is_edited() {
    let mut world = World::new().await;
    plain(&mut world);
    let own = "resources: [web.yaml, more/map.yaml]\nnamePrefix: own-\nnameSuffix: -x\nimages:\n- {name: nginx, newTag: '9'}\n\
               patches:\n- patch: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: map}\n    data: {own: '1', key: own}\n";
    world.remote.file("apps/kustomization.yaml", own).commit("a kustomization");
    world.sync("demo", with(&changes(), json!({"baseDir": "/apps", "wait": false})));
    world.start();
    world.ready("demo").await;
    let mut root: Value = serde_yaml::from_str(own).unwrap();
    root["namePrefix"] = "prod-".into();
    root["images"] = changes()["images"].clone();
    root["components"] = changes()["components"].clone();
    root["patches"].as_array_mut().unwrap().extend(changes()["patches"].as_array().unwrap().clone());
    let wanted = judged(&world, "apps", &root);
    assert!(wanted.iter().any(|object| object["metadata"]["name"] == "prod-map-x" && object["data"]["own"] == "1"));
    assert_live(&world, &wanted);
    // A namespace other than that in the manifests.
    world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"overrideNamespace": "mainstay-tests-other"}}));
    world.until("told", |w| w.condition("demo", "Ready").contains("mainstay-tests-other")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_overlay_names_its_field_and_changes_no_object() {
    let mut world = World::new().await;
    plain(&mut world);
    world.sync("demo", json!({"baseDir": "/apps", "wait": false}));
    world.start();
    world.ready("demo").await;
    let (applied, secret) = (world.get("v1", "configmaps", "map").unwrap(), "hush-hush");
    let for_nothing = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: zz}}\nstringData: {{a: {secret}}}\n");
    let cases = [
        (
            json!({"components": ["../parts", "../nothing"]}),
            "spec.components[1]: it names ../nothing, which is not there",
        ),
        (
            json!({"components": ["https://user:hush-hush@example.org/x"]}),
            "spec.components[0]: it references a remote resource",
        ),
        (json!({"components": ["../../.."]}), "spec.components[0]: it names ../../.., which is not in the repository"),
        (json!({"components": ["web.yaml"]}), "spec.components[0]: it names web.yaml, which is not a directory"),
        (
            json!({"patches": [{"patch": for_nothing}]}),
            "apps: a patch is for Secret.v1.[noGrp]/zz.[noNs], which is not among",
        ),
        (
            json!({"patches": [{"patch": "- {op: remove, path: /data/hush-hush}\n", "target": {"kind": "ConfigMap"}}]}),
            "apps: a patch changes a field that the object does not have",
        ),
        (json!({"patches": [{"patch": " "}], "namePrefix": "A_"}), "spec.patches[0].patch is empty"),
        (
            json!({"patches": [{"patch": "- {op: add, path: /metadata/annotations, value: {mainstay.dev/reconcile: disabled}}\n", "target": {"kind": "ConfigMap"}}]}),
            "metadata.annotations[\"mainstay.dev/reconcile\"] does not belong in a repository",
        ),
    ];
    for (change, expected) in cases {
        let mut spec = json!({"components": null, "patches": null, "namePrefix": null});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": spec}));
        let said = |w: &World| w.condition("demo", "Ready");
        world.until_or(expected, |w| said(w).contains(expected), || said(&world)).await;
        assert!(said(&world).starts_with("False") && !said(&world).contains(secret), "{}", said(&world));
        assert_eq!(world.get("v1", "configmaps", "map").unwrap(), applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rendered_objects_of_a_chart_are_changed() {
    let mut world = World::new().await;
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-map\ndata:\n  key: from the chart\n";
    world
        .remote
        .file("chart/Chart.yaml", "apiVersion: v2\nname: small\nversion: 0.1.0\n")
        .file("chart/templates/map.yaml", map)
        .commit("a chart");
    let patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: demo-map}\ndata: {key: patched}\n";
    world.sync("demo", json!({"baseDir": "/chart", "nameSuffix": "-a", "patches": [{"patch": patch}]}));
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("demo-map-a"), "patched");
    world.edit("v1", "configmaps", "demo-map-a", json!({"data": {"key": "by hand"}}));
    world.until("it is reverted", |w| w.data("demo-map-a") == "patched").await;
}
