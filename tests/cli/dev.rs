//! `mainstay dev` as a process: its output, files, servers and end.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use mainstay_testkit::dev::{Dev, copy, git, wait_until};

#[test]
fn serves_a_cluster_alone_and_ends_cleanly() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    assert!(dev.kubectl(&["get", "namespaces", "-o", "name"]).contains("namespace/kube-system"));
    let mode = fs::metadata(&dev.kubeconfig).unwrap().permissions().mode() & 0o777;
    assert_eq!((Path::new(&dev.kubeconfig), mode), (home.path().join(".mainstay/kubeconfig").as_path(), 0o600));
    assert_eq!(dev.page, format!("mainstay ui --kubeconfig {}", dev.kubeconfig));
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// Another user of the machine can connect, but must not execute code as this user.
#[test]
fn a_client_without_the_kubeconfig_gets_no_answer() {
    let home = tempfile::tempdir().unwrap();
    let token = |dev: &Dev| {
        let written = fs::read_to_string(&dev.kubeconfig).unwrap();
        let server = written.split_once("server: \"").unwrap().1.split_once('"').unwrap().0.to_owned();
        (server, written.split_once("token: \"").unwrap().1.split_once('"').unwrap().0.to_owned())
    };
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    let (server, first) = token(&dev);
    let status = |path: &str, with: &[&str]| {
        let url = format!("{server}{path}");
        let common = ["-sSk", "--noproxy", "*", "-o", "/dev/null", "-w", "%{http_code}"];
        let output = mainstay_testkit::isolated("curl").args(common).args(with).arg(&url).output();
        String::from_utf8(output.expect("curl is needed: https://curl.se/download.html").stdout).unwrap()
    };
    for path in ["/api/v1/secrets", "/version", "/v2/", "/devcluster/counters", "/nothing"] {
        assert_eq!(status(path, &[]), "401", "{path}");
        assert_eq!(status(path, &["-H", "Authorization: Bearer guess"]), "401", "{path}");
        assert_eq!(status(path, &["-u", "mainstay:"]), "401", "{path}");
    }
    assert_eq!(status("/api/v1/secrets", &["-H", &format!("Authorization: Bearer {first}")]), "200");
    // Other users cannot read the directory, which contains the pods' data, either.
    let mode = fs::metadata(home.path().join(".mainstay")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let other = Dev::start(home.path(), &["--cluster-only"]);
    assert_ne!(token(&other).1, first);
}

#[test]
fn shows_applied_commits_and_reverted_edits() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &[]);
    assert_eq!(dev.event("commitApplied")["created"], 9);

    dev.kubectl(&["-n", "shop", "scale", "deployment", "web", "--replicas", "5"]);
    let reverted = dev.event("reverted");
    assert_eq!(reverted["object"], "Deployment.apps shop/web");
    assert_eq!((&reverted["fields"][0], &reverted["who"]), (&"spec.replicas".into(), &"kubectl".into()));
    let replicas = ["-n", "shop", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"];
    assert_eq!(dev.kubectl(&replicas), "2");

    dev.kubectl(&["-n", "shop", "delete", "service", "api"]);
    assert_eq!(dev.event("reverted")["object"], "Service shop/api");
    dev.kubectl(&["-n", "shop", "get", "service", "api"]);

    let page = home.path().join(".mainstay/demo/web/configmap.yaml");
    fs::write(&page, fs::read_to_string(&page).unwrap().replace("Welcome", "Hello")).unwrap();
    git(&home.path().join(".mainstay/demo"), &["commit", "-qam", "say hello"]);
    assert_eq!(dev.event("commitApplied")["changed"], 1);
    let greeting = ["-n", "shop", "get", "configmap", "web", "-o", "jsonpath={.data.GREETING}"];
    assert_eq!(dev.kubectl(&greeting), "Hello to the shop");

    let sync = dev.mainstay(&["sync", "demo"]);
    let said = String::from_utf8(sync.stdout).unwrap();
    assert_eq!(sync.status.code(), Some(0), "{said}");
    assert!(said.starts_with("GitSync default/demo: commit "), "{said}");
    let status = || String::from_utf8(dev.mainstay(&["status"]).stdout).unwrap();
    wait_until("status tells what was reverted", || {
        let said = status();
        said.contains("after kubectl changed Deployment.apps shop/web: spec.replicas")
            && said.contains("after somebody deleted Service shop/api")
            && said.contains("spec.replicas: 5 → 2")
    });
    dev.kubectl(&["wait", "--for=condition=Ready", "gitsync/demo", "--timeout=30s"]);
    assert_eq!(dev.mainstay(&["status"]).status.code(), Some(0));
    assert_eq!(dev.interrupt().code(), Some(0));
}

#[test]
fn other_commands_find_its_agent_log_and_repository() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &[]);
    dev.event("commitApplied");
    let run = |arguments: &[&str]| {
        let output = dev.mainstay(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), format!("{}{error}", String::from_utf8_lossy(&output.stdout)))
    };
    let (code, said) = run(&["version"]);
    assert!(code == Some(0) && said.contains("of `mainstay dev`"), "{said}");
    let (code, said) = run(&["sync", "demo", "--dry-run"]);
    assert!(code == Some(0) && said.contains("against the cluster\n9 unchanged\n"), "{said}");
    let (code, said) = run(&["diff", "demo", "--revision", "HEAD~0"]);
    assert!(code == Some(0) && said.ends_with("9 unchanged\n"), "{said}");
    wait_until("its log tells of the commit", || run(&["logs", "demo"]).1.contains("GitSync default/demo: commit "));
    let (code, said) = run(&["logs", "demo", "--tail", "1"]);
    assert!(code == Some(0) && said.lines().count() == 1 && said.contains("default/demo"), "{said}");
    // A path of this machine is still not read.
    let patch = r#"{"spec": {"url": "/etc"}}"#;
    dev.kubectl(&["patch", "gitrepository", "demo", "--type", "merge", "-p", patch]);
    let (code, said) = run(&["sync", "demo", "--dry-run"]);
    assert!(code == Some(2) && said.contains("is a local path of the agent's machine"), "{said}");
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// As documented in the book.
#[test]
fn a_webhook_triggers_a_lookup_at_once() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &[]);
    dev.event("commitApplied");
    dev.kubectl(&["create", "secret", "generic", "hook", "--from-literal=token=0123456789abcdef0123"]);
    let receiver = home.path().join("receiver.json");
    let text = r#"{"apiVersion": "mainstay.dev/v1alpha1", "kind": "Receiver", "metadata": {"name": "hook"},
        "spec": {"type": "generic", "secretRef": {"name": "hook"}}}"#;
    fs::write(&receiver, text).unwrap();
    dev.kubectl(&["apply", "-f", receiver.to_str().unwrap()]);
    dev.kubectl(&["wait", "--for=condition=Ready", "receiver/hook", "--timeout=30s"]);
    let url = dev.kubectl(&["get", "receiver", "hook", "-o", "jsonpath={.status.url}"]);
    let output = mainstay_testkit::isolated("curl").args(["-sS", "--noproxy", "*", "-X", "POST", &url]).output();
    let output = output.expect("curl is needed: https://curl.se/download.html");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "looking up the remote for GitSync demo\n");
    let table = dev.kubectl(&["get", "receivers"]);
    assert!(table.contains("receives for all sources and ImageRepositories of this namespace"), "{table}");
}

#[test]
fn applies_the_manifests_that_install_the_agent() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    dev.kubectl(&["apply", "-k", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests")]);
    let shown = dev.kubectl(&["-n", "mainstay-system", "get", "deployment", "mainstay", "-o", "name"]);
    assert_eq!(shown.trim(), "deployment.apps/mainstay");
}

#[test]
fn the_manifests_start_the_agent_with_arguments_that_it_has() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    dev.kubectl(&["apply", "-k", concat!(env!("CARGO_MANIFEST_DIR"), "/manifests")]);
    let shown = dev.kubectl(&["-n", "mainstay-system", "get", "deployment", "mainstay", "-o", "json"]);
    let deployment: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    // Arguments are parsed in order, so an unknown argument fails before `--help`.
    let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments.iter().map(|argument| argument.as_str().unwrap()))
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn pauses_and_resumes_a_live_object() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    dev.kubectl(&["create", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gitops/namespace.yaml")]);
    dev.kubectl(&["create", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gitops/web/deployment.yaml")]);
    let mainstay = |arguments: &[&str]| {
        let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
            .args(arguments)
            .args(["-n", "shop", "--kubeconfig", &dev.kubeconfig])
            .output()
            .unwrap();
        let code = output.status.code();
        (code, String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let done = |arguments: &[&str]| {
        let (code, said) = mainstay(arguments);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let annotation = |name: &str| {
        let path = format!("jsonpath={{.metadata.annotations.mainstay\\.dev/{name}}}");
        dev.kubectl(&["-n", "shop", "get", "deployment", "web", "-o", &path])
    };
    let paused = done(&["pause", "deploy", "web", "--for", "30m"]);
    assert!(paused.starts_with("Deployment.apps shop/web is paused until 2"), "{paused}");
    assert_eq!(annotation("reconcile"), "disabled");
    assert!(annotation("until").parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());
    done(&["pause", "deploy/web"]);
    assert_eq!((annotation("reconcile").as_str(), annotation("until").as_str()), ("disabled", ""));
    done(&["resume", "deployments.v1.apps/web"]);
    assert_eq!(annotation("reconcile"), "");
    for (arguments, expected) in [
        (&["pause", "deploy/web", "--for", "0s"][..], "at least 1s"),
        (&["pause", "deploy"], "expected a kind and a name, not \"deploy\""),
        (&["pause", "deploy/web", "web"], "expected a kind and a name, not \"deploy/web web\""),
        (&["pause", "deployments.v2.apps/web"], "the cluster serves no kind named deployments.v2.apps"),
        (&["pause", "deploy/wep"], "Deployment.apps shop/wep does not exist"),
    ] {
        let (code, said) = mainstay(arguments);
        assert_eq!((code, said.contains(expected)), (Some(2), true), "{said}");
        assert_eq!(annotation("reconcile"), "", "{arguments:?}");
    }
}

#[test]
fn never_overwrites_a_kubeconfig_of_another_cluster() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
    let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "--cluster-only", "--kubeconfig", path.to_str().unwrap()])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("contains the configuration of a different cluster"), "{said}");
    assert_eq!(fs::read_to_string(path).unwrap(), "apiVersion: v1\nkind: Config\n");
}

#[test]
fn a_second_run_in_one_directory_says_so_and_leaves_the_first_alone() {
    let home = tempfile::tempdir().unwrap();
    let first = Dev::start(home.path(), &[]);
    first.event("commitApplied");
    let second = Dev::start(home.path(), &["--cluster-only"]);
    assert_eq!(second.kubeconfig, home.path().join(".mainstay/2/kubeconfig").to_str().unwrap());
    assert_eq!(second.directory.as_deref(), Some(".mainstay/2"));
    assert_eq!(first.directory, None);
    assert!(first.kubectl(&["get", "namespaces", "-o", "name"]).contains("namespace/shop"));
    assert!(!second.kubectl(&["get", "namespaces", "-o", "name"]).contains("namespace/shop"));
    // The kubeconfig of the first cluster is also refused if it is named explicitly.
    let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "--cluster-only", "--kubeconfig", &first.kubeconfig])
        .current_dir(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("points to the cluster of another `mainstay dev`, which is running"), "{said}");
    assert_eq!(first.interrupt().code(), Some(0));
    let third = Dev::start(home.path(), &["--cluster-only"]);
    assert_eq!(third.directory, None);
}

#[test]
fn listens_beyond_loopback_only_with_a_token() {
    let home = tempfile::tempdir().unwrap();
    let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "--cluster-only", "--listen", "0.0.0.0:0"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("hint: set --token"), "{said}");
}

#[test]
fn follows_the_directory_that_was_named_and_leads_its_git_repository_to_the_local_copy() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/functions");
    fs::create_dir_all(work.join("deploy/functions")).unwrap();
    fs::copy(example.join("settings.yaml"), work.join("deploy/functions/settings.yaml")).unwrap();
    fs::write(work.join("not-for-us.yaml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: not-for-us}\n").unwrap();
    git(home.path(), &["init", "-q", "-b", "main", "work"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "functions"]);
    let dev = Dev::start(home.path(), &["work/deploy/functions"]);
    dev.event("commitApplied");
    let url = || dev.kubectl(&["get", "gitrepository", "functions", "-o", "jsonpath={.spec.url}"]);
    let local = work.canonicalize().unwrap().display().to_string();
    assert_eq!(url(), local);
    // The branch's version of that GitRepository is for other clusters.
    fs::copy(example.join("repository.yaml"), work.join("deploy/functions/repository.yaml")).unwrap();
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "our repository"]);
    wait_until("the commit is handled", || {
        let status = dev.mainstay(&["status", "functions"]);
        String::from_utf8(status.stdout).unwrap().contains("default/functions until it is resumed")
    });
    assert_eq!(url(), local);
    assert!(!dev.kubectl(&["get", "namespaces"]).contains("not-for-us"));
    assert_eq!(dev.interrupt().code(), Some(0));
}

/// The message equals the message of the GitSync's condition.
#[test]
fn refuses_a_directory_that_the_commit_does_not_have_before_anything_is_started() {
    let home = tempfile::tempdir().unwrap();
    let work = home.path().join("work");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/gitops"), &work);
    git(home.path(), &["init", "-q", "-b", "main", "work"]);
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-qm", "shop"]);
    fs::create_dir(work.join("uncommitted")).unwrap();
    for arguments in [&["work", "--base-dir", "nope"][..], &["work/uncommitted"], &["work", "--base-dir", "../.."]] {
        let output = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
            .arg("dev")
            .args(arguments)
            .current_dir(home.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        let missing = arguments.last().unwrap().trim_start_matches("work/");
        if missing == "../.." {
            assert!(said.contains("`..` is not allowed"), "{said}");
            continue;
        }
        assert!(said.contains(&format!("baseDir /{missing} is not a directory at commit ")), "{said}");
        assert!(
            said.contains(&format!(": there is no /{missing}; / holds the directories api, cache, web\n")),
            "{said}"
        );
        assert!(!home.path().join(".mainstay/kubeconfig").exists());
    }
}
