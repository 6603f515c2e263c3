//! An embedded Kubernetes cluster for local work and tests.
//!
//! A [`Cluster`] is an API server ([`devcluster_apiserver`]) with the controllers that are needed to see a rollout
//! ([`devcluster_controllers`]) and, if that is wanted, a node that runs pods as processes, with an image registry
//! ([`devcluster_node`]). It serves HTTP on loopback and, in process, as a `tower::Service`.
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
//! Deliberately absent: any knowledge of the programs that are tried on it.

mod cluster;

pub use cluster::{Cluster, Options};
pub use devcluster_apiserver::{
    Action, Call, Caller, Server, Serving, Simulation, Subscription, fault_injection, history, route, service, status,
    verbs,
};
pub use devcluster_controllers::{knative, service_catalog};
pub use devcluster_node::{
    FrontOptions, Gateway, HostImage, LOOPBACK, NodeOptions, RegistryOptions, gateway, registry,
};
