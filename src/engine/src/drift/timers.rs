//! Timers of the drift loop per object: the backoff of its revert, and the end of its pause.
//!
//! Invariant: an object has at most one timer of each sort. A new timer replaces the old one.

use std::collections::HashMap;
use std::future::Future;

use tokio::task::{AbortHandle, Id, JoinSet};

use mainstay_object::Key;

/// Timer tasks of one sort by object.
#[derive(Debug, Default)]
pub(super) struct Timers(HashMap<Key, AbortHandle>);

impl Timers {
    /// Starts a timer and cancels an earlier one of the object.
    pub(super) fn start<T: Send + 'static>(
        &mut self,
        tasks: &mut JoinSet<T>,
        key: Key,
        wait: impl Future<Output = T> + Send + 'static,
    ) {
        if let Some(earlier) = self.0.insert(key, tasks.spawn(wait)) {
            earlier.abort();
        }
    }

    /// Removes a timer that has ended.
    pub(super) fn ended(&mut self, key: &Key, task: Id) {
        if self.0.get(key).is_some_and(|known| known.id() == task) {
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_changes_of_an_object_start_one_wait() {
        let (mut timers, mut tasks) = (Timers::default(), JoinSet::new());
        let key = |name: &str| Key::new("", "ConfigMap", Some("shop"), name);
        let wait = |round: u64| async move {
            tokio::time::sleep(Duration::from_secs(1_000_000 - round)).await;
            round
        };
        for round in 0..100_000 {
            timers.start(&mut tasks, key("a"), wait(round));
            timers.start(&mut tasks, key("b"), wait(round));
            while tasks.len() > 2 {
                assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
            }
        }
        assert_eq!(timers.0.len(), 2);
        let (task, round) = tasks.join_next_with_id().await.unwrap().unwrap();
        assert_eq!(round, 99_999, "the last one");
        timers.ended(&key("c"), task);
        assert_eq!(timers.0.len(), 2);
        let first = if timers.0[&key("a")].id() == task { "a" } else { "b" };
        timers.ended(&key(first), task);
        assert_eq!(timers.0.len(), 1);
    }
}
