//! Reads which GitSync manages an object, and from which file.

use serde_json::Value;

use super::session::Session;
use crate::form::{Keeper, keeper_of_label};
use crate::text::{MESSAGE, plain};
use crate::trace::{Manager, Trace};
use mainstay_object::Key;

/// Returns the GitSync that manages an object; `None` if there is none.
pub(super) async fn keeper(session: &Session, key: &Key, live: &Value) -> Option<Keeper> {
    match (session.readers.trace)(session.cluster.clone(), key.clone()).await {
        Ok(Trace { owners, manager: Some(manager), .. }) if owners.is_empty() => {
            let Manager { git_sync, file, path, .. } = manager;
            Some(Keeper { git_sync: Some(git_sync), file, path, note: String::new() })
        }
        Ok(Trace { notes, .. }) if notes.is_empty() => None,
        // Without all inventories, the label decides.
        Ok(Trace { notes, .. }) => of_label(live, &notes.join("; ")),
        Err(why) => of_label(live, &why),
    }
}

/// Returns the GitSync that the label names, with the reason why its inventory does not decide.
fn of_label(live: &Value, why: &str) -> Option<Keeper> {
    let note =
        format!("Only the label of the object names the GitSync: {}.", plain(why, MESSAGE).trim_end_matches('.'));
    keeper_of_label(live).map(|keeper| Keeper { note, ..keeper })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_api::names;

    #[test]
    fn a_label_decides_with_the_reason() {
        let live = json!({"metadata": {"labels": {names::SYNC_LABEL: "shop.demo"}}});
        let keeper = of_label(&live, "the inventory of shop/demo is missing").unwrap();
        assert_eq!(keeper.git_sync.map(|sync| sync.to_string()), Some("GitSync.mainstay.dev shop/demo".to_owned()));
        assert_eq!(
            keeper.note,
            "Only the label of the object names the GitSync: the inventory of shop/demo is missing."
        );
        assert_eq!(of_label(&json!({}), "x"), None);
    }
}
