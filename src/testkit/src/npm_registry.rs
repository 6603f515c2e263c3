//! A private npm registry with one package.

use std::fs;

use axum::{Router, body::Body, extract::Request, http::Response};

/// Serves `@our/thing` 1.2.0 to clients with the token, until the test ends. Returns the URL.
pub async fn serve(token: &'static str) -> String {
    let room = tempfile::tempdir().unwrap();
    fs::create_dir(room.path().join("package")).unwrap();
    fs::write(room.path().join("package/package.json"), r#"{"name":"@our/thing","version":"1.2.0"}"#).unwrap();
    let tar = crate::isolated("tar").args(["-cz", "package"]).current_dir(room.path()).output().unwrap().stdout;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let packument = serde_json::json!({
        "name": "@our/thing", "dist-tags": { "latest": "1.2.0" },
        "versions": { "1.2.0": { "name": "@our/thing", "version": "1.2.0", "dist": { "tarball": format!("{base}/thing.tgz") } } },
    })
    .to_string();
    let router = Router::new().fallback(move |request: Request| {
        let authorized =
            request.headers().get("authorization").is_some_and(|value| value == &format!("Bearer {token}"));
        let body = if request.uri().path() == "/thing.tgz" { tar.clone() } else { packument.clone().into_bytes() };
        async move {
            let (status, body) = if authorized { (200, body) } else { (401, Vec::new()) };
            Response::builder().status(status).body(Body::from(body)).unwrap()
        }
    });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}
