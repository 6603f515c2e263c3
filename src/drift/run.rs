//! The tasks of the drift loop: the watches, the reverts that the writer has queued, and what is looked at later.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::Drift;
use super::watch::Control;
use crate::apply::{FollowUp, FollowUps};
use crate::cluster::KindId;

/// The drift loop ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One of its tasks broke.
    #[error("a task of the drift loop ended")]
    Task(#[source] JoinError),
}

impl Drift {
    /// Runs until `stop`, or until one of its tasks breaks.
    pub async fn run(&self, mut follow_ups: FollowUps, stop: CancellationToken) -> Result<(), Error> {
        let (mut tasks, mut watches) = (JoinSet::new(), HashMap::<KindId, Arc<Control>>::new());
        tasks.spawn(self.clone().follow_autoscalers(stop.clone()));
        loop {
            let follow_up = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(follow_up) = follow_ups.next() => follow_up,
                Some(ended) = tasks.join_next() => {
                    ended.map_err(Error::Task)?;
                    continue;
                }
            };
            let (this, writer, stop) = (self.clone(), self.writer.clone(), stop.clone());
            match follow_up {
                FollowUp::Revert(key, generation) => {
                    tasks.spawn(async move { writer.revert(&key, generation).await });
                }
                FollowUp::Watch(kind) => {
                    let control = Arc::<Control>::default();
                    watches.insert(kind.id(), Arc::clone(&control));
                    tasks.spawn(this.follow(kind, control, stop));
                }
                FollowUp::List(kind) => watches.get(&kind).into_iter().for_each(|control| control.list.notify_one()),
                FollowUp::ListAll => watches.values().for_each(|control| control.list.notify_one()),
                FollowUp::EndWatch(kind) => watches.remove(&kind).into_iter().for_each(|control| control.end.cancel()),
                FollowUp::WatchByName(kind, key, over) => _ = tasks.spawn(this.follow_by_name(kind, key, over, stop)),
                FollowUp::LookAgain(key, wait) => {
                    tasks.spawn(async move {
                        tokio::time::sleep(wait).await;
                        this.look_now(&key);
                    });
                }
                FollowUp::GrantPermits(wait) => {
                    tasks.spawn(async move {
                        tokio::time::sleep(wait).await;
                        writer.grant_permits();
                    });
                }
            }
        }
    }
}
