//! Objects that could not be applied or deleted: what is said of each, and when it is tried again.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::plan::{Plan, Why};
use super::sync_state::{DesiredState, Failed};
use crate::api::conditions::Reason;
use crate::failure::{Backoff, Class};
use crate::object::Key;

/// How long an object that failed waits before it is tried again.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(120));

impl Attempt<'_> {
    pub(super) fn fail(&mut self, key: &Key, class: Class, reason: Reason, message: String, after: Option<Duration>) {
        let attempts = self.state.failed.get(key).map_or(1, |failed| failed.attempts + 1);
        let backoff = class.backoff().filter(|_| class == Class::Conflict).unwrap_or(RETRY);
        let wait = backoff.jittered(attempts, fastrand::f64()).max(after.unwrap_or_default());
        let failed = Failed { class, reason, message, attempts, again: Instant::now() + wait };
        self.state.failed.insert(key.clone(), failed);
    }

    pub(super) fn note_refused(&mut self, plan: &Plan) {
        for refused in &plan.refused {
            let (class, reason, message) = match &refused.why {
                Why::Claimed(other) => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    format!("it is managed by GitSync {other} too; remove it from one of the two"),
                ),
                Why::AwaitsHandover(other) => {
                    (Class::NotReady, Reason::OwnershipConflict, format!("waiting for GitSync {other} to give it up"))
                }
                Why::Terminating => (Class::NotReady, Reason::ApplyFailed, "it is being deleted".to_owned()),
                Why::Controlled => (
                    Class::Invalid,
                    Reason::OwnershipConflict,
                    "a controller owns it; leave it out of the repository".to_owned(),
                ),
            };
            self.fail(&refused.key, class, reason, message, None);
        }
    }

    /// What failed and is no longer desired, or is desired again, has not failed.
    pub(super) fn forget_old_failures(&mut self, desired: &DesiredState) {
        if self.state.failed.is_empty() {
            return;
        }
        let keys = desired.objects.iter().map(|d| &d.key).collect::<HashSet<_>>();
        self.state.failed.retain(|key, failed| keys.contains(key) != (failed.reason == Reason::PruneFailed));
    }

    /// What failed and is not tried any more has not failed: the drift loop has put it right meanwhile, it is as this
    /// commit wants it, or it may stay. Left in, its next try would be due for ever.
    pub(super) fn forget_settled_failures(&mut self, plan: &Plan) {
        if self.state.failed.is_empty() {
            return;
        }
        let settled = plan.unchanged.iter().chain(&plan.paused).map(|d| &d.key).collect::<HashSet<_>>();
        self.state.failed.retain(|key, failed| match failed.reason {
            Reason::PruneFailed => plan.leaving.prune.contains(key),
            _ => !settled.contains(key),
        });
    }
}
