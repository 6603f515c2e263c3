//! Incident services and annotations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Target;
use super::encoding::encoded;
use super::markup::{Html, LooseMarkdown, Marked, Text};
use crate::notice::CommitState;
use crate::request::{REPORTER, Request};

/// A failure triggers an incident of its resource, an applied commit resolves the incident, and all other notices are
/// changes.
pub(super) fn pager_duty(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let summary = notice.line(1000);
    let time = notice.time().to_string();
    let resolves = notice.state() == Some(CommitState::Success);
    if !notice.is_error() && !resolves {
        let payload = json!({
            "summary": summary, "source": REPORTER, "timestamp": time, "custom_details": notice.record(),
        });
        let body = json!({"routing_key": target.channel, "payload": payload});
        return Request::post(format!("{}/v2/change/enqueue", target.origin()), &body);
    }
    let payload = json!({
        "summary": summary, "source": REPORTER, "severity": notice.severity(), "timestamp": time,
        "component": notice.subject(usize::MAX), "group": notice.kind(), "class": notice.reason(), "custom_details": notice.record(),
    });
    let action = if resolves { "resolve" } else { "trigger" };
    // A commit does not resolve the incident of a managed object.
    let key = if resolves { notice.subject(255) } else { notice.subject_of_object(255) };
    let body = json!({"routing_key": target.channel, "event_action": action, "dedup_key": key, "payload": payload});
    Request::post(format!("{}/v2/enqueue", target.origin()), &body)
}

pub(super) fn opsgenie(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let mut details = notice.record();
    details["severity"] = json!(notice.severity());
    details["reason"] = json!(notice.reason());
    let body = json!({
        "message": notice.subject(130), "alias": notice.subject_of_object(512), "description": notice.message(usize::MAX),
        "source": REPORTER, "details": details, "priority": if notice.is_error() { "P3" } else { "P5" },
    });
    Request::post(target.url(), &body).header("authorization", format!("GenieKey {}", target.secret_token()))
}

pub(super) fn grafana(target: &Target, notice: &Marked<'_, Html>) -> Request {
    let plain = notice.with::<LooseMarkdown>();
    let mut tags = vec![json!(REPORTER), json!(notice.severity())];
    let own = [("kind", plain.kind()), ("namespace", plain.namespace()), ("name", plain.name())];
    tags.extend(own.map(|(name, value)| json!(format!("{name}: {}", value.as_str()))));
    tags.extend(plain.fields(usize::MAX, usize::MAX).map(|(name, value)| json!(value.after(&name))));
    // Grafana renders links and other HTML in a text.
    let text = notice.message(usize::MAX).after(&notice.subject(usize::MAX));
    let body = json!({"text": text, "tags": tags, "time": notice.time().as_millisecond()});
    target.authorized(Request::post(target.url(), &body))
}

/// Labels identify an alert, so facts that change with each commit are annotations instead.
pub(super) fn alertmanager(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let is_summary = |name: &Text<LooseMarkdown>| name.as_str() == "summary";
    let mut labels: BTreeMap<String, Value> = BTreeMap::new();
    for (name, value) in notice.metadata().filter(|(name, _)| !is_summary(name)) {
        labels.insert(label(name.as_str()), json!(value));
    }
    let own = [
        ("alertname", json!(format!("Mainstay{}{}", notice.kind().as_str(), notice.reason().as_str()))),
        ("severity", json!(notice.severity())),
        ("reason", json!(notice.reason())),
        ("kind", json!(notice.kind())),
        ("name", json!(notice.name())),
        ("namespace", json!(notice.namespace())),
        ("reportingcontroller", json!(REPORTER)),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), value)));
    let mut annotations: BTreeMap<String, Value> = BTreeMap::new();
    annotations.insert("message".to_owned(), json!(notice.message(usize::MAX)));
    for (name, value) in notice.details() {
        annotations.insert(label(name.as_str()), json!(value));
    }
    if let Some((_, summary)) = notice.metadata().find(|(name, _)| is_summary(name)) {
        annotations.insert("summary".to_owned(), json!(summary));
    }
    if let Some(object) = notice.object() {
        labels.insert("object".to_owned(), json!(object));
    }
    let alert = json!({
        "status": "firing", "labels": labels, "annotations": annotations, "startsAt": notice.time().to_string(),
    });
    target.authorized(Request::post(target.url(), &json!([alert])))
}

/// Returns a valid name of a label.
fn label(name: &str) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(valid).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// The address is a DSN, `https://KEY@HOST/PATH/PROJECT`.
pub(super) fn sentry(target: &Target, notice: &Marked<'_, LooseMarkdown>) -> Request {
    let mut url = target.address.expose().clone();
    let key = url.username().to_owned();
    // This fails only for addresses without a host, which are refused before.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    let path = url.path().trim_end_matches('/').to_owned();
    let (parent, project) = path.rsplit_once('/').unwrap_or(("", &path));
    url.set_path(&format!("{parent}/api/{}/store/", encoded(project)));
    let mut body = json!({
        "event_id": notice.id(), "timestamp": notice.time().to_string(), "platform": "other", "logger": REPORTER,
        "level": notice.severity(), "message": {"formatted": notice.message(usize::MAX).after(&notice.subject(usize::MAX))},
        "tags": {
            "kind": notice.kind(), "namespace": notice.namespace(), "name": notice.name(), "reason": notice.reason(),
        },
        "extra": notice.record(), "fingerprint": [notice.topic(), notice.reason()],
    });
    if !target.channel.is_empty() {
        body["environment"] = json!(target.channel);
    }
    let auth = format!("Sentry sentry_version=7, sentry_client=mainstay/1, sentry_key={key}");
    Request::post(url, &body).header("x-sentry-auth", auth)
}
