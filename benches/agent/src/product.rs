//! Parameters of the benchmark from the product.

use std::{net::SocketAddr, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Parameters from the measured program, which also runs the benchmark.
#[derive(Clone, Debug)]
pub struct Product {
    /// The agent's CRDs in the order of their application.
    pub definitions: Vec<CustomResourceDefinition>,
    /// The CRDs of events.
    pub event_definitions: Vec<CustomResourceDefinition>,
    /// Host image of the builder in a cluster of `mainstay dev`.
    pub builder_image: &'static str,
    /// Builds the registry Secret of Functions from the registry's address and a token as password.
    pub registry_secret: fn(&str, &str) -> Value,
    /// Builds the webhook configurations for an agent at an address.
    pub webhooks: fn(SocketAddr) -> Vec<Value>,
    /// Returns the identity of the agent that owns a GitSync, from the Leases of shards and its namespace and name. Leases
    /// that have expired do not count.
    pub shard_holder: fn(&[Value], &str, &str) -> Option<String>,
    /// Whether the agent of a Lease of a shard has published a set of agents in which it owns a GitSync of a namespace and
    /// name. A Lease that has expired counts, too.
    pub shard_claims: fn(&Value, &str, &str) -> bool,
    /// Returns the package directories of Node.js and Python, with Express and Bottle. Downloads them if they are
    /// missing. The error tells how to fix it.
    pub libraries: fn() -> Result<[PathBuf; 2], String>,
}
