//! Wakes consumers for a lookup ahead of their interval, after a push or when another consumer has found a commit.
//!
//! Invariant: pushes wake the consumers of one address at most once per [`BETWEEN`]. The last delivery is not lost: its
//! consumers are woken when that time is over. The same holds for commits that other consumers found.
//! Invariant: a consumer learns only that a commit exists, not the credentials or the response of another consumer.
//! Not here: deliveries, the selection of the consumers that a delivery concerns, and lookups.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::consumers::{Consumer, Identity};
use super::found_commit::{FoundCommit, SharedHeads};
use super::id::Commit;
use super::lookup_due::LookupDue;
use super::remote::RepositoryId;
use super::{Reference, Remote, RemoteUrl};

/// Minimum time between two lookups of an address because of pushes, or of commits that other consumers found.
pub const BETWEEN: Duration = Duration::from_secs(1);
/// Interval between two consumers that a commit wakes, and maximum time between the first and the last of them.
const PACE: Duration = Duration::from_millis(5);
const SPREAD: Duration = Duration::from_secs(1);

/// Wakes one consumer.
#[derive(Debug)]
pub struct PushReceiver {
    due: Arc<Mutex<Option<LookupDue>>>,
    changes: watch::Receiver<()>,
}

impl PushReceiver {
    /// Waits for the next due lookup.
    pub fn changed(&mut self) -> impl Future<Output = Result<(), watch::error::RecvError>> + Send {
        self.changes.changed()
    }

    /// Takes the due lookup. From then on, the consumer is responsible for it.
    pub fn take(&self) -> Option<LookupDue> {
        self.due.lock().take()
    }
}

/// The reference that a consumer follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Name of the GitRepository or of another source, in the consumer's namespace.
    pub repository: String,
    /// Address of the remote.
    pub url: RemoteUrl,
    /// The reference.
    pub reference: Reference,
}

/// All consumers.
#[derive(Debug, Default)]
pub struct Pushes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rows: HashMap<Consumer, Row>,
    /// The last time at which pushes wake consumers of an address. It may be in the future.
    last: HashMap<RemoteUrl, Instant>,
    repositories: HashMap<RepositoryId, Shared>,
}

#[derive(Debug, Default)]
struct Row {
    followed: Option<Followed>,
    remote: Option<(RepositoryId, Identity)>,
    due: Arc<Mutex<Option<LookupDue>>>,
    changes: watch::Sender<()>,
}

/// State shared by the consumers of one repository.
#[derive(Debug, Default)]
struct Shared {
    consumers: HashSet<Consumer>,
    heads: SharedHeads,
    /// The last time at which a commit wakes these consumers. It may be in the future.
    last: Option<Instant>,
}

impl Row {
    fn wake(&self, new: LookupDue) {
        let mut due = self.due.lock();
        *due = Some(new.and(due.take()));
        self.changes.send_replace(());
    }
}

impl Pushes {
    /// Returns a receiver of the consumer's due lookups.
    pub fn subscribe(&self, consumer: &Consumer) -> PushReceiver {
        let mut inner = self.0.lock();
        let row = inner.rows.entry(consumer.clone()).or_default();
        PushReceiver { due: Arc::clone(&row.due), changes: row.changes.subscribe() }
    }

    /// Sets the reference that a consumer follows; `None` if it is unknown.
    pub fn set(&self, consumer: &Consumer, followed: Option<Followed>) {
        if let Some(row) = self.0.lock().rows.get_mut(consumer) {
            row.followed = followed;
        }
    }

    /// Sets the remote that a consumer reads; `None` if there is none.
    pub fn set_remote(&self, consumer: &Consumer, remote: Option<&Remote>) {
        let remote = remote.map(|remote| (remote.repository(), remote.identity()));
        let mut inner = self.0.lock();
        let Inner { rows, repositories, .. } = &mut *inner;
        let Some(row) = rows.get_mut(consumer) else { return };
        let old = std::mem::replace(&mut row.remote, remote);
        if old == remote {
            return;
        }
        if let Some((old, _)) = old {
            leave(repositories, old, consumer);
        }
        if let Some((new, _)) = remote {
            repositories.entry(new).or_default().consumers.insert(consumer.clone());
        }
    }

    /// Removes a consumer.
    pub fn remove(&self, consumer: &Consumer) {
        self.set_remote(consumer, None);
        self.0.lock().rows.remove(consumer);
    }

    /// Wakes the consumers that `is_meant` selects, and returns them.
    pub fn wake(&self, is_meant: impl Fn(&Consumer, &Followed) -> bool, now: Instant) -> Vec<Consumer> {
        let mut inner = self.0.lock();
        let Inner { rows, last, .. } = &mut *inner;
        last.retain(|_, at| *at + BETWEEN > now);
        let mut woken = Vec::new();
        let mut due: HashMap<&RemoteUrl, Instant> = HashMap::new();
        for (consumer, row) in rows.iter().filter(|(consumer, _)| consumer.kind.is_delivered_to()) {
            let Some(followed) = row.followed.as_ref().filter(|followed| is_meant(consumer, followed)) else {
                continue;
            };
            let at = *due.entry(&followed.url).or_insert_with(|| next(last.get(&followed.url).copied(), now));
            row.wake(LookupDue::pushed(at));
            woken.push(consumer.clone());
        }
        for (url, at) in due {
            last.insert(url.clone(), at);
        }
        woken
    }

    /// Records commits that a lookup of `remote` has found; the lookup began at `after`. Wakes the affected consumers
    /// of the repository one after the other. Consumers with different credentials are woken only if `may_look` accepts
    /// their remote.
    pub(super) fn found(
        &self,
        remote: &Remote,
        found: &[FoundCommit],
        after: Instant,
        now: Instant,
        may_look: impl Fn(&Identity) -> bool,
    ) {
        if found.is_empty() {
            return;
        }
        let own = remote.identity();
        let mut inner = self.0.lock();
        let Inner { rows, repositories, .. } = &mut *inner;
        let Some(Shared { consumers, heads, last }) = repositories.get_mut(&remote.repository()) else { return };
        let found: Vec<_> = found.iter().map(|found| (found, heads.update(found))).collect();
        let woken: Vec<(&Row, Commit)> = consumers
            .iter()
            .filter_map(|consumer| {
                let row = rows.get(consumer)?;
                let (followed, (_, identity)) = (row.followed.as_ref()?, row.remote.as_ref()?);
                let is_own = *identity == own;
                if is_own && !consumer.kind.is_pushed_to() {
                    // A GitRepository's status already shows this lookup.
                    return None;
                }
                let concerns = |(found, is_new_to_others): &&(&FoundCommit, bool)| {
                    found.concerns(&followed.reference) && if is_own { found.has_moved } else { *is_new_to_others }
                };
                let (found, _) = found.iter().find(concerns)?;
                (is_own || may_look(identity)).then_some((row, found.commit))
            })
            .collect();
        let Ok(count @ 1..) = u32::try_from(woken.len()) else { return };
        let (first, pace) = (next(*last, now), PACE.min(SPREAD / count));
        *last = Some(first);
        for ((row, commit), number) in woken.into_iter().zip(0..) {
            row.wake(LookupDue::found(commit, first + pace * number, after));
        }
    }

    /// Counts the consumers that `is_meant` selects, without waking them.
    pub fn count(&self, is_meant: impl Fn(&Consumer, &Followed) -> bool) -> usize {
        let inner = self.0.lock();
        let known = inner.rows.iter().filter_map(|(consumer, row)| Some((consumer, row.followed.as_ref()?)));
        let known = known.filter(|(consumer, _)| consumer.kind.is_delivered_to());
        known.filter(|(consumer, followed)| is_meant(consumer, followed)).count()
    }
}

fn leave(repositories: &mut HashMap<RepositoryId, Shared>, old: RepositoryId, consumer: &Consumer) {
    if let Some(shared) = repositories.get_mut(&old) {
        shared.consumers.remove(consumer);
        if shared.consumers.is_empty() {
            repositories.remove(&old);
        }
    }
}

/// Returns when an address is looked up because of a delivery at `now`. `last` is its last lookup, which may be in the
/// future.
fn next(last: Option<Instant>, now: Instant) -> Instant {
    match last {
        Some(last) if last > now => last,
        Some(last) => now.max(last + BETWEEN),
        None => now,
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
fn begin() -> Instant {
    Instant::now()
}
