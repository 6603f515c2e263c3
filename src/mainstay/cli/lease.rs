//! The agent's Lease: its namespace, and the leading agent.

use jiff::Timestamp;
use serde_json::Value;

use super::{Error, connection::DEFAULT_NAMESPACE, lease_identity};
use mainstay_api::names;
use mainstay_cluster::{Cluster, Kind, Scope};
use mainstay_console::Agent;

/// Returns the kind of Leases.
pub(super) fn kind() -> Kind {
    Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced)
}

/// The agent's Lease.
#[derive(Debug)]
pub(super) struct Lease {
    /// The Lease's namespace.
    pub(super) namespace: String,
    /// The leading agent, if any.
    pub(super) holder: Option<String>,
    /// The version of that agent, if known.
    pub(super) version: Option<String>,
}

impl Lease {
    /// Finds the Lease in the namespace `named`. If no agent leads in the default namespace, uses the kubeconfig's
    /// namespace, as `mainstay dev` does.
    pub(super) async fn find(cluster: &Cluster, named: &str) -> Result<Self, Error> {
        let own = cluster.default_namespace();
        let others = (named == DEFAULT_NAMESPACE && own != named).then_some(own);
        for namespace in [named].into_iter().chain(others.as_deref()) {
            let lease = cluster.get(&kind(), Some(namespace), names::LEASE).await?.unwrap_or_default();
            if is_held(&lease["spec"], Timestamp::now()) {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                return Ok(Self {
                    namespace: namespace.to_owned(),
                    holder: text(&lease["spec"]["holderIdentity"]),
                    version: text(&lease["metadata"]["annotations"][names::VERSION]),
                });
            }
        }
        Ok(Self { namespace: named.to_owned(), holder: None, version: None })
    }

    /// Returns whether the agent is part of a running `mainstay dev`, and has no pod.
    pub(super) fn is_of_dev(&self) -> bool {
        self.holder.as_deref() == Some(lease_identity::DEV)
    }
}

/// Returns whether an agent leads, as far as the user may know: in the default namespace, or in the kubeconfig's.
pub(super) async fn agent(cluster: &Cluster) -> Agent {
    let own = cluster.default_namespace();
    let mut last: Option<Timestamp> = None;
    for namespace in [DEFAULT_NAMESPACE].into_iter().chain((own != DEFAULT_NAMESPACE).then_some(&*own)) {
        let Ok(Some(lease)) = cluster.get(&kind(), Some(namespace), names::LEASE).await else { continue };
        if is_held(&lease["spec"], Timestamp::now()) {
            return Agent::Leads;
        }
        last = last.max(lease["spec"]["renewTime"].as_str().and_then(|time| time.parse().ok()));
    }
    last.map_or(Agent::Unknown, Agent::Away)
}

/// Returns whether the `spec` of a Lease has a holder and has not expired.
pub(super) fn is_held(spec: &Value, now: Timestamp) -> bool {
    let holder = spec["holderIdentity"].as_str().unwrap_or_default();
    let renewed = spec["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let length = spec["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let Some(renewed) = renewed.filter(|_| !holder.is_empty()) else { return false };
    now.as_second().saturating_sub(renewed.as_second()) <= length
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_held_until_it_expires() {
        let now: Timestamp = "2026-01-02T03:04:20Z".parse().unwrap();
        let held = |holder: &str, renewed: &str| {
            is_held(&json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}), now)
        };
        assert!(held("a", "2026-01-02T03:04:05.000000Z"));
        assert!(!held("a", "2026-01-02T03:04:04.000000Z"));
        assert!(!held("", "2026-01-02T03:04:19.000000Z"), "released");
        assert!(!held("a", "never") && !is_held(&Value::Null, now));
    }
}
