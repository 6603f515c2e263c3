//! The pages of lists beside the fleet: sources, images, Providers and Alerts; APIRules, Triggers and Subscriptions.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use http::Uri;
use jiff::Timestamp;

use super::lists::ListName;
use super::pages::{busy, query, respond};
use super::session::{Its, Session};
use crate::address;
use crate::filter::{Filter, listing};
use crate::lookup::Lookups;
use crate::page::{self, Fleet};

/// The note of a page that does not follow changes.
const NOT_FOLLOWED: &str =
    "This page does not follow changes now, because too many pages with lists are open. Reload it.";

pub(super) async fn sources(Extension(session): Its, uri: Uri) -> Response {
    list(&session, &uri, ListName::Sources, ("Sources, images and alerts", "/sources")).await
}

pub(super) async fn served(Extension(session): Its, uri: Uri) -> Response {
    list(&session, &uri, ListName::Served, ("APIRules, Triggers and Subscriptions", "/served")).await
}

async fn list(session: &Session, uri: &Uri, name: ListName, (title, path): (&str, &str)) -> Response {
    let followed = session.list(name);
    let watched = match &followed {
        Some(list) => Some(Arc::clone(&list.watched)),
        None => session.list_once(name).await,
    };
    let Some(watched) = watched else { return busy(session) };
    if followed.is_some() {
        watched.settled().await;
    }
    let seen = watched.seen();
    let mut notes = watched.notes();
    if followed.is_none() {
        notes.push(NOT_FOLLOWED.to_owned());
    }
    let filter = Filter::of(&query(uri));
    let body = page::fleet(&Fleet {
        title,
        path,
        kinds: name.kinds(),
        listing: &listing(watched.rows(), &filter),
        filter: &filter,
        lookups: &Lookups::new(),
        notes: &notes,
        within: None,
        now: Timestamp::now(),
    });
    let stream = followed.is_some().then(|| address::with_query("/events", &[("list", name.word())]));
    respond(session, title, (stream, seen), body)
}
