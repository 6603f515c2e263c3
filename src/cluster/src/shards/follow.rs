//! Watches the Leases and the pins of namespaces for one member, and publishes its view.
//!
//! Invariant: a watch that has listed the Leases, and then does not show the renewals of the own Lease for the duration of a
//! Lease, is replaced. Its connection may have ended without notice, and behind a proxy, only the end of the watch would
//! show that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::member::Member;
use super::ownership::{Ownership, Pinned, Pins};
use super::seen::Seen;
use super::view::{PushNote, Shown, member_of, without_expired};
use crate::connect::Cluster;
use crate::kind::{Kind, Scope};
use crate::reflector::{self, Delta, Name, name_of};
use crate::selection::Selection;
use crate::watch::WatchEvent;
use mainstay_api::names::{LEASE, SHARD, SHARD_LEASE};
use mainstay_object::failure::chain;

/// The parts with which a member follows the others.
pub struct Followed {
    /// The client.
    pub cluster: Cluster,
    /// The namespace of the Leases.
    pub namespace: String,
    /// The member.
    pub me: Member,
    /// The identity of the member in its Lease.
    pub identity: String,
    /// The Leases that this process has seen before this work.
    pub seen: Seen,
    /// Duration of a Lease. GitSyncs whose pin changes are gained after this time.
    pub lease: Duration,
    /// Time for which a released shard keeps its share.
    pub grace: Duration,
    /// The annotation of the member's Lease.
    pub note: watch::Sender<Option<String>>,
    /// The pushes that this agent has received as the leader.
    pub push_note: watch::Receiver<PushNote>,
    /// The pushes that the leader has received, if that is another agent.
    pub received: watch::Sender<PushNote>,
    /// The GitSyncs that the member owns.
    pub ownership: watch::Sender<Arc<Ownership>>,
    /// The number of the view whose lost GitSyncs have no work any more.
    pub dropped: watch::Receiver<u64>,
}

/// Follows the other members until `stop`.
pub async fn follow(followed: Followed, stop: CancellationToken) {
    let _ = stop.run_until_cancelled(Following::new(followed).run()).await;
}

struct Following {
    with: Followed,
    board: Board,
    leases: BoxStream<'static, WatchEvent>,
    /// Time at which the watch of the Leases began.
    watched: Instant,
    listed: reflector::Shown<Name>,
    namespaces: BoxStream<'static, WatchEvent>,
    listed_namespaces: reflector::Shown<Name>,
    pins: Arc<Pins>,
    has_leases: bool,
    has_pins: bool,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.with.seen.keep(self.board.leases());
        // The Lease is renewed without this work, and shows no times that are not measured any more.
        self.with.note.send_if_modified(|note| match note.as_deref().and_then(without_expired) {
            Some(rest) => replace(note, Some(rest)),
            None => false,
        });
    }
}

impl Following {
    fn new(with: Followed) -> Self {
        let leases = leases(&with);
        let kind = Arc::new(Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster));
        let namespaces = with.cluster.watch(&kind, Selection::with_label(SHARD).metadata_only());
        // A restarted member must not take a view of its last run for a new one.
        let generation = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
        Self {
            board: Board::new(with.me, &with.identity, generation, (with.lease, with.grace), with.seen.leases()),
            leases,
            watched: Instant::now(),
            listed: reflector::Shown::default(),
            namespaces,
            listed_namespaces: reflector::Shown::default(),
            pins: Arc::default(),
            has_leases: false,
            has_pins: false,
            with,
        }
    }

    async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.board.set_complete(self.has_leases && self.has_pins);
            self.board.turn(now);
            self.publish(now);
            let silent = self.replace_silent_watch(now);
            let due = self.board.due(now).into_iter().chain(silent).fold(now + self.with.lease, Instant::min);
            tokio::select! {
                Some(event) = self.leases.next() => self.see_lease(event),
                Some(event) = self.namespaces.next() => self.see_namespace(event),
                Ok(()) = self.with.dropped.changed() => {
                    let number = *self.with.dropped.borrow_and_update();
                    self.board.dropped(number);
                }
                Ok(()) = self.with.push_note.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Replaces the watch of the Leases if it is silent for the duration of a Lease. Returns the time at which that is the case.
    /// A watch that does not respond to a list has its own timeouts.
    fn replace_silent_watch(&mut self, now: Instant) -> Option<Instant> {
        let silent_since = self.board.silent_since(now)?;
        if self.has_leases && silent_since.max(self.watched) + self.with.lease <= now {
            tracing::warn!("the watch of Leases shows no renewals, and begins again");
            (self.leases, self.watched) = (leases(&self.with), now);
        }
        self.has_leases.then(|| silent_since.max(self.watched) + self.with.lease)
    }

    /// Publishes the view to the other members, and the owned GitSyncs to the work.
    fn publish(&self, now: Instant) {
        let note = self.board.note(&self.with.push_note.borrow(), now);
        // A view of an earlier run stays until there is a new one.
        if note.is_some() {
            self.with.note.send_if_modified(|old| replace(old, note));
        }
        if let Some(push_note) = self.board.push_note(now) {
            self.with.received.send_if_modified(|old| replace(old, push_note));
        }
        let ownership = Arc::new(self.board.ownership(&self.pins, now));
        self.with.ownership.send_if_modified(|old| replace(old, ownership));
    }

    fn see_lease(&mut self, event: WatchEvent) {
        let now = Instant::now();
        match self.listed.take(event, name_of) {
            Some(Delta::Listed(name, lease)) => {
                // A list has no order, so no step is taken before its end.
                self.has_leases = false;
                self.see(&name.1, &lease, now);
            }
            Some(Delta::Changed(name, lease)) => self.see(&name.1, &lease, now),
            Some(Delta::Gone(name, _)) if name.1 == LEASE => self.board.see_leader(None),
            Some(Delta::Complete(list)) => {
                if list.lacks(&(self.with.namespace.clone(), LEASE.to_owned())) {
                    self.board.see_leader(None);
                }
                self.has_leases = true;
            }
            Some(Delta::Failed(error)) => {
                tracing::warn!(why = chain(&error), "the Leases of other shards cannot be watched");
            }
            Some(Delta::Gone(..) | Delta::Unreadable(..) | Delta::Resumed) | None => {}
        }
    }

    fn see(&mut self, name: &str, lease: &Value, now: Instant) {
        let shown = Shown::of(lease);
        match (member_of(name), shown) {
            (Some(member), Some(shown)) => self.board.see(member, shown, now),
            (None, shown) if name == LEASE => self.board.see_leader(shown.as_ref()),
            _ => {}
        }
    }

    fn see_namespace(&mut self, event: WatchEvent) {
        let settles = self.has_pins.then(|| Instant::now() + self.with.lease);
        let pin = |live: &Value| live["metadata"]["labels"][SHARD].as_str().and_then(Member::parse);
        match self.listed_namespaces.take(event.by_metadata(), name_of) {
            Some(Delta::Listed((_, name), live) | Delta::Changed((_, name), live)) => {
                self.set_pin(name, pin(&live), settles);
            }
            Some(Delta::Gone((_, name), _)) => self.set_pin(name, None, settles),
            Some(Delta::Complete(list)) => {
                let gone = self.pins.keys().filter(|name| list.lacks(&(String::new(), (*name).clone())));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.set_pin(name, None, settles);
                }
                self.has_pins = true;
            }
            Some(Delta::Failed(error)) => {
                tracing::warn!(why = chain(&error), "namespaces cannot be watched, so they pin no GitSyncs");
                // All members have the same permissions.
                self.has_pins |= error.code() == Some(403);
            }
            Some(Delta::Unreadable(..) | Delta::Resumed) | None => {}
        }
    }

    /// Sets the pin of a namespace. The former owner stops when its watch shows the change, so the new one waits.
    fn set_pin(&mut self, namespace: String, member: Option<Member>, settles: Option<Instant>) {
        if self.pins.get(&namespace).and_then(|pinned| pinned.member) == member {
            return;
        }
        let pins: &mut BTreeMap<String, Pinned> = Arc::make_mut(&mut self.pins);
        pins.retain(|_, pinned| pinned.member.is_some() || pinned.settles > Some(Instant::now()));
        pins.insert(namespace, Pinned { member, settles });
    }
}

/// Returns a watch of the Leases of all members.
fn leases(with: &Followed) -> BoxStream<'static, WatchEvent> {
    let kind = Arc::new(Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced));
    let selection = Selection::with_label(SHARD_LEASE).within(&with.namespace);
    with.cluster.urgent().watch(&kind, selection)
}

/// Replaces a value. Returns whether it differs.
fn replace<T: PartialEq>(old: &mut T, new: T) -> bool {
    let differs = *old != new;
    *old = new;
    differs
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fake;

    fn following(cluster: &Cluster, seen: &Seen) -> Following {
        Following::new(Followed {
            cluster: cluster.clone(),
            namespace: "a".to_owned(),
            me: Member::new(0).unwrap(),
            identity: "me".to_owned(),
            seen: seen.clone(),
            lease: Duration::from_secs(15),
            grace: Duration::from_secs(5),
            note: watch::channel(None).0,
            push_note: watch::channel(PushNote::default()).1,
            received: watch::channel(PushNote::default()).0,
            ownership: watch::channel(Arc::default()).0,
            dropped: watch::channel(0).1,
        })
    }

    #[tokio::test]
    async fn work_that_ends_leaves_the_leases_that_it_has_seen_to_the_next_one() {
        let ((cluster, _server), seen) = (fake::cluster(), Seen::default());
        let lease = json!({
            "metadata": {"namespace": "a", "name": "mainstay-shard-1", "labels": {SHARD_LEASE: "member"}},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15},
        });
        let mut first = following(&cluster, &seen);
        for event in [WatchEvent::Begin, WatchEvent::Initial(lease), WatchEvent::Synced("1".to_owned())] {
            first.see_lease(event);
        }
        drop(first);
        assert_eq!(seen.members(), [Member::new(1).unwrap()]);
        let second = following(&cluster, &seen);
        assert_eq!(second.board.leases().keys().copied().collect::<Vec<_>>(), seen.members());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_shows_no_renewals_is_replaced_every_lease_duration_unless_it_lists() {
        let ((cluster, _server), seen) = (fake::cluster(), Seen::default());
        let lease = json!({
            "metadata": {"namespace": "a", "name": "mainstay-shard-0", "labels": {SHARD_LEASE: "member"}},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
        });
        let mut work = following(&cluster, &seen);
        for event in [WatchEvent::Begin, WatchEvent::Initial(lease), WatchEvent::Synced("1".to_owned())] {
            work.see_lease(event);
        }
        let begun = work.watched;
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        for (now, due, watched) in [(4, None, 0), (10, Some(15), 0), (16, Some(31), 16), (30, Some(31), 16)] {
            let found = (work.replace_silent_watch(at(now)), work.watched);
            assert_eq!(found, (due.map(at), at(watched)), "after {now} s");
        }
        work.has_leases = false;
        assert_eq!((work.replace_silent_watch(at(40)), work.watched), (None, at(16)), "the new watch lists");
    }

    #[tokio::test]
    async fn work_that_ends_shows_no_expired_leases() {
        let ((cluster, _server), seen) = (fake::cluster(), Seen::default());
        let work = following(&cluster, &seen);
        let note = work.with.note.subscribe();
        let shown = json!({"generation": 1, "members": ["shard-0"], "expired": {"shard-1": "41"}});
        work.with.note.send_replace(Some(shown.to_string()));
        drop(work);
        let rest = json!({"generation": 1, "members": ["shard-0"]}).to_string();
        assert_eq!(note.borrow().as_ref(), Some(&rest));
    }
}
