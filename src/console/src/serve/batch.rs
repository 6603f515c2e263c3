//! Asks for confirmation of a sync of the GitSyncs that the filter of the fleet shows, and requests each with the
//! permissions of the user.
//!
//! Invariant: few requests are sent concurrently, their responses are not parsed, and all of them have one time limit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::Request;
use axum::response::Response;
use futures::{StreamExt as _, stream};
use http::{StatusCode, Uri};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use super::page_memory::Heavy;
use super::pages::{heavy, keeping, query, room};
use super::session::{Its, Session};
use super::watched::{Watched, said};
use super::{answer, read};
use crate::address;
use crate::batch::{Batch, Requested, chosen};
use crate::filter::Filter;
use crate::page::{self, BatchPage, Right};
use crate::row::{FleetKind, State};
use crate::text::{SHORT, plain};
use mainstay_api::requests;
use mainstay_cluster::Kind;
use mainstay_object::Key;

/// Maximum number of requests at the same time. A response has at most 4 MiB, so they fit into the memory of the page.
const TOGETHER: usize = 8;
/// Maximum time for all requests.
const WITHIN: Duration = Duration::from_secs(30);
const TITLE: &str = "Sync all shown";
const NOT_SENT: &str = "not sent, because the other requests took too long; sync it again";
const NOT_NAMED: &str = "not sent, because the API server did not name its kinds within 30 s; sync it again";

fn namespace_of(key: &Key) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

pub(super) async fn confirm(Extension(session): Its, uri: Uri) -> Response {
    session.watched().settled().await;
    heavy(&session, Heavy::Single, Box::pin(ask(&session, &uri))).await
}

/// Returns the page that asks for confirmation.
async fn ask(session: &Session, uri: &Uri) -> Response {
    let filter = Filter::of(&query(uri));
    let watched = session.watched();
    let batch = Batch::of(watched.rows(), &filter);
    let notes: Vec<String> = watched.notes().into_iter().filter(|note| note.contains("GitSync")).collect();
    let rights = rights(session, &batch.chosen).await;
    let pairs = filter.pairs(filter.state, filter.page);
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = page::batch(&BatchPage {
        batch: &batch,
        rights: &rights,
        fleet: &address::with_query("/", &pairs),
        csrf: &session.csrf,
        cluster: &session.cluster_name,
        notes: &notes,
    });
    session.page(StatusCode::OK, TITLE, body)
}

/// Returns whether the user may patch each GitSync. A permission for a whole namespace is asked once.
async fn rights(session: &Session, all: &[Key]) -> Vec<(Key, Right)> {
    let namespaces: BTreeSet<String> = all.iter().map(|key| namespace_of(key).to_owned()).collect();
    let whole = stream::iter(namespaces).map(|namespace| async move {
        let any = FleetKind::GitSync.key(&namespace, "");
        read::may_patch(&session.cluster, &any).await.is_ok().then_some(namespace)
    });
    let whole: Vec<Option<String>> = whole.buffer_unordered(TOGETHER).collect::<Vec<_>>().await;
    let whole: BTreeSet<String> = whole.into_iter().flatten().collect();
    let whole = &whole;
    let each = stream::iter(all.to_vec()).map(|key| async move {
        let right =
            if whole.contains(namespace_of(&key)) { Ok(()) } else { read::may_patch(&session.cluster, &key).await };
        (key, right)
    });
    each.buffered(TOGETHER).collect::<Vec<_>>().await
}

pub(super) async fn perform(Extension(session): Its, mut request: Request) -> Response {
    let form = match session.form(&mut request).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let chosen = match chosen(&form) {
        Ok(chosen) => chosen,
        Err(why) => return answer::message(StatusCode::BAD_REQUEST, "Wrong form", why),
    };
    match room(&session, Heavy::Object).await {
        Ok(room) => keeping(room, Box::pin(sync_all(&session, chosen)).await),
        Err(busy) => busy,
    }
}

/// Returns the kind of GitSyncs, or why it is not known in time.
async fn kind_of_git_syncs(session: &Session, until: Instant) -> Result<Arc<Kind>, String> {
    let any = FleetKind::GitSync.key("", "");
    let named = session.cluster.preferred_kind(&any.group, &any.kind);
    match tokio::time::timeout_at(until, named).await {
        Ok(Ok(Some(kind))) => Ok(kind),
        Ok(Ok(None)) => Err(format!("the kind {} is not installed in this cluster", any.kind)),
        Ok(Err(error)) => Err(said(&error)),
        Err(_) => Err(NOT_NAMED.to_owned()),
    }
}

/// Requests a sync of each GitSync, and returns the results.
async fn sync_all(session: &Session, chosen: Vec<Key>) -> Response {
    let until = Instant::now() + WITHIN;
    let results: Vec<(Key, Requested)> = match kind_of_git_syncs(session, until).await {
        Err(why) => chosen.into_iter().map(|key| (key, Requested::Refused(plain(&why, SHORT)))).collect(),
        Ok(kind) => {
            let watched = session.watched();
            let patch = requests::sync(&Timestamp::now().to_string());
            let batch = Sending { session, watched: &watched, kind: &kind, patch: &patch, until };
            let batch = &batch;
            let sent = stream::iter(chosen).map(|key| async move {
                let result = batch.send(&key).await;
                (key, result)
            });
            sent.buffered(TOGETHER).collect::<Vec<_>>().await
        }
    };
    let is_done = results.iter().all(|(_, result)| *result == Requested::Done);
    let status = if is_done { StatusCode::OK } else { StatusCode::CONFLICT };
    session.page(status, TITLE, page::requested(&results))
}

/// Values that all requests share.
struct Sending<'s> {
    session: &'s Session,
    watched: &'s Watched,
    kind: &'s Kind,
    patch: &'s Value,
    until: Instant,
}

impl Sending<'_> {
    async fn send(&self, key: &Key) -> Requested {
        let Self { session, watched, kind, patch, until } = *self;
        let namespace = namespace_of(key);
        let row = watched.row(FleetKind::GitSync, namespace, &key.name);
        if row.is_some_and(|row| row.state == State::Suspended) {
            return Requested::Suspended;
        }
        if Instant::now() >= until {
            return Requested::Refused(NOT_SENT.to_owned());
        }
        let written = session.cluster.send_merge(kind, Some(namespace), &key.name, patch);
        match tokio::time::timeout_at(until, written).await {
            Ok(Ok(())) => Requested::Done,
            // The connection may break after the API server has written the request.
            Ok(Err(error)) if error.is_outcome_unknown() => Requested::Unknown,
            Ok(Err(error)) => Requested::Refused(plain(&said(&error), SHORT)),
            Err(_) => Requested::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::io;

    use axum::body::Body;
    use http::{Method, Request as Asked, Response as Answer};
    use mainstay_cluster::Scope;
    use serde_json::json;

    use super::*;
    use crate::serve::row_memory::RowMemory;
    use crate::serve::session::tests::session_of;

    /// Returns the result of a request. Patches get this status, or none if their connection breaks.
    async fn sent(status: Option<u16>) -> Requested {
        let service = tower::service_fn(move |request: Asked<kube::client::Body>| {
            let status = if request.method() == Method::PATCH { status } else { Some(403) };
            let response = status.map(|status| Answer::builder().status(status).body(Body::from("{}")).unwrap());
            ready(response.ok_or_else(|| io::Error::other("connection reset")))
        });
        let session = session_of(&RowMemory::default(), kube::Client::new(service, "default"));
        let kind = Kind::fixed("mainstay.dev/v1alpha1", "GitSync", "gitsyncs", Scope::Namespaced);
        let (watched, patch, until) = (session.watched(), json!({}), Instant::now() + WITHIN);
        let sending = Sending { session: &session, watched: &watched, kind: &kind, patch: &patch, until };
        sending.send(&FleetKind::GitSync.key("team", "a")).await
    }

    #[tokio::test]
    async fn a_request_without_a_response_has_an_unknown_outcome() {
        assert_eq!(sent(Some(200)).await, Requested::Done);
        assert_eq!(sent(None).await, Requested::Unknown);
        assert!(matches!(sent(Some(403)).await, Requested::Refused(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_kind_of_git_syncs_is_not_waited_for_longer_than_the_requests() {
        let service = tower::service_fn(|_: Asked<kube::client::Body>| pending::<Result<Answer<Body>, Infallible>>());
        let session = session_of(&RowMemory::default(), kube::Client::new(service, "default"));
        let begin = Instant::now();
        let kind = kind_of_git_syncs(&session, begin + WITHIN).await;
        assert_eq!(kind.err().as_deref(), Some(NOT_NAMED));
        assert!(begin.elapsed() < WITHIN * 2);
    }
}
