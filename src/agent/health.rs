//! The agent's HTTP listener: `/healthz`, `/readyz` and `/metrics`.
//!
//! Invariant: it tells counts and reasons, never an object's contents.
//!
//! Deliberately absent: TLS and authentication; bind it to an address that only the cluster reaches.

use std::{io, sync::Arc};

use axum::{
    Router,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::metrics::Metrics;

/// Content type of `/metrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until `stop`. `ready` says why the agent is not ready; `/healthz` only says that it answers.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    ready: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static,
    stop: CancellationToken,
) -> io::Result<()> {
    axum::serve(listener, router(metrics, ready)).with_graceful_shutdown(stop.cancelled_owned()).await
}

fn router(metrics: Arc<Metrics>, ready: impl Fn() -> Result<(), String> + Clone + Send + Sync + 'static) -> Router {
    let readiness = move || {
        let answer = match ready() {
            Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
            Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        };
        std::future::ready(answer)
    };
    let scrape = move || std::future::ready(scrape(&metrics));
    Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(readiness))
        .route("/metrics", get(scrape))
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
    use crate::agent::metrics::Facts;
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn tells_why_it_is_not_ready() {
        let metrics = Arc::new(Metrics::new(Facts::default));
        let router = router(metrics, || Err("waiting for the Lease".to_owned()));
        assert_eq!(ask(&router, "/healthz").await, (200, "ok\n".into()));
        assert_eq!(ask(&router, "/readyz").await, (503, "waiting for the Lease\n".into()));
        let (status, text) = ask(&router, "/metrics").await;
        assert!(status == 200 && text.ends_with("# EOF\n"), "{text}");
    }
}
