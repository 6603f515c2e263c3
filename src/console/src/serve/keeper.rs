//! Reads which GitSync manages an object, and from which file.

use serde_json::Value;

use super::session::Session;
use crate::form::{Keeper, keeper_of_label};
use crate::trace::Trace;
use mainstay_object::Key;

/// Returns the GitSync that manages an object; `None` if there is none.
pub(super) async fn keeper(session: &Session, key: &Key, live: &Value) -> Option<Keeper> {
    match (session.readers.trace)(session.cluster.clone(), key.clone()).await {
        Ok(Trace { owners, manager: Some(manager), .. }) if owners.is_empty() => {
            Some(Keeper { git_sync: Some(manager.git_sync), file: manager.file, path: manager.path })
        }
        Ok(Trace { notes, .. }) if notes.is_empty() => None,
        // Without the permission to read all inventories, the label decides.
        _ => keeper_of_label(live),
    }
}
