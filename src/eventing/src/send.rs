//! Sends an event to a port of a Service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{HOST, HeaderValue};

use super::cloud_event::CloudEvent;
use super::journal::Kept;
use super::retry::Outcome;
use super::subscriber::{SubscriberKind, Target};

/// How long a subscriber may take to be connected to, and to answer: as long as a Function may.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(180);
/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// The longest answer that is read.
const LONGEST: usize = 64 << 10;
/// How often an event may be an answer to another one.
const HOPS: u32 = 255;
/// The extension that counts down from that; it is not delivered.
const TTL: &str = "knativebrokerttl";

/// The addresses of the ready endpoints of a Service, by its namespace, name and port.
pub type Resolve = Arc<dyn Fn(&str, &str, u16) -> Vec<SocketAddr> + Send + Sync>;

/// Whoever sends.
pub(super) struct Sender {
    client: reqwest::Client,
    resolve: Option<Resolve>,
}

/// How it ended, and the event that a Trigger's subscriber has answered with.
pub(super) struct Sent {
    pub(super) outcome: Outcome,
    pub(super) answer: Option<CloudEvent>,
}

impl Sender {
    /// `resolve` where the names of Services are not those of this machine.
    pub(super) fn new(resolve: Option<Resolve>) -> Result<Self, reqwest::Error> {
        // Fails only if a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .pool_idle_timeout(IDLE)
            .build()?;
        Ok(Self { client, resolve })
    }

    pub(super) async fn send(&self, kind: SubscriberKind, target: &Target, kept: &Kept) -> Sent {
        let authority = match &self.resolve {
            None => target.authority(),
            Some(resolve) => {
                let found = resolve(&target.namespace, &target.service, target.port);
                let Some(address) = found.first() else {
                    let why = format!("nothing behind {} is ready", target.authority());
                    return Sent { outcome: Outcome::Unreachable(why), answer: None };
                };
                address.to_string()
            }
        };
        let mut headers = kept.event.headers();
        headers.remove("ce-knativebrokerttl");
        if let Ok(host) = HeaderValue::try_from(target.authority()) {
            headers.insert(HOST, host);
        }
        if kind == SubscriberKind::Trigger
            && let Ok(arrival) = HeaderValue::try_from(kept.published.to_string())
        {
            headers.insert("ce-knativearrivaltime", arrival);
        }
        let url = format!("{}://{authority}{}", target.scheme(), target.path);
        let request = self.client.post(url).headers(headers).body(kept.event.data.clone());
        match request.send().await {
            Ok(answer) => {
                let (code, headers) = (answer.status().as_u16(), answer.headers().clone());
                let body = body(answer).await;
                let is_event = kind == SubscriberKind::Trigger && (200..300).contains(&code);
                let answer = body.filter(|_| is_event).and_then(|body| reply(&headers, body, &kept.event));
                Sent { outcome: Outcome::Answered(code), answer }
            }
            Err(error) => {
                let is_unreachable = error.is_connect();
                let why = mainstay_object::failure::chain(&error.without_url());
                let why = format!("{}: {why}", target.authority());
                let outcome = if is_unreachable { Outcome::Unreachable(why) } else { Outcome::Broken(why) };
                Sent { outcome, answer: None }
            }
        }
    }
}

/// The body, if it is not too long. What is read to its end leaves a connection for the next event.
async fn body(mut answer: reqwest::Response) -> Option<Bytes> {
    let mut body = BytesMut::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        if body.len() + chunk.len() > LONGEST {
            return None;
        }
        body.extend_from_slice(&chunk);
    }
    Some(body.freeze())
}

/// The event that was answered with, unless it is one too many.
fn reply(headers: &HeaderMap, body: Bytes, to: &CloudEvent) -> Option<CloudEvent> {
    let left = to.attribute(TTL).and_then(|left| left.parse().ok()).unwrap_or(HOPS).min(HOPS);
    let parsed = CloudEvent::parse(headers, body).ok().filter(|_| left > 1)?;
    Some(parsed.event.with(TTL, &(left - 1).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_an_event_as_long_as_there_are_hops() {
        let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let headers = HeaderMap::from_iter(headers);
        let left = |ttl: Option<&str>| {
            let to = ttl.map_or_else(CloudEvent::default, |ttl| CloudEvent::default().with(TTL, ttl));
            reply(&headers, Bytes::new(), &to).map(|event| event.attribute(TTL).unwrap().to_owned())
        };
        assert_eq!(left(None).as_deref(), Some("254"));
        assert_eq!((left(Some("2")).as_deref(), left(Some("1"))), (Some("1"), None));
        assert_eq!(left(Some("9999")).as_deref(), Some("254"));
        assert!(reply(&HeaderMap::new(), Bytes::new(), &CloudEvent::default()).is_none());
    }
}
