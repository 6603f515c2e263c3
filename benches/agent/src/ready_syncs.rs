//! When a GitSync is Ready.

use super::observer::Seen;
use crate::api::GitSync;

/// Reads the status of the condition Ready.
pub(super) fn readiness(sync: GitSync) -> Option<Seen> {
    let conditions = sync.status?.conditions;
    let ready = conditions.into_iter().find(|condition| condition.kind == "Ready")?;
    Some(Seen { name: sync.metadata.name?, state: ready.status })
}
