//! Ignored fields (`spec.ignore`). Releases Mainstay's ownership of them after a creation, and before an apply omits
//! them. Otherwise the apply would remove the fields.
//!
//! Invariant: an object without ignored fields costs no request. One with ignored fields costs a read for each apply of
//! a commit, and a write if Mainstay owned one of them.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::Writer;
use super::server_side::RACES;
use crate::managed::desired::{Desired, without_replicas};
use crate::managed::verdict::{resource_version, uid};
use mainstay_cluster::Error;

/// Resource versions of an object before and after its `managedFields` were rewritten.
pub(super) struct GivenUp {
    /// The version that was read.
    pub(super) before: String,
    /// The version that was rewritten. It differs from `before` if another client wrote in the meantime.
    pub(super) rewritten: String,
    pub(super) after: String,
}

impl GivenUp {
    /// Returns the version that is known as long as `after` has the same content. If `is_fenced`, a write of another
    /// client in the meantime counts as a change.
    pub(super) fn known(&self, is_fenced: bool) -> &str {
        if is_fenced { &self.rewritten } else { &self.before }
    }
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
        let (rewritten, live) = self.give_up_ignored(desired, live.into_owned()).await?;
        let after = resource_version(&live).to_owned();
        *body = desired.body_over(&live);
        self.leave_replicas(desired, body).await;
        // With the UID, the apply cannot create an object without the omitted fields.
        body["metadata"]["uid"] = json!(uid(&live));
        if desired.follows(&live) {
            // With the version, live values in the body cannot overwrite later ones.
            body["metadata"]["resourceVersion"] = json!(after);
        }
        Ok(Some(GivenUp { before, rewritten, after }))
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
        given_up.ok().map(|(_, now)| now).filter(|now| uid(now) == uid(&answer)).unwrap_or(answer)
    }

    /// Gives up the ignored fields that Mainstay owns. Returns the object after that, and the version before the last
    /// write.
    async fn give_up_ignored(&self, desired: &Desired, mut live: Value) -> Result<(String, Value), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut attempts = 0;
        loop {
            let version = resource_version(&live).to_owned();
            let Some(entries) = desired.given_up(&live) else { return Ok((version, live)) };
            let rewritten =
                self.cluster().rewrite_managed_fields(&desired.kind, namespace, name, &version, &entries).await;
            match rewritten {
                Err(error) if error.is_conflict() && attempts < RACES => {
                    attempts += 1;
                    match self.read(desired).await? {
                        Some(now) => live = now,
                        None => return Err(error),
                    }
                }
                rewritten => return rewritten.map(|live| (version, live)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_of_another_client_before_the_rewrite_counts_only_behind_a_fence() {
        let given_up = GivenUp { before: "1".to_owned(), rewritten: "3".to_owned(), after: "4".to_owned() };
        assert_eq!((given_up.known(false), given_up.known(true)), ("1", "3"));
    }
}
