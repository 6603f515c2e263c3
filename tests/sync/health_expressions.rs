//! `spec.healthCheckExprs` and `spec.dependsOn[].readyExpr`: health and readiness by expressions.

use serde_json::{Value, json};

use mainstay_testkit::program::Program;
use mainstay_testkit::world::{NAMESPACE, World, config_map, open_definition};

const WIDGETS: &str = "mainstay-tests.example.org/v1";
const SYNCS: &str = "mainstay.dev/v1alpha1";

fn widget(name: &str) -> String {
    format!("apiVersion: {WIDGETS}\nkind: Widget\nmetadata:\n  name: {name}\nspec:\n  size: 1\n")
}

/// Sets the status of a widget.
fn set_status(world: &World, name: &str, status: Value) {
    world.edit(WIDGETS, "widgets", name, json!({"status": status}));
}

fn by_phase() -> Value {
    json!([{
        "apiVersion": WIDGETS, "kind": "Widget", "current": "status.phase == 'Running'",
        "inProgress": "status.phase in ['Pending', 'Creating']", "failed": "status.phase.startsWith('Err')",
    }])
}

/// Creates a GitSync with a definition, a widget and a ConfigMap. The widget's phase determines its health.
async fn widgets() -> World {
    let mut world = World::new().await;
    world.remote.file("widgets/definition.yaml", open_definition()).file("widgets/w.yaml", widget("w"));
    world.remote.file("widgets/a.yaml", config_map("a", "1"));
    world.remote.commit("first");
    world.sync("demo", json!({"baseDir": "/widgets", "healthCheckExprs": by_phase()}));
    world.start();
    world
}

async fn failure_is(world: &World, expected: &str) {
    let object = "Widget.mainstay-tests.example.org mainstay-tests/w";
    world.until(expected, |w| w.failure("demo", object) == expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_is_healthy_failed_or_neither_by_what_its_expressions_say() {
    let world = widgets().await;
    world.condition_is("demo", "Ready", "Unknown Progressing").await;
    let missing =
        "spec.healthCheckExprs[0].inProgress cannot be evaluated: line 1, column 1: the object has no field `status`";
    failure_is(&world, &format!("Progressing: {missing}")).await;
    set_status(&world, "w", json!({"phase": "Creating"}));
    failure_is(&world, "Progressing: spec.healthCheckExprs[0].inProgress is true").await;
    set_status(&world, "w", json!({"phase": "Running"}));
    world.ready("demo").await;
    set_status(&world, "w", json!({"phase": "Error: of hunter2"}));
    failure_is(&world, "Unhealthy: spec.healthCheckExprs[0].failed is true").await;
    world.condition_is("demo", "Ready", "False ObjectFailed").await;
    assert_eq!(world.condition("demo", "Healthy").split(' ').next(), Some("False"));
    set_status(&world, "w", json!({"phase": "Other"}));
    failure_is(&world, "Progressing: spec.healthCheckExprs[0].current is not true").await;
    // kstatus does not apply, except for the observed generation.
    let stalled = json!([{"type": "Stalled", "status": "True"}, {"type": "Ready", "status": "False"}]);
    set_status(&world, "w", json!({"phase": "Running", "conditions": stalled}));
    world.condition_is("demo", "Ready", "True").await;
    set_status(&world, "w", json!({"observedGeneration": 99}));
    let object = "Widget.mainstay-tests.example.org mainstay-tests/w";
    let behind = "Progressing: its controller has not seen generation ";
    world.until(behind, |w| w.failure("demo", object).starts_with(behind)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_expressions_change_the_objects_of_their_kinds_alone_are_read_again() {
    let world = widgets().await;
    set_when_there(&world, json!({"phase": "Done"})).await;
    failure_is(&world, "Progressing: spec.healthCheckExprs[0].current is not true").await;
    world.quiet().await;
    // Streaming lists are watches.
    let listed = |w: &World, resource: &str| {
        let counts = w.levers().counts();
        let of = counts.iter().filter(|count| ["list", "watch"].contains(&&*count.verb) && count.resource == resource);
        of.map(|count| count.count).sum::<u64>()
    };
    let kinds = ["widgets.mainstay-tests.example.org", "configmaps"];
    let before = kinds.map(|resource| listed(&world, resource));
    let current =
        |expr: &str| json!({"healthCheckExprs": [{"apiVersion": WIDGETS, "kind": "Widget", "current": expr}]});
    world.change("demo", current("status.phase == 'Done'")).await;
    world.ready("demo").await;
    let after = kinds.map(|resource| listed(&world, resource));
    assert_eq!((after[0] - before[0], after[1] - before[1]), (1, 0), "lists of widgets, of ConfigMaps");

    // A change without new expressions causes no reads.
    world.change("demo", json!({"timeout": "7m"})).await;
    world.ready("demo").await;
    assert_eq!(kinds.map(|resource| listed(&world, resource)), after);
    // Without expressions, kstatus applies.
    world.change("demo", current("false")).await;
    failure_is(&world, "Progressing: spec.healthCheckExprs[0].current is not true").await;
    world.change("demo", json!({"healthCheckExprs": null})).await;
    world.ready("demo").await;
}

/// Sets the status of the widget once it exists.
async fn set_when_there(world: &World, status: Value) {
    world.until("a widget", |w| w.get(WIDGETS, "widgets", "w").is_some()).await;
    set_status(world, "w", status);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_rule_stalls_with_its_position_and_applied_objects_keep_their_health() {
    let world = widgets().await;
    set_when_there(&world, json!({"phase": "Running"})).await;
    world.ready("demo").await;
    let exprs =
        |current: &str| json!({"healthCheckExprs": [{"apiVersion": WIDGETS, "kind": "Widget", "current": current}]});
    world.change("demo", exprs("status.phase = 'Running'")).await;
    let stalled =
        "True SpecInvalid: spec.healthCheckExprs[0].current: line 1, column 14: `=` is not an operator; `==` compares";
    world.condition_is("demo", "Stalled", stalled).await;
    let deep = "(".repeat(4000);
    world.change("demo", exprs(&deep)).await;
    world
        .condition_is("demo", "Stalled", "True SpecInvalid: spec.healthCheckExprs[0].current: line 1, column 61: ")
        .await;
    let twice = json!([by_phase()[0], by_phase()[0]]);
    world.change("demo", json!({"healthCheckExprs": twice})).await;
    world
        .condition_is("demo", "Stalled", "True SpecInvalid: spec.healthCheckExprs[1]: spec.healthCheckExprs[0] is")
        .await;
    set_status(&world, "w", json!({"phase": "Error"}));
    failure_is(&world, "Unhealthy: spec.healthCheckExprs[0].failed is true").await;

    // A too expensive expression means unhealthy, and delays nothing else.
    let many: Vec<_> = (0..200).collect();
    set_status(&world, "w", json!({"phase": "Running", "list": many}));
    world.change("demo", exprs("status.list.all(a, status.list.all(b, status.list.all(c, a + b + c >= 0)))")).await;
    let costly = "Progressing: spec.healthCheckExprs[0].current cannot be evaluated: line 1, column ";
    let object = "Widget.mainstay-tests.example.org mainstay-tests/w";
    world.until("too much", |w| w.failure("demo", object).starts_with(costly)).await;
    assert!(world.failure("demo", object).ends_with("takes more than 20000 steps with this object"));
    world.change("demo", exprs("status.phase == 'Running'")).await;
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_judge_by_the_same_expressions() {
    let world = widgets().await;
    set_when_there(&world, json!({"phase": "Error"})).await;
    world.condition_is("demo", "Ready", "False ObjectFailed").await;
    let program = Program::of(&world).await;
    let said = "spec.healthCheckExprs[0].failed is true";
    let trace = program.json(&["trace", "widgets.mainstay-tests.example.org/w", "-n", NAMESPACE]).await;
    assert_eq!(trace["health"], format!("Failed: {said}"));
    for command in ["tree", "status"] {
        let (code, text, _) = program.run(&[command, "demo", "-n", NAMESPACE]).await;
        assert!(code == 1 && text.contains(said), "{command}: {code}: {text}");
    }
    set_status(&world, "w", json!({"phase": "Running"}));
    world.ready("demo").await;
    let (code, text, _) = program.run(&["tree", "demo", "-n", NAMESPACE]).await;
    assert_eq!(code, 0, "{text}");
}

/// Creates a GitSync `platform` with a ConfigMap, and `apps`, which depends on it by an expression.
async fn platform_and_apps(ready: &str) -> (World, String) {
    let mut world = World::new().await;
    world.remote.file("platform/p.yaml", config_map("p", "1")).file("apps/a.yaml", config_map("a", "1"));
    let first = world.remote.commit("first");
    world.sync("platform", json!({"baseDir": "/platform"}));
    world.start();
    world.ready("platform").await;
    world.sync("apps", json!({"baseDir": "/apps", "dependsOn": [{"name": "platform", "readyExpr": ready}]}));
    (world, first)
}

fn waits(commit: &str, why: &str) -> String {
    format!(
        "False DependencyNotReady: commit {commit} waits for GitSync mainstay-tests/platform, for which \
         spec.dependsOn[0].readyExpr {why}"
    )
}

fn label(world: &World, sync: &str, value: &str) {
    world.edit(SYNCS, "gitsyncs", sync, json!({"metadata": {"labels": {"version": value}}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dependant_waits_for_its_expression_and_is_woken_when_one_of_the_two_changes() {
    let same = "dep.metadata.labels['version'] == self.metadata.labels['version']";
    let (world, first) = platform_and_apps(same).await;
    let missing = "cannot be evaluated: line 1, column 14: there is no field `labels`";
    world.condition_is("apps", "Ready", &waits(&first, missing)).await;
    label(&world, "platform", "2");
    world
        .condition_is(
            "apps",
            "Ready",
            &waits(&first, "cannot be evaluated: line 1, column 49: there is no field `labels`"),
        )
        .await;
    label(&world, "apps", "1");
    world.condition_is("apps", "Ready", &waits(&first, "is not true")).await;
    assert_eq!(world.data("a"), "absent");
    // Both GitSyncs poll the repository once an hour, so only a wake-up explains the quick apply.
    label(&world, "apps", "2");
    world.ready_at("apps", &first).await;
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expression_replaces_what_would_be_asked_otherwise_but_that_the_other_one_exists() {
    let (mut world, first) = platform_and_apps("!dep.spec.suspend").await;
    world.ready_at("apps", &first).await;
    // The dependency is neither ready nor at this commit.
    world.remote.file("platform/p.yaml", "kind: broken").file("apps/a.yaml", config_map("a", "2"));
    let second = world.remote.commit("second");
    world.ask("platform").await;
    world.condition_is("platform", "Ready", "False").await;
    world.ask("apps").await;
    world.ready_at("apps", &second).await;
    assert_eq!(world.data("a"), "2");

    world.edit(SYNCS, "gitsyncs", "platform", json!({"spec": {"suspend": true}}));
    world.remote.file("apps/a.yaml", config_map("a", "3"));
    let third = world.remote.commit("third");
    world.ask("apps").await;
    world.condition_is("apps", "Ready", &waits(&third, "is not true")).await;
    world.delete(SYNCS, "gitsyncs", "platform");
    let gone = format!(
        "False DependencyNotReady: commit {third} waits for GitSync mainstay-tests/platform, which does not exist"
    );
    world.condition_is("apps", "Ready", &gone).await;
    world.change("apps", json!({"dependsOn": [{"name": "platform", "readyExpr": "dep.spec.x = 1"}]})).await;
    let stalled = "True SpecInvalid: spec.dependsOn[0].readyExpr: line 1, column 12: `=` is not an operator";
    world.condition_is("apps", "Stalled", stalled).await;
    assert_eq!(world.data("a"), "2");
}
