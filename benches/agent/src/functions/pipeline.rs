//! A cluster with pods as processes and a registry: Functions are really built and run.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};

use super::{
    Error,
    embedded::Embedded,
    git_server::HttpServer,
    load::{self, Load, MEMORY},
    observer::{Observer, Seen},
    readiness, servers,
    stand::{DEADLINE, NAMESPACE, Stand},
};
use crate::{
    Product,
    api::{DEPLOYMENT, FUNCTION_NAME, Function, GitRepository, RESOURCE, Runtime},
};

/// Port of the runtime servers.
const PORT: u16 = 8080;
/// Interval of polling the registry for an image.
const LOOK: Duration = Duration::from_millis(5);

/// The cluster with its agent, a Git server, and observers of Functions and build pods.
pub(super) struct Pipeline {
    pub stand: Stand,
    pub load: Load,
    pub git: HttpServer,
    pub functions: Observer,
    pub builds: Observer,
    registry: String,
    /// The registry's token.
    token: String,
}

impl Pipeline {
    /// Starts the cluster and the agent. The Git repository contains one Function with dependencies.
    pub(super) async fn start(product: &Product) -> Result<Self, Error> {
        let mut stand = Stand::start(product, None, MEMORY).await?;
        let Embedded { url: registry, token } = stand.server.clone().ok_or(Error::NotStarted)?;
        stand.set("MAINSTAY_BUILDER_IMAGE", product.builder_image);
        stand.set("MAINSTAY_BASE_IMAGES", r#"{"*":"scratch"}"#);
        let address = registry.rsplit('/').next().unwrap_or_default().to_owned();
        stand.apply_named::<Secret>(&(product.registry_secret)(&address, &token)).await?;
        let load = Load::with_dependency(&stand.directory().join("repository"))?;
        let git = HttpServer::start(stand.directory()).await?;
        stand.apply::<GitRepository>(load::REPOSITORY, &load::repository(&git.url("repository"))).await?;
        let functions = Observer::start(Api::namespaced(stand.client.clone(), NAMESPACE), readiness::ready).await?;
        let builds = Observer::start(Api::namespaced(stand.client.clone(), NAMESPACE), build_pod).await?;
        stand.start_agent().await?;
        Ok(Self { stand, load, git, functions, builds, registry, token })
    }

    /// Applies an inline Function. Returns the time before the request.
    pub(super) async fn inline(&self, name: &str, runtime: Runtime, word: &str) -> Result<Instant, Error> {
        let start = Instant::now();
        self.stand.apply::<Function>(name, &inline(name, runtime, word)).await?;
        Ok(start)
    }

    /// Waits until a Function is ready in its present generation.
    pub(super) async fn ready(&mut self, name: &str) -> Result<(), Error> {
        let function = self.function(name).await?;
        let Some(state) = readiness::wanted(&function) else { return Err(Error::NotStarted) };
        if readiness::ready(function).is_some_and(|seen| seen.state == state) {
            return Ok(());
        }
        self.functions.all(HashMap::from([(name.to_owned(), state)]), DEADLINE).await.map(drop)
    }

    async fn function(&self, name: &str) -> Result<Function, Error> {
        Api::namespaced(self.stand.client.clone(), NAMESPACE).get(name).await.map_err(Error::Ask)
    }

    /// Returns the number of a Function's tags in the registry.
    pub(super) async fn tags(&self, client: &reqwest::Client, name: &str) -> Result<usize, Error> {
        let url = format!("{}/v2/{NAMESPACE}-{name}/tags/list", self.registry);
        let answer = client.get(url).bearer_auth(&self.token).send().await.map_err(Error::Registry)?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(0);
        }
        let text = answer.text().await.map_err(Error::Registry)?;
        let list: Value = serde_json::from_str(&text).map_err(Error::Counts)?;
        Ok(list["tags"].as_array().map_or(0, Vec::len))
    }

    /// Waits until the registry has this many images of a Function. Returns the time.
    pub(super) async fn pushed(&self, client: &reqwest::Client, name: &str, count: usize) -> Result<Instant, Error> {
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if self.tags(client, name).await? >= count {
                return Ok(Instant::now());
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Error::NotReached { missing: 1, seconds: DEADLINE.as_secs() })
    }

    /// Returns the duration of a Function's next build pod, from its first event to its success.
    pub(super) async fn build(&mut self, name: &str) -> Result<Duration, Error> {
        let moment = |state: &str| HashMap::from([(name.to_owned(), state.to_owned())]);
        let start = self.builds.all(moment("Pending"), DEADLINE).await?;
        let end = self.builds.all(moment("Succeeded"), DEADLINE).await?;
        let (start, end) = (start.into_values().next(), end.into_values().next());
        Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end.saturating_duration_since(start)))
    }

    /// Returns the URL of a Function's Service.
    pub(super) async fn service(&self, name: &str) -> Result<String, Error> {
        let services = Api::<Service>::namespaced(self.stand.client.clone(), NAMESPACE);
        let service = services.get(name).await.map_err(Error::Ask)?;
        if let Some(url) = service.annotations().get("devcluster.dev/url") {
            return Ok(url.clone());
        }
        let spec = service.spec.unwrap_or_default();
        let port = spec.ports.and_then(|ports| ports.first().map(|port| port.port)).unwrap_or(80);
        Ok(format!("http://{}:{port}/", spec.cluster_ip.unwrap_or_default()))
    }

    /// Returns the URL of a Function's serving pod.
    pub(super) async fn pod(&self, name: &str) -> Result<String, Error> {
        let pods = Api::<Pod>::namespaced(self.stand.client.clone(), NAMESPACE);
        let labels = format!("{FUNCTION_NAME}={name},{RESOURCE}={DEPLOYMENT}");
        let list = pods.list(&ListParams::default().labels(&labels)).await.map_err(Error::Ask)?;
        let mut serving = list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let address = serving.find_map(|pod| pod.status?.pod_ip).ok_or(Error::NotStarted)?;
        Ok(format!("http://{address}:{PORT}/"))
    }
}

fn inline(name: &str, runtime: Runtime, word: &str) -> Value {
    let comment = if runtime == Runtime::Python { '#' } else { '/' };
    let source = format!("{comment}{comment} {word}\n{}", servers::hello(runtime));
    json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
        "metadata": { "name": name },
        "spec": { "source": source, "runtime": runtime.name(), "minReplicas": 1, "maxReplicas": 1 },
    })
}

/// The phase of a build pod, by the name of its Function.
fn build_pod(pod: Pod) -> Option<Seen> {
    let labels = pod.metadata.labels?;
    labels.contains_key("batch.kubernetes.io/job-name").then_some(())?;
    let name = labels.get(FUNCTION_NAME)?.clone();
    Some(Seen { name, state: pod.status?.phase.unwrap_or_else(|| "Pending".into()) })
}
