//! `mainstay dev --work-tree` applies saved files.

use std::{fs, path::Path};

use mainstay_testkit::dev::{Dev, copy, git, wait_until};

fn config_map(name: &str, tea: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{tea: '{tea}'}}\n")
}

fn git_says(directory: &Path, arguments: &[&str]) -> String {
    let output = mainstay_testkit::isolated("git").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn tea(dev: &Dev, name: &str) -> String {
    dev.kubectl(&["get", "configmap", name, "--ignore-not-found", "-o", "jsonpath={.data.tea}"])
}

#[test]
fn saved_files_are_applied_without_a_commit() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    fs::create_dir_all(work.join("apps")).unwrap();
    fs::write(work.join("apps/a.yaml"), config_map("a", "1")).unwrap();
    git(home.path(), &["init", "-q", "-b", "main", "work"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "one"]);
    fs::write(work.join("apps/a.yaml"), config_map("a", "2")).unwrap();
    let objects = git_says(&work, &["count-objects"]);

    let dev = Dev::start(home.path(), &["--work-tree", "work/apps"]);
    dev.event("commitApplied");
    assert_eq!(tea(&dev, "a"), "2");
    // A file, a directory with a file, and their removal.
    fs::write(work.join("apps/b.yaml"), config_map("b", "1")).unwrap();
    dev.event("commitApplied");
    assert_eq!(tea(&dev, "b"), "1");
    fs::create_dir_all(work.join("apps/new/deep")).unwrap();
    fs::write(work.join("apps/new/deep/c.yaml"), config_map("c", "1")).unwrap();
    wait_until("the file in a new directory is applied", || tea(&dev, "c") == "1");
    fs::write(work.join("apps/new/deep/c.yaml"), config_map("c", "2")).unwrap();
    wait_until("a change in the new directory is applied", || tea(&dev, "c") == "2");
    fs::remove_file(work.join("apps/b.yaml")).unwrap();
    wait_until("what was removed is deleted", || tea(&dev, "b").is_empty());
    // An invalid file changes nothing.
    fs::write(work.join("apps/a.yaml"), "apiVersion: v1\nkind: [\n").unwrap();
    let status = || String::from_utf8(dev.mainstay(&["status"]).stdout).unwrap();
    wait_until("the problem is said", || status().contains("apps/a.yaml"));
    assert_eq!(tea(&dev, "a"), "2");
    fs::write(work.join("apps/a.yaml"), config_map("a", "3")).unwrap();
    wait_until("the mended file is applied", || tea(&dev, "a") == "3");

    assert_eq!(git_says(&work, &["status", "--porcelain"]), " M apps/a.yaml\n?? apps/new/\n");
    assert_eq!(git_says(&work, &["count-objects"]), objects);
    assert_eq!(dev.interrupt().code(), Some(0));
}

#[test]
fn a_directory_need_not_be_a_repository_but_must_be_here() {
    let home = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops");
    copy(&example, &home.path().join("shop"));
    let dev = Dev::start(home.path(), &["--work-tree", "shop"]);
    assert_eq!(dev.event("commitApplied")["created"], 9);
    drop(dev);
    let refused = |arguments: &[&str]| {
        let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
            .arg("dev")
            .args(arguments)
            .current_dir(home.path())
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&["shop"]);
    assert!(said.contains("is not a Git repository") && said.contains("--work-tree"), "{said}");
    let said = refused(&["--work-tree", "https://user:hunter2@example.org/shop.git"]);
    assert!(said.contains("--work-tree is for a directory of this machine, not for https://"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
}
