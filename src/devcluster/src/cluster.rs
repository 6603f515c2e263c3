//! The whole cluster as one value: an API server, its controllers, and what runs pods and keeps images if that is wanted.
//!
//! A [`Cluster`] can do everything that its API server can do, which it dereferences to.
//!
//! Deliberately absent: persistence: a cluster lives as long as its last clone.

use std::{ops::Deref, sync::Arc, time::Duration};

use devcluster_apiserver::kinds::table::Converter;
use devcluster_apiserver::server::{self, Server};
use devcluster_apiserver::status::Status;
use devcluster_apiserver::{Action, Call, Caller};
use devcluster_controllers::knative;
use devcluster_node::{Node, NodeOptions, Registry, RegistryOptions};

/// How a cluster behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often an idle watch that asked for bookmarks gets one, if anything happened; 5 s.
    pub bookmark_interval: Duration,
    /// How long a watch without `timeoutSeconds` stays open; 30 minutes.
    pub watch_timeout: Duration,
    /// How long a read waits for a resource version of the future; 3 s.
    pub future_wait: Duration,
    /// Pods of all workloads together, so that a mistyped replica count does not fill the memory; 2 500.
    pub most_pods: usize,
    /// How often autoscalers measure the pods of their targets, and over which time; 15 s. Without a node nothing is measured.
    pub autoscaler_interval: Duration,
    /// The image registry below `/v2/`; none.
    pub registry: Option<RegistryOptions>,
    /// Runs pods as processes of this machine; absent: every pod is simulated.
    pub node: Option<NodeOptions>,
    /// Whether pods that only seem to run say so in a condition and in their column STATUS; false, as on a real cluster.
    pub mark_simulated: bool,
    /// Whether roles and bindings decide what users may do; false: everyone may do everything. Whoever brings no
    /// credentials is the administrator either way.
    pub rbac: bool,
    /// Whether the controllers of Knative Serving run where its definitions ([`crate::knative::DEFINITIONS`]) are applied; false.
    pub knative: bool,
    /// Converts objects of definitions with the strategy `Webhook`; none.
    pub converter: Option<Converter>,
}

impl Default for Options {
    fn default() -> Self {
        let server::Options {
            bookmark_interval,
            watch_timeout,
            future_wait,
            most_pods,
            autoscaler_interval,
            mark_simulated,
            rbac,
            knative,
            ..
        } = server::Options::default();
        Self {
            bookmark_interval,
            watch_timeout,
            future_wait,
            most_pods,
            autoscaler_interval,
            registry: None,
            node: None,
            mark_simulated,
            rbac,
            knative,
            converter: None,
        }
    }
}

/// A cluster; clones are the same cluster.
#[derive(Clone, Debug)]
pub struct Cluster {
    server: Server,
    node: Option<Arc<Node>>,
    images: Option<Arc<Registry>>,
}

impl Deref for Cluster {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Cluster {
    /// A cluster with the initial objects of a real one.
    pub fn new(options: Options) -> Self {
        let Options {
            bookmark_interval,
            watch_timeout,
            future_wait,
            most_pods,
            autoscaler_interval,
            registry,
            node,
            mark_simulated,
            rbac,
            knative,
            converter,
        } = options;
        let images = registry.map(|options| Arc::new(Registry::new(options)));
        let node = node.map(|options| Arc::new(Node::new(options, images.clone())));
        let server = Server::new(server::Options {
            bookmark_interval,
            watch_timeout,
            future_wait,
            most_pods,
            autoscaler_interval,
            mark_simulated,
            rbac,
            knative,
            webhook: knative.then_some(devcluster_controllers::knative::admission::answer),
            service_network: node.as_ref().map(|node| node.services()),
            kubelet: node.clone().map(|node| node as _),
            extension: images.clone().map(|images| images as _),
            converter,
        });
        Self { server, node, images }
    }

    /// Starts the controllers, and the node if there is one; they end with the runtime. Needs a running tokio runtime.
    pub fn start_controllers(&self) -> tokio::task::JoinHandle<()> {
        if let Some(node) = &self.node {
            node.start(&self.server);
        }
        devcluster_controllers::start(&self.server)
    }

    /// Installs Knative Serving: its definitions, its settings and what has its webhooks asked. It runs only with [`Options::knative`].
    ///
    /// # Errors
    /// Something of it cannot be created, because it is there already.
    pub fn install_knative(&self) -> Result<(), Status> {
        let documents = [knative::DEFINITIONS, knative::SETUP].into_iter().flat_map(|all| all.split("\n---\n"));
        for document in documents {
            let object: serde_json::Value =
                serde_yaml::from_str(document).map_err(|error| Status::new(500, "InternalError", error.to_string()))?;
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let plural = format!("{}s", text("kind").to_lowercase());
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let call = Call::new(&text("apiVersion"), &plural, &namespace, "", Action::Create(object));
            self.server.call(&Caller::new("knative"), call)?;
        }
        Ok(())
    }

    /// Where a Service is listened on, a URL per TCP port in the order of its ports; empty without a node.
    pub fn service_urls(&self, namespace: &str, name: &str) -> Vec<String> {
        self.node.as_ref().map(|node| node.service_urls(namespace, name)).unwrap_or_default()
    }

    /// Changes whenever a Service is listened on elsewhere than before; never without a node.
    pub fn service_moves(&self) -> tokio::sync::watch::Receiver<()> {
        self.node.as_ref().map_or_else(|| tokio::sync::watch::channel(()).1, |node| node.service_moves())
    }

    /// The image registry, if there is one.
    pub fn images(&self) -> Option<&Registry> {
        self.images.as_deref()
    }
}
