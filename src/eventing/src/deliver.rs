//! Delivers the events of a store, with one task for each subscriber (`work`).
//!
//! Invariant: an event is removed from the store when its subscriber has accepted it, or when its dead letter is
//! stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::attempt::{AGAIN, Delivery, give_up, nothing};
use super::jetstream::{Exists, JetStream};
use super::journal::Journal;
use super::store::{OVER, Source, Store};
use super::subscriber::{Subscriber, SubscriberId};
use super::table::Table;
use super::work::{Work, work};

/// Delay before a failed sweep of NATS is repeated, and interval at which a draining journal is checked.
const SWEEP: Duration = Duration::from_secs(5);

/// Time to return events to a server before the end of the process.
const RELEASE: Duration = Duration::from_secs(2);

/// The task of a subscriber.
struct Worker {
    subscriber: watch::Sender<Arc<Subscriber>>,
    tasks: Vec<AbortHandle>,
}

/// Delivers until `stop`, or until a task panics.
pub(super) async fn deliver(delivery: Arc<Delivery>, stop: CancellationToken) -> Result<(), JoinError> {
    let mut table = delivery.table.clone();
    let mut workers: BTreeMap<SubscriberId, Worker> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    if !matches!(stop.run_until_cancelled(table.wait_for(Option::is_some)).await, Some(Ok(_))) {
        return Ok(());
    }
    table.mark_changed();
    // Without a journal, this receiver never changes.
    let mut stored = match &delivery.store {
        Store::Log { journal, .. } => journal.stored(),
        Store::JetStream(store) => {
            let sweeping = sweep(store.clone(), table.clone(), Arc::clone(&delivery.exists));
            let until = stop.clone();
            tasks.spawn(async move {
                until.run_until_cancelled(sweeping).await;
            });
            watch::Sender::new(()).subscribe()
        }
    };
    loop {
        tokio::select! {
            // Subscribers are updated before their events are handled.
            biased;
            () = stop.cancelled() => {
                end(&delivery, tasks).await;
                return Ok(());
            }
            Ok(()) = table.changed() => {
                let Some(all) = table.borrow_and_update().clone() else { continue };
                for id in workers.keys().filter(|id| !all.0.contains_key(*id)).cloned().collect::<Vec<_>>() {
                    if let Some(worker) = workers.remove(&id) {
                        worker.tasks.iter().for_each(AbortHandle::abort);
                    }
                    forget(&delivery, &id).await;
                }
                for (id, subscriber) in &all.0 {
                    let Some(worker) = workers.get(id) else {
                        workers.insert(id.clone(), begin(&delivery, subscriber, &mut tasks, &stop));
                        continue;
                    };
                    worker.subscriber.send_if_modified(|known| {
                        let is_other = *known != *subscriber;
                        known.clone_from(subscriber);
                        is_other
                    });
                }
                stored.mark_changed();
            }
            // The subscriber of an event may have been deleted before the event arrives.
            Ok(()) = stored.changed() => end_strangers(&delivery).await,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Err(error) if error.is_panic() => return Err(error),
                _ => {}
            },
        }
    }
}

/// Waits until the tasks of subscribers have returned their events to the server, or have recorded them in the journal.
async fn end(delivery: &Delivery, mut tasks: JoinSet<()>) {
    let ending = async {
        while tasks.join_next().await.is_some() {}
        match &delivery.store {
            Store::Log { .. } => Ok(()),
            Store::JetStream(store) => store.flush().await,
        }
    };
    // The server delivers the rest again after some seconds.
    match tokio::time::timeout(RELEASE, ending).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "events could not be returned to NATS"),
        Err(_) => tracing::debug!("events could not be returned to NATS in time"),
    }
}

/// Removes the events of the journal whose subscriber does not exist.
///
/// Invariant: the table is read after the list, so the table contains the subscriber of each listed event unless that
/// subscriber was deleted.
async fn end_strangers(delivery: &Delivery) {
    let Store::Log { journal, .. } = &delivery.store else { return };
    let waiting = journal.subscribers();
    let Some(table) = delivery.table.borrow().clone() else { return };
    for id in waiting.iter().filter(|id| !table.0.contains_key(*id)) {
        journal.ended(journal.pending_of(id), id).await;
    }
}

/// Deletes consumers, events and streams of deleted subscribers from NATS, at the start and when subscribers change.
async fn sweep(store: JetStream, mut table: watch::Receiver<Option<Arc<Table>>>, exists: Arc<Exists>) {
    let mut swept: Option<BTreeSet<SubscriberId>> = None;
    loop {
        let Some(known) = table.borrow_and_update().clone() else { return };
        let present: BTreeSet<SubscriberId> = known.0.keys().cloned().collect();
        if swept.as_ref() != Some(&present) {
            match store.sweep(&known, &*exists).await {
                Ok(()) => swept = Some(present),
                Err(error) => {
                    tracing::warn!(%error, "events of former subscribers could not be removed from NATS");
                    tokio::time::sleep(SWEEP).await;
                    continue;
                }
            }
        }
        if table.changed().await.is_err() {
            return;
        }
    }
}

/// Logs when the journal is empty. The journal receives no new events.
pub(super) async fn drained(journal: Journal) {
    while journal.size().0 > 0 {
        tokio::time::sleep(SWEEP).await;
    }
    tracing::info!("the journal is empty: all of its events are delivered, or are dead letters");
}

/// Removes all events of a deleted subscriber from the journal, and removes the subscriber's dead letters.
async fn forget(delivery: &Delivery, id: &SubscriberId) {
    let Store::Log { journal, letters } = &delivery.store else { return };
    journal.ended(journal.pending_of(id), id).await;
    let (letters, of) = (Arc::clone(letters), id.clone());
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || letters.remove(&of)).await {
        tracing::warn!(subscriber = %id, %error, "dead letters could not be removed");
    }
}

fn begin(
    delivery: &Arc<Delivery>,
    subscriber: &Arc<Subscriber>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Worker {
    let (sender, watched) = watch::channel(Arc::clone(subscriber));
    let over = delivery.store.over(&subscriber.id);
    let turning = over.map(|over| {
        let (turning, until) = (turn_away(Arc::clone(delivery), watched.clone(), over), stop.clone());
        tasks.spawn(async move {
            until.run_until_cancelled(turning).await;
        })
    });
    let source = delivery.store.deliverable(&subscriber.id);
    let working = tasks.spawn(work(Work::new(Arc::clone(delivery), source), watched, stop.clone()));
    Worker { subscriber: sender, tasks: turning.into_iter().chain([working]).collect() }
}

/// Writes dead letters for events that exceed a subscriber's share.
async fn turn_away(delivery: Arc<Delivery>, subscriber: watch::Receiver<Arc<Subscriber>>, mut source: Source) {
    loop {
        let taken = source.next(1).await;
        loop {
            let to = Arc::clone(&subscriber.borrow());
            let turning = async {
                let kept = match delivery.store.read(&taken).await {
                    Err(error) if error.kind() == std::io::ErrorKind::InvalidData => nothing(),
                    Err(error) => return Err(error),
                    Ok(None) => return Ok(()),
                    Ok(Some(kept)) => kept,
                };
                give_up(&delivery, &to, &taken, &kept, OVER, 0).await
            };
            match turning.await {
                Ok(()) => break,
                Err(error) => {
                    tracing::error!(subscriber = %to.id, %error, "a dead letter could not be written");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}
