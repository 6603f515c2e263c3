//! Reports drift that the policy does not revert. A dry run shows the changes that a revert would make.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::Writer;
use super::edit::Edit;
use crate::managed::desired::{Desired, without_replicas, yield_to_people};
use crate::managed::pending::{Next, Seen, Sight};
use crate::managed::revert_backoff::Shift;
use crate::managed::verdict::{Reason, Verdict};
use crate::managed::{collision, projection};
use crate::notification::Message;
use mainstay_api::git_sync::UNKNOWN;
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error};
use mainstay_object::Key;

impl Writer {
    /// Reports the drift of an object. Repeated changes are reported less often, with the backoff of reverts.
    pub(super) async fn report_now(&self, desired: &Arc<Desired>, seen: &Seen) -> Result<(), Error> {
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let live = match seen.live.as_ref().and_then(Sight::value) {
            Some(live) => Some(live),
            None => match self.cluster().get(&desired.kind, namespace, name).await? {
                Some(live) if !self.is_reported_drift(desired, &live) => return Ok(()),
                None if self.is_ignored_absence(&desired.key) || self.stays_absent(&desired.key) => return Ok(()),
                live => live.map(Cow::Owned),
            },
        };
        let Some(found) = self.unreverted_edit(desired, live.as_deref()).await? else { return Ok(()) };
        let owner = self.store().get(&desired.key).map(|managed| managed.owner.clone());
        let Some(owner) = owner else { return Ok(()) };
        let (key, live) = (&desired.key, live.as_deref().unwrap_or(&Value::Null));
        let (fields, who) = (found.fields.clone(), found.who.clone());
        let message = Message::DriftSeen { subject: owner.clone(), object: key.to_string(), fields, who };
        self.announce(&owner, Some((desired, live)), &message);
        self.store().record_report(&owner, desired, &found.differing(), self.now());
        if let Some(mut managed) = self.store().get_mut(key) {
            managed.succeeded();
        }
        let seen = Some(live).filter(|live| !live.is_null());
        let is_unseen = self.store().note_reported(key, found.differing(), seen, self.now());
        if is_unseen {
            self.watch_by_name(desired);
        }
        if self.store().count_change(key, self.clock(), &found.fields, &found.who) == Shift::Contended {
            self.announce(&owner, Some((desired, live)), &found.contended(&owner, key));
        }
        self.notify(&owner);
        Ok(())
    }

    /// Returns the edit that a revert would undo, from a dry run. Returns `None` and ends the drift if there is no such
    /// edit.
    async fn unreverted_edit(&self, desired: &Arc<Desired>, live: Option<&Value>) -> Result<Option<Edit>, Error> {
        let Some(live) = live else { return Ok(Some(Edit::of(desired, None, None))) };
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut body = desired.body_over(live);
        if self.store().is_autoscaled(&desired.key) {
            without_replicas(&mut body);
        }
        yield_to_people(&mut body, live);
        let how = Apply::forced(MANAGER).dry_run();
        let woken = self.store().woken(desired, live);
        let mut answer = match self.cluster().apply(&desired.kind, namespace, name, &body, how).await {
            Ok(answer) => answer,
            Err(error) => {
                let lost = if error.is_invalid() { self.colliding_edit(desired, &body, live) } else { None };
                return lost.map(Some).ok_or_else(|| error.about(&desired.object));
            }
        };
        if let Some(count) = woken {
            answer["spec"]["replicas"] = count.into();
        }
        let answer = desired.view(&answer);
        let empty_containers = projection::empty_containers(&answer, &body);
        let differences = projection::differences(&desired.view(live), &answer, &empty_containers);
        if woken.is_none() && differences.is_empty() {
            self.end_drift(&desired.key);
            return Ok(None);
        }
        Ok(Some(Edit::of(desired, Some(differences), None)))
    }

    /// Returns the edit of fields that collide with other managers. A revert would claim these fields.
    fn colliding_edit(&self, desired: &Desired, body: &Value, live: &Value) -> Option<Edit> {
        let fields = collision::lost(body, live);
        if fields.is_empty() {
            return None;
        }
        let over = collision::known(body, live, &self.now().to_string()).and_then(|found| found.who);
        Some(Edit::of_fields(desired, fields, over.unwrap_or_else(|| UNKNOWN.to_owned())))
    }

    /// Whether the absence of an object is ignored. Ends its pause, because the object was read and does not exist.
    fn is_ignored_absence(&self, key: &Key) -> bool {
        let resumed = self.store().end_pause(key, self.now());
        if resumed {
            self.carry_out(key, Next::Resumed);
        }
        self.store().ignores_drift(key)
    }

    /// Whether an object that had to be read has drift to report.
    fn is_reported_drift(&self, desired: &Desired, live: &Value) -> bool {
        // This call also records the start or end of a pause.
        if self.must_put_back(desired, live) {
            return false;
        }
        let verdict = self.store().judge(&desired.key, live, self.now());
        verdict == Verdict::LeaveAlone(Reason::Report)
    }
}
