//! Functions in a [`World`] that are built by real processes, kept in a real registry and answer over HTTP.

use std::time::Duration;

use devcluster::{NodeOptions, Options, RegistryOptions, Server, Serving};
use mainstay::api::build::TERMINATION_LOG_ENV;
use serde_json::Value;
use tempfile::TempDir;

use super::world::{NAMESPACE, World};

/// Image whose programs are those of this machine, and the program under test.
const BUILDER: &str = "builder:tests";
/// Password of the embedded registry.
pub(crate) const REGISTRY_PASSWORD: &str = "open-sesame-of-the-registry";
/// How long builds may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_mins(4);
/// How long a Function may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Between two looks at what makes no event.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// What real pods run on.
pub(crate) struct Machine {
    _serving: Serving,
    _directory: TempDir,
}

impl World {
    /// A world whose Functions are built and run as processes, with a registry for its namespace.
    pub(crate) async fn with_processes() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let own = env!("CARGO_BIN_EXE_mainstay").into();
        let mut node = NodeOptions::new(directory.path().join("node")).host_image(BUILDER, [("mainstay".into(), own)]);
        let variables = [
            ("FUNC_HOST", "{podIP}"),
            (TERMINATION_LOG_ENV, "{terminationLog}"),
            ("MAINSTAY_PACKAGE_REGISTRY", "/package-registry"),
        ];
        node.env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let registry = Some(RegistryOptions { directory: directory.path().join("images") });
        let server = Server::new(Options { node: Some(node), registry, ..Options::default() });
        let address = "127.0.0.1:0".parse().unwrap();
        let serving = server.serve(address, Some(REGISTRY_PASSWORD.to_owned())).await.unwrap();
        let mut world = Self::of(server);
        BUILDER.clone_into(&mut world.functions.builder_image);
        world.patience = PATIENCE;
        world.registry_for(NAMESPACE, &serving.address().to_string(), "mainstay", REGISTRY_PASSWORD);
        world.machine = Some(Machine { _serving: serving, _directory: directory });
        world
    }

    /// What a Function answers: the status and the body; why not, when it does not.
    pub(crate) async fn call(&self, name: &str) -> String {
        let urls = self.server.service_urls(NAMESPACE, name);
        let Some(url) = urls.first() else { return "there is no Service".to_owned() };
        // Fails only when a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(ANSWER).build().unwrap();
        match client.get(url).send().await {
            Ok(response) => {
                let status = response.status().as_u16();
                format!("{status} {}", response.text().await.unwrap_or_default())
            }
            Err(error) => error.to_string(),
        }
    }

    /// Waits until a Function answers this, status and body.
    pub(crate) async fn answers(&self, name: &str, expected: &str) {
        let mut last = String::new();
        let answered = async {
            loop {
                last = self.call(name).await;
                if last == expected {
                    return;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let outcome = tokio::time::timeout(self.patience, answered).await;
        assert!(outcome.is_ok(), "{name} answers {last:?} and not {expected:?}");
    }

    /// Names of objects of Functions that have no Function any more, and of those that there are twice.
    pub(crate) fn strays(&self) -> Vec<String> {
        use super::functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, PODS, SERVICES};
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
