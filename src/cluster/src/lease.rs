//! Leader election with a Lease: only one of several agents acts. With shards, an agent also holds one of several Leases,
//! which makes it a member (`shards`).
//!
//! The holder renews the Lease every retry period, and steps down by itself if it could not renew the Lease for
//! [`Timing::deadline`]. Other candidates take the Lease if it has not changed for its duration. Each candidate
//! measures that time with its own clock from when it saw the change, because clocks of different machines cannot be
//! compared. A candidate for a shard also takes a Lease that has not changed for its duration by the clock of a member.
//!
//! Invariant: every write contains the resourceVersion that was read. If two candidates take the Lease simultaneously,
//! only one succeeds.
//! Invariant: a [`Term`] begins and ends at most [`Timing::deadline`] after the last successful write was sent, also if its
//! response is late, and ends before the Lease is released. No other candidate may take the Lease before that. If the process
//! was paused, the term ends as soon as the elector runs again, by a clock that does not count suspension.
//!
//! Not here: the work of the leader. The caller stops it before the elector.

mod acting_members;
mod attempt;
mod observed;
mod timing;

use std::pin::pin;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apply::Persistence;
use super::connect::Cluster;
use super::error::Error;
use super::kind::{Kind, Scope};
use super::shards::{MOST, Member, Seen, follow_expiries, is_of_members, released};
use mainstay_api::names::{LEASE, SHARD_LEASE, SHARD_LEASE_LEADER, SHARD_LEASE_MEMBER, SHARD_VIEW, VERSION};
use mainstay_object::failure::caught;
use observed::{Observed, pause};
pub use timing::Timing;

/// Number of attempts of a candidate to find the Lease that it holds already, if reads fail.
const LOOKS: u32 = 3;

/// A term as the leader.
#[derive(Clone, Debug)]
pub struct Term {
    ended: CancellationToken,
    /// The index of the Lease.
    lease: usize,
}

impl Term {
    /// Cancelled when the term ends. The leader's work must stop then.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Returns the member, for a Lease of a shard.
    pub fn member(&self) -> Option<Member> {
        Member::new(self.lease)
    }
}

/// Whether this process leads. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Term>>);

impl Leadership {
    /// Whether this process leads now.
    pub fn is_leading(&self) -> bool {
        is_open(self.0.borrow().as_ref())
    }

    /// Returns the present term; `None` if this process does not lead.
    pub fn now(&self) -> Option<Term> {
        self.0.borrow().clone().filter(|term| is_open(Some(term)))
    }

    /// Waits until this process leads. `None` if the elector has ended.
    pub async fn term(&mut self) -> Option<Term> {
        self.0.wait_for(|term| is_open(term.as_ref())).await.ok()?.clone()
    }
}

fn is_open(term: Option<&Term>) -> bool {
    term.is_some_and(|term| !term.ended.is_cancelled())
}

/// The marks of a Lease of agents with shards.
#[derive(Clone, Debug)]
struct Mark {
    role: &'static str,
    /// The annotation. A change is written immediately.
    note: watch::Receiver<Option<String>>,
}

impl Mark {
    /// Waits until the annotation changes.
    async fn changed(mark: Option<&mut Self>) {
        if let Some(mark) = mark
            && mark.note.changed().await.is_ok()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

/// A candidate in the election for one Lease, or for one of several.
#[derive(Debug)]
pub struct Elector {
    cluster: Cluster,
    kind: Kind,
    namespace: String,
    names: Vec<String>,
    identity: String,
    timing: Timing,
    mark: Option<Mark>,
    /// Records the Leases of shards for the work of a member.
    seen: Option<Seen>,
    /// Whether this candidate watches which Leases the members show as expired.
    follows_expiries: bool,
    leading: watch::Sender<Option<Term>>,
}

/// Returns the Lease with this candidate as its holder.
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

/// Formats a MicroTime. API servers reject any other number of digits.
pub(super) fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// A Lease held by this process.
struct Held {
    lease: Value,
    /// The index of its name.
    index: usize,
    /// The time when the last successful renewal was sent.
    renewed: Instant,
}

impl Elector {
    /// Returns a candidate. Its `identity` must be unique among running processes, such as a pod's UID. A restarted
    /// process with the same identity takes its Lease immediately. No request is sent before [`run`](Self::run).
    pub fn new(cluster: Cluster, namespace: &str, name: &str, identity: &str, timing: Timing) -> (Self, Leadership) {
        let (leading, leadership) = watch::channel(None);
        let elector = Self {
            cluster: cluster.urgent(),
            kind: Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced),
            namespace: namespace.to_owned(),
            names: vec![name.to_owned()],
            identity: identity.to_owned(),
            timing,
            mark: None,
            seen: None,
            follows_expiries: false,
            leading,
        };
        (elector, Leadership(leadership))
    }

    /// Returns a candidate for one of the first `count` shards. The Lease shows the `note`. The candidate records the Leases
    /// that it reads in `seen`.
    pub fn of_shards(
        cluster: Cluster,
        namespace: &str,
        count: u8,
        identity: &str,
        timing: Timing,
        note: watch::Receiver<Option<String>>,
        seen: Seen,
    ) -> (Self, Leadership) {
        let (mut elector, leadership) = Self::new(cluster, namespace, LEASE, identity, timing);
        elector.names = members().take(usize::from(count.min(MOST))).collect();
        elector.mark = Some(Mark { role: SHARD_LEASE_MEMBER, note });
        elector.seen = Some(seen);
        (elector, leadership)
    }

    /// Makes this a candidate that leads members. Its Lease says so, so that no candidate without shards acts beside
    /// them.
    #[must_use]
    pub fn leading_members(mut self) -> Self {
        let note = watch::channel(Some(self.identity.clone())).1;
        self.mark = Some(Mark { role: SHARD_LEASE_LEADER, note });
        self
    }

    /// Makes this a candidate for a shard that watches which Leases the members show as expired, and takes one of these
    /// immediately.
    #[must_use]
    pub fn following_expiries(self) -> Self {
        Self { follows_expiries: true, ..self }
    }

    /// Takes part in the election until `shutdown` is cancelled, then releases the Lease if this candidate holds it.
    pub async fn run(self, shutdown: CancellationToken) {
        while let Some(held) = shutdown.run_until_cancelled(caught(self.acquire_beside_watch())).await {
            let Ok(held) = held else {
                tokio::time::sleep(self.timing.retry).await;
                continue;
            };
            let term = Term { ended: shutdown.child_token(), lease: held.index };
            let name = &self.names[held.index];
            tracing::info!(lease = %name, identity = %self.identity, "leading");
            self.leading.send_replace(Some(term.clone()));
            let lease = self.hold(held, &shutdown).await;
            term.ended.cancel();
            self.leading.send_replace(None);
            if let Some(lease) = lease {
                self.release(&lease).await;
            } else {
                tracing::warn!(lease = %name, identity = %self.identity, "no longer leading");
            }
        }
    }

    /// Polls the Leases until one can be taken, beside the watch of the members.
    async fn acquire_beside_watch(&self) -> Held {
        let expiries = async {
            match &self.seen {
                Some(seen) if self.follows_expiries => follow_expiries(&self.cluster, &self.namespace, seen).await,
                _ => std::future::pending().await,
            }
        };
        beside(self.acquire(), expiries).await
    }

    /// Polls the Leases until one can be taken.
    async fn acquire(&self) -> Held {
        let mut seen = Observed::default();
        let mut failing = false;
        // A candidate for several Leases looks first for the one that it holds already, as long as it can read them.
        let mut looks = if self.names.len() > 1 { LOOKS } else { 0 };
        loop {
            match self.attempt_all(&mut seen, looks > 0).await {
                Ok(Some(held)) => return held,
                Ok(None) => {
                    failing = false;
                    if std::mem::take(&mut looks) > 0 {
                        continue;
                    }
                }
                Err(error) => {
                    looks = looks.saturating_sub(1);
                    let error = mainstay_object::failure::chain(&error);
                    // Warns only once: an agent without the permission to lead must report that, but not flood the log.
                    if failing {
                        tracing::debug!(error, "the Lease cannot be taken");
                    } else {
                        tracing::warn!(error, "the Lease cannot be taken");
                    }
                    failing = true;
                }
            }
            seen.end_round();
            let pause = tokio::time::sleep(pause(&seen, self.timing, Instant::now(), fastrand::f64()));
            match &self.seen {
                // A candidate that may hold a Lease waits as long as it must.
                Some(all) if seen.unsure.is_none() => tokio::select! {
                    () = pause => {}
                    // Leases whose annotations change all the time cause no round without a pause.
                    () = all.expires() => tokio::time::sleep(self.timing.retry / 20).await,
                },
                _ => pause.await,
            }
        }
    }

    /// Returns the Lease with the marks of shards, or without them.
    fn marked(&self, mut lease: Value) -> Value {
        match &self.mark {
            Some(mark) => {
                lease["metadata"]["labels"][SHARD_LEASE] = json!(mark.role);
                match &*mark.note.borrow() {
                    Some(note) => lease["metadata"]["annotations"][SHARD_VIEW] = json!(note),
                    None => released(&mut lease),
                }
            }
            None if is_of_members(&lease) => {
                released(&mut lease);
                if let Some(labels) = lease["metadata"]["labels"].as_object_mut() {
                    labels.remove(SHARD_LEASE);
                }
            }
            None => {}
        }
        lease
    }

    /// Renews the Lease until it is lost (returns `None`) or `shutdown` is cancelled (returns the Lease).
    async fn hold(&self, mut held: Held, shutdown: &CancellationToken) -> Option<Value> {
        let Timing { deadline, retry, .. } = self.timing;
        let mut mark = self.mark.clone();
        loop {
            // A late response, or a pause of the process, leaves less time for the next renewal.
            let renewal = (Instant::now() + retry).min(held.renewed + deadline.saturating_sub(retry));
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep_until(renewal) => {}
                    () = Mark::changed(mark.as_mut()) => {}
                }
            };
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return Some(held.lease);
            }
            let end = held.renewed + deadline;
            if end <= Instant::now() {
                return None;
            }
            held = tokio::time::timeout_at(end, self.renew(held)).await.ok()??;
            // A response that is there after the deadline takes precedence over the timeout.
            if held.renewed + deadline <= Instant::now() {
                return None;
            }
        }
    }

    /// Renews the Lease with retries. Returns `None` if this candidate does not hold it any more.
    async fn renew(&self, mut held: Held) -> Option<Held> {
        loop {
            let sent = Instant::now();
            let renewed = self.marked(self::held(&held.lease, &self.identity, self.timing, Timestamp::now()));
            // A hanging request must leave time for a second one before the deadline.
            let written = caught(tokio::time::timeout(self.timing.deadline / 3, self.write(&renewed))).await;
            // A panic is retried, because the end of the term would stop all work of the agent.
            let Ok(written) = written else {
                tokio::time::sleep(self.timing.retry / 2).await;
                continue;
            };
            match written {
                Ok(Ok(lease)) => return Some(Held { lease, renewed: sent, ..held }),
                Ok(Err(error)) if error.is_not_found() => return None,
                Ok(Err(error)) if error.is_conflict() => {
                    // The response to this candidate's own write may have been lost, or another client set a label.
                    let name = &self.names[held.index];
                    let read = self.cluster.get(&self.kind, Some(&self.namespace), name);
                    match tokio::time::timeout(self.timing.deadline / 3, read).await {
                        Ok(Ok(Some(lease))) if lease["spec"]["holderIdentity"] == *self.identity => {
                            held.lease = lease;
                            continue;
                        }
                        Ok(Ok(_)) => return None,
                        Ok(Err(_)) | Err(_) => {}
                    }
                }
                Ok(Err(error)) => tracing::debug!(error = %mainstay_object::failure::chain(&error), "renewal"),
                Err(_) => tracing::debug!("renewal timed out"),
            }
            tokio::time::sleep(self.timing.retry / 2).await;
        }
    }

    /// Releases the Lease, so that the next leader does not wait for its expiry.
    async fn release(&self, lease: &Value) {
        let (mut lease, name) = (lease.clone(), name_of(lease));
        if self.mark.as_ref().is_some_and(|mark| mark.role == SHARD_LEASE_MEMBER) {
            released(&mut lease);
        }
        lease["spec"]["holderIdentity"] = Value::from("");
        lease["spec"]["leaseDurationSeconds"] = Value::from(1);
        lease["spec"]["renewTime"] = Value::from(micro_time(Timestamp::now()));
        if let Ok(Ok(_)) = tokio::time::timeout(self.timing.retry, self.write(&lease)).await {
            tracing::info!(lease = %name, "Lease released");
        } else {
            tracing::info!(lease = %name, "Lease not released; it will expire");
        }
    }

    async fn write(&self, lease: &Value) -> Result<Value, Error> {
        self.cluster.replace(&self.kind, Some(&self.namespace), name_of(lease), lease, Persistence::Kept).await
    }
}

fn name_of(lease: &Value) -> &str {
    lease["metadata"]["name"].as_str().unwrap_or_default()
}

/// Does the work beside other work. The end of the other work, or its panic, does not end the work.
async fn beside<T>(work: impl Future<Output = T>, other: impl Future<Output = ()>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        done = &mut work => done,
        ended = caught(other) => {
            if let Err(panicked) = ended {
                tracing::error!(why = %panicked, "the Leases of shards are not watched until this agent holds one");
            }
            work.await
        }
    }
}

/// Returns the names of the Leases of all members, in order.
fn members() -> impl Iterator<Item = String> {
    (0..usize::from(MOST)).filter_map(Member::new).map(|member| format!("{LEASE}-{member}"))
}

#[cfg(test)]
mod tests;
