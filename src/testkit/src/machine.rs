//! Functions in a [`World`] that real processes build and serve, with a running registry.

use std::{io::Read as _, path::Path, time::Duration};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::{Cluster as EmbeddedCluster, NodeOptions, Options, RegistryOptions, Serving};
use mainstay_api::build::TERMINATION_LOG_ENV;
use mainstay_function::runtimes::libraries::VARIABLE as LIBRARIES;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, SERVICES},
    libraries, logs,
    world::{NAMESPACE, World},
};

/// Image with the programs of this machine and the program under test.
const BUILDER: &str = "builder:tests";
/// Password of the embedded registry.
pub const REGISTRY_PASSWORD: &str = "open-sesame-of-the-registry";
/// Timeout of builds on a busy machine.
const PATIENCE: Duration = Duration::from_mins(4);
/// Timeout of a Function's response.
const ANSWER: Duration = Duration::from_secs(10);
/// Polling interval for changes without events.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The node and registry of real pods.
pub struct Machine {
    serving: Serving,
    directory: TempDir,
}

impl Machine {
    /// Returns the directory of the node's data.
    pub fn node(&self) -> std::path::PathBuf {
        self.directory.path().join("node")
    }

    /// Returns the directory of the registry's images.
    pub fn images(&self) -> std::path::PathBuf {
        self.directory.path().join("images")
    }

    /// Returns `127.0.0.1:PORT` of the registry, as in image names.
    pub fn registry(&self) -> String {
        self.serving.address().to_string()
    }

    /// Returns the running processes of the node's pods.
    pub fn processes(&self) -> Vec<String> {
        let node = self.node();
        carriers(&node)
    }
}

/// Returns the command lines of processes with a path in their environment.
fn carriers(path: &Path) -> Vec<String> {
    let (own, text) = (std::process::id().to_string(), path.to_str().unwrap());
    let entries = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| entry.file_name() != *own);
    let carriers = entries.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(text)
    });
    carriers.map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

impl World {
    /// Returns a world whose Functions are built and run as processes, with a registry for its namespace.
    pub async fn with_processes() -> Self {
        Self::with_node(|_| {}).await
    }

    /// Returns such a world with changed node options.
    pub async fn with_node(change: impl FnOnce(&mut NodeOptions)) -> Self {
        Self::with_node_and(change, |_| {}).await
    }

    /// Returns such a world with changed options of node and cluster.
    pub async fn with_node_and(
        change: impl FnOnce(&mut NodeOptions),
        change_cluster: impl FnOnce(&mut Options),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = crate::program::executable().into();
        let mut node = NodeOptions::new(directory.path().join("node")).host_image(BUILDER, [("mainstay".into(), own)]);
        let variables = [
            ("FUNC_HOST", "{podIP}"),
            ("FUNC_DRAIN_DELAY", "0"),
            (TERMINATION_LOG_ENV, "{terminationLog}"),
            ("MAINSTAY_PACKAGE_REGISTRY", "/package-registry"),
        ];
        node.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        node.host_env = vec![(LIBRARIES.to_owned(), libraries::place().to_owned())];
        change(&mut node);
        let registry = Some(RegistryOptions { directory: directory.path().join("images") });
        let mut options = Options { node: Some(node), registry, ..Options::default() };
        change_cluster(&mut options);
        let server = EmbeddedCluster::new(options);
        let address = "127.0.0.1:0".parse().unwrap();
        let serving = server.serve(address, Some(REGISTRY_PASSWORD.to_owned())).await.unwrap();
        let mut world = Self::of(server);
        BUILDER.clone_into(&mut world.functions.builder_image);
        world.patience = PATIENCE;
        world.registry_for(NAMESPACE, &serving.address().to_string(), "mainstay", REGISTRY_PASSWORD);
        world.machine = Some(Machine { serving, directory });
        world
    }

    /// Returns the node and registry of the world's pods.
    pub fn machine(&self) -> &Machine {
        self.machine.as_ref().unwrap()
    }

    /// Calls a Function. Returns status and body, or the error.
    pub async fn call(&self, name: &str) -> String {
        self.call_in(NAMESPACE, name).await
    }

    /// Calls a Function in another namespace. `name` may end with a path.
    pub async fn call_in(&self, namespace: &str, name: &str) -> String {
        self.call_in_within(namespace, name, ANSWER).await
    }

    /// Calls a Function with this timeout.
    pub async fn call_within(&self, name: &str, patience: Duration) -> String {
        self.call_in_within(NAMESPACE, name, patience).await
    }

    async fn call_in_within(&self, namespace: &str, name: &str, patience: Duration) -> String {
        let (name, path) = name.split_once('/').unwrap_or((name, ""));
        let urls = self.server.embedded().service_urls(namespace, name);
        let Some(url) = urls.first() else { return "there is no Service".to_owned() };
        let url = format!("{}/{path}", url.trim_end_matches('/'));
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(patience).build().unwrap();
        match client.get(url).send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                format!("{status} {}", response.text().await.unwrap_or_default())
            }
            Err(error) => error.to_string(),
        }
    }

    /// Waits until a Function responds with this status and body.
    pub async fn answers(&self, name: &str, expected: &str) {
        self.answers_in(NAMESPACE, name, expected).await;
    }

    /// Waits until a Function in another namespace responds with this status and body.
    pub async fn answers_in(&self, namespace: &str, name: &str, expected: &str) {
        let mut last = String::new();
        let answered = async {
            loop {
                last = self.call_in(namespace, name).await;
                if last == expected {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let outcome = tokio::time::timeout(self.patience, answered).await;
        assert!(outcome.is_ok(), "{name} answers {last:?} and not {expected:?}");
    }

    /// Creates a Secret in the namespace with these entries.
    pub fn secret(&self, name: &str, data: Value) {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        self.create("v1", "secrets", NAMESPACE, secret);
    }

    /// Returns where a secret string appears: in objects that are not Secrets, in logs since [`logs::keep`], in files
    /// of pods, and in images.
    pub fn whereabouts(&self, text: &str) -> Vec<String> {
        let words = [text.to_owned(), BASE64_STANDARD.encode(text)];
        let has = |bytes: &[u8]| {
            let bytes = String::from_utf8_lossy(bytes);
            words.iter().any(|word| bytes.contains(word))
        };
        let functions = "serverless.kyma-project.io/v1alpha1";
        let kinds =
            [("v1", "events"), (functions, "functions"), (functions, "gitrepositories"), ("apps/v1", "replicasets")];
        let mut found = Vec::new();
        for (version, resource) in
            kinds.into_iter().chain([CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, AUTOSCALERS, PODS])
        {
            for object in self.server.objects(version, resource, None) {
                if has(object.to_string().as_bytes()) {
                    found.push(format!("{resource} {}", object["metadata"]["name"]));
                }
            }
        }
        if has(logs::text().as_bytes()) {
            found.push("the log".to_owned());
        }
        let mut open = vec![self.machine().node(), self.machine().images()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    open.push(entry.path());
                } else if kind.is_file() {
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    let mut plain = Vec::new();
                    // This fails for uncompressed files, whose bytes are searched as they are.
                    let _ = flate2::read::MultiGzDecoder::new(&*bytes).read_to_end(&mut plain);
                    if has(&bytes) || has(&plain) {
                        found.push(entry.path().display().to_string());
                    }
                }
            }
        }
        found
    }

    /// Returns the names of children without a Function, and of duplicate children.
    pub fn strays(&self) -> Vec<String> {
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        let functions = self.server.objects("serverless.kyma-project.io/v1alpha1", "functions", None);
        let functions = functions.iter().map(|function| uid(function)).collect::<Vec<_>>();
        let mut strays = Vec::new();
        for (version, resource) in [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, AUTOSCALERS, PODS] {
            let all = self.server.objects(version, resource, None);
            let ours = |object: &Value| object["metadata"]["labels"]["serverless.kyma-project.io/uuid"].is_string();
            let mut owners = Vec::new();
            for object in all.iter().filter(|object| ours(object)) {
                let owner = &object["metadata"]["labels"]["serverless.kyma-project.io/uuid"];
                if !functions.contains(owner) || (resource != "pods" && owners.contains(&owner)) {
                    strays.push(format!("{resource} {}", object["metadata"]["name"]));
                }
                owners.push(owner);
            }
        }
        strays
    }
}
