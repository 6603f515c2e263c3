//! Replacement: deletes an object whose update changes an immutable field, so that it can be recreated.
//!
//! Invariant: before a deletion, dry runs prove three things. The server refuses the update of this object. Fields of
//! other managers are not the reason. The server accepts the object as a new one.
//! Invariant: the deletion is limited to the UID that was checked.
//! Invariant: each deletion is announced, recorded in the status of the GitSync, and counted like a revert if drift
//! caused it.
//!
//! Not here: the permission to replace (`managed::replacement`), and the creation of the new object. If the old object
//! is gone immediately, the caller creates the new one. Otherwise the drift loop creates it later.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::Writer;
use super::delete::Deleted;
use super::edit::few;
use crate::managed::deletion::is_noted;
use crate::managed::desired::Desired;
use crate::managed::fields::{applied_by, entries};
use crate::managed::object::Managed;
use crate::managed::replacement::{self, Candidate, Denied, Unfit};
use crate::managed::revert_backoff::Shift;
use crate::managed::verdict::{is_terminating, resource_version, uid};
use crate::notification::Message;
use mainstay_api::git_sync::{AllowedBy, Replacement, UNKNOWN};
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error, Persistence, Removal, Terminating};
use mainstay_object::{Owner, hide_logins, printable};

/// Maximum number of fields in the status of a replacement.
const SHOWN: usize = 10;

/// The result of handling a refused update.
#[derive(Debug)]
pub(super) enum Replaced {
    /// No replacement: the server refused for a different reason, or the reason is unknown.
    No,
    /// An immutable field differs, and the object may not be replaced.
    Denied(Denied),
    /// The object is being deleted. It is recreated once it is gone.
    Awaited(Terminating),
    /// The object is gone and can be created.
    Gone,
}

/// The cause of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A commit changed an immutable field.
    Commit,
    /// The live object differs in an immutable field.
    Drift,
}

/// The result of a dry-run creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// The object does not exist and can be created.
    Succeeds,
    /// The object exists; the server has no other objection.
    AlreadyExists,
    Fails,
}

impl Writer {
    /// Deletes an object whose update with `body` failed with the error `refused`, if an immutable field is the reason
    /// and a replacement is allowed. The caller holds the object's lock.
    ///
    /// # Errors
    /// A read, a permission check or the deletion failed.
    pub(super) async fn replace(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        body: &Value,
        refused: &Error,
        occasion: Occasion,
    ) -> Result<Replaced, Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        if !names_fields(desired, refused) {
            return Ok(Replaced::No);
        }
        match self.trial(desired).await {
            Trial::AlreadyExists => {}
            // The old object was being deleted, which also makes the server refuse an update.
            Trial::Succeeds => return Ok(Replaced::Gone),
            Trial::Fails => return Ok(Replaced::No),
        }
        let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else { return Ok(Replaced::Gone) };
        if !is_terminating(&live) && !self.is_refused_as_it_is(desired, body, &live).await {
            return Ok(Replaced::No);
        }
        let allowed_by = match replacement::permit(desired, &self.store().replaced_kinds(owner)) {
            Ok(allowed_by) => allowed_by,
            Err(why) => return Ok(Replaced::Denied(why.or_grown(desired, &live, refused.refusal()))),
        };
        let refused_uid = uid(&live);
        let judge = |live: &Value| {
            if uid(live) != refused_uid {
                return Err(Unfit::Another);
            }
            self.may_replace(owner, desired, allowed_by, occasion, live)
        };
        if let Err(unfit) = judge(&live) {
            return Ok(self.unfit(desired, &live, unfit));
        }
        if let Err(error) = self.try_to_create(desired, Some(&replacement::trial_name(&desired.key))).await {
            return Ok(Replaced::Denied(Denied::CannotCreate(error.cause_text())));
        }
        // From now on, the drift loop may find the object gone.
        self.store().set_successor(desired);
        let removal = match self.delete_last(&desired.kind, &desired.key, judge).await? {
            Deleted::Absent => return Ok(Replaced::Gone),
            Deleted::Kept(unfit) => return Ok(self.unfit(desired, &live, unfit)),
            Deleted::Done { removal, .. } => removal,
        };
        self.record_replacement(owner, desired, &live, refused, allowed_by, occasion);
        Ok(match removal {
            Removal::Terminating(terminating) => self.unfit(desired, &live, Unfit::UnderWay(terminating)),
            Removal::Absent | Removal::Gone => Replaced::Gone,
        })
    }

    /// The result for a live object that is not deleted now.
    fn unfit(&self, desired: &Desired, live: &Value, unfit: Unfit) -> Replaced {
        match unfit {
            Unfit::Denied(why) => Replaced::Denied(why),
            // The object was replaced by another client. The next attempt checks the new object.
            Unfit::Another => Replaced::No,
            Unfit::UnderWay(terminating) => {
                if !desired.mark.is_on(live) {
                    // The watch of the kind selects by label, so it does not show the deletion of this object.
                    self.watch_by_name(desired);
                }
                Replaced::Awaited(terminating)
            }
        }
    }

    /// Whether an immutable field is the reason of a refusal. Sends only a dry run.
    pub(super) async fn is_refused_for_good(&self, desired: &Desired, refused: &Error) -> bool {
        names_fields(desired, refused) && self.trial(desired).await == Trial::AlreadyExists
    }

    /// Dry-runs the creation of an object. "Already exists" means that the object is valid and only its update is
    /// refused. Messages and causes of refusals differ too much between servers to be compared.
    async fn trial(&self, desired: &Desired) -> Trial {
        match self.try_to_create(desired, None).await {
            Ok(()) => Trial::Succeeds,
            Err(error) if error.is_already_exists() => Trial::AlreadyExists,
            Err(_) => Trial::Fails,
        }
    }

    /// Dry-runs the creation of an object under its own name or the given one.
    async fn try_to_create(&self, desired: &Desired, name: Option<&str>) -> Result<(), Error> {
        let (namespace, body) = (desired.key.namespace.as_deref(), replacement::trial(desired, name));
        let name = name.unwrap_or(&desired.key.name);
        self.cluster().create(&desired.kind, namespace, name, &body, Persistence::DryRun).await.map(drop)
    }

    /// Whether the server refuses an update of this object even if fields of other managers are dropped.
    async fn is_refused_as_it_is(&self, desired: &Desired, body: &Value, live: &Value) -> bool {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut body = replacement::apply_to(body, live);
        let how = Apply::forced(MANAGER).dry_run();
        let applied = self.cluster().apply(&desired.kind, namespace, name, &body, how).await;
        if !applied.is_err_and(|error| error.is_invalid()) {
            return false;
        }
        if desired.ignored.is_some() {
            // Ignored fields keep their live values, so they are not the reason.
            body = replacement::apply_to(&desired.body_in_place_of(live), live);
        }
        body["metadata"]["resourceVersion"] = resource_version(live).into();
        let alone = self.cluster().replace(&desired.kind, namespace, name, &body, Persistence::DryRun).await;
        alone.is_err_and(|error| error.refusal().is_some() && !error.is_conflict())
    }

    fn may_replace(
        &self,
        owner: &Owner,
        desired: &Desired,
        allowed_by: AllowedBy,
        occasion: Occasion,
        live: &Value,
    ) -> Result<(), Unfit> {
        let (was_ours, had_ended, is_noted) = {
            let store = self.store();
            let managed = store.get(&desired.key).filter(|managed| managed.owner == *owner);
            let had_ended = managed.is_some_and(|m| m.ended.is_some() && !m.applied.is_outdated());
            let inventory = store.inventory(owner);
            let entry = inventory.as_ref().and_then(|inventory| inventory.0.get(&desired.key));
            let was_ours = managed.is_some_and(Managed::is_applied);
            (was_ours, had_ended && occasion == Occasion::Drift, entry.is_some_and(|entry| is_noted(entry, uid(live))))
        };
        let of = Candidate { desired, allowed_by, was_ours, had_ended };
        replacement::judge(&of, live, is_noted || applied_by(live, MANAGER).is_some(), self.now())?;
        replacement::spare(self.installation(), &desired.key, live)
    }

    fn record_replacement(
        &self,
        owner: &Owner,
        desired: &Arc<Desired>,
        live: &Value,
        refused: &Error,
        allowed_by: AllowedBy,
        occasion: Occasion,
    ) {
        let key = &desired.key;
        let causes = refused.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        let mut fields = causes.map(|cause| &*cause.field).filter(|field| !field.is_empty()).collect::<Vec<_>>();
        fields.dedup();
        let shown = |field: &str| printable(&hide_logins(field)).into_owned();
        let fields = few(fields.into_iter().map(shown).collect());
        self.store().record_replacement(
            owner,
            Replacement {
                object: key.to_string(),
                fields: fields.iter().take(SHOWN).cloned().collect(),
                uid: uid(live).to_owned(),
                allowed_by,
                when: Time(self.now()),
            },
        );
        let (subject, object) = (owner.clone(), key.to_string());
        let message = Message::Replaced { subject, object, fields: fields.clone(), allowed_by };
        self.announce(owner, Some((desired, live)), &message);
        if occasion == Occasion::Drift {
            let who = writer_of(live);
            let is_contended = self.store().count_change(key, self.clock(), &fields, &who) == Shift::Contended;
            if is_contended {
                let (subject, object) = (owner.clone(), key.to_string());
                self.announce(owner, Some((desired, live)), &Message::Contended { subject, object, fields, who });
            }
        }
        self.notify(owner);
    }
}

/// Whether a refusal reports fields and concerns an object of a GitSync. A refusal by a webhook reports no fields.
/// Functions replace their children themselves.
fn names_fields(desired: &Desired, refused: &Error) -> bool {
    let has_causes = refused.refusal().is_some_and(|refusal| !refusal.causes.is_empty());
    refused.is_invalid() && has_causes && desired.label().is_some()
}

/// The manager of a field that Mainstay does not own, or `UNKNOWN`.
fn writer_of(live: &Value) -> String {
    let mut others = entries(live).filter(|entry| entry.manager != MANAGER && entry.subresource.is_empty());
    others.next().map_or_else(|| UNKNOWN.to_owned(), |entry| entry.manager.to_owned())
}
