//! Asks for confirmation of an action, and performs it with the permissions of the user.

use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::response::Response;
use http::{StatusCode, Uri};
use jiff::Timestamp;
use serde_json::Value;

use super::page_memory::Heavy;
use super::pages::{heavy, keeping, query, room, tree_of};
use super::read::{self, Found};
use super::session::{Its, Session};
use super::unwritten::{nothing_changed, unwritten};
use super::watched::said;
use super::{answer, delete};
use crate::action::Action;
use crate::asked::Asked;
use crate::field::text_at;
use crate::objects_cluster::ObjectsCluster;
use crate::page::{self, Confirmation};
use crate::sync_preview::SyncPreview;
use crate::text::{SHORT, plain};
use crate::tree::Children;
use mainstay_cluster::Part;

/// Maximum number of held deletions on the page.
const HELD: usize = 200;
/// Maximum time for the objects of a GitSync before a sync.
const WITHIN: Duration = Duration::from_secs(10);

/// Returns the memory of the page that asks.
fn memory_of(asked: &Asked) -> Heavy {
    if asked.action == Action::Sync { Heavy::Tree } else { Heavy::Single }
}

pub(super) async fn confirm(Extension(session): Its, uri: Uri) -> Response {
    match Asked::of(&query(&uri)) {
        Err(why) => answer::message(StatusCode::BAD_REQUEST, "Wrong address", why),
        Ok(asked) if asked.action == Action::Delete => delete::confirm(&session, &asked).await,
        Ok(mut asked) => {
            // The user chooses this option on the page. A link does not choose it.
            asked.options.overridden.clear();
            let page = memory_of(&asked);
            let shown = ask(&session, asked, StatusCode::OK, "");
            heavy(&session, page, Box::pin(shown)).await
        }
    }
}

/// Reads the deviations of a GitSync.
async fn preview(session: &Session, live: &Value) -> SyncPreview {
    let tree = tokio::time::timeout(WITHIN, tree_of(session, live, Children::Omitted)).await;
    match tree.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
        Ok(tree) => SyncPreview::of(live, &tree.objects, tree.notes),
        Err(why) => {
            let note = format!("Missing objects are not counted, because the objects cannot be read: {why}");
            SyncPreview::of(live, &[], vec![note])
        }
    }
}

/// Returns the page that asks for confirmation.
async fn ask(session: &Session, mut asked: Asked, status: StatusCode, problem: &str) -> Response {
    let right = read::may_patch(&session.cluster, &asked.key).await;
    let (mut held, mut more, mut objects, mut deviations) = (Vec::new(), 0, ObjectsCluster::This, None);
    if matches!(asked.action, Action::Sync | Action::AllowPrune)
        && let Found::There(live) = read::object(&session.cluster, &asked.key).await
    {
        let all = live.pointer("/status/held").and_then(Value::as_array).into_iter().flatten().take(HELD);
        held = all.filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect();
        let count = live.pointer("/status/heldObjects").and_then(Value::as_i64).unwrap_or(0);
        more = count.saturating_sub(i64::try_from(held.len()).unwrap_or(i64::MAX));
        objects = ObjectsCluster::of(&live);
        asked.commit = text_at(&live, "/status/attemptedCommit", SHORT);
        if asked.action == Action::Sync {
            deviations = Some(preview(session, &live).await);
        }
    }
    let body = page::confirmation(&Confirmation {
        asked: &asked,
        right: &right,
        csrf: &session.csrf,
        cluster: &session.cluster_name,
        preview: deviations.as_ref(),
        held: &held,
        more,
        objects,
        problem,
    });
    session.page(status, asked.action.label(), body)
}

pub(super) async fn perform(Extension(session): Its, mut request: Request) -> Response {
    let form = match session.form(&mut request).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let asked = match Asked::of(&form) {
        Ok(asked) => asked,
        Err(why) => return answer::message(StatusCode::BAD_REQUEST, "Wrong form", why),
    };
    if asked.action == Action::Delete {
        return delete::perform(&session, &asked, &form).await;
    }
    // The API server responds with the changed object.
    match room(&session, memory_of(&asked)).await {
        Ok(room) => keeping(room, Box::pin(change(&session, asked)).await),
        Err(busy) => busy,
    }
}

/// Writes the change, and returns its outcome.
async fn change(session: &Session, mut asked: Asked) -> Response {
    if !asked.options.overridden.is_empty() {
        // The status records the user. A user whose name the API server does not report may override a window, too.
        asked.options.user = session.cluster.user_name().await.ok().flatten();
    }
    let patch = match asked.patch(Timestamp::now()) {
        Ok(patch) => patch,
        Err(why) => return ask(session, asked, StatusCode::UNPROCESSABLE_ENTITY, &why).await,
    };
    let result = write(session, &asked, &patch).await;
    let status = if result.is_ok() { StatusCode::OK } else { StatusCode::CONFLICT };
    session.page(status, asked.action.label(), page::outcome(&asked, &result))
}

async fn write(session: &Session, asked: &Asked, patch: &Value) -> Result<(), String> {
    let key = &asked.key;
    let kind = session.cluster.preferred_kind(&key.group, &key.kind).await;
    let kind = kind.map_err(|error| nothing_changed(&said(&error)))?;
    let kind =
        kind.ok_or_else(|| nothing_changed(&format!("the kind {} is not installed in this cluster", key.kind)))?;
    let written = session.cluster.patch_merge(&kind, key.namespace.as_deref(), &key.name, Part::Main, patch).await;
    written.map(drop).map_err(|error| unwritten(&error))
}
