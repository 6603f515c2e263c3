//! What was changed in an object that was put back, or would be: the fields, their values, and who wrote them.
//!
//! Invariant: values of Secrets are left out.

use serde_json::Value;

use super::replicas::REPLICAS;
use crate::api::git_sync::{UNKNOWN, WHOLE_OBJECT};
use crate::cluster::Error;
use crate::managed::autoscaler::is_at_zero;
use crate::managed::collision;
use crate::managed::desired::Desired;
use crate::managed::fields::readable;
use crate::managed::projection::{self, EmptyContainers};
use crate::notification::Change;
use crate::object::Key;

/// Changes that one message or record names, at most.
pub(super) const SHOWN_CHANGES: usize = 10;
/// Fields that a message names, at most.
const SHOWN_FIELDS: usize = 20;

/// What was changed.
pub(super) struct Edit {
    /// The fields, the first of them.
    pub(super) fields: Vec<String>,
    /// Their values, the first of them.
    pub(super) changes: Vec<Change>,
    /// The field manager that wrote them.
    pub(super) who: String,
}

/// What differs between the object as it was found and as it is, or would be, afterwards, with what was `added` beside
/// ours. Values of Secrets are left out. Where nobody wrote the fields, `over` is who wrote in their place.
pub(super) fn edit_between(
    key: &Key,
    before: Option<&Value>,
    after: &Value,
    empty_containers: &EmptyContainers,
    (added, over): (Vec<projection::Difference>, Option<String>),
) -> Edit {
    let mut differences =
        before.map(|before| projection::differences(before, after, empty_containers)).unwrap_or_default();
    for added in added {
        if differences.iter().all(|known| known.path != added.path) {
            differences.push(added);
        }
    }
    differences.extend(before.and_then(|before| woken(before, after, &differences)));
    let mut fields = differences.iter().map(|d| d.path.clone()).collect::<Vec<_>>();
    if before.is_none() {
        fields = vec![WHOLE_OBJECT.to_owned()];
    } else if fields.is_empty() {
        fields = vec!["metadata.managedFields".to_owned()];
    }
    let who = differences.iter().find_map(|d| d.who.clone()).or(over).unwrap_or_else(|| UNKNOWN.to_owned());
    let is_secret = key.is("", "Secret");
    let changes = differences
        .into_iter()
        .filter(|_| !is_secret)
        .take(SHOWN_CHANGES)
        .map(|d| Change { field: d.path, found: d.found, restored: d.restored })
        .collect();
    Edit { fields: few(fields), changes, who }
}

/// Fields as messages name them. An object has room for tens of thousands, and nobody reads them.
pub(super) fn few(mut fields: Vec<String>) -> Vec<String> {
    let more = fields.len().saturating_sub(SHOWN_FIELDS);
    fields.truncate(SHOWN_FIELDS);
    if more > 0 {
        fields.push(format!("… and {more} more"));
    }
    fields
}

/// The count of a workload that was at 0 and is not any more, where it is its autoscaler's.
fn woken(before: &Value, after: &Value, differences: &[projection::Difference]) -> Option<projection::Difference> {
    let path = readable(&REPLICAS);
    let is_woken = is_at_zero(before) && !is_at_zero(after) && differences.iter().all(|found| found.path != path);
    let who = || projection::last_writer(before, &REPLICAS);
    let count = |object: &Value| object.pointer("/spec/replicas").map_or_else(|| "absent".to_owned(), Value::to_string);
    is_woken.then(|| projection::Difference { path, found: count(before), restored: count(after), who: who() })
}

/// The fields that could not be put back: those that are not ours any more, or those that the server spoke of.
pub(super) fn fields_not_put_back(desired: &Desired, live: Option<&Value>, error: &Error) -> Vec<String> {
    let mut fields = live.map(|live| collision::lost(&desired.body(), live)).unwrap_or_default();
    if fields.is_empty() {
        let causes = error.refusal().into_iter().flat_map(|refusal| &refusal.causes);
        fields = causes.map(|cause| cause.field.clone()).filter(|field| !field.is_empty()).collect();
    }
    if fields.is_empty() {
        fields.push(WHOLE_OBJECT.to_owned());
    }
    fields.dedup();
    fields.truncate(SHOWN_CHANGES);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_fields_a_few_are_named() {
        let many = |count: usize| (0..count).map(|number| format!("data.{number}")).collect::<Vec<_>>();
        assert_eq!(few(many(SHOWN_FIELDS)), many(SHOWN_FIELDS));
        let named = few(many(25_000));
        assert_eq!((named.len(), named.last().map(String::as_str)), (SHOWN_FIELDS + 1, Some("… and 24980 more")));
    }
}
