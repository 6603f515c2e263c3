//! Finds nodes whose containerd pulls from the in-cluster registry over plain HTTP.
//!
//! containerd before 1.6.33 and 1.7.16 uses plain HTTP for a loopback address, which the registry's guard accepts. So
//! pulls succeed, but logins are sent unencrypted between two nodes. The finding reports this.

use std::{collections::BTreeMap, sync::Arc};

use futures::TryStreamExt as _;
use serde_json::Value;

use super::Finding;
use crate::cli::Error;
use mainstay_api::names::INTERNAL_REGISTRY;
use mainstay_cluster::{Cluster, Kind, Scope, Selection};
use mainstay_object::printable;

/// Maximum number of nodes per version that the finding lists.
const SHOWN: usize = 3;

/// Returns the finding about nodes with an old containerd, if the in-cluster registry exists. Without permission to
/// list nodes, there is no finding.
pub(super) async fn finding(cluster: &Cluster, namespace: &str) -> Result<Option<Finding>, Error> {
    let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
    if cluster.get_metadata(&deployments, Some(namespace), INTERNAL_REGISTRY).await?.is_none() {
        return Ok(None);
    }
    let nodes = Arc::new(Kind::fixed("v1", "Node", "nodes", Scope::Cluster));
    let listed: Result<Vec<Value>, _> = cluster.list(&nodes, Selection::default()).try_collect().await;
    match listed {
        Ok(nodes) => Ok(text(&nodes).map(Ok)),
        Err(error) if error.is_forbidden() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn text(nodes: &[Value]) -> Option<String> {
    let mut old: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
        if let Some(version) = runtime.strip_prefix("containerd://").filter(|version| speaks_plain_http(version)) {
            old.entry(version).or_default().push(node["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
    let of_version = |(version, nodes): (&str, Vec<&str>)| {
        let more = if nodes.len() > SHOWN { format!(" and {} more", nodes.len() - SHOWN) } else { String::new() };
        format!("{} on {}{more}", printable(version), printable(&nodes[..nodes.len().min(SHOWN)].join(", ")))
    };
    let versions: Vec<String> = old.into_iter().map(of_version).collect();
    (!versions.is_empty()).then(|| {
        format!(
            "containerd {} pulls the images of Functions over plain HTTP, so their login is not encrypted between nodes; 1.6.33, 1.7.16 \
             and later use TLS",
            versions.join("; ")
        )
    })
}

/// Returns whether a version of containerd uses plain HTTP for a loopback address. Distributions append a suffix to the
/// version.
fn speaks_plain_http(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok()
    });
    match (numbers.next().flatten(), numbers.next().flatten(), numbers.next().flatten()) {
        (Some(1), Some(6), Some(patch)) => patch < 33,
        (Some(1), Some(7), Some(patch)) => patch < 16,
        (Some(major), Some(minor), _) => (major, minor) < (1, 6),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_each_node_whose_containerd_speaks_plain_http() {
        let node = |name: &str, runtime: &str| json!({"metadata": {"name": name}, "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}});
        for new in [
            "containerd://1.6.33",
            "containerd://1.7.16-k3s1",
            "containerd://2.1.0",
            "cri-o://1.6.1",
            "containerd://",
            "",
        ] {
            assert_eq!(text(&[node("a", new)]), None, "{new}");
        }
        for old in ["1.6.20~ds1", "1.6.32", "1.7.15", "1.5.9", "1.7.0-rc.1"] {
            let said = text(&[node("a", &format!("containerd://{old}"))]).unwrap();
            assert!(said.starts_with(&format!("containerd {old} on a pulls the images")), "{said}");
        }
        let many: Vec<Value> = ["a", "b", "c", "d", "e"].map(|name| node(name, "containerd://1.6.20")).into();
        let said =
            text(&[&many[..], &[node("f", "containerd://1.7.2"), node("g", "containerd://2.0.0")]].concat()).unwrap();
        assert!(said.starts_with("containerd 1.6.20 on a, b, c and 2 more; 1.7.2 on f pulls "), "{said}");
    }
}
