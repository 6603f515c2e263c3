//! Values of Secrets reach the objects of a chart, and nothing else.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use mainstay_testkit::canary;
use mainstay_testkit::logs;
use mainstay_testkit::world::{World, free_address};

/// The values must not appear anywhere but in objects.
const PASSWORD: &str = "canary-hush-7301";
const HOST: &str = "canary-host-7302";

const SECRET: &str =
    "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  password: {{ .Values.db.password | b64enc }}\n";
const CONNECTION: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: connection\ndata:\n  key: {{ printf \"%s:%v\" .Values.db.host .Values.db.port | quote }}\n";
const PLAIN: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: plain\ndata:\n  key: {{ .Values.level }}\n";

fn passwords(password: &str) -> Value {
    json!({"values.yaml": format!("db: {{password: {password}, port: 5432}}\n"), "host": HOST})
}

/// Returns a world with a chart, and a GitSync that names the Secret `db-values`.
async fn with_chart() -> World {
    let mut world = World::new().await;
    world
        .remote
        .file("shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 0.1.0\n")
        .file("shop/values.yaml", "level: info\n")
        .file("shop/templates/secret.yaml", SECRET)
        .file("shop/templates/connection.yaml", CONNECTION)
        .file("shop/templates/plain.yaml", PLAIN)
        .commit("one");
    let from = json!([
        {"kind": "Secret", "name": "db-values"},
        {"kind": "Secret", "name": "db-values", "valuesKey": "host", "targetPath": "db.host"},
    ]);
    world.sync("demo", json!({"baseDir": "/shop", "render": {"helm": {"valuesFrom": from}}}));
    world
}

fn password(world: &World) -> Option<String> {
    let secret = world.get("v1", "secrets", "db")?;
    let bytes = STANDARD.decode(secret["data"]["password"].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Waits for a part of the condition Ready.
async fn said(world: &World, part: &str) {
    world.until_or(part, |w| w.condition("demo", "Ready").contains(part), || world.condition("demo", "Ready")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_a_secret_reach_the_objects_and_are_neither_shown_nor_kept() {
    logs::keep();
    let mut world = with_chart().await;
    world.listen = Some(free_address());
    world.set_secret("db-values", passwords(PASSWORD));
    world.start();
    world.ready("demo").await;
    assert_eq!(password(&world).as_deref(), Some(PASSWORD));
    assert_eq!(world.data("connection"), format!("{HOST}:5432"));
    // A revert of an object with a value of the Secret names the field only. The revert of another object shows the
    // values.
    world.edit("v1", "configmaps", "connection", json!({"data": {"key": "by-hand-7303"}}));
    world.until("it is reverted", |w| w.data("connection") == format!("{HOST}:5432")).await;
    world.until("it is told", |w| w.status("demo")["reverted"] == 1).await;
    let revert = world.status("demo")["lastReverts"][0].clone();
    assert_eq!((&revert["fields"], revert.get("changes")), (&json!(["data.key"]), None), "{revert}");
    world.edit("v1", "configmaps", "plain", json!({"data": {"key": "debug"}}));
    world.until("it is told", |w| w.status("demo")["reverted"] == 2).await;
    let reverts = world.status("demo")["lastReverts"].to_string();
    assert!(reverts.contains("debug") && reverts.contains("info"), "{reverts}");
    // A change of the Secret renders the chart again, without a commit.
    world.set_secret("db-values", passwords("canary-hush-7304"));
    world.until("the new password is applied", |w| password(w).as_deref() == Some("canary-hush-7304")).await;
    // The message of a template that quotes a value does not contain it.
    world.remote.file("shop/templates/fails.yaml", "{{ fail (printf \"no %s\" .Values.db.password) }}\n");
    world.try_commit("demo", "a template that fails").await;
    said(&world, "the chart refuses the values").await;
    // A broken source names its key only.
    world.remote.remove("shop/templates/fails.yaml");
    world.try_commit("demo", "without").await;
    world.ready("demo").await;
    world.set_secret("db-values", json!({"values.yaml": "canary-hush-7305: ["}));
    said(&world, "Secret db-values has a key values.yaml that does not contain a map in YAML").await;
    world.set_secret("db-values", passwords(PASSWORD));
    world.ready("demo").await;
    let words = ["canary-hush-730", HOST, "by-hand-730"];
    assert!(canary::nothing_is_on_disk(world.disk(), &words) > 1, "there is something to look through");
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    let is_let_go = |w: &World| w.get("v1", "configmaps", "connection").unwrap()["metadata"].get("labels").is_none();
    world.until("the objects are let go", is_let_go).await;
    world.delete("v1", "configmaps", "connection");
    canary::nothing_is_shown(&mut world, &words).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_secret_and_what_a_chart_with_values_of_secrets_cannot_do() {
    let mut world = with_chart().await;
    world.start();
    said(&world, "False SecretNotFound: spec.render.helm.valuesFrom[0]: Secret db-values does not exist").await;
    world.set_secret("db-values", passwords(PASSWORD));
    world.ready("demo").await;
    // The objects stay while the Secret is missing.
    world.delete("v1", "secrets", "db-values");
    said(&world, "False SecretNotFound").await;
    assert_eq!(password(&world).as_deref(), Some(PASSWORD));
    world.set_secret("db-values", passwords(PASSWORD));
    world.ready("demo").await;
    // A tool that reads files does not get the values.
    world.change("demo", json!({"images": [{"name": "shop", "newTag": "2"}]})).await;
    said(&world, "it contains a value of a Secret, and `patches`").await;
    world.change("demo", json!({"images": null})).await;
    world.ready("demo").await;
    // A name would show a value.
    world.remote.file("shop/templates/plain.yaml", PLAIN.replace("plain", "map-{{ .Values.db.host }}"));
    world.try_commit("demo", "a name").await;
    said(&world, "shop/templates/plain.yaml: the name or namespace of an object of the kind ConfigMap").await;
    assert!(!world.condition("demo", "Ready").contains(HOST));
    assert!(world.get("v1", "configmaps", "plain").is_some());
    // A chart that refuses other values is applied, and all of its objects are treated like Secrets.
    let picky = format!("{{{{ if ne .Values.db.host \"{HOST}\" }}}}{{{{ fail \"host\" }}}}{{{{ end }}}}\n");
    world.remote.file("shop/templates/plain.yaml", PLAIN).file("shop/templates/check.yaml", picky);
    world.try_commit("demo", "a check").await;
    world.ready("demo").await;
    world.edit("v1", "configmaps", "plain", json!({"data": {"key": "debug"}}));
    world.until("it is told", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(world.status("demo")["lastReverts"][0].get("changes"), None);
}
