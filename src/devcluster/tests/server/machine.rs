//! A cluster with a node that runs pods as processes of this machine.

use crate::process::isolated;
use crate::world::World;
use devcluster::{NodeOptions, Options, RegistryOptions, Serving};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

/// Deadline of waiting.
const PATIENCE: Duration = Duration::from_secs(60);

/// The host image: its programs are those of this machine.
pub(crate) const HOST: &str = "host";

/// A cluster with a node.
pub(crate) struct Machine {
    pub(crate) world: World,
    pub(crate) directory: tempfile::TempDir,
}

impl Machine {
    /// Starts a cluster with controllers and a node.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts a cluster with controllers and a node, with changed options of the node.
    pub(crate) fn with(change: impl FnOnce(&mut NodeOptions)) -> Self {
        Self::with_options(change, |_| {})
    }

    /// Starts a cluster with controllers and a node, with changed options of both.
    pub(crate) fn with_options(
        change: impl FnOnce(&mut NodeOptions),
        change_cluster: impl FnOnce(&mut Options),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut node = NodeOptions::new(directory.path().join("node")).host_image(HOST, []);
        node.env.push(("POD_ADDRESS".into(), "{podIP}".into()));
        node.env.push(("LAST_WORDS".into(), "{terminationLog}".into()));
        change(&mut node);
        let registry = Some(RegistryOptions { directory: directory.path().join("images") });
        let autoscaler_interval = Duration::from_secs(1);
        let mut options = Options { node: Some(node), registry, autoscaler_interval, ..Options::default() };
        change_cluster(&mut options);
        let world = World::with(options);
        drop(world.server.start_controllers());
        Self { world, directory }
    }

    /// Creates a pod with one container that runs a shell script. `change` is merged into its spec.
    pub(crate) async fn pod(&self, name: &str, script: &str, change: Value) {
        let mut spec = json!({
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": HOST, "command": ["sh", "-c", script]}],
        });
        merge(&mut spec, change);
        self.world
            .post(PODS, json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}))
            .await
            .expect(201);
    }

    /// Waits until a pod is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> impl Future<Output = Value> {
        let (server, name, what) = (self.world.server.clone(), name.to_owned(), what.to_owned());
        async move {
            let mut changes = server.subscribe();
            let begun = Instant::now();
            loop {
                let pod = server.object("v1", "pods", "default", &name).map_or(Value::Null, |pod| (*pod).clone());
                if wanted(&pod) {
                    return pod;
                }
                let left = PATIENCE.checked_sub(begun.elapsed()).unwrap_or_default();
                let changed = tokio::time::timeout(left, changes.next()).await;
                assert!(changed.is_ok(), "{name} is not {what}: {:#}", pod["status"]);
            }
        }
    }

    /// Waits until a pod has a phase.
    pub(crate) async fn phase(&self, name: &str, phase: &str) -> Value {
        self.until(name, phase, |pod| pod["status"]["phase"] == phase).await
    }

    /// Returns the log of a pod.
    pub(crate) async fn log(&self, name: &str, query: &str) -> String {
        let answer = self.world.get(&format!("{PODS}/{name}/log?{query}")).await;
        assert_eq!(answer.code, 200, "{}", answer.text);
        answer.text
    }

    /// Waits until the log of a pod contains a text.
    pub(crate) async fn until_log(&self, name: &str, text: &str) {
        let begun = Instant::now();
        while !self.log(name, "").await.contains(text) {
            assert!(begun.elapsed() < PATIENCE, "the log of {name} has no {text:?}");
            tokio::task::yield_now().await;
        }
    }

    /// Serves the cluster for `kubectl`.
    pub(crate) async fn serve(&self) -> Kubectl {
        let serving = self.world.server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let config = self.directory.path().join("kubeconfig");
        std::fs::write(&config, self.world.server.kubeconfig(serving.address(), None)).unwrap();
        Kubectl { config: config.to_str().unwrap().to_owned(), serving }
    }
}

/// The pods of the namespace `default`.
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(change)) if into.len() == 1 && change.len() == 1 => {
            for change in change {
                merge(&mut into[0], change);
            }
        }
        (into, change) => *into = change,
    }
}

/// The real `kubectl`.
pub(crate) struct Kubectl {
    config: String,
    serving: Serving,
}

impl Kubectl {
    /// Returns the registry host for image references.
    pub(crate) fn host(&self) -> String {
        self.serving.address().to_string()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = isolated("kubectl");
        // The discovery cache is keyed by host and port in the home directory. Another cluster may reuse the port.
        command.env("KUBECONFIG", &self.config).env("HOME", self.config.trim_end_matches("kubeconfig")).args(args);
        command
    }

    /// Runs `kubectl` and returns its output. Fails on an error.
    pub(crate) async fn run(&self, args: &[&str]) -> String {
        let output = self.output(args).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "kubectl {args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) async fn output(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let ended = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        ended.expect("kubectl is installed: apt-get install -y kubernetes-client")
    }
}

/// Whether a process lives.
pub(crate) fn lives(process: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(process.trim()).join("stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.trim_start().starts_with('Z'))
}

/// Polls until a condition without an event holds.
pub(crate) async fn eventually(what: &str, check: impl Fn() -> bool) {
    let begun = Instant::now();
    while !check() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
