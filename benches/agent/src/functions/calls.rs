//! Requests to a Function over persistent connections, at a fixed rate or at saturation.
//!
//! Invariant: every response is read completely and has status 200, or the benchmark fails.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::task::JoinSet;

use super::{Error, table::Latencies};

/// Number of connections that saturate a server.
const CONNECTIONS: usize = 32;
/// Maximum idle time of a reused connection. Node.js closes connections after five seconds, and a request at that
/// moment would fail.
const IDLE: Duration = Duration::from_secs(3);

/// A client of one address.
#[derive(Clone)]
pub(super) struct Caller {
    client: Client<HttpConnector, Empty<Bytes>>,
    address: Uri,
}

impl Caller {
    pub(super) fn new(address: &str) -> Result<Self, Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(IDLE).build(connector);
        Ok(Self { client, address: address.parse().map_err(Error::Address)? })
    }

    /// Sends a request. Returns the times of its start and of the end of the response.
    async fn call(&self) -> Result<(Instant, Instant), Error> {
        let start = Instant::now();
        let answer = self.client.get(self.address.clone()).await.map_err(Error::Call)?;
        let status = answer.status();
        if status != http::StatusCode::OK {
            return Err(Error::Answer(status));
        }
        answer.into_body().collect().await.map_err(|error| Error::Read(std::io::Error::other(error)))?;
        Ok((start, Instant::now()))
    }

    /// Sends requests at a fixed rate, independent of responses.
    pub(super) async fn paced(&self, per_second: u32, length: Duration) -> Result<Latencies, Error> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        let mut calls = JoinSet::new();
        let end = Instant::now() + length;
        while Instant::now() < end {
            ticks.tick().await;
            let caller = self.clone();
            calls.spawn(async move { caller.call().await });
        }
        let ended: Result<Vec<_>, _> = calls.join_all().await.into_iter().collect();
        Ok(Latencies::new(ended?))
    }

    /// Saturates the server on a number of connections. Returns the responses per second.
    pub(super) async fn saturated(&self, length: Duration) -> Result<f64, Error> {
        let start = Instant::now();
        let mut connections = JoinSet::new();
        for _ in 0..CONNECTIONS {
            let caller = self.clone();
            connections.spawn(async move {
                let mut count = 0_u32;
                while start.elapsed() < length {
                    caller.call().await?;
                    count += 1;
                }
                Ok::<u32, Error>(count)
            });
        }
        let counts: Result<Vec<_>, _> = connections.join_all().await.into_iter().collect();
        let count: u32 = counts?.iter().sum();
        Ok(f64::from(count) / start.elapsed().as_secs_f64())
    }
}
