//! The audit: checks each object once in an interval by a dry run, one at a time and spread over the interval.
//!
//! Watches show changes of objects. The audit finds differences that watches do not show: missed events, and changes of
//! webhooks that would change an object.
//!
//! Invariant: at most one audit is in flight. Each audit waits up to a second for reverts and applies, and as long as
//! the server is overloaded.
//! Invariant: the schedule keeps no state per object, so a restart causes no burst.
//!
//! Not here: the dry run and its result (`apply`), and the order of objects (`managed::audit`).

use std::collections::HashSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::apply::Audited;
use crate::managed::audit::Schedule;
use mainstay_cluster::KindId;
use mainstay_object::failure::{Backoff, caught};
use mainstay_object::{Key, Owner};

/// Pause of audits after an overload without a `Retry-After`.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// Owners and kinds whose refused audits were announced.
type Reported = HashSet<(Owner, KindId)>;

impl Drift {
    /// Audits each object once in `interval` until `stop`. An interval of 0 disables the audit.
    pub async fn audit(self, interval: Duration, stop: CancellationToken) {
        let Some(schedule) = Schedule::every(interval) else { return stop.cancelled().await };
        let (mut reported, mut busy) = (Reported::new(), 0);
        let mut from = self.since_1970();
        while !stop.is_cancelled() {
            let to = from + schedule.part();
            let due = self.writer.store().audits_due(schedule, from, to);
            for (at, key) in due {
                if stop.run_until_cancelled(self.wait_until(at)).await.is_none() {
                    return;
                }
                let Some(is_busy) = stop.run_until_cancelled(self.audit_now(&key, &mut reported)).await else { return };
                busy = if is_busy { busy + 1 } else { 0 };
                if is_busy && stop.run_until_cancelled(tokio::time::sleep(REST.delay(busy))).await.is_none() {
                    return;
                }
            }
            if stop.run_until_cancelled(self.wait_until(to)).await.is_none() {
                return;
            }
            from = schedule.resume(to, self.since_1970());
        }
    }

    /// Audits one object. Returns whether the server is overloaded.
    async fn audit_now(&self, key: &Key, reported: &mut Reported) -> bool {
        self.writer.yield_to_all().await;
        let audited = match caught(self.writer.audit(key)).await {
            Ok(audited) => audited,
            Err(panicked) => {
                tracing::error!(object = %key, why = %panicked, "an object is not audited");
                return false;
            }
        };
        match audited {
            Audited::Unanswered(load) => {
                self.writer.report_load(load);
                true
            }
            Audited::Refused { owner, cause } => {
                let kind = self.writer.desired(key).map(|desired| desired.kind.id());
                if kind.is_some_and(|kind| reported.insert((owner.clone(), kind))) {
                    let store = self.writer.store();
                    reported.retain(|(owner, _)| store.accounts.contains_key(owner));
                    drop(store);
                    self.writer.announce_audit_refused(key, &owner, cause);
                }
                false
            }
            Audited::Confirmed | Audited::Different | Audited::Passed => false,
        }
    }

    async fn wait_until(&self, at: Duration) {
        tokio::time::sleep(at.saturating_sub(self.since_1970())).await;
    }

    fn since_1970(&self) -> Duration {
        self.writer.now().duration_since(jiff::Timestamp::UNIX_EPOCH).unsigned_abs()
    }
}
