//! What the drift loop has to do because of a write, or because of what an owner wants.
//!
//! The writer knows no watch and no timer: it sends follow-ups, and the loop carries them out in their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::load::ServerLoad;
use mainstay_cluster::{Kind, KindId};
use mainstay_object::{Key, Owner};

/// Something that the drift loop has to do.
#[derive(Debug)]
pub enum FollowUp {
    /// Watch the objects of a kind.
    Watch(Arc<Kind>),
    /// List the objects of a watched kind anew.
    List(KindId),
    /// List the objects of one owner anew, and those of nobody else.
    ListOwner(Owner),
    /// List the objects of one owner of these kinds anew, each kind with the label of its objects.
    ListKinds(Owner, Vec<(Arc<Kind>, Arc<str>)>),
    /// End the watch of a kind.
    EndWatch(KindId),
    /// Watch one object by its name, until it may be touched again or the token is cancelled.
    WatchByName(Arc<Kind>, Key, CancellationToken),
    /// Run the revert of an object that has this generation ([`Writer::revert`](super::Writer)).
    Revert(Key, u32),
    /// Look at an object again after a while.
    LookAgain(Key, Duration),
    /// Take in what an audit says about the server.
    Learn(ServerLoad),
}

/// The follow-ups of a writer, for the one who carries them out.
#[derive(Debug)]
pub struct FollowUps(UnboundedReceiver<FollowUp>);

impl FollowUps {
    pub(super) fn channel() -> (UnboundedSender<FollowUp>, Self) {
        let (sender, receiver) = unbounded_channel();
        (sender, Self(receiver))
    }

    /// The next one; `None` when the writer is gone.
    pub(crate) async fn next(&mut self) -> Option<FollowUp> {
        self.0.recv().await
    }
}
