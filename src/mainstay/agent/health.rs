//! The agent's HTTP listener: `/healthz`, `/readyz` and `/metrics`.
//!
//! Invariant: the listener shows counts and reasons, never the content of an object.
//!
//! Not here: TLS and authentication. Bind the listener to an address that is reachable only in the cluster.

use std::sync::Arc;

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::metrics::Metrics;
use loopback::Listener;
use mainstay_cluster::listener::{self, Limits};

/// Content type of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A check that returns immediately: `Ok`, or the reason of a failure.
pub trait Ask: Fn() -> Result<(), String> + Clone + Send + Sync + 'static {}

impl<F: Fn() -> Result<(), String> + Clone + Send + Sync + 'static> Ask for F {}

/// Serves until `stop`. `ready` returns why the agent is not ready, and `alive` why the agent must be restarted.
/// Unavailable servers affect neither check.
pub async fn serve(
    listener: Listener,
    limits: Limits,
    metrics: Arc<Metrics>,
    alive: impl Ask,
    ready: impl Ask,
    stop: CancellationToken,
) {
    let router = router(metrics, alive, ready);
    // A router is always ready and never fails.
    let answer = move |request| router.clone().oneshot(request).map(|Ok(answer)| answer);
    listener::serve(listener, limits, answer, stop).await;
}

fn router(metrics: Arc<Metrics>, alive: impl Ask, ready: impl Ask) -> Router {
    let scrape = move || std::future::ready(scrape(&metrics));
    Router::new()
        .route("/healthz", get(move || std::future::ready(answer(alive()))))
        .route("/readyz", get(move || std::future::ready(answer(ready()))))
        .route("/metrics", get(scrape))
}

fn answer(asked: Result<(), String>) -> (StatusCode, String) {
    match asked {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn scrape(metrics: &Metrics) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::metrics::Gauges;
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn stuck_after_is_three_times_the_longest_deadline() {
        let deadlines = mainstay_git::Deadlines::default();
        assert_eq!(deadlines.fetch.max(deadlines.lookup) * 3, mainstay_cluster::liveness::STUCK_AFTER);
    }

    #[tokio::test]
    async fn reports_why_it_is_not_ready_and_why_it_is_not_alive() {
        let metrics = Arc::new(Metrics::new(Gauges::default));
        let dead = router(Arc::clone(&metrics), || Err("reconciling is stuck".to_owned()), || Ok(()));
        assert_eq!(ask(&dead, "/healthz").await, (503, "reconciling is stuck\n".into()));
        assert_eq!(ask(&dead, "/readyz").await, (200, "ok\n".into()));
        let router = router(metrics, || Ok(()), || Err("waiting for the Lease".to_owned()));
        assert_eq!(ask(&router, "/healthz").await, (200, "ok\n".into()));
        assert_eq!(ask(&router, "/readyz").await, (503, "waiting for the Lease\n".into()));
        let (status, text) = ask(&router, "/metrics").await;
        assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
    }
}
