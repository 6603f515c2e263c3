//! Changes of sources, for the rows of GitSyncs of other agents (those of other shards).
//!
//! Invariant: many changes cost one pass over these GitSyncs per [`TOGETHER`]. A plan does not wait for the pass.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Changes within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(200);

/// The changes of sources.
pub(super) struct SourceChanges {
    version: watch::Receiver<u64>,
    /// When the changes so far are handled.
    due: Option<Instant>,
}

impl SourceChanges {
    pub(super) fn new(version: watch::Receiver<u64>) -> Self {
        Self { version, due: None }
    }

    /// Waits until changes have to be handled; forever without sources. A wait that is cancelled loses no change.
    pub(super) async fn due(changes: Option<&mut Self>) {
        let Some(Self { version, due }) = changes else { return std::future::pending().await };
        if due.is_none() {
            if version.changed().await.is_err() {
                return std::future::pending().await;
            }
            *due = Some(Instant::now() + TOGETHER);
        }
        if let Some(at) = *due {
            sleep_until(at).await;
        }
        // The caller handles the changes that came during the wait, too.
        version.mark_unchanged();
        *due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_at_the_same_time_are_handled_together_and_none_is_lost() {
        let sources = watch::Sender::new(0);
        let mut changes = SourceChanges::new(sources.subscribe());
        let far = TOGETHER * 10;
        for _ in 0..2 {
            for _ in 0..5 {
                sources.send_modify(|version| *version += 1);
                // Another event of the loop cancels the wait.
                let early = tokio::time::timeout(TOGETHER / 10, SourceChanges::due(Some(&mut changes))).await;
                assert!(early.is_err());
            }
            SourceChanges::due(Some(&mut changes)).await;
            assert!(tokio::time::timeout(far, SourceChanges::due(Some(&mut changes))).await.is_err());
        }
        assert!(tokio::time::timeout(far, SourceChanges::due(None)).await.is_err());
    }
}
