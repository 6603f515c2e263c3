//! Dry runs: the result of an apply without the apply.
//!
//! Invariant: every request that changes an object is a dry run.
//!
//! Not here: rewrites of `managedFields` before an apply, except for members of unions. A second dry run removes
//! fields that an adoption would remove.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};

use super::Writer;
use super::put::Step;
use super::server_side::RACES;
use crate::managed::autoscaler::Autoscaler;
use crate::managed::desired::without_replicas;
use crate::managed::inventory::Entry;
use crate::managed::replacement::{Denied, permit};
use crate::managed::stale_defaults::{Reach, Withheld};
use crate::managed::verdict::resource_version;
use mainstay_api::git_sync::AllowedBy;
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error, Kind, Scope, Selection};
use mainstay_object::{Key, Owner};

/// The effect that an apply would have.
#[derive(Debug)]
pub enum DryRun {
    /// The object would be created.
    Created,
    /// The object would be created later, because its namespace or kind does not exist yet.
    CreatedLater(Error),
    /// The object would be changed, or stay the same.
    Applied {
        /// The live object.
        before: Value,
        /// The object after the apply.
        after: Value,
    },
    /// The object would be replaced, which this setting allows.
    Replaced(AllowedBy),
    /// An immutable field differs, and a replacement is not allowed.
    Immutable(Error, Denied),
    /// The apply would fail.
    Failed(Error),
}

impl Writer {
    /// Reads all autoscalers once and stores the workloads that they scale.
    ///
    /// # Errors
    /// The list of autoscalers failed.
    pub async fn look_at_autoscalers(&self) -> Result<(), Error> {
        let (version, plural) = ("autoscaling/v2", "horizontalpodautoscalers");
        let kind = Arc::new(Kind::fixed(version, "HorizontalPodAutoscaler", plural, Scope::Namespaced));
        let mut list = self.cluster().list(&kind, Selection::default());
        while let Some(live) = list.next().await {
            if let Some((workload, autoscaler)) = Autoscaler::read(&live?) {
                self.store().set_autoscaler(&workload, Some(autoscaler));
            }
        }
        Ok(())
    }

    /// Returns the effect of a step on the object `seen`; `None` means that no object was seen.
    pub async fn dry_run(&self, owner: &Owner, step: &Step, seen: Option<&Value>) -> DryRun {
        let outcome = self.try_apply(owner, step, seen.cloned()).await;
        outcome.unwrap_or_else(|error| DryRun::Failed(error.about(&step.desired.object)))
    }

    async fn try_apply(&self, owner: &Owner, step: &Step, mut before: Option<Value>) -> Result<DryRun, Error> {
        let desired = &step.desired;
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let sets_count = desired.sets_replicas(&desired.body());
        let is_autoscaled = sets_count && self.store().is_autoscaled(&desired.key);
        let may_lose_count = !sets_count && desired.is_scalable() && self.store().may_lose_count(&desired.key);
        let how = Apply::forced(MANAGER).dry_run();
        let (mut tries, mut reach) = (0, Reach::Nobodys);
        loop {
            tries += 1;
            // Ignored fields keep their live values.
            let mut body = before.as_ref().map_or_else(|| desired.whole_body(), |live| desired.body_in_place_of(live));
            if is_autoscaled {
                without_replicas(&mut body);
            }
            let mut withheld = None;
            if let Some(live) = &before {
                withheld = Withheld::of(reach, desired, &mut body, live);
                body["metadata"]["resourceVersion"] = json!(resource_version(live));
            }
            match (self.cluster().apply(&desired.kind, namespace, name, &body, how).await, before) {
                (Ok(_), None) => return Ok(DryRun::Created),
                (Ok(after), Some(before)) => {
                    let whole = desired.body_in_place_of(&before);
                    let mut after = self.without_left(step, &whole, &before, after).await;
                    if let Some(withheld) = withheld {
                        withheld.put_back(&mut after);
                    }
                    if is_autoscaled || (may_lose_count && self.store().keeps_count(&desired.key, &before)) {
                        keep_replicas(&before, &mut after);
                    }
                    return Ok(DryRun::Applied { before, after });
                }
                (Err(error), Some(_)) if error.is_conflict() && tries < RACES => {
                    before = self.cluster().get(&desired.kind, namespace, name).await?;
                }
                // Fields of other managers that collide would be claimed before the apply.
                (Err(error), Some(live))
                    if error.is_invalid()
                        && reach == Reach::Nobodys
                        && Withheld::of(Reach::Strangers, desired, &mut body, &live).is_some() =>
                {
                    reach = Reach::Strangers;
                    before = Some(live);
                }
                (Err(error), None) if error.is_not_found() => return Ok(DryRun::CreatedLater(error)),
                (Err(error), Some(live)) if self.is_refused_for_good(desired, &error).await => {
                    return Ok(match permit(desired, &self.store().replaced_kinds(owner)) {
                        Ok(allowed_by) => DryRun::Replaced(allowed_by),
                        Err(why) => {
                            let why = why.or_grown(desired, &live, error.refusal());
                            DryRun::Immutable(error.about(&desired.object), why)
                        }
                    });
                }
                (Err(error), _) => return Err(error),
            }
        }
    }

    /// Returns the kind of an object in an inventory; `None` if it is not served any more.
    pub async fn listed_kind(&self, key: &Key, entry: &Entry) -> Result<Option<Arc<Kind>>, Error> {
        self.kind_of(key, entry).await
    }
}

/// Keeps the live replica count: an apply hands it over to the autoscaler first.
fn keep_replicas(before: &Value, after: &mut Value) {
    if let (Some(count), Some(spec)) = (before.pointer("/spec/replicas"), after["spec"].as_object_mut()) {
        spec.insert("replicas".to_owned(), count.clone());
    }
}
