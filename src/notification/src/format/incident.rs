//! Incident services and annotations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::markup::{Html, LooseMarkdown, Marked};
use super::{Target, encoded};
use crate::notice::{CommitState, Notice, Severity};
use crate::request::{REPORTER, Request};
use mainstay_api::conditions::cut;

/// A failure triggers an incident of its resource, an applied commit resolves the incident, and all other notices are
/// changes.
pub(super) fn pager_duty(target: &Target, notice: &Notice) -> Request {
    let line = format!("{}: {}", notice.subject(), notice.message.lines().next().unwrap_or_default());
    let summary = cut(&line, 1000);
    let time = notice.time.to_string();
    let resolves = matches!(notice.commit, Some((_, CommitState::Success)));
    if notice.severity == Severity::Info && !resolves {
        let payload = json!({
            "summary": summary, "source": REPORTER, "timestamp": time, "custom_details": notice.fields(),
        });
        let body = json!({"routing_key": target.channel, "payload": payload});
        return Request::post(format!("{}/v2/change/enqueue", target.origin()), &body);
    }
    let payload = json!({
        "summary": summary, "source": REPORTER, "severity": notice.severity.as_str(), "timestamp": time,
        "component": notice.subject(), "group": notice.kind, "class": notice.reason, "custom_details": notice.fields(),
    });
    let action = if resolves { "resolve" } else { "trigger" };
    // A commit does not resolve the incident of a managed object.
    let key = if resolves { notice.subject() } else { notice.topic_of_incident() };
    let body =
        json!({"routing_key": target.channel, "event_action": action, "dedup_key": cut(&key, 255), "payload": payload});
    Request::post(format!("{}/v2/enqueue", target.origin()), &body)
}

impl Notice {
    fn topic_of_incident(&self) -> String {
        self.object.as_ref().map_or_else(|| self.subject(), |object| format!("{} {object}", self.subject()))
    }
}

pub(super) fn opsgenie(target: &Target, notice: &Notice) -> Request {
    let subject = notice.subject();
    let description = Marked::<LooseMarkdown>::of(notice).message(usize::MAX);
    let body = json!({
        "message": cut(&subject, 130), "alias": cut(&notice.topic_of_incident(), 512), "description": description,
        "source": REPORTER, "details": details(notice), "priority": if notice.severity == Severity::Error { "P3" } else { "P5" },
    });
    Request::post(target.url(), &body).header("authorization", format!("GenieKey {}", target.secret_token()))
}

fn details(notice: &Notice) -> BTreeMap<&str, &str> {
    let mut details = notice.fields();
    details.extend([("severity", notice.severity.as_str()), ("reason", &*notice.reason)]);
    details
}

pub(super) fn grafana(target: &Target, notice: &Notice) -> Request {
    let mut tags = vec![REPORTER.to_owned(), notice.severity.as_str().to_owned()];
    tags.extend(
        [("kind", &notice.kind), ("namespace", &notice.namespace), ("name", &notice.name)]
            .map(|(k, v)| format!("{k}: {v}")),
    );
    tags.extend(notice.ordered().iter().map(|(name, value)| format!("{name}: {value}")));
    // Grafana renders links and other HTML in a text.
    let marked = Marked::<Html>::of(notice);
    let text = marked.message(usize::MAX).after(&marked.subject(usize::MAX));
    let body = json!({"text": text, "tags": tags, "time": notice.time.as_millisecond()});
    target.authorized(Request::post(target.url(), &body))
}

/// Labels identify an alert, so facts that change with each commit are annotations instead.
pub(super) fn alertmanager(target: &Target, notice: &Notice) -> Request {
    let mut labels: BTreeMap<String, Value> = BTreeMap::new();
    for (name, value) in notice.metadata.iter().filter(|(name, _)| *name != "summary") {
        labels.insert(label(name), json!(value));
    }
    let own = [
        ("alertname", format!("Mainstay{}{}", notice.kind, notice.reason)),
        ("severity", notice.severity.as_str().to_owned()),
        ("reason", notice.reason.clone()),
        ("kind", notice.kind.clone()),
        ("name", notice.name.clone()),
        ("namespace", notice.namespace.clone()),
        ("reportingcontroller", REPORTER.to_owned()),
    ];
    labels.extend(own.map(|(name, value)| (name.to_owned(), json!(value))));
    let mut annotations: BTreeMap<String, Value> = BTreeMap::new();
    annotations.insert("message".to_owned(), json!(notice.message));
    for (name, value) in &notice.details {
        annotations.insert(label(name), json!(value));
    }
    if let Some(summary) = notice.metadata.get("summary") {
        annotations.insert("summary".to_owned(), json!(summary));
    }
    if let Some(object) = &notice.object {
        labels.insert("object".to_owned(), json!(object));
    }
    let alert = json!({
        "status": "firing", "labels": labels, "annotations": annotations, "startsAt": notice.time.to_string(),
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
pub(super) fn sentry(target: &Target, notice: &Notice) -> Request {
    let mut url = target.address.expose().clone();
    let key = url.username().to_owned();
    // This fails only for addresses without a host, which are refused before.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    let path = url.path().trim_end_matches('/').to_owned();
    let (parent, project) = path.rsplit_once('/').unwrap_or(("", &path));
    url.set_path(&format!("{parent}/api/{}/store/", encoded(project)));
    let mut body = json!({
        "event_id": notice.id(), "timestamp": notice.time.to_string(), "platform": "other", "logger": REPORTER,
        "level": notice.severity.as_str(), "message": {"formatted": format!("{}: {}", notice.subject(), notice.message)},
        "tags": {"kind": notice.kind, "namespace": notice.namespace, "name": notice.name, "reason": notice.reason},
        "extra": notice.fields(), "fingerprint": [notice.topic(), notice.reason],
    });
    if !target.channel.is_empty() {
        body["environment"] = json!(target.channel);
    }
    let auth = format!("Sentry sentry_version=7, sentry_client=mainstay/1, sentry_key={key}");
    Request::post(url, &body).header("x-sentry-auth", auth)
}
