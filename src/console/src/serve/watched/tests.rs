//! Tests of the rows of a session: revoked permissions, the end of watches, and an API server that does not respond.

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use serde_json::json;

use super::*;
use crate::serve::row_memory::RowMemory;
use mainstay_cluster::Scope;

/// Returns the error of an API server that responds with this code.
async fn refusal(code: u16) -> Error {
    let service = tower::service_fn(move |_: Request<kube::client::Body>| {
        let body = json!({"kind": "Status", "status": "Failure", "message": "no", "code": code}).to_string();
        std::future::ready(Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(body)).unwrap()))
    });
    let client = kube::Client::new(service, "default");
    let kind = Kind::fixed("mainstay.dev/v1alpha1", "GitSync", "gitsyncs", Scope::Namespaced);
    Cluster::from_clients(client.clone(), client).get(&kind, Some("shop"), "demo").await.unwrap_err()
}

/// Returns a complete fleet with one row.
async fn fleet() -> Watched {
    let watched = Watched::empty(&FleetKind::ALL, RowMemory::default().share("a"));
    let live = json!({"metadata": {"namespace": "shop", "name": "demo"}});
    let name = ("shop".to_owned(), "demo".to_owned());
    watched.keep(FleetKind::GitSync, name, row(FleetKind::GitSync, &live)).await;
    watched.enter(FleetKind::GitSync, Phase::Complete);
    assert_eq!(watched.rows().len(), 1);
    assert!(watched.unread(&[FleetKind::GitSync], "shop").is_empty());
    watched
}

#[tokio::test]
async fn rows_do_not_stay_after_the_right_was_revoked() {
    let watched = fleet().await;
    let seen = watched.seen();
    assert_eq!(watched.fail(FleetKind::GitSync, &refusal(403).await), Rows::Removed);
    assert!(watched.rows().is_empty() && watched.row(FleetKind::GitSync, "shop", "demo").is_none());
    assert!(watched.seen() > seen && watched.notes().iter().any(|note| note.contains("cannot be read")));
    // A watch of one namespace begins without the rows of all others.
    let watched = fleet().await;
    assert_eq!(watched.clear(FleetKind::GitSync, Phase::Loading), Rows::Removed);
    assert!(watched.rows().is_empty());
    assert!(watched.notes().iter().any(|note| note.contains("still being read")));
    assert_eq!(watched.unread(&[FleetKind::GitSync], "shop").len(), 1);
    watched.enter(FleetKind::GitSync, Phase::Within("blog".to_owned()));
    let unread = |namespace| watched.unread(&[FleetKind::GitSync], namespace).len();
    assert_eq!((unread("shop"), unread("blog")), (1, 0));
}

#[tokio::test]
async fn a_refused_kind_without_rows_is_not_listed_by_a_new_watch() {
    let watched = fleet().await;
    let refused = refusal(403).await;
    let results: Vec<Rows> = (0..3).map(|_| watched.fail(FleetKind::GitSync, &refused)).collect();
    assert_eq!(results, [Rows::Removed, Rows::Kept, Rows::Kept]);
    // A kind that was never listed has no rows either.
    let empty = Watched::empty(&FleetKind::ALL, RowMemory::default().share("a"));
    assert_eq!(empty.fail(FleetKind::GitSync, &refused), Rows::Kept);
    assert!(empty.is_limited());
    // The watch that stays enters the phase again once it is permitted.
    empty.enter(FleetKind::GitSync, Phase::Complete);
    assert!(!empty.notes().iter().any(|note| note.contains("GitSync objects cannot be read")));
}

#[tokio::test]
async fn the_rows_of_a_fleet_end_with_its_watches_even_if_a_stream_keeps_it() {
    let service = tower::service_fn(|_: Request<kube::client::Body>| {
        std::future::pending::<Result<Response<Body>, Infallible>>()
    });
    let client = kube::Client::new(service, "default");
    let cluster = Cluster::from_clients(client.clone(), client);
    let (memory, stop) = (RowMemory::default(), CancellationToken::new());
    let watched = Watched::begin(&FleetKind::ALL, &cluster, "shop", memory.share("a"), &stop);
    let labels: serde_json::Map<_, _> = (0..8).map(|at| (at.to_string(), "x".repeat(508).into())).collect();
    let live = json!({"metadata": {"namespace": "shop", "name": "demo", "labels": labels}});
    let name = ("shop".to_owned(), "demo".to_owned());
    watched.keep(FleetKind::GitSync, name, row(FleetKind::GitSync, &live)).await;
    assert!(watched.memory() > 0 && watched.rows().len() == 1);
    stop.cancel();
    while !watched.kinds.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!((watched.memory(), watched.rows().len()), (0, 0));
    // A row that arrives late is not kept.
    let name = ("shop".to_owned(), "late".to_owned());
    watched.keep(FleetKind::GitSync, name, row(FleetKind::GitSync, &live)).await;
    assert!(watched.rows().is_empty());
    watched.settled().await;
}

#[tokio::test]
async fn rows_stay_while_the_api_server_does_not_respond() {
    let watched = fleet().await;
    for code in [429, 503] {
        assert_eq!(watched.fail(FleetKind::GitSync, &refusal(code).await), Rows::Kept);
        assert_eq!(watched.rows().len(), 1);
    }
    assert!(watched.stale().is_some());
}
