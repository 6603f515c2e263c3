//! Writes the status of an object, and sends messages about it.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::context::Context;
use crate::agent::kept::Name;
use crate::agent::own_kinds::{State, kind};
use crate::agent::own_tasks::Followed;
use mainstay_api::conditions::{Reason, Type};
use mainstay_cluster::{Kind, Part};
use mainstay_engine::apply::Announcement;
use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Reports about one object.
pub(super) struct Reporter {
    context: Arc<Context>,
    kind: Arc<Kind>,
    name: Name,
    owner: Owner,
}

impl Reporter {
    pub(super) fn new<S: Followed>(context: &Arc<Context>, name: &Name) -> Self {
        let (kind, owner) = (kind(S::KIND, S::PLURAL), S::owner(&name.0, &name.1));
        Self { context: Arc::clone(context), kind, name: name.clone(), owner }
    }

    /// Writes a status. `null` removes a field. Returns false if the write was refused.
    pub(super) async fn write(&self, status: &Value) -> bool {
        let (namespace, name) = (&*self.name.0, &*self.name.1);
        let patch = json!({ "status": status });
        match self.context.cluster.patch_merge(&self.kind, Some(namespace), name, Part::Status, &patch).await {
            Err(error) if !error.is_not_found() => {
                tracing::warn!(namespace, name, why = chain(&error), "cannot write the status of this object");
                false
            }
            Ok(_) | Err(_) => true,
        }
    }

    /// Sends a message about a new state to Events, to the log and to Alerts.
    pub(super) fn announce(&self, old: &[Condition], state: &State) {
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
