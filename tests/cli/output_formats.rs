//! Machine-readable output of commands, and the progress line on a terminal.

use serde_json::{Value, json};

use mainstay_testkit::{
    program::Program,
    world::{NAMESPACE, World, config_map},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_print_facts_print_them_as_json_and_yaml() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let commit = world.remote.commit("one");
    world.synced(json!({})).await;
    let program = Program::of(&world).await;
    let synced = program.json(&["sync", "demo", "-n", NAMESPACE]).await;
    assert_eq!((&synced["result"], &synced["commit"]), (&json!("Succeeded"), &json!(commit)));
    let all = program.json(&["sync", "-n", NAMESPACE]).await;
    assert_eq!((&all["items"][0]["name"], &all["items"][0]["commitBefore"]), (&json!("demo"), &json!(commit)));

    let paused = program.json(&["pause", "cm/a", "-n", NAMESPACE, "--for", "1h"]).await;
    assert_eq!(
        (&paused["paused"], &paused["managed"], &paused["object"]["name"]),
        (&json!(true), &json!(true), &json!("a"))
    );
    assert!(paused["until"].as_str().unwrap().ends_with('Z'), "{paused}");
    let (_, resumed, _) = program.run(&["resume", "cm/a", "-n", NAMESPACE, "-o", "yaml"]).await;
    let resumed: Value = serde_yaml::from_str(&resumed).unwrap();
    assert_eq!((&resumed["paused"], &resumed["object"]["kind"]), (&json!(false), &json!("ConfigMap")));

    let (code, out, error) = program.run(&["check", "-n", NAMESPACE, "-o", "json"]).await;
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, error.as_str()), (2, ""), "no agent holds a Lease here: {out}");
    let items = found["items"].as_array().unwrap();
    assert!(
        items[0]["ok"] == true && items.iter().any(|item| item["ok"] == false && item["hint"].is_string()),
        "{out}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_shows_what_is_waited_for_and_a_pipe_does_not() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({})).await;
    world.hold_lease();
    let program = Program::of(&world).await;
    let (code, out, error) = program.run(&["sync", "demo", "-n", NAMESPACE]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    let shown = program.run_on_terminal(80, &["sync", "demo", "-n", NAMESPACE]).await;
    let line =
        shown.find("0 s  GitSync mainstay-tests/demo: waiting for an agent").unwrap_or_else(|| panic!("{shown:?}"));
    let result = shown.find("GitSync mainstay-tests/demo: commit").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(line < result && shown[..result].ends_with("\r\u{1b}[K"), "the line is gone before the result: {shown:?}");
}
