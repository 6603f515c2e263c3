//! Whether the agent leads while it works, and the parts that the leader's work needs.
//!
//! An agent with shards works for its GitSyncs before it leads. That work goes on when the agent begins to lead: if it
//! began again, objects would be unprotected until all of them were read.
//!
//! Invariant: the end of the agent's term as the leader ends all its work, so no write of the leader follows.
//!
//! Not here: the work (`leader`), and the election (`run`).

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinError;

use mainstay_cluster::shards::PushNote;
use mainstay_cluster::{Leadership, Term};
use mainstay_engine::drift::Drift;
use mainstay_function::bindings::Bindings;
use mainstay_gitsync::Context;

/// Whether the agent leads while it works.
pub(super) struct Leading {
    /// The election beside a shard; `None` if the agent works only while it leads.
    election: Option<Leadership>,
    /// The term in which the agent leads beside a shard.
    term: Option<Term>,
}

/// A change of [`Leading`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The agent begins to lead.
    Begun,
    /// The agent does not lead any more.
    Ended,
}

impl Leading {
    /// Returns whether the agent leads now. `election` is that beside a shard.
    pub(super) fn of(election: Option<&Leadership>) -> Self {
        Self { election: election.cloned(), term: election.and_then(Leadership::now) }
    }

    pub(super) fn is_leading(&self) -> bool {
        self.election.is_none() || self.term.is_some()
    }

    /// Waits until the agent begins or ends to lead. Cancel-safe.
    pub(super) async fn change(&mut self) -> Change {
        let Some(election) = &mut self.election else { return std::future::pending().await };
        if let Some(term) = &self.term {
            term.ended().cancelled().await;
            return Change::Ended;
        }
        // Without an elector, the agent never leads.
        let Some(term) = election.term().await else { return std::future::pending().await };
        self.term = Some(term);
        Change::Begun
    }
}

/// The parts of the agent's work that the leader's work needs.
pub(super) struct Parts {
    pub(super) context: Arc<Context>,
    pub(super) functions: Arc<mainstay_function::Context>,
    pub(super) bound: Arc<Bindings>,
    pub(super) drift: Drift,
    pub(super) repositories_known: watch::Receiver<bool>,
    /// Passes pushes on to other agents, with shards.
    pub(super) push_note: Option<watch::Sender<PushNote>>,
}

/// Does `work` without reports until the agent leads, then begins it again with reports: each state that was not reported
/// is compared with its status. The argument of `work` is whether it reports.
pub(super) async fn reporting<F: Future<Output = Result<(), JoinError>>>(
    mut leads: watch::Receiver<bool>,
    work: impl Fn(bool) -> F,
) -> Result<(), JoinError> {
    let is_leading = *leads.borrow_and_update();
    if is_leading {
        return work(true).await;
    }
    let begins = async {
        if leads.wait_for(|leads| *leads).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        ended = work(false) => ended,
        () = begins => work(true).await,
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_begins_again_with_reports_once_the_agent_leads() {
        let (leads, receiver) = watch::channel(false);
        let begun: Arc<Mutex<Vec<bool>>> = Arc::default();
        let record = Arc::clone(&begun);
        let running = tokio::spawn(reporting(receiver, move |reports| {
            record.lock().push(reports);
            std::future::pending()
        }));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*begun.lock(), [false]);
        leads.send_replace(true);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*begun.lock(), [false, true]);
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_without_shards_leads_while_it_works() {
        let mut leading = Leading::of(None);
        assert!(leading.is_leading());
        let change = tokio::time::timeout(Duration::from_secs(3600), leading.change()).await;
        assert!(change.is_err());
    }
}
