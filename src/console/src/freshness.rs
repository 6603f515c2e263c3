//! Whether a page shows the current state of the cluster, and since when it does not.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use mainstay_cluster::Cluster;

/// Whether an agent leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agent {
    /// An agent leads.
    Leads,
    /// No agent leads since this time, at which the last one renewed its Lease.
    Away(Timestamp),
    /// The user may not read the Lease, or there is none.
    Unknown,
}

/// Reads the Lease of the agent with the permissions of this connection.
pub type AgentReader = Arc<dyn Fn(Cluster) -> BoxFuture<'static, Agent> + Send + Sync>;

/// Why the shown state is old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// The API server does not respond, or a watch of it has failed.
    Server(Timestamp),
    /// No agent writes statuses.
    Agent(Timestamp),
}

impl Stale {
    /// Returns the time since which the state is old, and the reason, as data of a message: one line each.
    pub(crate) fn lines(self) -> String {
        let (since, why) = match self {
            Self::Server(since) => (since, "the API server does not respond"),
            Self::Agent(since) => (since, "no agent runs, so nothing is synced and statuses are old"),
        };
        format!("{since:.0}\n{why}")
    }
}

/// The responses of the API server and the agent to the last probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probed {
    /// When the API server last responded.
    answered: Timestamp,
    is_answering: bool,
    agent: Agent,
}

impl Probed {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { answered: now, is_answering: true, agent: Agent::Unknown }
    }

    /// Records a probe. `agent` is `None` if the Lease was not read.
    pub(crate) fn record(&mut self, is_answering: bool, agent: Option<Agent>, now: Timestamp) {
        self.is_answering = is_answering;
        if is_answering {
            self.answered = now;
            self.agent = agent.unwrap_or(self.agent);
        }
    }

    /// Returns why the shown state is old. `failing` is the time since which a watch fails.
    pub(crate) fn stale(&self, failing: Option<Timestamp>) -> Option<Stale> {
        let server = failing.into_iter().chain((!self.is_answering).then_some(self.answered)).min();
        match (server, self.agent) {
            (Some(since), _) => Some(Stale::Server(since)),
            (None, Agent::Away(since)) => Some(Stale::Agent(since)),
            (None, Agent::Leads | Agent::Unknown) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_state_is_old_since_the_last_response_or_the_end_of_a_watch() {
        let mut probed = Probed::new(at(10));
        assert_eq!(probed.stale(None), None);
        assert_eq!(probed.stale(Some(at(15))), Some(Stale::Server(at(15))));
        probed.record(true, None, at(20));
        probed.record(false, None, at(30));
        probed.record(false, Some(Agent::Leads), at(40));
        assert_eq!(probed.stale(None), Some(Stale::Server(at(20))));
        assert_eq!(probed.stale(Some(at(15))), Some(Stale::Server(at(15))));
        probed.record(true, None, at(50));
        assert_eq!(probed.stale(None), None);
    }

    #[test]
    fn an_agent_without_a_known_lease_is_not_away() {
        let mut probed = Probed::new(at(10));
        probed.record(true, Some(Agent::Away(at(5))), at(20));
        assert_eq!(probed.stale(None).map(Stale::lines).unwrap().split_once('\n').unwrap().0, "1970-01-01T00:00:05Z");
        assert_eq!(probed.stale(Some(at(15))), Some(Stale::Server(at(15))), "the agent is not seen");
        for agent in [Agent::Leads, Agent::Unknown] {
            probed.record(true, Some(agent), at(30));
            assert_eq!(probed.stale(None), None);
        }
    }
}
