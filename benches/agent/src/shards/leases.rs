//! Watches the Leases of shards: the agent that holds each, and the set of agents by which that agent works.

use std::{collections::HashMap, time::Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::WatchParams};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinHandle};

use super::watch::follow;

/// Selector of the Leases of shards.
pub(super) const SELECTOR: &str = "mainstay.dev/shard-lease=member";
/// Annotation with the set of agents by which the agent of a Lease works.
const VIEW: &str = "mainstay.dev/shard-view";

/// A state of a Lease that differs from the one before in more than its renewal.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub at: Instant,
    pub lease: Value,
}

impl Shown {
    /// Returns the name of the Lease.
    pub(super) fn name(&self) -> &str {
        self.lease["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the identity of the agent that holds the Lease; empty if it is released.
    pub(super) fn holder(&self) -> &str {
        self.lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
    }

    /// Whether the agent has published a set of agents. A process that has just started has not.
    pub(super) fn has_view(&self) -> bool {
        self.lease["metadata"]["annotations"][VIEW].is_string()
    }
}

/// The watch. It ends when this is dropped.
pub(super) struct Leases {
    events: mpsc::UnboundedReceiver<Shown>,
    task: JoinHandle<()>,
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Leases {
    /// Starts watching.
    pub(super) fn start(api: Api<Lease>) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let mut known = HashMap::new();
        let read = move |lease: Lease, is_there: bool| {
            let lease = serde_json::to_value(lease).ok().filter(|_| is_there)?;
            is_new(&mut known, &lease).then(|| Shown { at: Instant::now(), lease })
        };
        let selected = WatchParams::default().labels(SELECTOR);
        Self { events, task: tokio::spawn(follow(api, selected, String::new(), sender, read)) }
    }

    /// Returns the states since the last call, in order.
    pub(super) fn take(&mut self) -> Vec<Shown> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }
}

/// Whether a state differs from the last one of this Lease in more than its renewal.
fn is_new(known: &mut HashMap<String, Value>, lease: &Value) -> bool {
    let name = lease["metadata"]["name"].as_str().unwrap_or_default();
    let state = json!([lease["spec"]["holderIdentity"], lease["metadata"]["annotations"]]);
    if known.get(name) == Some(&state) {
        return false;
    }
    known.insert(name.to_owned(), state);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_is_no_new_state() {
        let lease = |name: &str, holder: &str, view: &str, renewed: u64| {
            json!({
                "metadata": {"name": name, "annotations": {"view": view}},
                "spec": {"holderIdentity": holder, "renewTime": renewed},
            })
        };
        let mut known = HashMap::new();
        for (is_expected, lease) in [
            (true, lease("shard-0", "one", "a", 1)),
            (false, lease("shard-0", "one", "a", 2)),
            (true, lease("shard-1", "one", "a", 2)),
            (true, lease("shard-0", "one", "b", 3)),
            (true, lease("shard-0", "two", "b", 4)),
        ] {
            assert_eq!(is_new(&mut known, &lease), is_expected, "{lease}");
        }
    }
}
