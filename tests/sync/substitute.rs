//! `spec.substitute` and `spec.substituteFrom`: variables in manifests, kustomizations and charts are replaced by
//! values from the spec, ConfigMaps and Secrets.

use mainstay_engine::notification::Message;
use serde_json::{Value, json};

use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::drift::{next_revert, version};
use mainstay_testkit::git_server::{Fault, GitServer, On};
use mainstay_testkit::listener::metrics_are;
use mainstay_testkit::logs;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::world::{World, config_map, free_address, open_definition};

const WIDGETS: &str = "mainstay-tests.example.org/v1";
/// A value of a Secret that must not appear anywhere.
const CANARY: &str = "heron-teapot-7741";

/// Sets the data of a ConfigMap in the namespace. Creates it if it is missing.
fn set_map(world: &World, name: &str, data: Value) {
    world.edit_or_create("configmaps", "ConfigMap", name, json!({"data": data}));
}

fn from(sources: &[(&str, &str)]) -> Value {
    sources.iter().map(|(kind, name)| json!({"kind": kind, "name": name})).collect()
}

/// Returns the number of applies of widgets so far.
fn applies(world: &World) -> u64 {
    let all = world.requests();
    all.iter().filter(|(asked, _)| asked.starts_with("apply widgets")).map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_all_sources_are_in_all_that_is_applied_and_a_restart_applies_nothing() {
    let mut world = World::new().await;
    set_map(&world, "settings", json!({"A": "map", "B": "map", "C": "map", "N": "3", "LINES": "x\ny"}));
    world.set_secret("passwords", json!({"B": "secret", "C": "secret", "PASSWORD": "hunter2"}));
    let chart = "apiVersion: v2\nname: small\nversion: 0.1.0\n";
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: \"${PASSWORD}\"}\n";
    let quoted = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: ${A}-name\n  annotations: {size: '${q}${N}${q}'}\ndata:\n  key: $${A}\n";
    let disabled = config_map("disabled", "${A} $$")
        .replace("metadata:\n", "metadata:\n  annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}\n");
    world
        .remote
        .file("plain.yaml", config_map("plain", "${A} ${B} ${C} ${LINES} ${none:=default} $A $(A)"))
        .file("secret.yaml", secret)
        .file("quoted.yaml", quoted)
        .file("disabled.yaml", disabled)
        .file("overlay/kustomization.yaml", "resources: [map.yaml]\nnamePrefix: ${A}-\n")
        .file("overlay/map.yaml", config_map("kustomized", "${C}"))
        .file("chart/Chart.yaml", chart)
        .file("chart/templates/map.yaml", config_map("{{ .Release.Name }}-chart", "${C}"))
        .file("definition.yaml", open_definition())
        .file(
            "w.yaml",
            format!("apiVersion: {WIDGETS}\nkind: Widget\nmetadata: {{name: w}}\nspec: {{size: \"${{N}}\"}}\n"),
        )
        .commit("one");
    let sources = from(&[("ConfigMap", "settings"), ("Secret", "passwords")]);
    world.sync("demo", json!({"substituteFrom": sources, "substitute": {"C": "spec", "q": "\""}}));
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("plain"), "map secret spec xy default $A $(A)");
    assert_eq!((world.data("map-kustomized"), world.data("demo-chart")), ("spec".to_owned(), "spec".to_owned()));
    let quoted = world.get("v1", "configmaps", "map-name").unwrap();
    assert_eq!((&quoted["metadata"]["annotations"]["size"], &quoted["data"]["key"]), (&json!("3"), &json!("${A}")));
    assert_eq!(world.data("disabled"), "${A} $$");
    assert_eq!(world.get("v1", "secrets", "s").unwrap()["data"]["password"], "aHVudGVyMg==");
    assert_eq!(world.get(WIDGETS, "widgets", "w").unwrap()["spec"]["size"], 3, "types are inferred anew");
    let tree = world.status("demo")["appliedTreeId"].clone();

    // The values are unchanged.
    world.stop().await;
    let before = applies(&world);
    assert!(before > 0);
    world.start();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(world.status("demo")["appliedTreeId"], tree);
    assert_eq!(applies(&world), before);

    // A change while no agent ran is applied.
    world.stop().await;
    set_map(&world, "settings", json!({"N": "4"}));
    world.start();
    world.until("the value is applied", |w| w.get(WIDGETS, "widgets", "w").unwrap()["spec"]["size"] == 4).await;
    world.until("the status says so", |w| w.status("demo")["appliedTreeId"] != tree).await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_source_is_applied_at_once_without_git_and_without_a_render() {
    let mut world = World::new().await;
    world.listen = Some(free_address());
    set_map(&world, "settings", json!({"A": "1", "B": "1"}));
    let server = GitServer::start(world.remote.root()).await;
    world.repository("web", &server.url(NAME));
    world
        .remote
        .file("kustomization.yaml", "resources: [a.yaml, b.yaml]\n")
        .file("a.yaml", config_map("a", "a-${A}"))
        .file("b.yaml", config_map("b", "b-${B}"))
        .commit("one");
    world.sync(
        "demo",
        json!({"gitRepository": "web", "substituteFrom": [{"kind": "ConfigMap", "name": "settings"},
        {"kind": "Secret", "name": "more", "optional": true}]}),
    );
    world.start();
    world.ready("demo").await;
    let renders = "mainstay_renders_total 1\n";
    metrics_are(&world, renders, |text| text.contains(renders)).await;
    // The repository is unreachable and would be polled in an hour. Only the watch explains the following.
    server.forget_arrivals();
    server.fail(On::Everything, Fault::Status(503));
    let untouched = version(&world.get("v1", "configmaps", "b").unwrap());
    set_map(&world, "settings", json!({"A": "2"}));
    world.until("the value is applied", |w| w.data("a") == "a-2").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("and what it became is kept", |w| w.data("a") == "a-2").await;
    // A new source overrides the previous one, until it is deleted.
    world.set_secret("more", json!({"A": "3"}));
    world.until("the Secret is applied", |w| w.data("a") == "a-3").await;
    world.delete("v1", "secrets", "more");
    world.until("the ConfigMap counts again", |w| w.data("a") == "a-2").await;
    // A change without new values changes nothing.
    world.edit("v1", "configmaps", "settings", json!({"metadata": {"labels": {"x": "y"}}}));
    set_map(&world, "settings", json!({"A": "4"}));
    world.until("the value is applied", |w| w.data("a") == "a-4").await;
    assert_eq!(version(&world.get("v1", "configmaps", "b").unwrap()), untouched);
    metrics_are(&world, renders, |text| text.contains(renders)).await;
    // A missing required source is reported, and the applied state stays enforced.
    world.delete("v1", "configmaps", "settings");
    let missing = "False SpecInvalid: spec.substituteFrom[0]: ConfigMap settings does not exist in this namespace";
    world.condition_is("demo", "Ready", missing).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("it is reverted", |w| w.data("a") == "a-4").await;
    set_map(&world, "settings", json!({"A": "5", "B": "1", "tls.crt": "x"}));
    let wrong = "False SpecInvalid: spec.substituteFrom[0]: ConfigMap settings has a key that cannot be used: \
                 \"tls.crt\" is not a valid variable name";
    world.condition_is("demo", "Ready", wrong).await;
    set_map(&world, "settings", json!({"tls.crt": null}));
    world.until("all is well", |w| w.data("a") == "a-5").await;
    world.ready("demo").await;
    assert_eq!(server.arrivals().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_expressions_are_reported_at_once_and_change_no_object() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "${A}")).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.ready("demo").await;
    assert_eq!(world.data("a"), "${A}", "nothing is defined, so nothing is substituted");
    world.change("demo", json!({"substitute": {"A": "one"}})).await;
    world.ready("demo").await;
    assert_eq!(world.data("a"), "one");
    // All mistakes in one commit.
    world
        .remote
        .file("a.yaml", config_map("a", "${A} 2"))
        .file("b.yaml", config_map("b", "b-${MISSING}"))
        .file("c/c.yaml", format!("# x\n---\n{}", config_map("c", "${A.b} ${hunter2")));
    world.try_commit("demo", "wrong").await;
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    let said = world.condition("demo", "Ready");
    for expected in [
        "b.yaml, document 1, line 1, column 1: ConfigMap b: data.key: ${MISSING}: the variable is not defined (define it in",
        "line 3, column 1: ConfigMap c: data.key: ${A.b}: the closing brace is missing",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert_eq!((world.data("a"), world.data("b")), ("one".to_owned(), "absent".to_owned()));
    world.remote.file("c/c.yaml", config_map("c", "${A}")).commit("no number");
    world.change("demo", json!({"substituteUndefined": "Empty", "substitute": {"A": "x", "B": "{k: v}"}})).await;
    world.ready("demo").await;
    assert_eq!((world.data("a"), world.data("c")), ("x 2".to_owned(), "x".to_owned()));
    // The result is checked as if it were in the manifest.
    let of = |kind: &str, name: &str| config_map(name, "1").replace("ConfigMap", kind);
    let cases = [
        (
            of("${A}Map", "d"),
            "d.yaml, document 1, line 1, column 1: neither the cluster nor a CustomResourceDefinition of this commit has v1 xMap",
        ),
        (
            config_map("${A}", "1") + "---\n" + &config_map("${A:-y}", "1"),
            "ConfigMap x is defined twice; first at d.yaml, document 1",
        ),
        (
            of("ConfigMap", "${A^}/y"),
            "ConfigMap ${A^}/y: after substitution metadata.name has characters that do not belong there",
        ),
        (of("ConfigMap", "\"${B}\""), "after substitution metadata.name is a map, not a string"),
        (config_map("d", "'${A}: ${B} ${A'"), "ConfigMap d: data.key: ${A'…}: the closing brace is missing"),
        (config_map("d", "${B}}"), "ConfigMap d: after substitution "),
    ];
    for (manifest, expected) in cases {
        world.remote.file("d.yaml", manifest);
        world.try_commit("demo", "wrong after substitution").await;
        let said = |w: &World| w.condition("demo", "Ready");
        world.until_or(expected, |w| said(w).contains(expected), || said(&world)).await;
        assert!(said(&world).starts_with("False ManifestInvalid"), "{}", said(&world));
    }
    assert_eq!(world.config_maps(), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_of_a_secret_is_shown_nowhere() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world.set_secret("hidden", json!({"TOKEN": CANARY, "MAP": format!("{{{CANARY}: 1}}")}));
    let widget = |spec: &str| format!("apiVersion: {WIDGETS}\nkind: Widget\nmetadata: {{name: w}}\nspec: {spec}\n");
    world
        .remote
        .file("definition.yaml", open_definition())
        .file("w.yaml", widget("{token: \"x-${TOKEN}\", size: 1}"))
        .commit("one");
    world.sync("demo", json!({"substituteFrom": from(&[("Secret", "hidden")])}));
    world.start();
    world.ready("demo").await;
    let token = |w: &World| w.get(WIDGETS, "widgets", "w").unwrap()["spec"]["token"].clone();
    assert_eq!(token(&world), format!("x-{CANARY}"));
    // A hand edit is reverted, and its report contains no values.
    world.edit(WIDGETS, "widgets", "w", json!({"spec": {"token": "by hand", "size": 2}}));
    let Message::Reverted { fields, changes, .. } = next_revert(&mut world, "w").await else { panic!("a revert") };
    assert_eq!((fields, changes), (vec!["spec.size".to_owned(), "spec.token".to_owned()], vec![]));
    world.until("the status has it", |w| w.status("demo")["lastReverts"][0]["fields"][0] == "spec.size").await;
    world.change("demo", json!({"drift": "Report"})).await;
    world.edit(WIDGETS, "widgets", "w", json!({"spec": {"token": "by hand"}}));
    world.until("it is reported", |w| w.status("demo")["drifted"][0]["fields"][0] == "spec.token").await;
    assert_eq!(world.status("demo")["drifted"][0]["changes"].as_array().map_or(0, Vec::len), 0);
    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("it is reverted", |w| token(w) == format!("x-{CANARY}")).await;
    // A value cannot become a name, a key or a map. Server messages about it are not quoted.
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  completionMode: ${TOKEN}\n  template:\n    spec:\n      \
        restartPolicy: Never\n      containers: [{name: c, image: x}]\n";
    let cases = [
        (widget("{\"${TOKEN}\": 1}"), "spec[\"${TOKEN}\"]: a key would contain a value of a Secret"),
        (widget("{a: \"${MAP}\"}"), "spec.a: a value of a Secret would become a map or a list"),
        (config_map("nn-${TOKEN}", "1"), "metadata.name: it would hold a value of a Secret"),
        (config_map("nn", "'${TOKEN}: ${TOKEN'"), "ConfigMap nn: data.key: ${TOKEN"),
        (
            widget("{a: \"${TOKEN}: x\", b: \"${MAP}}\"}"),
            "Widget.mainstay-tests.example.org w: the result cannot be applied",
        ),
        (job.to_owned(), "Job.batch"),
    ];
    for (manifest, expected) in cases {
        world.remote.file("z.yaml", manifest.replace("{name: w}", "{name: z}"));
        world.try_commit("demo", "hidden").await;
        let said = |w: &World| format!("{} {}", w.condition("demo", "Ready"), w.status("demo")["failures"]);
        let expected = expected.replace(" w: ", " z: ");
        world.until_or(&expected, |w| said(w).contains(&expected), || said(&world)).await;
    }
    let said = world.status("demo")["failures"].to_string();
    assert!(said.contains("withheld"), "{said}");
    // A new value is applied, and the old one is not shown, either.
    world.set_secret("hidden", json!({"TOKEN": format!("{CANARY}-new")}));
    world.until("the new value is applied", |w| token(w) == format!("x-{CANARY}-new")).await;
    nothing_is_shown(&mut world, &[CANARY]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_string_that_became_a_number_names_the_variable_and_the_quoting_that_helps() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "${SHA:0:6}")).commit("one");
    world.sync("demo", json!({"substitute": {"SHA": "83e2019d", "quote": "\""}}));
    world.start();
    let hint = "data.key: ${SHA:0:6} became a number: write ${quote}${SHA:0:6}${quote}, and set `quote: '\"'` in spec.substitute";
    world.until("Ready says so", |w| w.condition("demo", "Ready").contains(hint)).await;
    world.remote.file("a.yaml", config_map("a", "${quote}${SHA:0:6}${quote}"));
    world.commit("demo", "quoted").await;
    assert_eq!(world.data("a"), "83e201");
}
