//! Whether the agent leads while it works, and the parts that the leader's work needs.
//!
//! An agent with shards works for its GitSyncs before it leads. The work goes on when the agent begins to lead: if it
//! began again, objects would be unprotected until all of them were read.
//!
//! Invariant: the end of the agent's term as the leader ends all its work, so no write of the leader follows.
//!
//! Not here: the work (`leader`), and the election (`run`).

use std::sync::Arc;

use tokio::sync::watch;

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

/// Whether the task of an object writes the object's status, which only the leader does. A task works before the agent
/// leads, and goes on when it begins to.
pub(super) struct Reporting {
    leads: watch::Receiver<bool>,
    /// Whether the known status of the object is that which this agent has read or written last. Another agent may have
    /// written a newer one before this agent led.
    is_current: bool,
}

impl Reporting {
    pub(super) fn new(leads: &watch::Receiver<bool>) -> Self {
        Self { leads: leads.clone(), is_current: *leads.borrow() }
    }

    /// Whether the task writes the status.
    pub(super) fn is_on(&self) -> bool {
        *self.leads.borrow()
    }

    /// Waits until the agent leads and the task has to begin to report. Returns immediately from then on until the status
    /// [is current](Self::set_current). Cancel-safe.
    pub(super) async fn begins(&mut self) {
        if self.is_current || self.leads.wait_for(|leads| *leads).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether the status has to be read before it is written. True until the status [is current](Self::set_current), in
    /// a task that began before the agent led.
    pub(super) fn must_read(&self) -> bool {
        self.is_on() && !self.is_current
    }

    /// Records that the status was read.
    pub(super) fn set_current(&mut self) {
        self.is_current = true;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_reads_the_status_until_it_is_known_when_the_agent_begins_to_lead() {
        let (leads, receiver) = watch::channel(false);
        let mut reporting = Reporting::new(&receiver);
        let begins = tokio::time::timeout(Duration::from_secs(3600), reporting.begins()).await;
        assert!(begins.is_err() && !reporting.is_on() && !reporting.must_read());
        leads.send_replace(true);
        reporting.begins().await;
        assert!(reporting.is_on() && reporting.must_read(), "a failed read is repeated");
        reporting.begins().await;
        reporting.set_current();
        assert!(reporting.is_on() && !reporting.must_read());
        let begins = tokio::time::timeout(Duration::from_secs(3600), reporting.begins()).await;
        assert!(begins.is_err(), "only once");
        let later = Reporting::new(&receiver);
        assert!(later.is_on() && !later.must_read(), "its task begins with the live status");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_without_shards_leads_while_it_works() {
        let mut leading = Leading::of(None);
        assert!(leading.is_leading());
        let change = tokio::time::timeout(Duration::from_secs(3600), leading.change()).await;
        assert!(change.is_err());
    }
}
