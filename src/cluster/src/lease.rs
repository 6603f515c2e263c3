//! Leader election with a Lease: only one of several agents acts.
//!
//! The holder renews the Lease every retry period and steps down by itself if it could not renew it for
//! [`Timing::deadline`]. Others take the Lease if it has not changed for its duration, measured by their own clock from
//! when they saw the change: clocks of different machines are never compared.
//!
//! Invariant: every write carries the resourceVersion that was read, so if two take the Lease at once, one succeeds.
//! Invariant: a [`Term`] ends at most [`Timing::deadline`] after the last renewal was sent, before anybody else may
//! take the Lease; it ends before the Lease is released.
//! Deliberately absent: what the leader does. The caller stops that work before it stops the elector.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apply::Persistence;
use super::connect::Cluster;
use super::error::Error;
use super::kind::{Kind, Scope};
use mainstay_api::names::VERSION;
use mainstay_object::failure::caught;

/// The durations of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Lease duration: how long others respect it after its last change. Whole seconds.
    pub lease: Duration,
    /// Renew deadline: how long a leader continues without a renewal; shorter than `lease`.
    pub deadline: Duration,
    /// Retry period: how often the holder renews it and others read it.
    pub retry: Duration,
}

impl Default for Timing {
    /// 15 s, 10 s, 2 s, as in Kubernetes' own controllers.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

/// A time as the leader.
#[derive(Clone, Debug)]
pub struct Term {
    ended: CancellationToken,
}

impl Term {
    /// Cancelled when the term ends. The leader's work must stop then.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

/// Whether this process leads. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Term>>);

impl Leadership {
    /// Whether this process leads now.
    pub fn is_leading(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(|term| !term.ended.is_cancelled())
    }

    /// Waits until this process leads. `None` if the elector has ended.
    pub async fn term(&mut self) -> Option<Term> {
        let leading = |term: &Option<Term>| term.as_ref().is_some_and(|term| !term.ended.is_cancelled());
        self.0.wait_for(leading).await.ok()?.clone()
    }
}

/// A candidate in the election for one Lease.
#[derive(Debug)]
pub struct Elector {
    cluster: Cluster,
    kind: Kind,
    namespace: String,
    name: String,
    identity: String,
    timing: Timing,
    leading: watch::Sender<Option<Term>>,
}

/// The Lease, and when it was last seen to change.
#[derive(Clone, Debug, PartialEq)]
struct ObservedLease {
    spec: Value,
    at: Instant,
}

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseAction {
    /// Take it: it is free or expired.
    Take,
    /// Wait: another process holds it.
    Wait,
}

impl ObservedLease {
    fn holder(&self) -> &str {
        self.spec["holderIdentity"].as_str().unwrap_or_default()
    }
}

/// The Lease may be taken if it was released, if we held it before, or if it has not changed for its duration since we
/// saw it change.
fn decide(seen: &ObservedLease, me: &str, own: Duration, now: Instant) -> LeaseAction {
    let theirs = seen.spec["leaseDurationSeconds"].as_u64().filter(|seconds| (1..=3600).contains(seconds));
    let duration = theirs.map_or(own, Duration::from_secs);
    if seen.holder().is_empty() || seen.holder() == me || now >= seen.at + duration {
        LeaseAction::Take
    } else {
        LeaseAction::Wait
    }
}

/// Records when the Lease changed, by our own clock.
fn observe(seen: Option<ObservedLease>, lease: &Value, now: Instant) -> ObservedLease {
    match seen {
        Some(seen) if seen.spec == lease["spec"] => seen,
        _ => ObservedLease { spec: lease["spec"].clone(), at: now },
    }
}

/// The Lease as we write it.
fn held(lease: &Value, me: &str, timing: Timing, now: Timestamp) -> Value {
    let mut lease = lease.clone();
    let old = &lease["spec"];
    let renewal = old["holderIdentity"] == me;
    let transitions = old["leaseTransitions"].as_u64().unwrap_or_default() + u64::from(!renewal && !old.is_null());
    let acquired = if renewal { old["acquireTime"].clone() } else { Value::from(micro_time(now)) };
    lease["metadata"]["annotations"][VERSION] = json!(env!("CARGO_PKG_VERSION"));
    lease["spec"] = json!({
        "holderIdentity": me,
        "leaseDurationSeconds": timing.lease.as_secs().max(1),
        "acquireTime": acquired,
        "renewTime": micro_time(now),
        "leaseTransitions": transitions,
    });
    lease
}

/// MicroTime: API servers refuse any other number of digits.
pub(super) fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A Lease that we hold.
struct Held {
    lease: Value,
    /// When the last successful renewal was sent.
    renewed: Instant,
}

impl Elector {
    /// A candidate under `identity`, which no other process has that may run at the same time (a pod's uid). A
    /// restarted process with the same identity takes its Lease at once. It does nothing before [`run`](Self::run).
    pub fn new(cluster: Cluster, namespace: &str, name: &str, identity: &str, timing: Timing) -> (Self, Leadership) {
        let (leading, leadership) = watch::channel(None);
        let elector = Self {
            cluster: cluster.urgent(),
            kind: Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            timing,
            leading,
        };
        (elector, Leadership(leadership))
    }

    /// Takes part in the election until `shutdown` is cancelled; then releases the Lease if it is ours.
    pub async fn run(self, shutdown: CancellationToken) {
        while let Some(held) = shutdown.run_until_cancelled(caught(self.acquire())).await {
            let Ok(held) = held else {
                tokio::time::sleep(self.timing.retry).await;
                continue;
            };
            let term = Term { ended: shutdown.child_token() };
            tracing::info!(lease = %self.name, identity = %self.identity, "leading");
            self.leading.send_replace(Some(term.clone()));
            let lease = self.hold(held, &shutdown).await;
            term.ended.cancel();
            self.leading.send_replace(None);
            if let Some(lease) = lease {
                self.release(&lease).await;
            } else {
                tracing::warn!(lease = %self.name, identity = %self.identity, "no longer leading");
            }
        }
    }

    /// Polls the Lease until it can be taken.
    async fn acquire(&self) -> Held {
        let mut seen = None;
        let mut failing = false;
        loop {
            match self.attempt(&mut seen).await {
                Ok(Some(held)) => return held,
                Ok(None) => failing = false,
                Err(error) => {
                    let error = mainstay_object::failure::chain(&error);
                    // Warn once: an agent that cannot lead for lack of a permission must neither be silent nor flood
                    // the log.
                    if failing {
                        tracing::debug!(error, "the Lease cannot be taken");
                    } else {
                        tracing::warn!(error, "the Lease cannot be taken");
                    }
                    failing = true;
                }
            }
            tokio::time::sleep(self.timing.retry.mul_f64(1.0 + 0.2 * fastrand::f64())).await;
        }
    }

    /// Takes the Lease if that is allowed. `None` if it is not, or if another process was faster.
    async fn attempt(&self, seen: &mut Option<ObservedLease>) -> Result<Option<Held>, Error> {
        let found = self.cluster.get(&self.kind, Some(&self.namespace), &self.name).await?;
        // Read the clock after the answer, so that a change is never dated before it happened.
        let answered = Instant::now();
        let written = match found {
            None => {
                let new = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "namespace": self.namespace, "name": self.name },
                });
                let new = held(&new, &self.identity, self.timing, Timestamp::now());
                self.cluster.create(&self.kind, Some(&self.namespace), &self.name, &new, Persistence::Kept).await
            }
            Some(lease) => {
                let now = observe(seen.take(), &lease, answered);
                let step = decide(&now, &self.identity, self.timing.lease, answered);
                *seen = Some(now);
                if step == LeaseAction::Wait {
                    return Ok(None);
                }
                self.write(&held(&lease, &self.identity, self.timing, Timestamp::now())).await
            }
        };
        match written {
            Ok(lease) => Ok(Some(Held { lease, renewed: answered })),
            Err(error) if error.code() == Some(409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Renews the Lease until it is lost (`None`) or `shutdown` is cancelled (the Lease).
    async fn hold(&self, mut held: Held, shutdown: &CancellationToken) -> Option<Value> {
        loop {
            if shutdown.run_until_cancelled(tokio::time::sleep(self.timing.retry)).await.is_none() {
                return Some(held.lease);
            }
            let deadline = held.renewed + self.timing.deadline;
            held = tokio::time::timeout_at(deadline, self.renew(held)).await.ok()??;
        }
    }

    /// Renews the Lease, with retries. `None` if it is no longer ours.
    async fn renew(&self, mut held: Held) -> Option<Held> {
        loop {
            let sent = Instant::now();
            let renewed = self::held(&held.lease, &self.identity, self.timing, Timestamp::now());
            // A hanging request must leave time for another one before the deadline.
            let written = caught(tokio::time::timeout(self.timing.deadline / 3, self.write(&renewed))).await;
            // One that panicked is tried again: with the term all that this agent does would end.
            let Ok(written) = written else {
                tokio::time::sleep(self.timing.retry / 2).await;
                continue;
            };
            match written {
                Ok(Ok(lease)) => return Some(Held { lease, renewed: sent }),
                Ok(Err(error)) if error.is_not_found() => return None,
                Ok(Err(error)) if error.is_conflict() => {
                    // The answer to our own write may have been lost, or another client set a label.
                    let found = self.cluster.get(&self.kind, Some(&self.namespace), &self.name).await;
                    match found {
                        Ok(Some(lease)) if lease["spec"]["holderIdentity"] == *self.identity => {
                            held.lease = lease;
                            continue;
                        }
                        Ok(_) => return None,
                        Err(_) => {}
                    }
                }
                Ok(Err(error)) => tracing::debug!(error = %mainstay_object::failure::chain(&error), "renewal"),
                Err(_) => tracing::debug!("renewal timed out"),
            }
            tokio::time::sleep(self.timing.retry / 2).await;
        }
    }

    /// Releases the Lease, so that the next leader need not wait.
    async fn release(&self, lease: &Value) {
        let mut lease = lease.clone();
        lease["spec"]["holderIdentity"] = Value::from("");
        lease["spec"]["leaseDurationSeconds"] = Value::from(1);
        lease["spec"]["renewTime"] = Value::from(micro_time(Timestamp::now()));
        if let Ok(Ok(_)) = tokio::time::timeout(self.timing.retry, self.write(&lease)).await {
            tracing::info!(lease = %self.name, "Lease released");
        } else {
            tracing::info!(lease = %self.name, "Lease not released; it will expire");
        }
    }

    async fn write(&self, lease: &Value) -> Result<Value, Error> {
        self.cluster.replace(&self.kind, Some(&self.namespace), &self.name, lease, Persistence::Kept).await
    }
}

#[cfg(test)]
mod tests;
