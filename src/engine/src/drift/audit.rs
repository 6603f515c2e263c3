//! The audit: each object is asked for once in an interval, at its own time, one after the other and after everything else.
//!
//! The watches show what changes. The audit is for what they do not: a watch that missed something, and what decides about
//! objects besides people, such as webhooks.
//!
//! Invariant: one audit is in flight at most, none while something is reverted or applied, and none while the server wants to be
//! left alone.
//! Invariant: nothing is kept of the objects; a restart begins no burst.
//!
//! Deliberately absent: what is asked and what follows (`apply`), and the order (`managed::audit`).

use std::collections::HashSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Drift;
use crate::apply::Audited;
use crate::managed::audit::Schedule;
use mainstay_cluster::KindId;
use mainstay_object::failure::{Backoff, caught};
use mainstay_object::{Key, Owner};

/// How long audits rest after the server had too much to do and named no time.
const REST: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

/// The kinds of owners of which it was reported that their audit is refused.
type Reported = HashSet<(Owner, KindId)>;

impl Drift {
    /// Audits each object once in `interval` until `stop`; not at all where that is 0.
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

    /// Audits one object. Whether the server has too much to do.
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
