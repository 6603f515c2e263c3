//! Writes the status of an object, and sends messages about it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::context::Context;
use crate::agent::kept::Name;
use crate::agent::own_kinds::State;
use crate::agent::own_tasks::Followed;
use crate::agent::status_write::{Refusals, StatusWrite};
use mainstay_api::conditions::{Reason, Type};
use mainstay_cluster::Kind;
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::Message;
use mainstay_object::Owner;

/// Reports about one object.
pub(super) struct Reporter {
    context: Arc<Context>,
    kind: Kind,
    name: Name,
    owner: Owner,
    /// The refused writes of the status.
    refusals: Refusals,
}

impl Reporter {
    pub(super) fn new<S: Followed>(context: &Arc<Context>, name: &Name) -> Self {
        let (kind, owner, refusals) = (S::kind(), S::owner(&name.0, &name.1), Refusals::default());
        Self { context: Arc::clone(context), kind, name: name.clone(), owner, refusals }
    }

    /// Writes the status of a state, and announces the state unless the object is gone. `null` removes a field. Returns
    /// false if the write was refused, or waits after a refusal.
    pub(super) async fn write(&mut self, status: &Value, old: &[Condition], state: &State) -> bool {
        let patch = json!({ "status": status });
        let outcome = self.refusals.write((&self.context.cluster, &self.kind), &self.name, &patch).await;
        if outcome == StatusWrite::Written {
            self.announce(old, state);
        }
        outcome != StatusWrite::Refused
    }

    /// Records that there is no status to write.
    pub(super) fn unchanged(&mut self) {
        self.refusals.end();
    }

    /// Returns the refused writes of the status.
    pub(super) const fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Sends a message about a new state to Events, to the log and to Alerts.
    fn announce(&self, old: &[Condition], state: &State) {
        let old = old.iter().find(|condition| condition.type_ == Type::Ready.as_str());
        let is_same = old.is_some_and(|old| old.reason == state.reason.as_str() && old.message == state.message);
        if is_same || state.reason == Reason::Suspended {
            return;
        }
        let message = Message::Stage {
            subject: self.owner.clone(),
            condition: Type::Ready.as_str().to_owned(),
            status: if state.is_failure() { "False" } else { "True" }.to_owned(),
            reason: state.reason.into(),
            message: state.message.clone(),
        };
        self.context.notifier.notify(&Announcement { owner: &self.owner, object: None, message: &message });
    }
}
