//! Requests to a function over connections that stay open: some per second, or as many as it answers.
//!
//! Invariant: every answer is read to its end and has status 200, or the measurement fails.

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

/// Connections on which a server is saturated.
const CONNECTIONS: usize = 32;
/// How long a connection may have been idle that is used again. Node.js closes its own after five seconds, and a request that is
/// sent at that moment would fail.
const IDLE: Duration = Duration::from_secs(3);

/// Asks one address.
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

    /// One request; returns when it was sent and when its answer had been read.
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

    /// Requests at a fixed rate, whether earlier ones are answered or not.
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

    /// As many requests as the server answers on some connections, each of which waits for its answers; returns how
    /// many it answered per second.
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
