//! What is ignored of an object (`spec.ignore`) is left to others: given up before an apply leaves it out, which would remove it
//! else, and after an apply that created it.
//!
//! Invariant: an object of which nothing is ignored costs no request here. One of which something is ignored costs one read for
//! each apply of a commit, and one more write where something of that was ours.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Writer;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::verdict::{resource_version, uid};
use mainstay_cluster::Error;

/// How often an object that is written all the time is read again before something of it is given up.
const WRITTEN_MEANWHILE: usize = 5;

/// The versions of an object before and after something of it was given up to others, or claimed.
pub(super) struct GivenUp {
    pub(super) before: String,
    pub(super) after: String,
}

impl Writer {
    /// Makes a body what is applied to an object as it is (was `seen`, or is read), after what is ignored of it has been given
    /// up; or what is created, where there is none. `None` where there was nothing to read for that.
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
        // A new one would lack what is left out.
        body["metadata"]["uid"] = json!(uid(&live));
        if desired.follows(&live) {
            // What is sent as it was read must not undo what was written since.
            body["metadata"]["resourceVersion"] = json!(after);
        }
        Ok(Some(GivenUp { before, after }))
    }

    /// What an object is created as.
    pub(super) async fn body_of_new(&self, desired: &Desired) -> Value {
        let mut body = desired.whole_body();
        self.leave_replicas(desired, &mut body).await;
        body
    }

    /// What was applied, with what is ignored of it given up. Where that fails it is not looked at all the same, and given up
    /// before the next apply.
    pub(super) async fn give_up_applied(&self, desired: &Desired, answer: Value) -> Value {
        if desired.ignored.is_none() || desired.given_up(&answer).is_none() {
            return answer;
        }
        let given_up = self.give_up_ignored(desired, answer.clone()).await;
        // By then it may be another one.
        given_up.ok().filter(|now| uid(now) == uid(&answer)).unwrap_or(answer)
    }

    /// Gives up what is ignored of an object and ours; the object as it is then.
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

    /// An object as it is now.
    pub(super) async fn read(&self, desired: &Desired) -> Result<Option<Value>, Error> {
        self.cluster().get(&desired.kind, desired.key.namespace.as_deref(), &desired.key.name).await
    }

    /// The count of an autoscaled workload is its autoscaler's.
    async fn leave_replicas(&self, desired: &Desired, body: &mut Value) {
        if desired.sets_replicas(body) {
            self.know_autoscalers().await;
            if self.store().is_autoscaled(&desired.key) {
                without_replicas(body);
            }
        }
    }
}
