//! Reads the objects of a GitSync that deviate from its branch, with the permissions of the user.
//!
//! Invariant: the number of objects that are read for a page is limited, and so is their number at the same time.

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::Value;

use super::page_memory::Heavy;
use super::pages::{not_shown, respond, room, stream, tree_of};
use super::read::{self, Found};
use super::session::{Its, Session};
use crate::deviation::{ALL, Deviation, Shown, deviations, not_checked, shown, unlisted};
use crate::page::{self, DifferencesPage};
use crate::row::{FleetKind, row};
use crate::tree::Children;
use mainstay_cluster::Cluster;

/// Maximum number of objects on the page.
const OBJECTS: usize = 50;
/// Maximum number of objects that are in memory at the same time. Each takes at most 20 MiB.
const AT_ONCE: usize = 1;
const REMOTE: &str = "The object is in a remote cluster (spec.kubeConfig), so its YAML is not read here.";

/// Reads an object; `None` if it does not exist. A failure is its reason.
async fn found(cluster: &Cluster, deviation: &Deviation) -> Result<Option<Value>, String> {
    let Some(key) = &deviation.key else { return Ok(None) };
    match read::object(cluster, key).await {
        Found::There(live) => Ok(Some(live)),
        Found::Missing(_) => Ok(None),
        Found::Forbidden(why) | Found::Failed(why) => Err(why),
    }
}

/// Returns the first objects with their differences.
async fn compared(session: &Session, sync: &Value, all: Vec<Deviation>) -> Vec<(Deviation, Shown)> {
    let is_remote = sync.pointer("/spec/kubeConfig").is_some_and(|config| !config.is_null());
    let mut left = ALL;
    let mut compared = Vec::new();
    for some in all[..all.len().min(OBJECTS)].chunks(AT_ONCE) {
        let mut reads = Vec::new();
        for deviation in some.iter().filter(|_| !is_remote) {
            reads.push(found(&session.cluster, deviation));
        }
        let mut reads = futures::future::join_all(reads).await.into_iter();
        for deviation in some {
            let found = reads.next().unwrap_or_else(|| Err(REMOTE.to_owned()));
            let live = found.as_ref().ok().and_then(Option::as_ref);
            let part = live.and_then(|live| (session.readers.part)(live, &deviation.changes));
            let shown = shown(deviation, &found, part.as_ref(), &mut left);
            compared.push((deviation.clone(), shown));
        }
    }
    compared
}

pub(super) async fn differences(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    let _room = match room(&session, Heavy::Differences).await {
        Ok(room) => room,
        Err(response) => return response,
    };
    let kind = FleetKind::GitSync;
    let key = kind.key(&namespace, &name);
    let seen = session.watched().seen();
    let live = match not_shown(&session, &key, read::object(&session.cluster, &key).await) {
        Ok(live) => live,
        Err(response) => return response,
    };
    let (objects, notes) = match tree_of(&session, &live, Children::Omitted).await {
        Ok(tree) => (tree.objects, tree.notes),
        Err(why) => {
            (Vec::new(), vec![format!("Missing objects are not listed, because the objects cannot be read: {why}")])
        }
    };
    let all = deviations(&live, &objects);
    let more = all.len().saturating_sub(OBJECTS);
    let shown = compared(&session, &live, all).await;
    let row = row(kind, &live);
    let body = page::differences(&DifferencesPage {
        key: &key,
        live: &live,
        shown: &shown,
        more,
        unlisted: unlisted(&live),
        not_checked: &not_checked(&objects),
        edits: &row.edits,
        notes: &notes,
        now: Timestamp::now(),
    });
    let title = format!("Differences of GitSync {}", row.name);
    respond(&session, &title, (Some(stream(kind, &namespace, &name)), seen), body)
}
