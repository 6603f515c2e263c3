//! Messages about objects that the API server refuses: the manifest, the field and the value, unless it may be a
//! secret.

use serde_json::{Value, json};

use mainstay_testkit::{
    canary::nothing_is_shown,
    logs,
    world::{NAMESPACE, World, config_map, free_address},
};

/// Returns object, reason and message of each failure.
fn failures(world: &World) -> Vec<String> {
    let failures = world.status("demo")["failures"].as_array().cloned().unwrap_or_default();
    let text = |failure: &Value, field: &str| failure[field].as_str().unwrap_or_default().to_owned();
    failures.iter().map(|f| ["object", "reason", "message"].map(|field| text(f, field)).join(" ")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_names_file_line_and_document_and_shows_the_value() {
    let mut world = World::new().await;
    let wrong =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wrong\ndata:\n  on: true\n  size: 5\n  password: 12345\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  ports: [{name: http, port: 99999, targetPort: 80}]\n";
    world
        .remote
        .file("apps/all.yaml", format!("# two of them\n{}---\n{wrong}", config_map("right", "1")))
        .file("apps/web.yaml", service)
        .commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed: 2 of the objects failed: ").await;
    let line = 2 + config_map("right", "1").lines().count() + 1;
    assert_eq!(
        failures(&world),
        [
            format!(
                "ConfigMap {NAMESPACE}/wrong ApplyFailed apps/all.yaml:{line} (document 2): the API server refuses it: \
                 data.password: expected string, got …; data.size: expected string, got 5; data.true: expected string, got true"
            ),
            format!(
                "Service {NAMESPACE}/web ApplyFailed apps/web.yaml:1 (document 1): the API server answered 422 Invalid: \
                 spec.ports[0].port: Invalid value: 99999: must be between 1 and 65535, inclusive"
            ),
        ]
    );
    assert_eq!(world.data("right"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_a_secret_shows_nothing_of_it() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {a: horse-tupelo tupelo}}\ntype: Opaque\nstringData: {p: horse-tupelo}\n";
    let unknown = "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\nstringDate: {p: horse-tupelo}\n";
    world.remote.file("a.yaml", secret).file("b.yaml", unknown).commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed: 2 of the objects failed: ").await;
    assert_eq!(
        failures(&world),
        [
            format!(
                "Secret {NAMESPACE}/a ApplyFailed a.yaml:1 (document 1): the API server answered 422 Invalid: metadata.labels \
                 (FieldValueInvalid) (the server's text is withheld: it may quote the Secret)"
            ),
            format!(
                "Secret {NAMESPACE}/b ApplyFailed b.yaml:1 (document 1): the API server refuses it: stringDate: field not \
                 declared in schema"
            ),
        ]
    );
    nothing_is_shown(&mut world, &["tupelo"]).await;
}

/// Webhooks and policies may quote any part of an object, in any form.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_words_of_an_admission_webhook_show_nothing_of_the_object() {
    logs::keep();
    let mut world = World::new().await;
    world.listen = Some(free_address());
    let map = config_map("quoted", "horse-tupelo");
    world.remote.file("a.yaml", map).commit("one");
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "apply".into(),
        resource: "configmaps".into(),
        name: "quoted".into(),
        code: 403,
        reason: "Forbidden".into(),
        message: "admission webhook \"policy.example.org\" denied the request: data.v=horse-tupelo (tupelo)".into(),
        times: 1_000_000,
        ..Default::default()
    });
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed: 1 of the objects failed: ").await;
    let said = failures(&world);
    assert!(
        said[0].contains("admission webhook \"policy.example.org\" denied the request: (its text is withheld"),
        "{said:?}"
    );
    nothing_is_shown(&mut world, &["tupelo"]).await;
}
