//! An embedded Kubernetes cluster for local work and tests.
//!
//! A [`Cluster`] consists of an API server ([`devcluster_apiserver`]), the controllers that a rollout needs
//! ([`devcluster_controllers`]) and optionally a node with an image registry ([`devcluster_node`]). The node runs pods
//! as processes. A cluster serves HTTP on loopback and, in process, as a `tower::Service`.
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! let cluster = devcluster::Cluster::new(devcluster::Options::default());
//! drop(cluster.start_controllers()); // they end with the runtime
//! let serving = cluster.serve("127.0.0.1:0".parse().expect("it is an address"), None).await?;
//! std::fs::write("kubeconfig", cluster.kubeconfig(serving.address(), None))?;
//! # Ok(()) }
//! ```
//!
//! Not here: knowledge of the programs that use the cluster.

mod cluster;

pub use cluster::{Cluster, Options};
pub use devcluster_apiserver::access::User;
pub use devcluster_apiserver::{
    Action, Call, Caller, Server, Serving, Simulation, Subscription, fault_injection, history, route, service, status,
    verbs,
};
pub use devcluster_controllers::{knative, service_catalog};
pub use devcluster_node::{
    FrontOptions, Gateway, HostImage, LOOPBACK, NodeOptions, RegistryOptions, gateway, registry,
};
