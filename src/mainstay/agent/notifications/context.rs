//! The parts of the agent that notifications need, and the objects of their watches.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::kept::memory;
use crate::agent::notify::Notifier;
use mainstay_cluster::secrets::Secrets;
use mainstay_cluster::{Cluster, Kind};
use mainstay_git::Source;

/// Maximum memory of a Provider or Alert, in bytes.
const LONGEST: usize = 32 << 10;
/// Maximum number of Providers, and of Alerts, in a namespace.
pub(super) const MOST: usize = 50;
/// Delay before statuses that were not written are written again.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

/// The parts of the agent that notifications need.
pub(in crate::agent) struct Context {
    pub(in crate::agent) cluster: Cluster,
    pub(in crate::agent) secrets: Arc<Secrets>,
    pub(in crate::agent) source: Source,
    pub(in crate::agent) notifier: Notifier,
    /// The namespaces whose Alerts may select objects of others.
    pub(in crate::agent) trusted: BTreeSet<String>,
}

/// A Provider, an Alert or an OCIRepository without its status.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::agent) struct Object<S> {
    pub(in crate::agent) uid: String,
    pub(in crate::agent) generation: Option<i64>,
    pub(in crate::agent) spec: S,
}

/// Returns a kind by its name and its plural.
pub(in crate::agent) fn kind(kind: &str, plural: &str) -> Arc<Kind> {
    Arc::new(Kind::custom("mainstay.dev", "v1alpha1", kind, plural, true))
}

/// Reads an object of a watch.
pub(in crate::agent) fn read<S: DeserializeOwned>(live: &Value) -> Result<Option<Object<S>>, String> {
    let spec = &live["spec"];
    if memory(spec) > LONGEST {
        return Err("its spec is larger than 32 KiB".to_owned());
    }
    // The error may quote a value.
    let spec = S::deserialize(spec).map_err(|_| "a field has another form than the definition says".to_owned())?;
    let uid = live.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Some(Object { uid, generation: live.pointer("/metadata/generation").and_then(Value::as_i64), spec }))
}
