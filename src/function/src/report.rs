//! Reports a reconcile: writes the status, updates metrics, and emits messages.
//!
//! Invariant: an unchanged status is not written.
//!
//! Not here: the contents of the status; see `status`.

use std::time::Duration;

use jiff::Timestamp;

use super::build_trace;
use super::context::FunctionMetrics;
use super::reconcile::{Task, functions};
use super::status::{self, Reconciled};
use mainstay_api::Function;
use mainstay_api::function::FunctionStatus;
use mainstay_api::function_conditions::{self, Type};
use mainstay_cluster::Part;
use mainstay_engine::notification::Message;
use mainstay_object::failure::chain;

/// Minimum delay before a failed status write is retried.
const MIN_WRITE_DELAY: Duration = Duration::from_secs(2);
/// Delay after the status was refused as invalid.
const INVALID_STATUS_DELAY: Duration = Duration::from_secs(300);

impl Task {
    fn set_metrics(&mut self, function: &Function) {
        let known = std::mem::take(&mut self.took);
        let now = took(function, &self.status);
        self.took = std::array::from_fn(|at| known[at].or(now[at]));
        let metrics = FunctionMetrics {
            namespace: self.namespace.to_string(),
            name: function.metadata.name.clone().unwrap_or_default(),
            source: if function.spec.kind.as_deref() == Some("git") { "git" } else { "inline" },
            runtime: self.status.runtime.clone().unwrap_or_default(),
            took: self.took,
        };
        self.context.set_metrics(&self.owner, Some(metrics));
    }

    /// Writes the status if it changed, and emits messages.
    pub(super) async fn report(&mut self, function: &Function, reconciled: &Reconciled) {
        let now: Timestamp = self.context.now();
        let (new, emitted) = status::after(&self.status, function, reconciled, now);
        let unreported = status::unreported(&self.status, reconciled).collect::<Vec<_>>();
        if new != self.status {
            let name = function.metadata.name.as_deref().unwrap_or_default();
            let patch = status::patch(&self.status, &new);
            let cluster = self.context.writer.cluster();
            match cluster.patch_merge(&functions(), Some(&self.namespace), name, Part::Status, &patch).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => return,
                Err(error) => {
                    tracing::warn!(
                        function = self.owner.resource().as_str(),
                        why = chain(&error),
                        "status not written"
                    );
                    self.failed_writes += 1;
                    let backoff = error.class().backoff();
                    let wait =
                        backoff.map_or(INVALID_STATUS_DELAY, |b| b.delay(self.failed_writes)).max(MIN_WRITE_DELAY);
                    self.requeue_within(wait.max(error.retry_after().unwrap_or_default()));
                    return;
                }
            }
            self.failed_writes = 0;
            build_trace::ended(&self.owner, (&self.status, &new), || {
                self.context.cache.children(&self.namespace, &self.uid).jobs
            });
            self.status = new;
        }
        self.set_metrics(function);
        for warning in unreported {
            let message = Message::Noticed {
                subject: self.owner.clone(),
                reason: warning.reason,
                message: warning.message.clone(),
            };
            self.context.emit(&self.owner, &message);
        }
        for update in emitted {
            let message = Message::Stage {
                subject: self.owner.clone(),
                condition: update.condition.as_str().to_owned(),
                status: update.status.as_str().to_owned(),
                reason: update.reason.into(),
                message: update.message,
            };
            self.context.emit(&self.owner, &message);
        }
    }
}

/// Returns how long each condition took to become True, for a Function whose spec never changed.
fn took(function: &Function, status: &FunctionStatus) -> [Option<Duration>; 3] {
    let created = function.metadata.creation_timestamp.as_ref().filter(|_| function.metadata.generation == Some(1));
    Type::ALL.map(|kind| {
        let condition = function_conditions::find(&status.conditions, kind).filter(|c| c.status == "True")?;
        Duration::try_from(condition.last_transition_time.0.duration_since(created?.0)).ok()
    })
}
