//! One attempt of a candidate to take one of its Leases.
//!
//! Invariant: a Lease that a member has shown as expired is taken only at the version that the member has seen. The write
//! contains that version, so a holder that has renewed the Lease since keeps it.
//! Invariant: a candidate begins no term if the response to its write leaves no time for a renewal: a retry period before
//! [`Timing::deadline`](super::Timing::deadline). It reads the Lease again instead, and takes no other before that. After a
//! second such result, it waits until the Lease has expired for others, so that one of them can lead.

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::observed::{LeaseAction, Observed, decide, observe};
use super::{Elector, Held, held};
use crate::apply::Persistence;
use crate::error::Error;
use crate::shards::{Member, Seen, is_of_members};

impl Elector {
    /// Takes the first Lease that may be taken. An error with one Lease does not stop the attempts with the others, unless
    /// its write may have been carried out: until that Lease is read again, the candidate takes no other.
    pub(super) async fn attempt_all(&self, seen: &mut Observed, only_held: bool) -> Result<Option<Held>, Error> {
        let (mut failed, unsure) = (None, seen.unsure);
        seen.unread.clear();
        seen.refused = 0;
        for index in self.order().into_iter().filter(|index| unsure.is_none_or(|unsure| unsure == *index)) {
            let found = self.cluster.get(&self.kind, Some(&self.namespace), &self.names[index]).await;
            // The clock is read after the response arrived, so that a change is never dated before it happened.
            let answered = Instant::now();
            let attempted = match found {
                Ok(found) => {
                    seen.unsure = None;
                    self.attempt(index, (found, answered), seen, only_held).await
                }
                Err(error) => {
                    seen.unread.insert(index);
                    failed = failed.or(Some(error));
                    continue;
                }
            };
            match attempted {
                Ok(Some(held)) => return Ok(Some(held)),
                Ok(None) if seen.unsure.is_some() => return Ok(None),
                Ok(None) => {}
                Err(error) if error.code().is_none_or(|code| code >= 500) => {
                    seen.doubt(index);
                    return Err(error);
                }
                Err(error) => {
                    seen.refused += 1;
                    failed = failed.or(Some(error));
                }
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Returns the Leases in the order in which they are read: first those that a member has shown as expired.
    fn order(&self) -> Vec<usize> {
        let expired = self.seen.as_ref().map(Seen::expired).unwrap_or_default();
        let is_expired = |index: &usize| Member::new(*index).is_some_and(|member| expired.contains(&member));
        let (first, later): (Vec<_>, Vec<_>) = (0..self.names.len()).partition(is_expired);
        first.into_iter().chain(later).collect()
    }

    /// Whether a member has shown that this Lease has expired.
    fn is_shown_expired(&self, index: usize, found: Option<&Value>) -> bool {
        let (Some(all), Some(member), Some(lease)) = (&self.seen, Member::new(index), found) else { return false };
        all.has_expired(member, lease)
    }

    /// Takes a Lease, as it was read, if that is allowed. Returns `None` if it is not, if another process was faster, or if
    /// the response was late.
    async fn attempt(
        &self,
        index: usize,
        (found, answered): (Option<Value>, Instant),
        seen: &mut Observed,
        only_held: bool,
    ) -> Result<Option<Held>, Error> {
        if let (Some(all), Some(member), Some(lease)) = (&self.seen, Member::new(index), &found) {
            all.see(member, lease, self.timing.lease, answered);
        }
        let is_missing = found.is_none();
        if found.as_ref().is_none_or(|lease| lease["spec"]["holderIdentity"] != *self.identity) {
            seen.doubts = 0;
        }
        let (mut waits, mut is_others) = (false, true);
        if let Some(now) = observe(seen.own.remove(&index), found.as_ref(), answered) {
            let is_held = decide(&now, &self.identity, self.timing.lease, answered) == LeaseAction::Wait;
            waits = is_held && !self.is_shown_expired(index, found.as_ref());
            is_others = is_missing || now.holder() != self.identity;
            seen.own.insert(index, now);
        }
        if waits || only_held && is_others {
            return Ok(None);
        }
        match self.take(index, found, seen).await {
            Ok(Some((lease, sent))) if sent.elapsed() + self.timing.retry < self.timing.deadline => {
                Ok(Some(Held { lease, index, renewed: sent }))
            }
            Ok(Some(_)) => {
                tracing::debug!(lease = %self.names[index], "the Lease was taken too late, and is read again");
                seen.doubt(index);
                Ok(None)
            }
            Err(error) if error.code() != Some(409) => Err(error),
            Ok(None) | Err(_) => Ok(None),
        }
    }

    /// Writes a Lease with this candidate as its holder. Returns it with the time when its last write was sent; `None` if
    /// members act.
    async fn take(
        &self,
        index: usize,
        found: Option<Value>,
        seen: &mut Observed,
    ) -> Result<Option<(Value, Instant)>, Error> {
        let name = &self.names[index];
        let Some(mut lease) = found else {
            let new = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": { "namespace": self.namespace, "name": name },
            });
            let new = self.marked(held(&new, &self.identity, self.timing, Timestamp::now()));
            let sent = Instant::now();
            let lease = self.cluster.create(&self.kind, Some(&self.namespace), name, &new, Persistence::Kept).await?;
            return Ok(Some((lease, sent)));
        };
        if self.mark.is_none() && is_of_members(&lease) {
            match self.take_from_members(&lease, seen).await? {
                Some(taken) => lease = taken,
                None => return Ok(None),
            }
        }
        let taken = self.marked(held(&lease, &self.identity, self.timing, Timestamp::now()));
        let sent = Instant::now();
        Ok(Some((self.write(&taken).await?, sent)))
    }
}
