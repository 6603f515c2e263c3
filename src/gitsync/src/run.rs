//! The loop of one GitSync: waits for a possible change, and reconciles.
//!
//! Not here: the attempt and its report (`reconcile`), and when the next attempt is due (`schedule`).

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::contest_watch;
use super::context::{Context, Input};
use super::no_memory::Room;
use super::reconcile::{Next, Task};
use super::resolve::depends_on;
use super::status_turn::StatusTurn;
use super::whereabouts::Place;
use mainstay_api::GitSync;
use mainstay_engine::prevention::Wanted;
use mainstay_git::{PushReceiver, SharedHostKeys};
use mainstay_object::Owner;

/// Reconciles one GitSync until it is gone or `stop` is cancelled, or until `lost` is because another agent takes it over.
pub async fn run(
    context: Arc<Context>,
    namespace: String,
    name: String,
    mut input: Input,
    (stop, lost): (CancellationToken, CancellationToken),
) {
    let owner = Owner::git_sync(&namespace, &name);
    context.dependencies.enter(&owner);
    let mut task = Task::new(&context, owner, &input);
    let at = Arc::clone(&task.context);
    context.enter_at(&at.registry, &task.owner, &namespace, &name);
    if !Arc::ptr_eq(&at.registry, &context.registry) {
        // Other GitSyncs of this cluster need not wait for this GitSync.
        context.registry.remove(&task.owner);
    }
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.registry.completed() => {}
        // The loop below ends the work.
        () = lost.cancelled() => {}
    }
    let mut signals = Signals::of(&context, &task);
    let mut last: Option<Arc<GitSync>> = None;
    loop {
        let Some(sync) = input.borrow_and_update().clone() else {
            if let Some(sync) = last {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = farewell(&mut task, &sync, &lost) => {}
                }
            }
            break;
        };
        last = Some(Arc::clone(&sync));
        context.dependencies.read(&task.owner, &sync, depends_on(&sync));
        signals.take_changes_of_others(&mut task);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = lost.cancelled() => return Box::pin(leave_to_other_agent(&context, &mut task, &sync)).await,
            () = suspend_at_once(&input, &task) => {}
            end = task.reconcile_or_fail(&sync) => if end == Next::Over { break },
        }
        signals.move_to_cluster_of(&task);
        task.reported.status.turn.started();
        tokio::select! {
            () = stop.cancelled() => return,
            () = lost.cancelled() => return Box::pin(leave_to_other_agent(&context, &mut task, &sync)).await,
            changed = input.changed() => if changed.is_err() { return },
            () = signals.next(&mut task) => {}
        }
    }
    task.context.writer.forget_owner(&task.owner);
    task.context.registry.remove(&task.owner);
    context.leave(&task.owner);
    context.set_facts(&task.owner, None);
    context.source.set_remote(&task.names.consumer, None);
    context.pushes.remove(&task.names.consumer);
}

/// Suspends a GitSync while an attempt runs, as soon as a user suspends it. The attempt continues, and writes no more objects.
/// Never ends.
fn suspend_at_once(input: &Input, task: &Task) -> impl Future<Output = ()> + use<> {
    let (mut input, writer, owner) = (input.clone(), task.seen.writer(), task.owner.clone());
    async move {
        while input.changed().await.is_ok() {
            let newest = input.borrow_and_update().clone();
            if newest.is_some_and(|sync| sync.spec.suspended(Timestamp::now()).is_some())
                && let Some(writer) = &*writer.lock()
            {
                writer.suspend(&owner);
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Releases the objects of a GitSync that was deleted while no watch showed it.
async fn farewell(task: &mut Task, sync: &Arc<GitSync>, lost: &CancellationToken) {
    // The release may take long, so other statuses do not wait for it.
    task.reported.status.turn = StatusTurn::default();
    if matches!(task.place, Place::Nowhere) {
        return;
    }
    let mut attempt = task.attempt(sync);
    tokio::select! {
        biased;
        // The other agents have waited long enough. Its objects stay, with Mainstay's label.
        () = lost.cancelled() => {}
        _ = Box::pin(attempt.farewell(false)) => {}
    }
}

/// Ends the work for a GitSync that another agent takes over. Its objects stay as they are.
async fn leave_to_other_agent(context: &Context, task: &mut Task, sync: &Arc<GitSync>) {
    // The statuses of other GitSyncs do not wait for the writes in flight.
    task.reported.status.turn = StatusTurn::default();
    let at = &task.context;
    at.writer.leave_to_other_agent(&task.owner).await;
    context.prevention.want(&task.owner, Wanted::Unknown);
    context.set_facts(&task.owner, None);
    context.source.set_remote(&task.names.consumer, None);
    context.pushes.remove(&task.names.consumer);
    if !Arc::ptr_eq(&at.registry, &context.registry) {
        at.registry.remove(&task.owner);
    }
    // An object without finalizers that was deleted is gone.
    let metadata = &sync.metadata;
    if metadata.deletion_timestamp.is_some() && metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
        context.leave(&task.owner);
    } else {
        context.see_of_other_agent(&task.owner, sync);
    }
}

/// The signals that wake one task, except for changes of its GitSync.
struct Signals {
    /// The cluster of the objects. Some signals belong to this cluster.
    at: Arc<Context>,
    repositories: watch::Receiver<u64>,
    host_keys: watch::Receiver<SharedHostKeys>,
    registry: watch::Receiver<u64>,
    outranked: watch::Receiver<u64>,
    drifted: Arc<Notify>,
    look_now: watch::Receiver<u64>,
    pushed: PushReceiver,
    dependencies: Arc<Notify>,
    prevention: Arc<Notify>,
    room: Room,
}

impl Signals {
    fn of(home: &Context, task: &Task) -> Self {
        let at = Arc::clone(&task.context);
        Self {
            repositories: home.repositories.listen(),
            host_keys: home.source.host_keys(),
            registry: at.registry.listen(),
            outranked: at.registry.listen_outranked(),
            drifted: at.writer.notifier(&task.owner),
            look_now: home.look_now.subscribe(),
            pushed: home.pushes.subscribe(&task.names.consumer),
            dependencies: home.dependencies.listen(&task.owner),
            prevention: home.prevention.listen(&task.owner),
            room: task.state.reading.room(),
            at,
        }
    }

    /// Takes in changes of other GitSyncs that came at the same time as the wake-up.
    fn take_changes_of_others(&mut self, task: &mut Task) {
        if self.registry.has_changed().unwrap_or(false) {
            self.registry.mark_unchanged();
            task.others_changed();
        }
    }

    /// Listens to the cluster of the objects, if the last attempt moved them to a different cluster.
    fn move_to_cluster_of(&mut self, task: &Task) {
        if Arc::ptr_eq(&self.at, &task.context) {
            return;
        }
        self.at = Arc::clone(&task.context);
        (self.registry, self.drifted) = (self.at.registry.listen(), self.at.writer.notifier(&task.owner));
        self.outranked = self.at.registry.listen_outranked();
        // Other GitSyncs may have changed their rows in the new cluster during the attempt.
        self.outranked.mark_changed();
    }

    /// Waits for the next signal and records it in the task.
    async fn next(&mut self, task: &mut Task) {
        let due = task.due();
        tokio::select! {
            // `reconcile` checks whether its own GitRepository changed.
            _ = self.repositories.changed() => {}
            _ = self.registry.changed(), if task.state.unfinished.waits_for_others() => self.registry.mark_changed(),
            _ = self.outranked.changed() => self.registry.mark_changed(),
            _ = self.look_now.changed() => task.seen.forget(),
            _ = self.pushed.changed() => task.timers.add_push(self.pushed.take()),
            _ = self.host_keys.changed() => task.host_keys_changed(),
            () = self.drifted.notified() => task.objects_changed(),
            () = self.dependencies.notified() => task.dependencies_changed(),
            () = self.room.notified() => task.timers.look_at(Instant::now()),
            () = task.reported.status.turn.granted(&task.home.status_turns) => {}
            () = contest_watch::released(task.state.unfinished.contest.as_deref()) => task.state.unfinished.failed.retry_contested(Instant::now()),
            // The status shows the state of the prevention.
            () = self.prevention.notified() => {}
            () = task.sources.changed() => task.timers.look_at(Instant::now()),
            () = sleep_until(due.into()) => {}
        }
    }
}
