//! Writes the status of one APIRule.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::context::Context;
use super::refusals::Failures;
use super::reported::{Reported, worth_telling};
use super::status::{self, Outcome};
use mainstay_api::ApiRule;
use mainstay_api::conditions::Type;
use mainstay_cluster::{Error, Kind, Part};
use mainstay_engine::notification::Message;
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Returns the kind of APIRules.
pub fn api_rules() -> Kind {
    Kind::of::<ApiRule>()
}

/// Reports the outcome of one APIRule.
pub(super) struct Reporter {
    context: Arc<Context>,
    owner: Owner,
    pub(super) reported: Reported,
    failures: Failures,
}

impl Reporter {
    /// Returns a reporter that has not reported yet.
    pub(super) fn new(context: Arc<Context>, owner: Owner) -> Self {
        Self { context, owner, reported: Reported::default(), failures: Failures::default() }
    }

    /// Writes the status if it changed. Fails with the wait before the next attempt.
    pub(super) async fn report(&mut self, rule: &ApiRule, outcome: &Outcome) -> Result<(), Duration> {
        match self.write(rule, outcome).await {
            Ok(()) => {
                self.failures.reset();
                Ok(())
            }
            Err(error) => {
                tracing::warn!(apirule = self.owner.resource().as_str(), why = chain(&error), "status not written");
                Err(self.failures.add_error(&error, fastrand::f64()))
            }
        }
    }

    async fn write(&mut self, rule: &ApiRule, outcome: &Outcome) -> Result<(), Error> {
        let (old, new) = self.reported.next(rule, outcome, Timestamp::now());
        if new == old {
            self.reported.set(old);
            return Ok(());
        }
        let patch = status::patch(&new, outcome);
        let written = match self.patch(&patch).await {
            // Kyma's own CRD has no conditions, so the write is retried without them.
            Err(error) if matches!(error.code(), Some(400 | 422)) => {
                let mut bare = patch;
                bare["status"].as_object_mut().and_then(|status| status.remove("conditions"));
                self.patch(&bare).await
            }
            written => written,
        };
        match written {
            Err(error) if error.is_not_found() => return Ok(()),
            written => written?,
        };
        if let Some((status, _, message)) = worth_telling(&old, &new) {
            let reason = outcome.condition().1.into();
            let (subject, condition) = (self.owner.clone(), Type::Exposed.as_str().to_owned());
            let message = Message::Stage { subject, condition, status, reason, message };
            self.context.emit(&self.owner, &message);
        }
        self.reported.set(new);
        Ok(())
    }

    async fn patch(&self, patch: &Value) -> Result<Value, Error> {
        let (cluster, name) = (self.context.writer.cluster(), self.owner.resource());
        cluster.patch_merge(&api_rules(), Some(name.namespace()), name.name(), Part::Status, patch).await
    }
}
