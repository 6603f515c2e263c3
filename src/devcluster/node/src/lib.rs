//! A node of an embedded Kubernetes cluster: pods as processes of this machine, an image registry, and a gateway.
//!
//! [`Node`] is a kubelet for [`devcluster_apiserver`]. It runs the containers of pods whose images it has ([`pods`]),
//! and serves their logs and commands in them. [`registry`] stores images as OCI image layouts and serves the OCI
//! distribution API beside the Kubernetes API. [`gateway`] routes external requests to Services.
//!
//! Invariant: no process outlives the node.
//!
//! Not here: isolation of containers (namespaces, cgroups, users), and other registries.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod gateway;
#[expect(clippy::disallowed_methods, reason = "pods are processes, with files")]
pub mod pods;
pub mod registry;

pub use gateway::Gateway;
pub use pods::{FrontOptions, HostImage, LOOPBACK, Node, NodeOptions};
pub use registry::{Registry, RegistryOptions};
