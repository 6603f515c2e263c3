//! Values that would change the structure of an object, and changes after the check.

use devcluster::{Action, Call, verbs::patch::Form};

use super::*;
use mainstay_testkit::world::{NAMESPACE, condition_of};

const SYNCS: (&str, &str) = ("mainstay.dev/v1alpha1", "gitsyncs");
/// The only namespace that a GitSync may change.
const TEAM: &str = "mainstay-tests-team";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn substitution() {
    let mut attacked = Attacked::with(json!({"substitute": {"V": "one"}})).await;
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kept\ndata:\n  key: \"${V}\"\n";
    attacked.stage(&[("app/kept.yaml", map.as_bytes())]);
    attacked.world.commit("demo", "a variable").await;
    let before = attacked.world.get("v1", "configmaps", "kept").unwrap();
    // A value that remains a string is set as a string, and adds nothing else.
    for (value, expected) in [
        ("a\nb", "ab"),
        ("a\r\nb\r", "ab"),
        ("---", "---"),
        ("a # b", "a"),
        ("'a: b'", "a: b"),
        ("a\u{85}  injected: b", ""),
        ("a\u{2028}injected: b", ""),
        ("${V} $${V} ${W:=x}", "${V} $${V} ${W:=x}"),
    ] {
        attacked.world.change("demo", json!({"substitute": {"V": value}})).await;
        let said = attacked.said();
        let live = attacked.world.get("v1", "configmaps", "kept").unwrap();
        assert_eq!((&live["kind"], live["data"].as_object().unwrap().len()), (&before["kind"], 1), "{value:?}: {live}");
        if expected.is_empty() {
            assert!(
                said.starts_with("False ManifestInvalid") || live["data"]["key"] == value,
                "{value:?}: {said} {live}"
            );
        } else {
            assert!(said.starts_with("True"), "{value:?}: {said}");
            assert_eq!(live["data"]["key"], expected, "{value:?}");
        }
    }
    attacked.world.change("demo", json!({"substitute": {"V": "one"}})).await;
    attacked.world.ready("demo").await;
    // Other values are refused, and the message does not contain them.
    let whole = "False ManifestInvalid: app/kept.yaml, document 1, line 1, column 1: ConfigMap kept: ";
    for value in [
        "hush-hush: b",
        "a\r  hush-hush: b",
        "a\r\n  hush-hush: b",
        "{hush-hush: b}",
        "[hush-hush]",
        "\"hush-hush",
        "*hush-hush",
        "|hush-hush",
        "a\n---\nkind: Secret\nmetadata: {name: hush-hush}",
        "hush-hush\u{0}",
        "hush-hush\u{7}",
    ] {
        attacked.world.edit(SYNCS.0, SYNCS.1, "demo", json!({"spec": {"substitute": {"V": value}}}));
        attacked.world.ask("demo").await;
        let said = attacked.said();
        // The API server refuses a map or list in a ConfigMap.
        let is_told = said.starts_with(whole) || said.starts_with("False ApplyFailed") && value.starts_with(['{', '[']);
        assert!(is_told && !said.contains(SECRET), "{value:?}: {said}");
        let failures = attacked.world.status("demo")["failures"].to_string();
        assert!(!failures.contains(SECRET), "{failures}");
        assert_eq!(attacked.world.data("kept"), "one", "{value:?}");
    }
    attacked.world.change("demo", json!({"substitute": {"V": "one", "K": "Secret", "N": "other", "NS": "a: b"}})).await;
    // Kind, name and namespace are checked after substitution.
    for (text, expected) in [
        (map.replace("kind: ConfigMap", "kind: ${K}List"), "v1 SecretList"),
        (map.replace("name: kept", "name: ${N}"), "GitSync mainstay-tests/other"),
        (map.replace("name: kept", "name: ${N}/x"), "metadata.name has characters that do not belong there"),
        (map.replace("name: kept", "name: kept\n  namespace: ${NS}"), "app/kept.yaml"),
        (map.replace("apiVersion: v1", "apiVersion: ${K}/v1/x"), "app/kept.yaml"),
    ] {
        attacked.world.remote.file("app/kept.yaml", &text);
        attacked.world.try_commit("demo", "what it is").await;
        let said = format!("{} {}", attacked.said(), attacked.world.status("demo")["failures"]);
        assert!(said.starts_with("False ") && said.contains(expected), "{text}: {said}");
        assert_eq!(
            (attacked.world.config_maps(), attacked.world.data("other")),
            (vec!["kept".into(), "other".into()], "0".into())
        );
    }
}

/// A GitSync restricted to its own namespace. Its manifests are valid until a later step changes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_behind_the_check() {
    let mut world = World::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}});
    world.create("v1", "namespaces", "", namespace);
    let url = world.remote.path().display().to_string();
    let repository = json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": {"name": "repo", "namespace": TEAM}, "spec": {"url": url},
    });
    world.create("serverless.kyma-project.io/v1alpha1", "gitrepositories", TEAM, repository);
    world
        .remote
        .file("app/map.yaml", config_map("map", "1"))
        .file("other/other.yaml", config_map("other", "1"))
        .commit("one");
    let sync = json!({
        "apiVersion": SYNCS.0, "kind": "GitSync", "metadata": {"name": "tenant", "namespace": TEAM},
        "spec": {"gitRepository": "repo", "interval": "1h", "baseDir": "/app"},
    });
    world.create(SYNCS.0, SYNCS.1, TEAM, sync);
    world.sync("other", json!({"baseDir": "/other"}));
    world.start();
    world.ready("other").await;
    let ready =
        |w: &World| condition_of(&w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap()["status"], "Ready");
    world.until("it is ready", |w| ready(w).starts_with("True")).await;
    let edit = |w: &World, patch: Value| {
        let action = Action::Patch(Form::Merge, patch);
        w.try_as("kubectl-edit", Call::new(SYNCS.0, SYNCS.1, TEAM, "tenant", action)).unwrap();
    };
    let kustomization = |more: &str| vec![("app/kustomization.yaml", format!("resources: [map.yaml]\n{more}\n"))];
    let operations =
        |operations: &str| kustomization(&format!("patches:\n- target: {{kind: ConfigMap}}\n  patch: '{operations}'"));
    let chart = |text: &str| {
        vec![
            ("app/Chart.yaml", String::from_utf8(CHART.1.to_vec()).unwrap()),
            ("app/templates/a.yaml", text.to_owned()),
        ]
    };
    let mut replaced = kustomization(
        "replacements:\n- source: {kind: ConfigMap, fieldPath: data.key}\n  targets:\n  - select: {kind: ConfigMap}\n    fieldPaths: \
         [metadata.namespace]\n    options: {create: true}",
    );
    replaced.push(("app/map.yaml", config_map("map", NAMESPACE)));
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: mainstay-tests-evil}\nrules: []\n";
    let to_role = r#"[{"op": "replace", "path": "/kind", "value": "ClusterRole"}, {"op": "replace", "path": "/apiVersion", "value": "rbac.authorization.k8s.io/v1"}, {"op": "remove", "path": "/data"}]"#;
    let plain = |text: String| vec![("app/map.yaml", text)];
    let with = |name: &str| config_map("map", "2").replace("metadata:\n", &format!("metadata:\n  namespace: {name}\n"));
    let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: mainstay-tests-evil}}\n";
    let cases = [
        (kustomization(&format!("namespace: {NAMESPACE}")), json!({})),
        (
            operations(&format!(r#"[{{"op": "add", "path": "/metadata/namespace", "value": "{NAMESPACE}"}}]"#)),
            json!({}),
        ),
        (operations(to_role), json!({})),
        (replaced, json!({})),
        (chart(&with("{{ .Values.where }}")), json!({"render": {"helm": {"values": {"where": NAMESPACE}}}})),
        (chart(role), json!({})),
        (chart(list), json!({})),
        (plain(with("${NS}")), json!({"substitute": {"NS": NAMESPACE}})),
        (
            plain(config_map("map", "2").replace("kind: ConfigMap", "kind: ${KIND}")),
            json!({"substitute": {"KIND": "Namespace"}}),
        ),
        (plain(config_map("map", "2")), json!({"targetNamespace": NAMESPACE})),
        (plain(config_map("map", "2")), json!({"overrideNamespace": NAMESPACE})),
        (plain(config_map("map", "2")), json!({"patches": [{"patch": to_role, "target": {"kind": "ConfigMap"}}]})),
        (
            plain(config_map("map", "2")),
            json!({"patches": [{"patch": format!("- {{op: add, path: /metadata/namespace, value: {NAMESPACE}}}"), "target": {"kind": "ConfigMap"}}]}),
        ),
    ];
    let none = json!({"render": null, "substitute": null, "targetNamespace": null, "overrideNamespace": null, "patches": null});
    for (number, (files, spec)) in cases.into_iter().enumerate() {
        world
            .remote
            .clear()
            .file("app/map.yaml", config_map("map", "2"))
            .file("other/other.yaml", config_map("other", "1"));
        if files[0].0.ends_with("Chart.yaml") {
            world.remote.remove("app/map.yaml");
        }
        for (path, content) in &files {
            world.remote.file(path, content);
        }
        let commit = world.remote.commit("changed");
        let mut whole = none.clone();
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        edit(
            &world,
            json!({"spec": whole, "metadata": {"annotations": {"mainstay.dev/requestedAt": number.to_string()}}}),
        );
        let asked = json!(number.to_string());
        let tried = |w: &World| {
            let sync = w.server.object(SYNCS.0, SYNCS.1, TEAM, "tenant").unwrap();
            sync["status"]["attemptedCommit"] == commit
                && sync["status"]["lastHandledRequest"] == asked
                && sync["status"]["observedGeneration"] == sync["metadata"]["generation"]
        };
        world.until_or("it was tried", tried, || format!("{number}: {}", ready(&world))).await;
        let said = ready(&world);
        let expected = format!("a GitSync in namespace {TEAM} may touch objects of that namespace only");
        assert!(
            said.starts_with("False ManifestInvalid") && said.contains(&expected),
            "{number} {files:?} {spec}: {said}"
        );
        assert!(world.get("v1", "configmaps", "map").is_none(), "{number}");
        let role = world.server.object("rbac.authorization.k8s.io/v1", "clusterroles", "", "mainstay-tests-evil");
        assert!(
            role.is_none() && world.server.object("v1", "configmaps", TEAM, "map").unwrap()["data"]["key"] == "1",
            "{number}"
        );
    }
    world.ask("other").await;
    world.ready("other").await;
}
