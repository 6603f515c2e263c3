//! `mainstay history`, and `mainstay status` of one and several GitSyncs, in every format, once and with `--watch`.

use serde_json::{Value, json};

use mainstay_testkit::{
    program::Program,
    world::{NAMESPACE, World, config_map},
};

const API: &str = "serverless.kyma-project.io/v1alpha1";
const SYNCS: &str = "mainstay.dev/v1alpha1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shows_one_in_full_and_several_as_a_table() {
    let mut world = World::new().await;
    for number in 0..3 {
        world.remote.file(&format!("a{number}.yaml"), config_map(&format!("a{number}"), "1"));
    }
    let commit = world.remote.commit("one");
    world.synced(json!({})).await;
    let program = Program::of(&world).await;
    let (code, alone, error) = program.run(&["status", "-n", NAMESPACE]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{alone}");
    assert!(alone.starts_with("GitSync mainstay-tests/demo\n") && alone.contains(&commit[..12]), "{alone}");
    let (_, named, _) = program.run(&["status", "demo", "-n", NAMESPACE]).await;
    assert_eq!(named, alone);

    world.sync("suspended", json!({"suspend": true}));
    world.until("it says so", |w| w.condition("suspended", "Ready") != "absent").await;
    let (code, table, _) = program.run(&["status", "-n", NAMESPACE]).await;
    assert_eq!(code, 1, "one is suspended");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let row = words(table.lines().nth(1).unwrap());
    assert_eq!(row[..8], ["demo", "True", "False", &commit[..12], "3/3", "0", "0", "0"], "{table}");
    assert_eq!(words(table.lines().nth(2).unwrap())[..3], ["suspended", "Unknown", "True"], "{table}");

    let (code, all, _) = program.run(&["status", "-A", "-o", "wide"]).await;
    assert_eq!(code, 1);
    assert!(all.starts_with("NAMESPACE ") && all.contains(&world.remote.path().display().to_string()), "{all}");
    let (_, all, _) = program.run(&["status", "-A", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&all).unwrap();
    assert_eq!((&all["items"][0]["inSync"], &all["items"][1]["inSync"]), (&json!(true), &json!(false)));
    let (_, yaml, _) = program.run(&["status", "demo", "-n", NAMESPACE, "-o", "yaml"]).await;
    let yaml: Value = serde_yaml::from_str(&yaml).unwrap();
    assert_eq!(yaml, all["items"][0]);
    assert_eq!(yaml, program.json(&["status", "demo", "-n", NAMESPACE]).await);
    assert_eq!(yaml["status"]["appliedCommit"], json!(commit));
    let (code, _, error) = program.run(&["status", "nobody", "-n", NAMESPACE]).await;
    assert!(code == 2 && error.contains("GitSync mainstay-tests/nobody does not exist"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_git_sync_shows_the_commit_that_waits() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.synced(json!({"reference": "HEAD"})).await;
    let program = Program::of(&world).await;
    world.edit(SYNCS, "gitsyncs", "demo", json!({"spec": {"suspend": true}}));
    world.condition_is("demo", "Suspended", "True").await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let waiting = world.remote.commit("two");
    world.request("demo");
    let revision = |w: &World| w.get(API, "gitrepositories", "repo").unwrap()["status"]["revision"].clone();
    world.until("the revision is looked up", |w| revision(w) == json!(format!("main@sha1:{waiting}"))).await;
    let (_, text, _) = program.run(&["status", "demo", "-n", NAMESPACE]).await;
    assert!(text.contains(&format!("waiting     commit {}, which is applied after", &waiting[..12])), "{text}");
    assert_eq!(world.data("a"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_prints_each_change_until_it_is_interrupted() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let first = world.remote.commit("one");
    world.synced(json!({})).await;
    let program = Program::of(&world).await;
    let mut text = program.start(&["status", "demo", "--watch", "-n", NAMESPACE]);
    let mut lines = program.start(&["status", "-A", "-w", "-o", "json"]);
    text.line(&first[..12]).await;
    let line: Value = serde_json::from_str(&lines.line("items").await).unwrap();
    assert_eq!(line["items"][0]["status"]["appliedCommit"], json!(first));
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    text.line(&second[..12]).await;
    serde_json::from_str::<Value>(&lines.line(&format!("appliedCommit\":\"{second}")).await).unwrap();
    assert_eq!(text.interrupt().await, 0);
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    lines.line("{\"items\":[]}").await;
    assert_eq!(lines.interrupt().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_not_whole_says_how_long_it_is() {
    let mut world = World::new().await;
    for number in 0..25 {
        world.remote.file(&format!("a{number}.yaml"), config_map(&format!("a{number}"), "1"));
    }
    world.remote.file("stays.yaml", config_map("stays", "1")).commit("one");
    world.synced(json!({"prune": false})).await;
    for number in 0..25 {
        world.remote.remove(&format!("a{number}.yaml"));
    }
    world.remote.commit("two");
    world.look();
    world.until("they are kept", |w| w.status("demo")["held"].as_array().is_some_and(|held| held.len() == 20)).await;
    let (_, text, _) = Program::of(&world).await.run(&["status", "-n", NAMESPACE]).await;
    assert!(text.contains("  Held back from deletion, 20 of 25:\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_lists_applied_commits_newest_first() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    let first = world.remote.commit("one \u{1b}[31mred");
    world.synced(json!({})).await;
    world.remote.file("a.yaml", config_map("a", "2"));
    let second = world.try_commit("demo", "two").await;
    let length = |w: &World| w.status("demo")["history"].as_array().map_or(0, Vec::len);
    world.until("both are in the status", |w| length(w) == 2).await;
    let program = Program::of(&world).await;
    let (code, text, error) = program.run(&["history", "gitsync/demo", "-n", NAMESPACE]).await;
    assert_eq!((code, error.as_str()), (0, ""), "{text}");
    let lines = text.lines().collect::<Vec<_>>();
    assert!(lines[0].starts_with("GITSYNC ") && lines.len() == 5, "{text}");
    assert!(lines[1].contains(&second[..12]) && lines[1].ends_with("two"), "{text}");
    assert_eq!(lines[2], format!("  changed ConfigMap {NAMESPACE}/a"));
    assert!(lines[3].contains(&first[..12]) && !text.contains('\u{1b}'), "{text}");
    assert_eq!(lines[4], format!("  created ConfigMap {NAMESPACE}/a"));
    let (_, all, _) = program.run(&["history", "-n", NAMESPACE]).await;
    assert!(all.lines().count() == 3 && !all.contains("ConfigMap"), "{all}");
    let facts = program.json(&["history", "-n", NAMESPACE]).await;
    let item = &facts["items"][0];
    assert_eq!(
        (&item["commit"], &item["gitSync"], &item["changed"]),
        (&json!(second), &json!("mainstay-tests/demo"), &json!(1))
    );
    assert_eq!(item["objects"], json!([{"object": format!("ConfigMap {NAMESPACE}/a"), "change": "Changed"}]));
}
