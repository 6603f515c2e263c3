//! Asks before the deletion of an object, and deletes it with the permissions of the user.
//!
//! Invariant: only the version of the object that the question was about is deleted. Invariant: an object of a GitSync, or
//! of another object that controls it, is not deleted. Invariant: only the deletion itself has no time limit, because the
//! user has to know whether it was performed.

use axum::response::Response;
use http::StatusCode;
use maud::Markup;
use serde_json::Value;

use super::keeper::keeper;
use super::page_memory::Heavy;
use super::pages::{heavy, in_time, keeping, not_shown, room};
use super::session::Session;
use super::unwritten::{nothing_deleted, undeleted};
use super::watched::said;
use super::{followers, function, read};
use crate::asked::Asked;
use crate::deletion::{Loss, controller};
use crate::facts::Facts;
use crate::filter::Query;
use crate::page::{self, Deletion};
use crate::row::FleetKind;
use mainstay_cluster::{Guard, Propagation, Removal};
use mainstay_object::Key;

/// Returns the page that asks for confirmation.
pub(super) async fn confirm(session: &Session, asked: &Asked) -> Response {
    let shown = ask(session, asked, StatusCode::OK, "");
    heavy(session, Heavy::Object, Box::pin(shown)).await
}

/// Deletes the object of a form.
pub(super) async fn perform(session: &Session, asked: &Asked, form: &Query) -> Response {
    match room(session, Heavy::Object).await {
        Ok(room) => keeping(room, Box::pin(delete(session, asked, form)).await),
        Err(busy) => busy,
    }
}

/// Reads what goes with an object.
async fn loss(session: &Session, key: &Key, live: &Value) -> Option<Loss> {
    match FleetKind::of(key)? {
        FleetKind::Function => Some(Loss::Function(function::belonging(session, key, live).await)),
        FleetKind::GitRepository => Some(Loss::GitRepository(followers::followers(session, key).await)),
        FleetKind::ApiRule => Some(Loss::ApiRule(Facts::of(key, live))),
        _ => None,
    }
}

/// Returns a text of the metadata.
fn metadata<'l>(live: &'l Value, field: &str) -> &'l str {
    live["metadata"][field].as_str().unwrap_or_default()
}

/// Returns the page that asks for confirmation. `problem` says why nothing was deleted.
async fn ask(session: &Session, asked: &Asked, status: StatusCode, problem: &str) -> Response {
    let key = &asked.key;
    let live = match not_shown(session, key, read::object(&session.cluster, key).await) {
        Ok(live) => live,
        Err(response) => return response,
    };
    let (keeper, right) = futures::join!(keeper(session, key, &live), read::may_delete(&session.cluster, key));
    let controller = controller(key, &live);
    let loss = if keeper.is_none() && controller.is_none() { loss(session, key, &live).await } else { None };
    let body = page::deletion(&Deletion {
        asked,
        right: &right,
        csrf: &session.csrf,
        cluster: &session.cluster_name,
        keeper: keeper.as_ref(),
        controller: controller.as_ref(),
        uid: metadata(&live, "uid"),
        version: metadata(&live, "resourceVersion"),
        loss: loss.as_ref(),
        problem,
    });
    respond(session, asked, status, body)
}

fn respond(session: &Session, asked: &Asked, status: StatusCode, body: Markup) -> Response {
    session.page(status, asked.action.label(), body)
}

/// Deletes the version of the object that the form names, and returns the result.
async fn delete(session: &Session, asked: &Asked, form: &Query) -> Response {
    let (uid, version) = (form.get("uid"), form.get("version"));
    if uid.is_empty() || version.is_empty() {
        let why = "Nothing was deleted: the form names no version of the object. Read the question below.";
        return ask_again(session, asked, StatusCode::UNPROCESSABLE_ENTITY, why).await;
    }
    match in_time(session, Box::pin(is_kept(session, &asked.key))).await {
        Ok(false) => {}
        Ok(true) => {
            let why = "Nothing was deleted: the object is not yours to delete here. Read the reason below.";
            return ask_again(session, asked, StatusCode::CONFLICT, why).await;
        }
        Err(_) => {
            let why = Err(nothing_deleted("the object was not read in time."));
            return respond(session, asked, StatusCode::GATEWAY_TIMEOUT, page::deleted(asked, &why));
        }
    }
    let guard = Guard { uid: Some(uid), resource_version: Some(version) };
    match remove(session, &asked.key, guard).await {
        Err(Refusal::Changed) => {
            let why = "Nothing was deleted: the object has changed since the question. Read the question again.";
            ask_again(session, asked, StatusCode::CONFLICT, why).await
        }
        Err(Refusal::Failed(why)) => respond(session, asked, StatusCode::CONFLICT, page::deleted(asked, &Err(why))),
        Ok(removal) => respond(session, asked, StatusCode::OK, page::deleted(asked, &Ok(removal))),
    }
}

/// Asks again within the time of a page, and says why nothing was deleted.
async fn ask_again(session: &Session, asked: &Asked, status: StatusCode, problem: &str) -> Response {
    if let Ok(page) = in_time(session, Box::pin(ask(session, asked, status, problem))).await {
        page
    } else {
        let why = Err(nothing_deleted("the question was not read again in time."));
        respond(session, asked, status, page::deleted(asked, &why))
    }
}

/// Returns whether a GitSync or another object keeps the object.
async fn is_kept(session: &Session, key: &Key) -> bool {
    match read::object(&session.cluster, key).await {
        read::Found::There(live) => controller(key, &live).is_some() || keeper(session, key, &live).await.is_some(),
        read::Found::Missing(_) => false,
        // The question says why the object cannot be read.
        read::Found::Forbidden(_) | read::Found::Failed(_) => true,
    }
}

/// Why an object was not deleted.
enum Refusal {
    /// The object is not the one of the question, or not in its version.
    Changed,
    /// The message says whether the deletion may have been carried out.
    Failed(String),
}

async fn remove(session: &Session, key: &Key, guard: Guard<'_>) -> Result<Removal, Refusal> {
    let failed = |why: &str| Refusal::Failed(nothing_deleted(why));
    let kind = in_time(session, Box::pin(session.cluster.preferred_kind(&key.group, &key.kind))).await;
    let kind = kind.map_err(|_| failed("its kind was not read in time."))?.map_err(|error| failed(&said(&error)))?;
    let kind = kind.ok_or_else(|| failed(&format!("the kind {} is not installed in this cluster", key.kind)))?;
    let namespace = key.namespace.as_deref();
    let removed = session.cluster.delete(&kind, namespace, &key.name, guard, Propagation::Background).await;
    removed.map_err(|error| if error.is_conflict() { Refusal::Changed } else { Refusal::Failed(undeleted(&error)) })
}
