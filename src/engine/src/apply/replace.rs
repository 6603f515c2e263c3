//! An object whose update is refused because of a field that cannot be changed is deleted, to be created anew, where that is
//! allowed.
//!
//! Invariant: before anything is deleted, dry runs have proven that the server refuses the update of this very object, that
//! what somebody else wrote in it is not the reason, and that it takes the object as a new one.
//! Invariant: what is deleted is the object for which that was proven, by its UID.
//! Invariant: each deletion is recorded: as a message, in the status of the GitSync, and against whoever keeps creating it
//! otherwise, as a revert is.
//!
//! Deliberately absent: whether it is allowed (`managed::replacement`), and the creation: by whoever asked, if the object is
//! gone at once, or by the drift loop as soon as it is.

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
use mainstay_object::{Owner, printable};

/// Fields that a status names, at most.
const SHOWN: usize = 10;

/// What became of an object whose update was refused.
#[derive(Debug)]
pub(super) enum Replaced {
    /// It was refused for another reason, or nobody can tell.
    No,
    /// A field differs that cannot be changed, and the object may not be replaced.
    Denied(Denied),
    /// It is being deleted, and is created anew when it is gone.
    Awaited(Terminating),
    /// It is gone, and can be created.
    Gone,
}

/// On what occasion an object is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A commit changes it.
    Commit,
    /// Somebody has put another one in its place.
    Drift,
}

/// What the creation of an object as it is wanted would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// It is not there.
    Succeeds,
    /// It is there, and nothing else is in the way.
    AlreadyExists,
    Fails,
}

impl Writer {
    /// The update of an object with `body` was `refused`. Where that is because of a field that cannot be changed, the object
    /// is deleted, if it may be. The caller holds the object's lock.
    ///
    /// # Errors
    /// The deletion failed.
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
            // It went while its update was refused: an object that is being deleted refuses it, too.
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
        // From now on the drift loop may find it gone.
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

    /// What follows from that a live object is not deleted now.
    fn unfit(&self, desired: &Desired, live: &Value, unfit: Unfit) -> Replaced {
        match unfit {
            Unfit::Denied(why) => Replaced::Denied(why),
            // The next try finds out what that one is.
            Unfit::Another => Replaced::No,
            Unfit::UnderWay(terminating) => {
                if !desired.mark.is_on(live) {
                    // The watch of its kind does not tell when it is gone.
                    self.watch_by_name(desired);
                }
                Replaced::Awaited(terminating)
            }
        }
    }

    /// Whether a change was refused because of a field that cannot be changed. Nothing is written to find out.
    pub(super) async fn is_refused_for_good(&self, desired: &Desired, refused: &Error) -> bool {
        names_fields(desired, refused) && self.trial(desired).await == Trial::AlreadyExists
    }

    /// Whether a refused change is one of a field that cannot be changed: the object could be created as it is, if it were
    /// not there already. Texts and causes of the refusals vary too much to tell.
    async fn trial(&self, desired: &Desired) -> Trial {
        match self.try_to_create(desired, None).await {
            Ok(()) => Trial::Succeeds,
            Err(error) if error.is_already_exists() => Trial::AlreadyExists,
            Err(_) => Trial::Fails,
        }
    }

    /// What the server says to the creation of an object, under another name or its own.
    async fn try_to_create(&self, desired: &Desired, name: Option<&str>) -> Result<(), Error> {
        let (namespace, body) = (desired.key.namespace.as_deref(), replacement::trial(desired, name));
        let name = name.unwrap_or(&desired.key.name);
        self.cluster().create(&desired.kind, namespace, name, &body, Persistence::DryRun).await.map(drop)
    }

    /// Whether the server refuses to update just this object, also where nothing that others wrote in it stays.
    async fn is_refused_as_it_is(&self, desired: &Desired, body: &Value, live: &Value) -> bool {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut body = replacement::apply_to(body, live);
        let how = Apply::forced(MANAGER).dry_run();
        let applied = self.cluster().apply(&desired.kind, namespace, name, &body, how).await;
        if !applied.is_err_and(|error| error.is_invalid()) {
            return false;
        }
        if desired.ignored.is_some() {
            // What is left to others is not why.
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
        let mut fields = causes.map(|cause| printable(&cause.field).into_owned()).collect::<Vec<_>>();
        fields.retain(|field| !field.is_empty());
        fields.dedup();
        let fields = few(fields);
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

/// Whether a refusal names fields of an object that may be replaced. A server does; a webhook that refuses does not. A Function
/// sees to its children itself.
fn names_fields(desired: &Desired, refused: &Error) -> bool {
    let has_causes = refused.refusal().is_some_and(|refusal| !refusal.causes.is_empty());
    refused.is_invalid() && has_causes && desired.label().is_some()
}

/// Who wrote an object that is not as we would have it, if that is known.
fn writer_of(live: &Value) -> String {
    let mut others = entries(live).filter(|entry| entry.manager != MANAGER && entry.subresource.is_empty());
    others.next().map_or_else(|| UNKNOWN.to_owned(), |entry| entry.manager.to_owned())
}
