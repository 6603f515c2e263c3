//! The applies of one stage of a commit, many objects at a time.
//!
//! Invariant: one object's failure holds back nothing but what needs it.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use serde_json::Value;

use super::Writer;
use super::put::{Put, Step};
use crate::cluster::{Cluster, Error, Persistence};
use crate::managed::Desired;
use crate::object::{Owner, is_established};

/// Applies in flight at once.
const AT_ONCE: usize = 16;
/// How long a definition may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What became of one object.
#[derive(Debug)]
pub enum Applied {
    /// It was applied.
    Done(Put),
    /// It was refused.
    Failed(Error),
    /// It was refused because a field differs that cannot be changed.
    Immutable(Error),
}

impl Writer {
    /// Applies one stage; `done` gets the outcome of each object as it is answered.
    pub async fn put_stage(&self, owner: &Owner, steps: Vec<Step>, mut done: impl FnMut(Arc<Desired>, Applied)) {
        let puts = stream::iter(steps).map(|step| async move {
            // Drift goes before sync work.
            self.yield_to_reverts().await;
            let desired = Arc::clone(&step.desired);
            let applied = match self.put(owner, step).await {
                Ok(put) => await_established(self.cluster(), &desired, put).await,
                Err(error) if error.is_invalid() && is_immutable(self.cluster(), &desired).await => {
                    Applied::Immutable(error)
                }
                Err(error) => Applied::Failed(error),
            };
            (desired, applied)
        });
        let mut puts = puts.buffer_unordered(AT_ONCE);
        while let Some((desired, applied)) = puts.next().await {
            done(desired, applied);
        }
    }
}

/// Whether a refused change is one of a field that cannot be changed: the object could be created as it is, if it were
/// not there already. Texts and causes of the refusals vary too much to tell.
async fn is_immutable(cluster: &Cluster, desired: &Desired) -> bool {
    let mut body = desired.body();
    if desired.key.is("", "Service")
        && let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut)
    {
        // A new Service could not have the addresses that the old one holds.
        spec.retain(|field, _| field != "clusterIP" && field != "clusterIPs");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
    let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
    let created = cluster.create(&desired.kind, namespace, name, &body, Persistence::DryRun).await;
    created.is_err_and(|error| error.is_already_exists())
}

/// Waits until a definition is established; what needs it comes in a later stage.
async fn await_established(cluster: &Cluster, desired: &Arc<Desired>, put: Put) -> Applied {
    if !desired.key.is("apiextensions.k8s.io", "CustomResourceDefinition") {
        return Applied::Done(put);
    }
    let mut waited = Duration::ZERO;
    let mut answer = put.answer.clone();
    while !is_established(&answer) && waited < ESTABLISHED_WITHIN {
        tokio::time::sleep(LOOK_EVERY).await;
        waited += LOOK_EVERY;
        match cluster.get(&desired.kind, None, &desired.key.name).await {
            Ok(Some(live)) => answer = live,
            Ok(None) => {}
            Err(error) => return Applied::Failed(error),
        }
    }
    cluster.kinds_changed();
    Applied::Done(put)
}
