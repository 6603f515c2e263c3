//! The event of Flux as JSON, for any server, and for services of clouds that distribute it.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::hmac;
use serde_json::{Map, Value, json};

use super::markup::{Data, Marked};
use crate::provider_type::ProviderType;
use crate::request::{REPORTER, Request};
use crate::target::Target;

/// Returns the event as Flux's controllers send it.
pub(super) fn of(notice: &Marked<'_, Data>) -> Value {
    let mut involved = json!({
        "apiVersion": notice.api_version(), "kind": notice.kind(), "name": notice.name(), "namespace": notice.namespace(),
    });
    if let Some(uid) = notice.uid() {
        involved["uid"] = json!(uid);
    }
    json!({
        "involvedObject": involved,
        "severity": notice.severity(),
        "timestamp": notice.time().to_string(),
        "message": notice.message(usize::MAX),
        "reason": notice.reason(),
        "metadata": notice.record(),
        "reportingController": REPORTER,
        "reportingInstance": REPORTER,
    })
}

pub(super) fn generic(target: &Target, notice: &Marked<'_, Data>) -> Request {
    let request = Request::post(target.url(), &of(notice)).header("gotk-component", REPORTER);
    if target.kind != ProviderType::GenericHmac {
        return request;
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, target.secret_token().as_bytes());
    let signature = hex::encode(hmac::sign(&key, &request.body));
    request.header("x-signature", format!("sha256={signature}"))
}

/// Returns the request that publishes the event to a topic of Google Pub/Sub. The headers of the Secret are attributes.
pub(super) fn to_topic(target: &Target, notice: &Marked<'_, Data>) -> Request {
    let mut message = json!({"data": BASE64_STANDARD.encode(of(notice).to_string())});
    let attributes = target.headers.iter().map(|(name, value)| (name.clone(), json!(value.expose())));
    let attributes: Map<String, Value> = attributes.collect();
    if !attributes.is_empty() {
        message["attributes"] = Value::Object(attributes);
    }
    Request::post(target.url(), &json!({"messages": [message]}))
}

/// Returns the request that sends the event to a hub of Azure Event Hubs.
pub(super) fn to_hub(target: &Target, notice: &Marked<'_, Data>) -> Request {
    let request = Request::post(target.url(), &of(notice));
    match &target.token {
        Some(token) => request.bearer(token.expose()),
        None => request,
    }
}
