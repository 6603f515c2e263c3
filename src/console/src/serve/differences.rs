//! Reads the objects of a GitSync that deviate from its branch, with the permissions of the user.
//!
//! Invariant: the number of objects that are read for a page is limited, one is in memory at a time, and the page has a time
//! limit.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::page_memory::Heavy;
use super::pages::{fleet_object, heavy, respond, stream, tree_of};
use super::read::{self, Found};
use super::session::{Its, Session};
use crate::deviation::{ALL, Deviation, Shown, compared, deviations, not_checked, unlisted};
use crate::objects_cluster::ObjectsCluster;
use crate::page::{self, DifferencesPage};
use crate::row::{FleetKind, row};
use crate::tree::Children;
use mainstay_cluster::Cluster;

/// Maximum number of objects on the page.
const OBJECTS: usize = 50;
/// Maximum time for the page. The list of objects has half of it.
const WITHIN: Duration = Duration::from_secs(20);
const LATE: &str = "Not compared, because the page took too long. The page of the object has the difference.";
const FAILED: &str = "The difference cannot be computed. The page of the object has it.";
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

/// Returns the difference of an object, and the size that the page has left.
async fn difference(session: &Session, is_remote: bool, deviation: Deviation, mut left: usize) -> (Shown, usize) {
    let found = if is_remote { Err(REMOTE.to_owned()) } else { found(&session.cluster, &deviation).await };
    let part = Arc::clone(&session.readers.part);
    let work = move || {
        let shown = compared(&deviation, &found, &*part, &mut left);
        (shown, left)
    };
    session.pages.compute(work).await.unwrap_or_else(|| (Shown::Text(FAILED.to_owned()), left))
}

/// Returns the first objects with their differences. An object after `until` has none.
async fn differences_of(
    session: &Session,
    sync: &Value,
    all: Vec<Deviation>,
    until: Instant,
) -> Vec<(Deviation, Shown)> {
    let is_remote = ObjectsCluster::of(sync) == ObjectsCluster::Remote;
    let (mut left, mut shown) = (ALL, Vec::new());
    for deviation in all.into_iter().take(OBJECTS) {
        let one = if Instant::now() < until {
            tokio::time::timeout_at(until, difference(session, is_remote, deviation.clone(), left)).await.ok()
        } else {
            None
        };
        let one = if let Some((one, rest)) = one {
            left = rest;
            one
        } else {
            Shown::Text(LATE.to_owned())
        };
        shown.push((deviation, one));
    }
    shown
}

pub(super) async fn differences(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    heavy(&session, Heavy::Differences, Box::pin(differences_page(&session, &namespace, &name))).await
}

async fn differences_page(session: &Session, namespace: &str, name: &str) -> Response {
    let kind = FleetKind::GitSync;
    let (key, seen, live) = match fleet_object(session, kind, namespace, name).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let until = Instant::now() + WITHIN;
    let tree = tokio::time::timeout_at(until - WITHIN / 2, tree_of(session, &live, Children::Omitted)).await;
    let (objects, notes) = match tree.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
        Ok(tree) => (tree.objects, tree.notes),
        Err(why) => {
            (Vec::new(), vec![format!("Missing objects are not listed, because the objects cannot be read: {why}")])
        }
    };
    let all = deviations(&live, &objects);
    let more = all.len().saturating_sub(OBJECTS);
    let shown = differences_of(session, &live, all, until).await;
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
    respond(session, &title, (Some(stream(kind, namespace, name)), seen), body)
}
