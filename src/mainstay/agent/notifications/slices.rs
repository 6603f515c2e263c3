//! Matches waiting messages with Alerts, on threads of its own.
//!
//! Invariant: no task waits for a match. Expressions are those of users, and a match of one message with one Alert may take
//! a second.
//! Invariant: the matches of a namespace take at most one thread, for a quarter of the time. All matches take two threads.
//! Namespaces take turns after each slice, so slow Alerts of one namespace delay only its own messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};

use crate::agent::notify::{Matching, Outbox};

/// Maximum number of threads.
const THREADS: usize = 2;
/// Time after which a slice begins no further match.
const SLICE: Duration = Duration::from_millis(20);
/// The pause of a namespace after a slice, in durations of the slice.
const PAUSE: u32 = 3;

/// Matches messages until a task panics.
pub(super) async fn run(outbox: Outbox) -> Result<(), JoinError> {
    let (threads, mut namespaces) = (Arc::new(Semaphore::new(THREADS)), JoinSet::new());
    loop {
        tokio::select! {
            matching = outbox.matching() => {
                namespaces.spawn(finish(matching, Arc::clone(&threads)));
            }
            Some(ended) = namespaces.join_next() => ended??,
        }
    }
}

/// Matches the messages of a namespace in slices, until no message waits.
async fn finish(mut matching: Matching, threads: Arc<Semaphore>) -> Result<(), JoinError> {
    loop {
        let Ok(permit) = threads.acquire().await else { return Ok(()) };
        let slice = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            matching.run(|| began.elapsed() >= SLICE);
            (matching, began.elapsed())
        });
        let (left, took) = slice.await?;
        drop(permit);
        // The pause precedes the check, so that messages one after another do not avoid it.
        tokio::time::sleep(took * PAUSE).await;
        if left.is_done() {
            return Ok(());
        }
        matching = left;
    }
}
