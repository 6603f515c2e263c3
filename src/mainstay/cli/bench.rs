//! `mainstay bench`: prints the agent's resource usage as one Markdown table.
//!
//! Not here: the measurement (the crate `mainstay-bench`), which observes the agent only from outside.

use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Error, Exit, dev, lease, logs, output};
use mainstay_api::names::LEASE;
use mainstay_cluster::shards::{claims, members_of};
use mainstay_function::runtimes::{Language, libraries};

pub(super) use mainstay_bench::Arguments;

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    logs::start(logs::Format::Text, "warn");
    if cfg!(debug_assertions) {
        tracing::warn!("this is a debug build, so the numbers mean little: cargo run --release -- bench");
    }
    let product = mainstay_bench::Product {
        definitions: mainstay_api::definitions(),
        event_definitions: event_definitions().map_err(Error::WriteYaml)?,
        builder_image: dev::BUILDER,
        registry_secret,
        webhooks: |address| dev::webhooks_at(address).unwrap_or_default(),
        shard_holder,
        shard_claims: claims,
        libraries: packages,
    };
    let report = mainstay_bench::run(&product, &arguments).await?;
    output::print(&report.table)?;
    Ok(if report.held { Exit::Fine } else { Exit::Differs })
}

fn event_definitions() -> Result<Vec<CustomResourceDefinition>, serde_yaml::Error> {
    let documents = serde_yaml::Deserializer::from_str(mainstay_eventing::DEFINITIONS);
    documents.map(CustomResourceDefinition::deserialize).collect()
}

fn registry_secret(address: &str, token: &str) -> Value {
    dev::registry_secret(address, token)
}

/// Returns the holder of the Lease of a GitSync's shard.
fn shard_holder(leases: &[Value], namespace: &str, name: &str) -> Option<String> {
    let now = Timestamp::now();
    let held = || leases.iter().filter(move |one| lease::is_held(&one["spec"], now));
    let shard = format!("{LEASE}-{}", members_of(held()).owner(namespace, name, None)?);
    let lease = held().find(|one| one["metadata"]["name"].as_str() == Some(&*shard))?;
    lease["spec"]["holderIdentity"].as_str().map(str::to_owned)
}

fn packages() -> Result<[PathBuf; 2], String> {
    let place = libraries::place(std::env::var_os(libraries::VARIABLE).map(PathBuf::from));
    let fetch = |language| libraries::fetch(language, &place).map_err(|error| error.to_string());
    Ok([fetch(Language::NodeJs)?, fetch(Language::Python)?])
}
