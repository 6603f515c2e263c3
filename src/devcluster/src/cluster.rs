//! A cluster as one value: an API server, its controllers, and optionally a node and an image registry.
//!
//! A [`Cluster`] dereferences to its API server.
//!
//! Not here: persistence. A cluster lives as long as its last clone.

use std::{ops::Deref, sync::Arc, time::Duration};

use devcluster_apiserver::access::user::Authenticator;
use devcluster_apiserver::kinds::table::Converter;
use devcluster_apiserver::server::{self, Server};
use devcluster_apiserver::status::Status;
use devcluster_apiserver::{Action, Call, Caller};
use devcluster_controllers::knative;
use devcluster_node::{Node, NodeOptions, Registry, RegistryOptions};

/// Settings of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interval of bookmarks on an idle watch that requested them, if other events occurred. Default: 5 s.
    pub bookmark_interval: Duration,
    /// Lifetime of a watch without `timeoutSeconds`. Default: 30 minutes.
    pub watch_timeout: Duration,
    /// How long a read waits for a future resource version. Default: 3 s.
    pub future_wait: Duration,
    /// Maximum number of pods of all workloads; protects the memory from a mistyped replica count. Default: 2 500.
    pub most_pods: usize,
    /// Interval and window of the autoscalers' measurements; unused without a node. Default: 15 s.
    pub autoscaler_interval: Duration,
    /// The image registry below `/v2/`. Default: none.
    pub registry: Option<RegistryOptions>,
    /// Runs pods as processes of this machine. Default: none, all pods are simulated.
    pub node: Option<NodeOptions>,
    /// Whether simulated pods are marked in a condition and in their STATUS column. Default: false, as on a real
    /// cluster.
    pub mark_simulated: bool,
    /// Whether RBAC is enforced. Default: false, every user may do everything. Requests without credentials are the
    /// administrator's either way.
    pub rbac: bool,
    /// Whether the controllers of Knative Serving run; they need [`crate::knative::DEFINITIONS`]. Default: false.
    pub knative: bool,
    /// Converts custom resources with the conversion strategy `Webhook`. Default: none.
    pub converter: Option<Converter>,
    /// Authenticates tokens that another issuer has signed, such as ID tokens of OpenID Connect. Default: none.
    pub authenticator: Option<Authenticator>,
    /// Reason why URLs of webhooks are not called, except those of `permit_webhooks`. Default: none, all are called.
    pub refused_webhooks: Option<&'static str>,
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
            authenticator: None,
            refused_webhooks: None,
        }
    }
}

/// An embedded cluster. Clones are the same cluster.
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
    /// Creates a cluster with the initial objects of a real one.
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
            authenticator,
            refused_webhooks,
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
            authenticator,
            refused_webhooks,
        });
        Self { server, node, images }
    }

    /// Starts the controllers and the node, if there is one. They end with the runtime.
    ///
    /// Needs a running tokio runtime.
    pub fn start_controllers(&self) -> tokio::task::JoinHandle<()> {
        if let Some(node) = &self.node {
            node.start(&self.server);
        }
        devcluster_controllers::start(&self.server)
    }

    /// Installs Knative Serving: its CRDs, settings and webhook configurations. Knative runs only with
    /// [`Options::knative`].
    ///
    /// # Errors
    /// An object cannot be created, for example because it already exists.
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

    /// Returns the URLs on which a Service listens, one per TCP port in the order of its ports. Empty without a node.
    pub fn service_urls(&self, namespace: &str, name: &str) -> Vec<String> {
        self.node.as_ref().map(|node| node.service_urls(namespace, name)).unwrap_or_default()
    }

    /// Notifies when the address of a Service changes; never without a node.
    pub fn service_moves(&self) -> tokio::sync::watch::Receiver<()> {
        self.node.as_ref().map_or_else(|| tokio::sync::watch::channel(()).1, |node| node.service_moves())
    }

    /// Returns the image registry, if there is one.
    pub fn images(&self) -> Option<&Registry> {
        self.images.as_deref()
    }
}
