//! Requests to the drift loop: watches, lists and reverts that follow a write or a change of policy.
//!
//! The writer has no watches and timers. It sends follow-ups, and the loop carries them out in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::load::ServerLoad;
use mainstay_cluster::{Kind, KindId};
use mainstay_object::{Key, Owner};

/// A request to the drift loop.
#[derive(Debug)]
pub enum FollowUp {
    /// Watch a kind.
    Watch(Arc<Kind>),
    /// List a watched kind again.
    List(KindId),
    /// List the objects of one owner again.
    ListOwner(Owner),
    /// List the objects of one owner again, for these kinds and label values.
    ListKinds(Owner, Vec<(Arc<Kind>, Arc<str>)>),
    /// End the watch of a kind.
    EndWatch(KindId),
    /// Watch one object by name until the token is cancelled or the object may be changed again.
    WatchByName(Arc<Kind>, Key, CancellationToken),
    /// Revert an object unless its generation is outdated ([`Writer::revert`](super::Writer)).
    Revert(Key, u32),
    /// Check an object again after a delay.
    LookAgain(Key, Duration),
    /// Update the limit of reverts.
    Learn(ServerLoad),
}

/// The receiver of a writer's follow-ups.
#[derive(Debug)]
pub struct FollowUps(UnboundedReceiver<FollowUp>);

impl FollowUps {
    pub(super) fn channel() -> (UnboundedSender<FollowUp>, Self) {
        let (sender, receiver) = unbounded_channel();
        (sender, Self(receiver))
    }

    /// Returns the next follow-up; `None` once the writer is dropped.
    pub(crate) async fn next(&mut self) -> Option<FollowUp> {
        self.0.recv().await
    }
}
