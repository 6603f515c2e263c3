//! Sends an event to a port of a Service.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HOST, HeaderValue};
use http::{HeaderMap, Method};

use super::cloud_event::CloudEvent;
use super::journal::Kept;
use super::resolver::{ServiceResolver, judged};
use super::retry::Outcome;
use super::services::Services;
use super::subscriber::{SubscriberKind, Target};

/// Timeouts for connecting to a subscriber, and for its response. The latter equals the default of Functions.
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(180);
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum size of a response in bytes.
const LONGEST: usize = 64 << 10;
/// Maximum number of deliveries in a chain of response events. Each subscriber may respond with an event, so a chain
/// can grow exponentially.
const HOPS: u32 = 5;
/// The extension with the remaining hops. The extension is not delivered, and publishers and responses cannot set it.
pub(super) const TTL: &str = "knativebrokerttl";

/// Returns the addresses of the ready endpoints of a Service, by its namespace, name and port.
pub type Resolve = Arc<dyn Fn(&str, &str, u16) -> Vec<SocketAddr> + Send + Sync>;

/// The sender of deliveries.
pub(super) struct Sender {
    client: reqwest::Client,
    services: Arc<Services>,
    resolve: Option<Resolve>,
}

/// The outcome of a delivery, and the event in the response of a Trigger's subscriber.
pub(super) struct Sent {
    pub(super) outcome: Outcome,
    pub(super) answer: Option<CloudEvent>,
}

impl Sender {
    /// Returns a sender. `resolve` is needed if Service names do not resolve on this machine.
    pub(super) fn new(services: Arc<Services>, resolve: Option<Resolve>) -> Result<Self, reqwest::Error> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(ServiceResolver(Arc::clone(&services)))
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .pool_idle_timeout(IDLE)
            .build()?;
        Ok(Self { client, services, resolve })
    }

    pub(super) async fn send(&self, kind: SubscriberKind, target: &Target, kept: &Kept) -> Sent {
        let url = match self.url(target) {
            Ok(url) => url,
            Err(why) => return Sent { outcome: Outcome::Unreachable(why), answer: None },
        };
        let authority = target.authority();
        let mut headers = kept.event.headers();
        headers.remove("ce-knativebrokerttl");
        if let Ok(host) = HeaderValue::from_str(authority) {
            headers.insert(HOST, host);
        }
        if kind == SubscriberKind::Trigger
            && let Ok(arrival) = HeaderValue::try_from(kept.published.to_string())
        {
            headers.insert("ce-knativearrivaltime", arrival);
        }
        // The builder of requests would copy each header.
        let mut request = reqwest::Request::new(Method::POST, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(kept.event.data.clone().into());
        match self.client.execute(request).await {
            Ok(answer) => {
                let code = answer.status().as_u16();
                let is_event = kind == SubscriberKind::Trigger && (200..300).contains(&code);
                let headers = is_event.then(|| answer.headers().clone());
                let body = body(answer).await;
                let answer = headers.zip(body).and_then(|(headers, body)| reply(&headers, body, &kept.event));
                Sent { outcome: Outcome::Answered(code), answer }
            }
            Err(error) => {
                let is_unreachable = error.is_connect();
                let why = mainstay_object::failure::chain(&error.without_url());
                let why = format!("{authority}: {why}");
                let outcome = if is_unreachable { Outcome::Unreachable(why) } else { Outcome::Broken(why) };
                Sent { outcome, answer: None }
            }
        }
    }

    /// Returns the current URL of a target, or why the target is not valid. The Service may have changed, so every
    /// delivery checks it.
    fn url(&self, target: &Target) -> Result<reqwest::Url, String> {
        if let Some(flaw) = self.services.flaw(target.host()) {
            return Err(flaw);
        }
        let mut url = target.parsed()?.clone();
        let Some(resolve) = &self.resolve else { return Ok(url) };
        let (host, port) = (target.host(), target.address.port.get());
        let found = judged(resolve(host.namespace().as_str(), host.service().as_str(), port))?;
        let first = found.first().ok_or_else(|| format!("no endpoint of {} is ready", target.authority()))?;
        let is_set = url.set_ip_host(first.ip()).is_ok() && url.set_port(Some(first.port())).is_ok();
        if is_set { Ok(url) } else { Err(format!("{url} cannot have the address {first}")) }
    }
}

/// Reads the body, unless it is too long. A completely read body leaves the connection reusable.
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

/// Returns the event in a response, unless the event exceeds the hop limit.
fn reply(headers: &HeaderMap, body: Bytes, to: &CloudEvent) -> Option<CloudEvent> {
    let left = to.attribute(TTL).and_then(|left| left.parse().ok()).unwrap_or(HOPS).min(HOPS);
    let parsed = CloudEvent::parse(headers, body).ok().filter(|_| left > 1)?;
    // The extension counts as an attribute, so it can exceed the limits of an event.
    Some(parsed.event.with(TTL, &(left - 1).to_string())).filter(|event| event.check().is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::not_an_event::ATTRIBUTES;
    use super::*;

    #[test]
    fn an_answer_is_an_event_as_long_as_there_are_hops() {
        let headers = [("ce-specversion", "1.0"), ("ce-id", "1"), ("ce-source", "s"), ("ce-type", "t")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        let headers = HeaderMap::from_iter(headers);
        let mut full = headers.clone();
        let left = |ttl: Option<&str>| {
            let to = ttl.map_or_else(CloudEvent::default, |ttl| CloudEvent::default().with(TTL, ttl));
            reply(&headers, Bytes::new(), &to).map(|event| event.attribute(TTL).unwrap().to_owned())
        };
        assert_eq!(left(None).as_deref(), Some("4"));
        assert_eq!((left(Some("2")).as_deref(), left(Some("1"))), (Some("1"), None));
        assert_eq!(left(Some("9999")).as_deref(), Some("4"));
        let mut chain = vec![CloudEvent::default()];
        while let Some(next) = reply(&headers, Bytes::new(), &chain[chain.len() - 1]) {
            chain.push(next);
        }
        assert_eq!(chain.len(), 5, "deliveries");
        // A response inherits the count of the delivered event, even if the response itself sets a count.
        let mut reset = headers.clone();
        reset.insert("ce-knativebrokerttl", HeaderValue::from_static("255"));
        let to = CloudEvent::default().with(TTL, "3");
        assert_eq!(reply(&reset, Bytes::new(), &to).unwrap().attribute(TTL), Some("2"));
        assert!(reply(&HeaderMap::new(), Bytes::new(), &CloudEvent::default()).is_none());
        // An event without room for the count could not be read from a store.
        for number in 3..ATTRIBUTES {
            let name = format!("ce-a{number}").parse::<http::HeaderName>().unwrap();
            let is_event = reply(&full, Bytes::new(), &CloudEvent::default()).is_some();
            assert!(is_event, "{number} attributes");
            full.insert(name, HeaderValue::from_static("1"));
        }
        assert!(CloudEvent::parse(&full, Bytes::new()).is_ok());
        assert!(reply(&full, Bytes::new(), &CloudEvent::default()).is_none(), "with {ATTRIBUTES} attributes");
    }
}
