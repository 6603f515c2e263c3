//! The event of Flux as JSON, for any server.

use ring::hmac;
use serde_json::{Value, json};

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
