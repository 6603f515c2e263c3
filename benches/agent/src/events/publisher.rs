//! Publishes events, each until it is stored.

use std::time::{Duration, Instant};

use async_nats::{HeaderMap, jetstream};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

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
        client: Box<Client<HttpConnector, Full<Bytes>>>,
        request: Box<http::request::Parts>,
    },
    Broker {
        context: Box<jetstream::Context>,
        subject: String,
    },
}

impl Publisher {
    /// Returns a publisher that posts events to a URL. Its requests cost little: they share the processors with the store.
    pub(super) fn http(url: &str) -> Result<Self, Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let request =
            ATTRIBUTES.iter().fold(http::Request::post(url), |request, (name, value)| request.header(*name, *value));
        let (request, ()) = request.body(()).map_err(Error::Request)?.into_parts();
        Ok(Self::Http { client: Box::new(client), request: Box::new(request) })
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
                let mut one =
                    http::Request::from_parts(http::request::Parts::clone(request), Full::from(vec![b'x'; DATA]));
                one.headers_mut().insert("ce-id", number.into());
                let answer = client.request(one).await.map_err(Error::Publish)?;
                if !answer.status().is_success() {
                    return Err(Error::NotAccepted(answer.status()));
                }
                answer.into_body().collect().await.map_err(|error| Error::Read(std::io::Error::other(error)))?;
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
