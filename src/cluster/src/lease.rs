//! Leader election with a Lease: only one of several agents acts. With shards, an agent also holds one of several Leases,
//! which makes it a member (`shards`).
//!
//! The holder renews the Lease every retry period, and steps down by itself if it could not renew the Lease for
//! [`Timing::deadline`]. Other candidates take the Lease if it has not changed for its duration. Each candidate
//! measures that time with its own clock from when it saw the change, because clocks of different machines cannot be
//! compared.
//!
//! Invariant: every write contains the resourceVersion that was read. If two candidates take the Lease simultaneously,
//! only one succeeds.
//! Invariant: a [`Term`] ends at most [`Timing::deadline`] after the last renewal was sent, and before the Lease is
//! released. No other candidate may take the Lease before that.
//!
//! Not here: the work of the leader. The caller stops it before the elector.

mod acting_members;

use std::collections::{BTreeMap, BTreeSet};
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
use super::shards::{MOST, Member, Seen, is_of_members, released};
use mainstay_api::names::{LEASE, SHARD_LEASE, SHARD_LEASE_LEADER, SHARD_LEASE_MEMBER, SHARD_VIEW, VERSION};
use mainstay_object::failure::caught;

/// Number of attempts of a candidate to find the Lease that it holds already, if reads fail.
const LOOKS: u32 = 3;

/// The durations of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Lease duration: the time for which other candidates respect the Lease after its last change. Whole seconds.
    pub lease: Duration,
    /// Renew deadline: the time for which a leader continues without a renewal. Shorter than `lease`.
    pub deadline: Duration,
    /// Retry period: the interval of renewals by the holder and of reads by other candidates.
    pub retry: Duration,
}

impl Default for Timing {
    /// Returns 15 s, 10 s and 2 s, as in Kubernetes' own controllers.
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) }
    }
}

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

    /// Waits until this process leads, or does not lead any more.
    pub async fn changed_from(&mut self, was_leading: bool) {
        if self.0.wait_for(|term| is_open(term.as_ref()) != was_leading).await.is_err() {
            // The elector has ended, and so has the term.
            std::future::pending::<()>().await;
        }
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
    leading: watch::Sender<Option<Term>>,
}

/// The observed Leases of a candidate.
#[derive(Debug, Default)]
struct Observed {
    own: BTreeMap<usize, ObservedLease>,
    /// The Leases of members, for a candidate without shards.
    members: BTreeMap<usize, ObservedLease>,
    /// The members that acted when their Leases were read last.
    acting: BTreeSet<usize>,
    /// The Lease whose write has failed, and may have been carried out.
    unsure: Option<usize>,
    /// The number of failed attempts of this round. The pause after it grows with them.
    failed: u32,
}

/// The Lease, and the time of its last observed change.
#[derive(Clone, Debug, PartialEq)]
struct ObservedLease {
    spec: Value,
    at: Instant,
}

/// The next step for the Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseAction {
    /// Take the Lease: it is free or expired.
    Take,
    /// Wait: another process holds the Lease.
    Wait,
}

impl ObservedLease {
    fn holder(&self) -> &str {
        self.spec["holderIdentity"].as_str().unwrap_or_default()
    }
}

/// Returns the time at which the Lease expires unless it changes. `own` is the duration of a Lease that states none.
fn expiry(seen: &ObservedLease, own: Duration) -> Instant {
    let theirs = seen.spec["leaseDurationSeconds"].as_u64().filter(|seconds| (1..=3600).contains(seconds));
    seen.at + theirs.map_or(own, Duration::from_secs)
}

/// Returns the pause of a candidate until its next attempt. If a Lease expires earlier, the pause ends just after that.
/// `chance` is from 0 to 1, so that candidates do not write simultaneously.
fn pause(seen: &Observed, timing: Timing, now: Instant, chance: f64) -> Duration {
    let regular = timing.retry.saturating_mul(seen.failed.max(1)).min(timing.lease).mul_f64(1.0 + 0.2 * chance);
    if seen.failed > 0 || seen.unsure.is_some() {
        return regular;
    }
    let all = seen.own.values().chain(seen.members.values());
    let next = all.map(|lease| expiry(lease, timing.lease)).filter(|expiry| *expiry > now).min();
    next.map_or(regular, |expiry| regular.min(expiry - now + timing.retry.mul_f64(0.1 * chance)))
}

/// Decides on the next step. The Lease may be taken if it was released, if this candidate holds it, or if it has not
/// changed for its duration since its last observed change.
fn decide(seen: &ObservedLease, me: &str, own: Duration, now: Instant) -> LeaseAction {
    if seen.holder().is_empty() || seen.holder() == me || now >= expiry(seen, own) {
        LeaseAction::Take
    } else {
        LeaseAction::Wait
    }
}

/// Records a change of the Lease, with the time of this candidate's clock.
fn observe(seen: Option<ObservedLease>, lease: &Value, now: Instant) -> ObservedLease {
    match seen {
        Some(seen) if seen.spec == lease["spec"] => seen,
        _ => ObservedLease { spec: lease["spec"].clone(), at: now },
    }
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
            leading,
        };
        (elector, Leadership(leadership))
    }

    /// Returns a candidate for one of the first `count` shards. The Lease shows the `note`.
    pub fn of_shards(
        cluster: Cluster,
        namespace: &str,
        count: u8,
        identity: &str,
        timing: Timing,
        note: watch::Receiver<Option<String>>,
    ) -> (Self, Leadership) {
        let (mut elector, leadership) = Self::new(cluster, namespace, LEASE, identity, timing);
        elector.names = members().take(usize::from(count.min(MOST))).collect();
        elector.mark = Some(Mark { role: SHARD_LEASE_MEMBER, note });
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

    /// Lets a candidate for shards record the Leases that it reads. Others record none.
    #[must_use]
    pub fn recording(self, seen: Seen) -> Self {
        Self { seen: self.mark.is_some().then_some(seen), ..self }
    }

    /// Takes part in the election until `shutdown` is cancelled, then releases the Lease if this candidate holds it.
    pub async fn run(self, shutdown: CancellationToken) {
        while let Some(held) = shutdown.run_until_cancelled(caught(self.acquire())).await {
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
                self.release(name, &lease).await;
            } else {
                tracing::warn!(lease = %name, identity = %self.identity, "no longer leading");
            }
        }
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
            tokio::time::sleep(pause(&seen, self.timing, Instant::now(), fastrand::f64())).await;
        }
    }

    /// Takes the first Lease that may be taken. An error with one Lease does not stop the attempts with the others, unless
    /// its write may have been carried out: until that Lease is read again, the candidate takes no other.
    async fn attempt_all(&self, seen: &mut Observed, only_held: bool) -> Result<Option<Held>, Error> {
        let (mut failed, unsure) = (None, seen.unsure);
        seen.failed = 0;
        for index in (0..self.names.len()).filter(|index| unsure.is_none_or(|unsure| unsure == *index)) {
            let found = self.cluster.get(&self.kind, Some(&self.namespace), &self.names[index]).await;
            // The clock is read after the response arrived, so that a change is never dated before it happened.
            let answered = Instant::now();
            let attempted = match found {
                Ok(found) => {
                    seen.unsure = None;
                    self.attempt(index, (found, answered), seen, only_held).await
                }
                Err(error) => {
                    seen.failed += 1;
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            match attempted {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) => {}
                Err(error) if error.code().is_none_or(|code| code >= 500) => {
                    seen.unsure = Some(index);
                    return Err(error);
                }
                Err(error) => {
                    seen.failed += 1;
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Takes a Lease, as it was read, if that is allowed. Returns `None` if it is not, or if another process was faster.
    async fn attempt(
        &self,
        index: usize,
        (found, answered): (Option<Value>, Instant),
        seen: &mut Observed,
        only_held: bool,
    ) -> Result<Option<Held>, Error> {
        let name = &self.names[index];
        let written = match found {
            None if only_held => return Ok(None),
            None => {
                let new = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "namespace": self.namespace, "name": name },
                });
                let new = self.marked(held(&new, &self.identity, self.timing, Timestamp::now()));
                self.cluster.create(&self.kind, Some(&self.namespace), name, &new, Persistence::Kept).await
            }
            Some(lease) => {
                if let Some((all, member)) = self.seen.as_ref().zip(Member::new(index)) {
                    all.see(member, &lease, self.timing.lease, answered);
                }
                let now = observe(seen.own.remove(&index), &lease, answered);
                let step = decide(&now, &self.identity, self.timing.lease, answered);
                let is_others = now.holder() != self.identity;
                seen.own.insert(index, now);
                if step == LeaseAction::Wait || only_held && is_others {
                    return Ok(None);
                }
                if self.mark.is_none() && is_of_members(&lease) && self.members_act(seen).await? {
                    return Ok(None);
                }
                self.write(&self.marked(held(&lease, &self.identity, self.timing, Timestamp::now()))).await
            }
        };
        match written {
            Ok(lease) => Ok(Some(Held { lease, index, renewed: answered })),
            Err(error) if error.code() == Some(409) => Ok(None),
            Err(error) => Err(error),
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
        let mut mark = self.mark.clone();
        loop {
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep(self.timing.retry) => {}
                    () = Mark::changed(mark.as_mut()) => {}
                }
            };
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return Some(held.lease);
            }
            let deadline = held.renewed + self.timing.deadline;
            held = tokio::time::timeout_at(deadline, self.renew(held)).await.ok()??;
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
                    let found = self.cluster.get(&self.kind, Some(&self.namespace), name).await;
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

    /// Releases the Lease, so that the next leader does not wait for its expiry.
    async fn release(&self, name: &str, lease: &Value) {
        let mut lease = lease.clone();
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
        let name = lease["metadata"]["name"].as_str().unwrap_or_default();
        self.cluster.replace(&self.kind, Some(&self.namespace), name, lease, Persistence::Kept).await
    }
}

/// Returns the names of the Leases of all members, in order.
fn members() -> impl Iterator<Item = String> {
    (0..usize::from(MOST)).filter_map(Member::new).map(|member| format!("{LEASE}-{member}"))
}

#[cfg(test)]
mod tests;
