//! Helpers for the agent's HTTP listener.

use std::time::Duration;

use super::world::World;

/// Requests a path of the listener. Returns status and body of the response, or the error.
pub async fn page(world: &World, path: &str) -> Result<(u16, String), reqwest::Error> {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(format!("http://{}{path}", world.listen.unwrap())).send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// Returns the agent's metrics; empty while the agent does not listen.
pub async fn metrics(world: &World) -> String {
    page(world, "/metrics").await.map(|(_, text)| text).unwrap_or_default()
}

/// Waits until the metrics are as expected.
pub async fn metrics_are(world: &World, what: &str, expected: impl Fn(&str) -> bool) {
    let waiting = async {
        while !expected(&metrics(world).await) {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    let reached = tokio::time::timeout(crate::PATIENCE, waiting).await;
    assert!(reached.is_ok(), "not within 60 s: {what}\n{}", metrics(world).await);
}
