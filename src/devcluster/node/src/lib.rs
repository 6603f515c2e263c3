//! A node of an embedded Kubernetes cluster: pods as processes of this machine, an image registry, and a gateway.
//!
//! [`Node`] is a kubelet for [`devcluster_apiserver`]: it follows the event log, runs the containers of the pods whose
//! images it has ([`pods`]), and answers for their logs and for commands in them. [`registry`] keeps images as OCI image
//! layouts and serves the OCI distribution API beside the Kubernetes API.
//!
//! [`gateway`] leads requests from outside to its Services.
//!
//! Invariant: no process outlives the node.
//!
//! Deliberately absent: namespaces, cgroups, users and the other walls of a container, and other registries.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod gateway;
#[expect(clippy::disallowed_methods, reason = "pods are processes, with files")]
pub mod pods;
pub mod registry;

pub use gateway::Gateway;
pub use pods::{FrontOptions, HostImage, LOOPBACK, Node, NodeOptions};
pub use registry::{Registry, RegistryOptions};
