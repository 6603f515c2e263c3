//! The conflict response of an apply that would change fields of other managers.

use serde_json::Value;

use super::context::ApplyContext;
use super::fields::FieldSet;
use super::managed::Entry;
use super::owned::owned;
use crate::status::{Cause, Status};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the 409 with every path and its owner.
pub(super) fn refuse(conflicts: &[(&Entry, FieldSet)]) -> Status {
    let mut named: Vec<(String, Vec<String>)> =
        conflicts.iter().map(|(entry, fields)| (entry.describe(), fields.paths())).collect();
    named.sort();
    let count: usize = named.iter().map(|(_, paths)| paths.len()).sum();
    let message = match named.as_slice() {
        [(who, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {who}: {}", paths[0])
        }
        _ => {
            let blocks = named.iter().map(|(who, paths)| format!("conflicts with {who}:\n- {}", paths.join("\n- ")));
            format!("Apply failed with {count} conflicts: {}", blocks.collect::<Vec<_>>().join("\n"))
        }
    };
    let mut status = Status::new(409, "Conflict", message);
    for (who, paths) in named {
        let cause = |path: String| Cause::new("FieldManagerConflict", path, format!("conflict with {who}"));
        status.causes.extend(paths.into_iter().map(cause));
    }
    status
}

/// Returns whether the manager `kubectl` may take these fields, because its last client-side apply wrote them.
pub(super) fn allowed_by_last_applied(
    cx: &ApplyContext<'_>,
    live: Option<&Value>,
    conflicts: &[(&Entry, FieldSet)],
) -> bool {
    if cx.manager != "kubectl" {
        return false;
    }
    let annotation = live.and_then(|l| l.get("metadata")?.get("annotations")?.get(LAST_APPLIED)?.as_str());
    let Some(last) = annotation.and_then(|text| serde_json::from_str::<Value>(text).ok()) else { return false };
    let allowed = owned(cx.schema.view(), &last);
    conflicts.iter().all(|(_, fields)| {
        let mut left = fields.clone();
        left.subtract(&allowed);
        left.is_empty()
    })
}
