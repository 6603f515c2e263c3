//! Describes an edit that is or would be reverted: its fields, their values and the field manager.
//!
//! Invariant: values of Secrets and of confidential objects are omitted.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use crate::managed::collision;
use crate::managed::desired::Desired;
use crate::managed::projection::Difference;
use crate::managed::remaining::{Differing, shown_field};
use crate::notification::{Change, Message};
use mainstay_api::git_sync::{self, Revert, UNKNOWN, WHOLE_OBJECT};
use mainstay_cluster::Error;
use mainstay_object::{Key, Owner};

/// Maximum number of changed values in a message or record.
const SHOWN_CHANGES: usize = 10;
/// Maximum number of field names in a message.
const SHOWN_FIELDS: usize = 20;

pub(super) struct Edit {
    /// The first changed fields, as they are shown.
    pub(super) fields: Vec<String>,
    /// The whole paths of these fields, in the same order. The first ones are those of the changes.
    paths: Vec<String>,
    /// The first changed values.
    pub(super) changes: Vec<Change>,
    /// The field manager that wrote the fields.
    pub(super) who: String,
}

impl Edit {
    /// Describes the differences between the live and the desired object; `None` stands for a deleted object. `over` is
    /// the manager to report if no difference has one.
    pub(super) fn of(desired: &Desired, differences: Option<Vec<Difference>>, over: Option<String>) -> Self {
        let fields = match &differences {
            None => vec![WHOLE_OBJECT.to_owned()],
            Some(none) if none.is_empty() => vec!["metadata.managedFields".to_owned()],
            Some(some) => some.iter().map(|difference| difference.path.clone()).collect(),
        };
        let differences = differences.unwrap_or_default();
        let who = differences.iter().find_map(|d| d.who.clone()).or(over).unwrap_or_else(|| UNKNOWN.to_owned());
        let is_confidential = desired.object.is_confidential();
        let changes = differences
            .into_iter()
            .filter(|_| !is_confidential)
            .take(SHOWN_CHANGES)
            .map(|d| Change { field: shown_field(is_confidential, &d.path), found: d.found, restored: d.restored })
            .collect();
        Self { changes, ..Self::of_fields(desired, fields, who) }
    }

    /// Describes changed fields whose values are unknown.
    pub(super) fn of_fields(desired: &Desired, paths: Vec<String>, who: String) -> Self {
        let paths = few(paths);
        Self { fields: shown_fields(desired, paths.clone()), paths, changes: Vec::new(), who }
    }

    /// Returns the message of a revert; `latency` is the time since the edit.
    pub(super) fn reverted(&self, owner: &Owner, key: &Key, latency: Duration) -> Message {
        Message::Reverted {
            subject: owner.clone(),
            object: key.to_string(),
            fields: self.fields.clone(),
            changes: self.changes.clone(),
            who: self.who.clone(),
            millis: latency.as_secs_f64() * 1000.0,
        }
    }

    /// Returns the message that these fields change repeatedly.
    pub(super) fn contended(&self, owner: &Owner, key: &Key) -> Message {
        let (fields, who) = (self.fields.clone(), self.who.clone());
        Message::Contended { subject: owner.clone(), object: key.to_string(), fields, who }
    }

    /// Returns the drift for the store.
    pub(super) fn differing(&self) -> Differing {
        let changes = self.status_changes().into_iter().zip(&self.paths);
        let changes = changes.map(|(change, path)| git_sync::Change { field: path.clone(), ..change }).collect();
        Differing { fields: self.paths.clone(), changes, who: self.who.clone() }
    }

    fn status_changes(&self) -> Vec<git_sync::Change> {
        let change = |change: &Change| git_sync::Change {
            field: change.field.clone(),
            found: change.found.clone(),
            restored: change.restored.clone(),
        };
        self.changes.iter().map(change).collect()
    }

    /// Returns the entry of the revert in the status of a GitSync.
    pub(super) fn revert(&self, key: &Key, latency: Duration, when: Timestamp) -> Revert {
        Revert {
            object: key.to_string(),
            fields: self.fields.iter().take(SHOWN_CHANGES).cloned().collect(),
            changes: self.status_changes(),
            who: self.who.clone(),
            when: Time(when),
            latency_ms: i64::try_from(latency.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

/// Returns field names without parts that may contain secret values.
pub(super) fn shown_fields(desired: &Desired, fields: Vec<String>) -> Vec<String> {
    let is_confidential = desired.object.is_confidential();
    fields.into_iter().map(|field| shown_field(is_confidential, &field)).collect()
}

/// Shortens a list of fields. An object may have tens of thousands.
pub(super) fn few(mut fields: Vec<String>) -> Vec<String> {
    let more = fields.len().saturating_sub(SHOWN_FIELDS);
    fields.truncate(SHOWN_FIELDS);
    if more > 0 {
        fields.push(format!("… and {more} more"));
    }
    fields
}

/// The fields of a failed revert: those that other managers took from Mainstay, or those that the error reports.
pub(super) fn fields_not_put_back(desired: &Desired, live: Option<&Value>, error: &Error) -> Vec<String> {
    let mut fields = live.map(|live| collision::lost(&desired.body_over(live), live)).unwrap_or_default();
    if fields.is_empty() {
        let causes = error.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        fields = causes.map(|cause| cause.field.clone()).filter(|field| !field.is_empty()).collect();
    }
    if fields.is_empty() {
        fields.push(WHOLE_OBJECT.to_owned());
    }
    let mut fields = shown_fields(desired, fields);
    fields.dedup();
    fields.truncate(SHOWN_CHANGES);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::fixtures::desired;

    #[test]
    fn an_edit_shows_no_login_of_a_url() {
        let path = r#"spec.mirrors[url="https://u:hunter2@h"].name"#.to_owned();
        let difference = Difference { path: path.clone(), found: "1".to_owned(), restored: "2".to_owned(), who: None };
        let edit = Edit::of(&desired(), Some(vec![difference]), None);
        let shown = r#"spec.mirrors[url="https://(hidden)@h"].name"#;
        assert_eq!((&*edit.fields, &*edit.changes[0].field), (&[shown.to_owned()][..], shown));
        let differing = edit.differing();
        assert_eq!((&*differing.fields[0], &*differing.changes[0].field), (&*path, &*path));
    }

    #[test]
    fn an_edit_of_many_fields_names_a_few() {
        let many = |count: usize| (0..count).map(|number| format!("data.{number}")).collect::<Vec<_>>();
        assert_eq!(few(many(SHOWN_FIELDS)), many(SHOWN_FIELDS));
        let named = few(many(25_000));
        assert_eq!((named.len(), named.last().map(String::as_str)), (SHOWN_FIELDS + 1, Some("… and 24980 more")));
    }
}
