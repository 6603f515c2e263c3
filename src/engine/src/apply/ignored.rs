//! Ignored fields (`spec.ignore`). Releases Mainstay's ownership of them after a creation, and before an apply omits
//! them. Otherwise the apply would remove the fields.
//!
//! Invariant: an object without ignored fields costs no request. One with ignored fields costs a read for each apply of
//! a commit, and a write if Mainstay owned one of them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Writer;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::verdict::{resource_version, uid};
use mainstay_cluster::Error;

/// Retries after a conflict.
const WRITTEN_MEANWHILE: usize = 5;

/// Resource versions of an object before and after its `managedFields` were rewritten.
pub(super) struct GivenUp {
    pub(super) before: String,
    pub(super) after: String,
}

impl Writer {
    /// Gives up ignored fields of the live object, and sets `body` to the apply for it. Without a live object, sets
    /// `body` to the creation and returns `None`. Reads the object unless it is in `seen`.
    pub(super) async fn settle_ignored(
        &self,
        desired: &Desired,
        body: &mut Value,
        seen: Option<&Value>,
    ) -> Result<Option<GivenUp>, Error> {
        if desired.ignored.is_none() {
            return Ok(None);
        }
        let live = match seen {
            Some(live) => Some(Cow::Borrowed(live)),
            None => self.read(desired).await?.map(Cow::Owned),
        };
        let Some(live) = live else {
            *body = self.body_of_new(desired).await;
            return Ok(None);
        };
        let before = resource_version(&live).to_owned();
        let live = self.give_up_ignored(desired, live.into_owned()).await?;
        let after = resource_version(&live).to_owned();
        *body = desired.body_over(&live);
        self.leave_replicas(desired, body).await;
        // With the UID, the apply cannot create an object without the omitted fields.
        body["metadata"]["uid"] = json!(uid(&live));
        if desired.follows(&live) {
            // With the version, live values in the body cannot overwrite later ones.
            body["metadata"]["resourceVersion"] = json!(after);
        }
        Ok(Some(GivenUp { before, after }))
    }

    /// Returns the body that creates the object.
    pub(super) async fn body_of_new(&self, desired: &Desired) -> Value {
        let mut body = desired.whole_body();
        self.leave_replicas(desired, &mut body).await;
        body
    }

    /// Gives up ignored fields after an apply and returns the new object. If that fails, the next apply tries again.
    pub(super) async fn give_up_applied(&self, desired: &Desired, answer: Value) -> Value {
        if desired.ignored.is_none() || desired.given_up(&answer).is_none() {
            return answer;
        }
        let given_up = self.give_up_ignored(desired, answer.clone()).await;
        // In the meantime, a different object may have this name.
        given_up.ok().filter(|now| uid(now) == uid(&answer)).unwrap_or(answer)
    }

    /// Gives up the ignored fields that Mainstay owns. Returns the object after that.
    async fn give_up_ignored(&self, desired: &Desired, mut live: Value) -> Result<Value, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut attempts = 0;
        loop {
            let Some(entries) = desired.given_up(&live) else { return Ok(live) };
            let version = resource_version(&live).to_owned();
            match self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries).await {
                Err(error) if error.is_conflict() && attempts < WRITTEN_MEANWHILE => {
                    attempts += 1;
                    match self.read(desired).await? {
                        Some(now) => live = now,
                        None => return Err(error),
                    }
                }
                rewritten => return rewritten,
            }
        }
    }

    pub(super) async fn read(&self, desired: &Desired) -> Result<Option<Value>, Error> {
        self.cluster().get(&desired.kind, desired.key.namespace.as_deref(), &desired.key.name).await
    }

    /// Omits the replica count of an autoscaled workload.
    async fn leave_replicas(&self, desired: &Desired, body: &mut Value) {
        if desired.sets_replicas(body) {
            self.know_autoscalers().await;
            if self.store().is_autoscaled(&desired.key) {
                without_replicas(body);
            }
        }
    }
}
