//! A batch of objects that lack memory. They are read again, one after the other, while the watch goes on.
//!
//! Invariant: at most one request is in flight, and at most one response is in memory. Invariant: a read is dropped if the
//! watch has shown the object since the request, because the response may be older.
//!
//! Not here: which objects are read (`rereads`), and the use of the responses (`tasks`).

use std::collections::VecDeque;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;

use super::kept::Name;
use mainstay_cluster::{Cluster, Error, Kind, Part};

/// The agent that looks after an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    ThisAgent,
    OtherAgent,
}

/// A step of a batch.
pub(super) enum Step {
    /// The state of an object; `None` if it does not exist.
    Read(Name, Keeper, Result<Option<Value>, Error>),
    /// The status of an object was written, or the write failed.
    Written(Name, Result<(), Error>),
    /// All objects are read.
    Complete(Rest),
}

/// Whether objects lack memory that are not in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Possible,
    None,
}

/// Objects that are read again.
pub(super) struct Batch {
    waiting: VecDeque<(Name, Keeper)>,
    rest: Rest,
    request: Option<BoxFuture<'static, Step>>,
    /// The object that is being read, unless the watch has shown it since the request.
    reading: Option<Name>,
}

impl Batch {
    /// Returns a batch of objects of this agent and of others. No request is sent before [`next`](Self::next) is polled.
    pub(super) fn new(own: Vec<Name>, of_others: Vec<Name>, rest: Rest) -> Self {
        let of_others = of_others.into_iter().map(|name| (name, Keeper::OtherAgent));
        let waiting = own.into_iter().map(|name| (name, Keeper::ThisAgent)).chain(of_others).collect();
        Self { waiting, rest, request: None, reading: None }
    }

    /// Waits for the next step; forever without a batch. Cancel-safe.
    pub(super) async fn next(batch: Option<&mut Self>, cluster: &Cluster, kind: &Arc<Kind>) -> Step {
        let Some(batch) = batch else { return std::future::pending().await };
        loop {
            if let Some(request) = &mut batch.request {
                let step = request.await;
                batch.request = None;
                if batch.reading.take().is_some() || matches!(step, Step::Written(..)) {
                    return step;
                }
            }
            let Some((name, keeper)) = batch.waiting.pop_front() else { return Step::Complete(batch.rest) };
            batch.reading = Some(name.clone());
            batch.request = Some(read(cluster.clone(), Arc::clone(kind), name, keeper).boxed());
        }
    }

    /// Writes the status of an object that was read, before the next object is read.
    pub(super) fn write(&mut self, cluster: &Cluster, kind: &Arc<Kind>, name: Name, status: Value) {
        self.request = Some(write(cluster.clone(), Arc::clone(kind), name, status).boxed());
    }

    /// Leaves out an object that the watch has shown. Returns whether it was not read yet.
    pub(super) fn leave_out(&mut self, name: &Name) -> bool {
        let count = self.waiting.len();
        self.waiting.retain(|(waiting, _)| waiting != name);
        let is_read = self.reading.take_if(|reading| *reading == *name).is_some();
        is_read || self.waiting.len() < count
    }
}

async fn read(cluster: Cluster, kind: Arc<Kind>, name: Name, keeper: Keeper) -> Step {
    let live = cluster.get(&kind, Some(&name.0), &name.1).await;
    Step::Read(name, keeper, live)
}

async fn write(cluster: Cluster, kind: Arc<Kind>, name: Name, status: Value) -> Step {
    let written = cluster.patch_merge(&kind, Some(&name.0), &name.1, Part::Status, &status).await;
    Step::Written(name, written.map(drop))
}
