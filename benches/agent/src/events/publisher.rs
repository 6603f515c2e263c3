//! Publishes events, each until it is stored.

use std::time::{Duration, Instant};

use async_nats::{HeaderMap, jetstream};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{Error, broker::broken};

/// Type of the events.
pub(super) const TYPE: &str = "sap.kyma.custom.bench.order.created.v1";
/// Size of the data of an event in bytes.
pub(super) const DATA: usize = 1024;
/// Attributes of an event as headers, without its ID. An event has the same ones with and without Mainstay.
const ATTRIBUTES: [(&str, &str); 3] = [("ce-specversion", "1.0"), ("ce-source", "bench"), ("ce-type", TYPE)];
/// Number of clients.
const CLIENTS: usize = 64;
/// Deliveries per second at which latency is measured.
const PACE: u32 = 100;

/// The target of the events.
pub(super) enum Publisher {
    /// A client, and the request of each event without its ID and its data.
    Http {
        client: reqwest::Client,
        request: Box<reqwest::Request>,
    },
    Broker {
        context: Box<jetstream::Context>,
        subject: String,
    },
}

impl Publisher {
    /// Returns a publisher that posts events to a URL. It parses the URL and the headers once: the time of a publisher is
    /// not that of the store.
    pub(super) fn http(url: &str) -> Result<Self, Error> {
        let client = reqwest::Client::new();
        let request = ATTRIBUTES.iter().fold(client.post(url), |request, (name, value)| request.header(*name, *value));
        let request = Box::new(request.build().map_err(Error::Publish)?);
        Ok(Self::Http { client, request })
    }

    /// Publishes these events as fast as they are accepted. Returns when each began.
    pub(super) async fn saturate(&self, numbers: std::ops::Range<u32>) -> Result<Vec<(u32, Instant)>, Error> {
        stream::iter(numbers).map(|number| self.publish(number)).buffer_unordered(CLIENTS).try_collect().await
    }

    /// Publishes these events at a fixed rate. Returns when each began.
    pub(super) async fn pace(
        &self,
        numbers: std::ops::Range<u32>,
        subscribers: u32,
    ) -> Result<Vec<(u32, Instant)>, Error> {
        let begin = tokio::time::Instant::now();
        let first = numbers.start;
        let paced = numbers.map(|number| async move {
            let due = begin + Duration::from_secs(1) * (number - first) * subscribers / PACE;
            tokio::time::sleep_until(due).await;
            self.publish(number).await
        });
        futures::future::try_join_all(paced).await
    }

    /// Publishes an event. Returns its number and when this began.
    pub(super) async fn publish(&self, number: u32) -> Result<(u32, Instant), Error> {
        let begun = Instant::now();
        match self {
            Self::Http { client, request } => {
                let mut one = reqwest::Request::new(request.method().clone(), request.url().clone());
                one.headers_mut().clone_from(request.headers());
                one.headers_mut().insert("ce-id", number.into());
                *one.body_mut() = Some(vec![b'x'; DATA].into());
                let answer = client.execute(one).await.map_err(Error::Publish)?;
                answer.error_for_status().map_err(Error::Publish)?;
            }
            Self::Broker { context, subject } => {
                let mut headers = HeaderMap::new();
                headers.insert("ce-id", number.to_string().as_str());
                for (name, value) in ATTRIBUTES {
                    headers.insert(name, value);
                }
                let sent = context
                    .publish_with_headers(subject.clone(), headers, vec![b'x'; DATA].into())
                    .await
                    .map_err(broken)?;
                sent.await.map_err(broken)?;
            }
        }
        Ok((number, begun))
    }
}
