//! Requests to the drift loop: watches, lists and reverts that follow a write or a change of policy.
//!
//! The writer has no watches and timers. It sends follow-ups, and the loop carries them out in order.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::load::ServerLoad;
use mainstay_cluster::requests::{RequestReceiver, RequestSender, queue};
use mainstay_cluster::{Kind, KindId};
use mainstay_object::Key;

/// A request to the drift loop.
#[derive(Debug)]
pub enum FollowUp {
    /// Watch a kind.
    Watch(Arc<Kind>),
    /// List the unshown objects of a watched kind.
    List(KindId),
    /// Stop the watch of a kind.
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

/// The subject of a follow-up. A newer follow-up replaces the waiting one for the same subject. So the number of
/// subjects is bounded by that of the managed objects, and the writer never waits for the loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Watch(KindId),
    List(KindId),
    EndWatch(KindId),
    WatchByName(Key),
    /// Only the newest generation is reverted.
    Revert(Key),
    LookNow(Key),
    /// Only the last delay of an object applies.
    LookLater(Key),
    /// Responses under normal load.
    Answered,
    /// Responses under overload, by their `Retry-After`, so that none hides a response with a longer one.
    Overloaded(Option<Duration>),
}

impl FollowUp {
    fn subject(&self) -> Subject {
        match self {
            Self::Watch(kind) => Subject::Watch(kind.id()),
            Self::List(kind) => Subject::List(kind.clone()),
            Self::EndWatch(kind) => Subject::EndWatch(kind.clone()),
            Self::WatchByName(_, key, _) => Subject::WatchByName(key.clone()),
            Self::Revert(key, _) => Subject::Revert(key.clone()),
            Self::LookAgain(key, Duration::ZERO) => Subject::LookNow(key.clone()),
            Self::LookAgain(key, _) => Subject::LookLater(key.clone()),
            Self::Learn(ServerLoad::Answered { .. }) => Subject::Answered,
            Self::Learn(ServerLoad::Overloaded { retry_after, .. }) => Subject::Overloaded(*retry_after),
        }
    }

    /// Returns the subjects whose waiting follow-ups become obsolete. The end of a watch is kept before a later start.
    fn obsolete(&self) -> Vec<Subject> {
        match self {
            Self::EndWatch(kind) => {
                vec![Subject::Watch(kind.clone()), Subject::List(kind.clone()), Subject::EndWatch(kind.clone())]
            }
            _ => Vec::new(),
        }
    }
}

/// The sender of a writer's follow-ups.
#[derive(Debug)]
pub(super) struct FollowUpSender(RequestSender<Subject, FollowUp>);

impl FollowUpSender {
    pub(super) fn send(&self, follow_up: FollowUp) {
        self.0.send_over(&follow_up.obsolete(), follow_up.subject(), follow_up);
    }
}

/// The receiver of a writer's follow-ups.
#[derive(Debug)]
pub struct FollowUps(RequestReceiver<Subject, FollowUp>);

impl FollowUps {
    pub(super) fn channel() -> (FollowUpSender, Self) {
        let (sender, receiver) = queue();
        (FollowUpSender(sender), Self(receiver))
    }

    /// Waits for the next follow-up.
    pub(crate) async fn next(&mut self) -> FollowUp {
        self.0.next().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use mainstay_cluster::Scope;

    #[test]
    fn follow_ups_of_a_flood_are_one_per_object_and_watches_keep_their_order() {
        let (sender, mut receiver) = FollowUps::channel();
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let key = Key::new("", "ConfigMap", Some("shop"), "web");
        sender.send(FollowUp::Watch(Arc::clone(&kind)));
        sender.send(FollowUp::List(kind.id()));
        for generation in 0..100_000 {
            sender.send(FollowUp::Revert(key.clone(), generation));
            sender.send(FollowUp::LookAgain(key.clone(), Duration::ZERO));
            sender.send(FollowUp::LookAgain(key.clone(), Duration::from_secs(1)));
        }
        sender.send(FollowUp::EndWatch(kind.id()));
        sender.send(FollowUp::Watch(Arc::clone(&kind)));
        let all: Vec<_> = std::iter::from_fn(|| receiver.next().now_or_never()).collect();
        assert!(
            matches!(
                &*all,
                [
                    FollowUp::Revert(_, 99_999),
                    FollowUp::LookAgain(_, Duration::ZERO),
                    FollowUp::LookAgain(..),
                    FollowUp::EndWatch(_),
                    FollowUp::Watch(_)
                ]
            ),
            "{all:?}"
        );
    }
}
