//! Skipped files of a commit: hidden files, files of other tools, and files matched by ignore rules above the
//! directory.

use std::{fs, path::Path};

use serde_json::{Value, json};

use mainstay_testkit::{
    golden::check_golden,
    world::{World, config_map},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_changes_only_the_rules_above_the_directory_changes_what_is_read() {
    let mut world = World::new().await;
    world
        .remote
        .file("apps/a.yaml", config_map("a", "1"))
        .file("apps/b.yaml", config_map("b", "1"))
        .file("apps/.github/ci.yaml", "jobs: {}\n")
        .file("apps/package.json", "{\"name\": \"web\"}")
        .commit("one");
    world.sync("demo", json!({"baseDir": "/apps"}));
    world.start();
    world.ready("demo").await;
    assert_eq!(world.status("demo")["appliedTreeId"].as_str().map(str::len), Some(40));
    world.remote.file(".mainstayignore", "apps/b.yaml\n");
    world.commit("demo", "two").await;
    world.until("what is left out is gone", |w| w.data("b") == "absent").await;
    assert_eq!(world.data("a"), "1");
    // The tree of the directory is unchanged, but the files that are read differ.
    let closed = json!([{"kind": "Deny", "schedule": "* * * * *", "duration": "1h"}]);
    world.change("demo", json!({"windows": closed})).await;
    world.condition_is("demo", "Frozen", "False WindowOpen").await;
    world.remote.remove(".mainstayignore");
    world.try_commit("demo", "three").await;
    world.condition_is("demo", "Frozen", "True WindowClosed").await;
    assert_eq!(world.data("b"), "absent");
    world.change("demo", json!({"windows": null})).await;
    world.until("it is read again", |w| w.data("b") == "1").await;
}

/// Returns standard output and exit code of `mainstay manifests` in a directory.
fn manifests(directory: &Path, arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.arg("manifests").args(arguments).env_clear().env("HOME", directory).current_dir(directory);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn the_command_says_what_becomes_of_each_file() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    fs::create_dir(root.join(".git")).unwrap();
    write(".gitignore", "*.tmp.yaml\n");
    write(".mainstayignore", "# drafts\n*.draft.yaml\n");
    write("apps/a.yaml", &format!("{}---\n{}", config_map("a", "1"), config_map("b", "1")));
    write("apps/b.draft.yaml", "{{");
    write("apps/c.tmp.yaml", "{{");
    write("apps/.github/ci.yaml", "{{");
    write("apps/package.json", "{}");
    write("apps/README.md", "# read me");
    assert_eq!(manifests(&root.join("apps"), &[]).1, Some(0));
    write("apps/db.yaml", "kind: Secret\nsops: {mac: a}\n");
    std::os::unix::fs::symlink("/etc/passwd", root.join("apps/link.yaml")).unwrap();
    let (text, code) = manifests(&root, &["apps"]);
    assert_eq!(code, Some(1));
    check_golden("cli/manifests-output.txt", &text);
    let (text, code) = manifests(&root.join("apps"), &["-o", "json"]);
    let files: Vec<Value> = serde_json::from_str(&text).unwrap();
    let state = |file: &str| files.iter().find(|f| f["file"] == file).unwrap()["state"].clone();
    assert_eq!((code, state("apps/a.yaml"), state("apps/b.draft.yaml")), (Some(1), json!("read"), json!("leftOut")));
    assert_eq!((state("apps/db.yaml"), files.len()), (json!("problem"), 6));
    let missing = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["manifests", "nowhere"])
        .current_dir(&root)
        .output();
    assert_eq!(missing.unwrap().status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_beside_manifests_hold_a_commit_up_only_if_manifests_may_be_behind_them() {
    let mut world = World::new().await;
    let remote = &mut world.remote;
    remote
        .file("README.md", "about all")
        .file("app/a.yaml", config_map("a", "1"))
        .file("base/b.yaml", config_map("b", "1"));
    remote.symlink("app/README.md", "../README.md").symlink("app/notes/LICENSE", "../README.md").commit("one");
    world.synced(json!({"baseDir": "/app"})).await;
    assert_eq!(world.data("a"), "1");
    for (link, target) in
        [("app/b.yaml", "../base/b.yaml"), ("app/base", "../base"), ("app/passwd.md", "/etc/passwd.md")]
    {
        world.remote.file("app/a.yaml", config_map("a", "2")).symlink(link, target);
        world.try_commit("demo", "a link to manifests").await;
        let said = world.condition("demo", "Ready");
        assert!(said.contains(&format!("{link}: symbolic links are not followed")), "{said}");
        assert_eq!((world.data("a"), world.data("b")), ("1".to_owned(), "absent".to_owned()));
        world.remote.remove(link);
    }
    world.commit("demo", "without them").await;
    assert_eq!(world.data("a"), "2");
}
