//! `mainstay dev` as a process: what it prints, writes and serves, and how it ends.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `mainstay dev --output json` in a directory of its own.
struct Dev {
    child: Child,
    lines: Receiver<String>,
    home: PathBuf,
    kubeconfig: String,
}

impl Drop for Dev {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dev {
    fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mainstay"))
            .args(["dev", "--output", "json"])
            .args(arguments)
            .env_clear()
            .env("HOME", home)
            .current_dir(home)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the child, or when nobody wants more lines.
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut dev = Self { child, lines, home: home.to_owned(), kubeconfig: String::new() };
        let started = dev.event("started");
        started["kubeconfig"].as_str().unwrap().clone_into(&mut dev.kubeconfig);
        dev
    }

    /// The next message of this sort; what comes before it is passed over.
    fn event(&self, event: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no `{event}`: {error}"));
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["event"] == event {
                return message;
            }
        }
    }

    /// Runs kubectl; it must succeed.
    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = Command::new("kubectl")
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .output()
            .expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs another command of ours against the cluster.
    fn mainstay(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mainstay"))
            .args(arguments)
            .args(["--kubeconfig", &self.kubeconfig])
            .env_clear()
            .output()
            .unwrap()
    }

    /// Commits everything in the demonstration repository.
    fn commit(&self, message: &str) {
        let status = Command::new("git")
            .args(["-c", "user.name=A Person", "-c", "user.email=person@example.org", "commit", "-qam", message])
            .current_dir(self.home.join(".mainstay/demo"))
            .env("HOME", &self.home)
            .status()
            .expect("git is needed: https://git-scm.com/downloads");
        assert!(status.success());
    }

    /// Ctrl-C; how it ended.
    fn interrupt(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

#[test]
fn serves_a_cluster_alone_and_ends_cleanly() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    assert!(dev.kubectl(&["get", "namespaces", "-o", "name"]).contains("namespace/kube-system"));
    let mode = fs::metadata(&dev.kubeconfig).unwrap().permissions().mode() & 0o777;
    assert_eq!((Path::new(&dev.kubeconfig), mode), (home.path().join(".mainstay/kubeconfig").as_path(), 0o600));
    assert_eq!(dev.interrupt().code(), Some(0));
}

#[test]
fn shows_commits_applied_and_hand_edits_put_back() {
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
    dev.commit("say hello");
    assert_eq!(dev.event("commitApplied")["changed"], 1);
    let greeting = ["-n", "shop", "get", "configmap", "web", "-o", "jsonpath={.data.GREETING}"];
    assert_eq!(dev.kubectl(&greeting), "Hello to the shop");

    let sync = dev.mainstay(&["sync", "demo"]);
    let said = String::from_utf8(sync.stdout).unwrap();
    assert_eq!(sync.status.code(), Some(0), "{said}");
    assert!(said.starts_with("GitSync default/demo: commit "), "{said}");
    let status = || String::from_utf8(dev.mainstay(&["status"]).stdout).unwrap();
    wait_until("status tells what was put back", || {
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
    let deployment: Value = serde_json::from_str(&shown).unwrap();
    let arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    // Arguments are read in order: an unknown one fails before the last is seen.
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments.iter().map(|argument| argument.as_str().unwrap()))
        .arg("--help")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn breaks_glass_on_a_live_object_and_mends_it() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &["--cluster-only"]);
    dev.kubectl(&["create", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gitops/namespace.yaml")]);
    dev.kubectl(&["create", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gitops/web/deployment.yaml")]);
    let mainstay = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
            .args(arguments)
            .args(["deploy", "web", "-n", "shop", "--kubeconfig", &dev.kubeconfig])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let annotation = |name: &str| {
        let path = format!("jsonpath={{.metadata.annotations.mainstay\\.dev/{name}}}");
        dev.kubectl(&["-n", "shop", "get", "deployment", "web", "-o", &path])
    };
    assert!(mainstay(&["pause", "--for", "30m"]).starts_with("Deployment.apps shop/web is paused until 2"));
    assert_eq!(annotation("reconcile"), "disabled");
    assert!(annotation("until").parse::<jiff::Timestamp>().unwrap() > jiff::Timestamp::now());
    mainstay(&["pause"]);
    assert_eq!((annotation("reconcile").as_str(), annotation("until").as_str()), ("disabled", ""));
    mainstay(&["resume"]);
    assert_eq!(annotation("reconcile"), "");
}

#[test]
fn never_overwrites_a_kubeconfig_of_another_cluster() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config");
    fs::write(&path, "apiVersion: v1\nkind: Config\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "--cluster-only", "--kubeconfig", path.to_str().unwrap()])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("holds another cluster's configuration"), "{said}");
    assert_eq!(fs::read_to_string(path).unwrap(), "apiVersion: v1\nkind: Config\n");
}

#[test]
fn listens_to_others_only_with_a_token() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["dev", "--cluster-only", "--listen", "0.0.0.0:0"])
        .current_dir(home.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("hint: --token"), "{said}");
}

/// Waits until `holds`.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
