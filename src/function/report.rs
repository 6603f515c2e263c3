//! Reports a pass: the status that it leaves, what metrics say of the Function, and what is news.
//!
//! Invariant: a status that does not change is not written.
//!
//! Deliberately absent: what a status says; that is `status`'s.

use std::time::Duration;

use jiff::Timestamp;

use super::context::Facts;
use super::reconcile::{Task, functions};
use super::status::{self, Pass};
use crate::api::Function;
use crate::api::function::FunctionStatus;
use crate::api::function_conditions::{self, Type};
use crate::cluster::Part;
use crate::failure::chain;
use crate::notification::Message;

/// How long at least after a status could not be written it is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(2);
/// How long after a status was refused as such.
const UNWRITABLE: Duration = Duration::from_secs(300);

impl Task {
    fn set_facts(&mut self, function: &Function) {
        let known = std::mem::take(&mut self.took);
        let now = took(function, &self.status);
        self.took = std::array::from_fn(|at| known[at].or(now[at]));
        let facts = Facts {
            namespace: self.namespace.to_string(),
            name: function.metadata.name.clone().unwrap_or_default(),
            source: if function.spec.kind.as_deref() == Some("git") { "git" } else { "inline" },
            runtime: self.status.runtime.clone().unwrap_or_default(),
            took: self.took,
        };
        self.context.set_facts(&self.owner, Some(facts));
    }

    /// Writes the status if it changed, and tells what is news.
    pub(super) async fn report(&mut self, function: &Function, pass: &Pass) {
        let now: Timestamp = self.context.now();
        let (new, news) = status::after(&self.status, function, pass, now);
        let unheard = status::unheard(&self.status, pass).collect::<Vec<_>>();
        if new != self.status {
            let name = function.metadata.name.as_deref().unwrap_or_default();
            let patch = status::patch(&self.status, &new);
            let cluster = self.context.drift.cluster();
            match cluster.patch_merge(&functions(), Some(&self.namespace), name, Part::Status, &patch).await {
                Ok(_) => {}
                Err(error) if error.is_not_found() => return,
                Err(error) => {
                    tracing::warn!(function = &*self.owner, why = chain(&error), "status not written");
                    self.unwritten += 1;
                    let backoff = error.class().backoff();
                    let wait = backoff.map_or(UNWRITABLE, |b| b.delay(self.unwritten)).max(WRITE_AGAIN);
                    self.look_within(wait.max(error.retry_after().unwrap_or_default()));
                    return;
                }
            }
            self.unwritten = 0;
            self.status = new;
        }
        self.set_facts(function);
        for warning in unheard {
            let message = Message::Noticed {
                function: self.owner.to_string(),
                reason: warning.reason.to_owned(),
                message: warning.message.clone(),
            };
            self.context.tell(&self.owner, warning.reason, &message);
        }
        for said in news {
            let reason = said.reason.as_str();
            let message = Message::Stage {
                function: self.owner.to_string(),
                condition: said.condition.as_str().to_owned(),
                status: said.status.as_str().to_owned(),
                reason: reason.clone(),
                message: said.message,
            };
            self.context.tell(&self.owner, &reason, &message);
        }
    }
}

/// How long each condition took to become True, for a Function that was never changed.
fn took(function: &Function, status: &FunctionStatus) -> [Option<Duration>; 3] {
    let created = function.metadata.creation_timestamp.as_ref().filter(|_| function.metadata.generation == Some(1));
    Type::ALL.map(|kind| {
        let condition = function_conditions::find(&status.conditions, kind).filter(|c| c.status == "True")?;
        Duration::try_from(condition.last_transition_time.0.duration_since(created?.0)).ok()
    })
}
