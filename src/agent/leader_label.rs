//! Labels the pod of the agent that leads, so that the Service of Receivers leads to it and to no standby.
//!
//! Invariant: only the leader writes; it takes the label off all other pods, which an agent that ended may have left there.
//! Invariant: while nothing changes, nothing is requested but the watch.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::tasks::name_of;
use crate::api::names::{LEADER, LEADS};
use crate::cluster::{Cluster, Error, Kind, Part, Scope, Selection, WatchEvent};
use crate::failure::chain;

/// Wait after a label could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the label on this pod, and off all others of the namespace, until `stop`.
pub(super) async fn keep(cluster: Cluster, namespace: String, pod: String, stop: CancellationToken) {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
    loop {
        let mut events = cluster.watch(&kind, Selection::labelled(LEADER, LEADS).within(&namespace));
        let mut is_labelled = false;
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            let written = match &event {
                WatchEvent::Begin => {
                    is_labelled = false;
                    Ok(())
                }
                WatchEvent::Initial(other) | WatchEvent::Applied(other) => match is_this(other, &pod) {
                    Some(true) => {
                        is_labelled = true;
                        Ok(())
                    }
                    Some(false) => label(&cluster, &kind, other, Value::Null).await,
                    None => Ok(()),
                },
                WatchEvent::Synced(_) if !is_labelled => label_own(&cluster, &kind, &namespace, &pod).await,
                WatchEvent::Deleted(other) if is_this(other, &pod) == Some(true) => {
                    label_own(&cluster, &kind, &namespace, &pod).await
                }
                _ => Ok(()),
            };
            if let Err(error) = written {
                tracing::warn!(
                    why = chain(&error),
                    "deliveries to Receivers may not reach this agent: a pod was not labelled"
                );
                break;
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await.is_none() {
            return;
        }
    }
}

/// Whether a pod is the one with this name.
fn is_this(pod: &Value, name: &str) -> Option<bool> {
    name_of(pod).map(|(_, other)| other == name)
}

async fn label_own(cluster: &Cluster, kind: &Kind, namespace: &str, pod: &str) -> Result<(), Error> {
    label(cluster, kind, &json!({"metadata": {"namespace": namespace, "name": pod}}), LEADS.into()).await
}

async fn label(cluster: &Cluster, kind: &Kind, pod: &Value, value: Value) -> Result<(), Error> {
    let Some((namespace, name)) = name_of(pod) else { return Ok(()) };
    let patch = json!({"metadata": {"labels": {LEADER: value}}});
    match cluster.patch_merge(kind, Some(&namespace), &name, Part::Main, &patch).await {
        Ok(_) => Ok(()),
        // A pod that is gone receives nothing.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}
