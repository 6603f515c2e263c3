//! The end of the tasks of GitSyncs that the agent of another shard takes over, and of deleted GitSyncs that it may
//! recreate.
//!
//! Invariant: a task delays the other agents by at most the duration of the Lease. A task whose objects are in a remote
//! cluster delays them not at all: that cluster may never respond.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The part of the Lease duration after which tasks end without their last step, as a divisor.
const LAST_STEP: u32 = 2;

/// A task that ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Ends the task without its last step, such as the release of the objects of a deleted GitSync.
    pub(super) lost: CancellationToken,
    /// Cancelled when the task has ended.
    pub(super) over: CancellationToken,
    /// Whether the objects are in a remote cluster, or those of an earlier task.
    pub(super) is_remote: bool,
    /// As `lost`, for tasks of earlier objects of the same name. They end before this task.
    earlier: Vec<CancellationToken>,
}

impl Ending {
    pub(super) fn new(lost: CancellationToken, over: CancellationToken, is_remote: bool) -> Self {
        Self { lost, over, is_remote, earlier: Vec::new() }
    }

    /// Returns the end of a task that begins after the end of `before`.
    pub(super) fn after(mut self, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| !before.over.is_cancelled()) {
            self.is_remote |= before.is_remote;
            let all = before.earlier.iter().chain([&before.lost]);
            self.earlier.extend(all.filter(|lost| !lost.is_cancelled()).cloned());
        }
        self
    }

    /// Ends the task and the earlier ones without their last step.
    pub(super) fn cancel(&self) {
        self.lost.cancel();
        self.earlier.iter().for_each(CancellationToken::cancel);
    }
}

/// A task that is awaited.
#[derive(Debug)]
struct Awaited {
    task: Ending,
    /// When the task ends without its last step.
    last_step: Instant,
    /// When the task is not awaited any more.
    until: Instant,
}

/// The tasks that end before this agent publishes its share.
#[derive(Debug)]
pub(super) struct Dropping(Vec<Awaited>);

impl Dropping {
    /// Awaits tasks. Those that are awaited already keep their times.
    pub(super) fn new(
        tasks: impl Iterator<Item = Ending>,
        before: Option<Self>,
        lease: Duration,
        now: Instant,
    ) -> Self {
        let (remote, tasks): (Vec<_>, Vec<_>) = tasks.partition(|task| task.is_remote);
        remote.iter().for_each(Ending::cancel);
        let before = before.map(|before| before.0).unwrap_or_default();
        let awaited = |task: Ending| {
            let known = before.iter().find(|known| known.task.over == task.over);
            let times = known.map(|known| (known.last_step, known.until));
            let (last_step, until) = times.unwrap_or((now + lease / LAST_STEP, now + lease));
            Awaited { task, last_step, until }
        };
        Self(tasks.into_iter().map(awaited).collect())
    }

    /// Waits until the tasks have ended, or their time has. Waits forever without tasks to await. Cancel-safe: tasks that have
    /// ended are not looked at again.
    pub(super) async fn ended(dropping: Option<&mut Self>) {
        let Some(Self(tasks)) = dropping else { return std::future::pending().await };
        loop {
            let now = Instant::now();
            tasks.retain(|task| !task.is_done(now));
            if tasks.is_empty() {
                return;
            }
            let due = tasks.iter().filter_map(|task| task.due(now)).min().unwrap_or(now);
            let all_end = async {
                while let Some(last) = tasks.last().map(|last| last.task.over.clone()) {
                    last.cancelled().await;
                    tasks.pop();
                }
            };
            let _ = timeout_at(due, all_end).await;
        }
    }
}

impl Awaited {
    /// Returns the next time at which something happens to the task.
    fn due(&self, now: Instant) -> Option<Instant> {
        [self.last_step, self.until].into_iter().find(|at| *at > now)
    }

    /// Ends the task without its last step if that is due. Returns whether the task is not awaited any more.
    fn is_done(&self, now: Instant) -> bool {
        if self.task.over.is_cancelled() {
            return true;
        }
        if self.last_step <= now {
            self.task.cancel();
        }
        self.until <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn ending(is_remote: bool) -> Ending {
        Ending::new(CancellationToken::new(), CancellationToken::new(), is_remote)
    }

    fn dropping(tasks: &[Ending], before: Option<Dropping>) -> Dropping {
        Dropping::new(tasks.iter().cloned(), before, LEASE, Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_ends_in_time_makes_its_last_step() {
        let (task, begun) = (ending(false), Instant::now());
        let over = task.over.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            over.cancel();
        });
        Dropping::ended(Some(&mut dropping(std::slice::from_ref(&task), None))).await;
        assert_eq!((begun.elapsed().as_secs(), task.lost.is_cancelled()), (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_is_awaited_for_the_duration_of_the_lease_at_most() {
        let (task, begun) = (ending(false), Instant::now());
        let first = dropping(std::slice::from_ref(&task), None);
        tokio::time::sleep(LEASE / 3).await;
        let mut second = dropping(std::slice::from_ref(&task), Some(first));
        Dropping::ended(Some(&mut second)).await;
        assert_eq!((begun.elapsed().as_secs(), task.lost.is_cancelled()), (LEASE.as_secs(), true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_of_a_second_change_has_its_own_time() {
        let (first, second, begun) = (ending(false), ending(false), Instant::now());
        let before = dropping(std::slice::from_ref(&first), None);
        tokio::time::sleep(LEASE / 3).await;
        let mut both = dropping(&[first.clone(), second.clone()], Some(before));
        let over = second.over.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(begun + LEASE - Duration::from_secs(3)).await;
            over.cancel();
        });
        Dropping::ended(Some(&mut both)).await;
        assert_eq!((begun.elapsed().as_secs(), first.lost.is_cancelled()), (LEASE.as_secs(), true));
        assert!(!second.lost.is_cancelled(), "it ended within its time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_of_a_remote_cluster_ends_without_its_last_step_and_is_not_awaited() {
        let (task, begun) = (ending(true), Instant::now());
        Dropping::ended(Some(&mut dropping(std::slice::from_ref(&task), None))).await;
        assert_eq!((begun.elapsed().as_secs(), task.lost.is_cancelled()), (0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_tasks_of_the_same_name_end_without_their_last_step_too() {
        let first = ending(false);
        let second = ending(false).after(Some(&first));
        let third = ending(false).after(Some(&second));
        Dropping::ended(Some(&mut dropping(std::slice::from_ref(&third), None))).await;
        assert!([&first, &second, &third].iter().all(|task| task.lost.is_cancelled()));
        let (begun, remote) = (Instant::now(), ending(true));
        let next = ending(false).after(Some(&remote));
        Dropping::ended(Some(&mut dropping(&[next], None))).await;
        assert_eq!((begun.elapsed().as_secs(), remote.lost.is_cancelled()), (0, true), "it waits for a remote cluster");
        remote.over.cancel();
        assert!(!ending(false).after(Some(&remote)).is_remote);
    }
}
