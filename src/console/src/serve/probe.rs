//! Asks at intervals whether the API server and the agent are alive, and whether the API server still accepts the token.
//!
//! Invariant: the streams of a fleet, or of a list, together cause one probe in each interval. Without a stream, there is none.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::freshness::{Agent, AgentReader, Probed, Stale};
use mainstay_cluster::Cluster;

/// Minimum time between two probes.
const PROBED_EVERY: Duration = Duration::from_secs(8);
/// Time within which the API server responds to a probe.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Delay before the next read of a Lease that could not be read.
const LEASE_AGAIN: Duration = Duration::from_secs(300);

/// The last answers of the API server and of the agent.
pub(super) struct Probe {
    probed: Mutex<Probed>,
    /// When the next probe is sent, and when the Lease is read next.
    due: Mutex<(Instant, Instant)>,
    is_refused: AtomicBool,
}

/// The answers to one probe.
struct Answers {
    is_answering: bool,
    /// `None` if the Lease was not read.
    agent: Option<Agent>,
    /// Whether the API server does not accept the token.
    is_refused: bool,
}

impl Probe {
    pub(super) fn new() -> Self {
        Self {
            probed: Mutex::new(Probed::new(Timestamp::now())),
            due: Mutex::new((Instant::now(), Instant::now())),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Asks whether the API server and the agent are alive, unless they were asked just before.
    pub(super) async fn ask(&self, cluster: &Cluster, agent: &AgentReader) {
        let now = Instant::now();
        let reader = {
            let mut due = self.due.lock();
            if due.0 > now {
                return;
            }
            due.0 = now + PROBED_EVERY;
            (due.1 <= now).then_some(agent)
        };
        let asked = tokio::time::timeout(ANSWERED_WITHIN, answers(cluster, reader)).await;
        let silent = Answers { is_answering: false, agent: None, is_refused: false };
        let Answers { is_answering, agent, is_refused } = asked.unwrap_or(silent);
        if agent == Some(Agent::Unknown) {
            self.due.lock().1 = now + LEASE_AGAIN;
        }
        self.is_refused.store(is_refused, Ordering::Relaxed);
        self.probed.lock().record(is_answering, agent, Timestamp::now());
    }

    /// Returns whether the API server did not accept the token in the last probe.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Returns why the shown state is old. `failing` is the time since which a watch fails.
    pub(super) fn stale(&self, failing: Option<Timestamp>) -> Option<Stale> {
        self.probed.lock().stale(failing)
    }
}

/// Asks the API server. `agent` reads the Lease, if that is due.
async fn answers(cluster: &Cluster, agent: Option<&AgentReader>) -> Answers {
    let agent = match agent {
        Some(read) => Some(read(cluster.clone()).await),
        None => None,
    };
    if matches!(agent, Some(Agent::Leads | Agent::Away(_))) {
        // The API server has answered this question, so it has accepted the token.
        return Answers { is_answering: true, agent, is_refused: false };
    }
    let code = match cluster.user_name().await {
        Ok(_) => return Answers { is_answering: true, agent, is_refused: false },
        Err(error) => error.code(),
    };
    let is_answering = code.is_some_and(|code| code < 500);
    // A user who may not ask for the own name has a token that is accepted, as at the beginning of the session.
    Answers { is_answering, agent: agent.filter(|_| is_answering), is_refused: code == Some(401) }
}
