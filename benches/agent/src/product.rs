//! The parameters that the measuring program gets from the product.

use std::{net::SocketAddr, path::PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// Parameters from the program that runs the measurement and is measured.
#[derive(Clone, Debug)]
pub struct Product {
    /// The definitions that the agent needs, in the order to apply them.
    pub definitions: Vec<CustomResourceDefinition>,
    /// Image whose programs are those of this machine, in a cluster of `mainstay dev`.
    pub builder_image: &'static str,
    /// Makes the Secret that leads Functions to the registry at an address, with a token as its password.
    pub registry_secret: fn(&str, &str) -> Value,
    /// The webhook configurations that lead to the agent at an address.
    pub webhooks: fn(SocketAddr) -> Vec<Value>,
    /// Where the packages of Node.js and of Python are that Functions have, Express and Bottle among them; fetched unless
    /// they are there. The text of a failure says what to do.
    pub libraries: fn() -> Result<[PathBuf; 2], String>,
}
