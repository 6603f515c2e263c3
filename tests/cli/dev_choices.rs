//! Interactive choices of `mainstay dev`, and output of other commands while it runs.

use std::{fs, path::Path};

use mainstay_testkit::dev::{Dev, git};

/// Creates a repository with a base and two overlays.
fn overlays(home: &Path) {
    let work = home.join("work");
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: default}\ndata: {a: '1'}\n";
    let overlay = |name: &str| format!("resources: [../../base]\nnameSuffix: -{name}\n");
    for (path, text) in [
        ("base/kustomization.yaml", "resources: [web.yaml]\n".to_owned()),
        ("base/web.yaml", config.to_owned()),
        ("overlays/dev/kustomization.yaml", overlay("dev")),
        ("overlays/prod/kustomization.yaml", overlay("prod")),
    ] {
        fs::create_dir_all(work.join(path).parent().unwrap()).unwrap();
        fs::write(work.join(path), text).unwrap();
    }
    git(home, &["init", "-q", "-b", "main", "work"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "web"]);
}

#[test]
fn asks_which_of_a_base_and_its_overlays_is_meant() {
    let home = tempfile::tempdir().unwrap();
    overlays(home.path());
    let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "."])
        .current_dir(home.path().join("work"))
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
    let choices =
        "/ contains kustomizations that build on one another: /overlays/dev, /overlays/prod, /base; select one of them";
    assert!(said.contains(choices), "{said}");
    assert!(
        said.contains("--base-dir /overlays/dev applies only this directory; --base-dir / applies all of them"),
        "{said}"
    );

    let manifests = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["manifests", "work"])
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8(manifests.stderr).unwrap();
    assert_eq!(said, format!("warning: {choices} as PATH, or the others in .mainstayignore\n"));
    let said = String::from_utf8(manifests.stdout).unwrap();
    assert!(said.contains(", 3 built, ") && said.ends_with(", 0 with problems\n"), "{said}");

    let dev = Dev::start(home.path(), &["work", "--base-dir", "overlays/dev"]);
    assert_eq!(dev.event("commitApplied")["created"], 1);
    assert_eq!(dev.kubectl(&["get", "configmap", "web-dev", "-o", "jsonpath={.data.a}"]), "1");
    assert_eq!(dev.interrupt().code(), Some(0));

    // Ignored directories are not candidates, so there is no choice.
    let work = home.path().join("work");
    fs::write(work.join(".mainstayignore"), "/base\n/overlays/prod\n").unwrap();
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "only dev"]);
    let dev = Dev::start(home.path(), &["work"]);
    assert_eq!(dev.event("commitApplied")["created"], 1);
    assert_eq!(dev.interrupt().code(), Some(0));
}

#[test]
fn other_commands_find_its_agent_and_what_they_check_is_all_right() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &[]);
    dev.event("commitApplied");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let check = dev.mainstay(&["check"]);
    let said = text(check.stdout);
    assert_eq!(check.status.code(), Some(0), "{said}");
    assert!(said.contains("ok     the agent mainstay-dev is running\n"), "{said}");
    assert!(said.lines().all(|line| line.starts_with("ok ")), "{said}");
    let sync = dev.mainstay(&["sync", "--timeout", "60s"]);
    assert_eq!((sync.status.code(), text(sync.stderr).as_str()), (Some(0), ""));
    let pods = dev.kubectl(&["get", "pods", "--namespace", "shop"]);
    assert!(pods.contains("Running (simulated)"), "{pods}");
    assert_eq!(dev.interrupt().code(), Some(0));
}
