//! Classifies a delivery to a Receiver: a push with its consumers, or the reason why it is refused or ignored.
//!
//! Invariant: a body is parsed only after the delivery is authenticated. The one exception extracts a signed field from
//! a form. For types with a token of an issuer, the caller has checked the token.

use http::HeaderMap;
use serde_json::{Map, Value};

use super::filter::{Object, Selected};
use super::matching::Meant;
use super::outcome::NoneSelected;
use super::payload::{self, Malformed, Push};
use super::resolve::Resolved;
use super::signature::{self, Refusal};
use super::sources::Sources;
use mainstay_api::ReceiverType;
use mainstay_object::expression::Budget;

/// The class of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Consumers must be woken.
    Push(Meant),
    /// The host tests the connection.
    Ping,
    /// An event that is ignored.
    PassedOver,
    /// The delivery is not authentic.
    Refused(Refusal),
    /// The body cannot be parsed.
    Malformed(Malformed),
}

/// Classifies a delivery.
pub(super) fn judge(receiver: &Resolved, headers: &HeaderMap, body: &[u8]) -> Delivery {
    let is_form = signature::is_form(headers);
    if is_form && receiver.kind == ReceiverType::Gitea {
        // Gitea and Forgejo sign the field of the form, so it is extracted first.
        return payload::of_form(body)
            .map_or_else(Delivery::Malformed, |body| judge_signed(receiver, headers, &body, false));
    }
    judge_signed(receiver, headers, body, is_form && receiver.kind == ReceiverType::Github)
}

/// Classifies a delivery by the bytes that the host signs; `is_form` if the payload is still in a form.
fn judge_signed(receiver: &Resolved, headers: &HeaderMap, body: &[u8], is_form: bool) -> Delivery {
    if let Err(refusal) = signature::check(receiver.kind, &receiver.token, headers, body) {
        return Delivery::Refused(refusal);
    }
    let event = signature::event(receiver.kind, headers);
    if event.is_some_and(|event| is_ping(receiver.kind, event)) {
        return Delivery::Ping;
    }
    let is_ignored = match event {
        Some(event) => !counts(receiver, event),
        // A CDEvent without its type in a header is none of the selected ones.
        None => receiver.kind == ReceiverType::Cdevents && !receiver.events.is_empty(),
    };
    // The body of an ignored event need not be valid.
    if is_ignored {
        return Delivery::PassedOver;
    }
    let push = if is_form {
        payload::of_form(body).and_then(|body| payload::read(receiver.kind, &body))
    } else {
        payload::read(receiver.kind, body)
    };
    match push {
        Err(malformed) => Delivery::Malformed(malformed),
        Ok(Some(push)) if !body_counts(receiver, &push) => Delivery::PassedOver,
        Ok(push) => Delivery::Push(Meant::new(&receiver.namespace, receiver.sources.clone(), push)),
    }
}

/// The objects that an authentic delivery looks up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) sources: Sources,
    /// Why there are none; `None` if there are some, or if the filter has no result for some.
    pub(super) none: Option<NoneSelected>,
    /// The error of the filter for some objects, without content of the delivery.
    pub(super) failed: Option<String>,
}

/// Selects the objects that an authentic delivery looks up among those that the Receiver names.
pub(super) fn select(
    receiver: &Resolved,
    objects: &[Object],
    headers: &HeaderMap,
    body: &[u8],
    budget: &mut Budget,
) -> Result<Chosen, Malformed> {
    let absent = if receiver.sources.have_labels() { NoneSelected::Labels } else { NoneSelected::Names };
    let absent = objects.is_empty().then_some(absent);
    let Some(filter) = &receiver.filter else {
        let all = objects.iter().map(|object| (object.kind, object.name.clone()));
        return Ok(Chosen { sources: Sources::exactly(all), none: absent, failed: None });
    };
    let request = request(receiver.kind, headers, body)?;
    let is_unread = request.is_none() && !body.is_empty();
    // As in Flux, a body that is not JSON is an empty map.
    let request = request.unwrap_or_else(|| Value::Object(Map::new()));
    let Selected { sources, failed } = filter.select(objects, &request, budget);
    let is_false = failed.is_none() && sources == Sources::exactly([]);
    let none = absent.or(is_false.then_some(NoneSelected::Filter { objects: objects.len(), is_unread }));
    let unread = if is_unread { NoneSelected::UNREAD } else { "" };
    Ok(Chosen { sources, none, failed: failed.map(|failed| format!("{failed}{unread}")) })
}

/// Returns the body for expressions; `None` if its Content-Type is not JSON.
fn request(kind: ReceiverType, headers: &HeaderMap, body: &[u8]) -> Result<Option<Value>, Malformed> {
    let has_forms = matches!(kind, ReceiverType::Github | ReceiverType::Gitea);
    if has_forms && signature::is_form(headers) {
        return payload::map(&payload::of_form(body)?).map(Some);
    }
    if signature::is_json(headers) { payload::map(body).map(Some) } else { Ok(None) }
}

fn is_ping(kind: ReceiverType, event: &str) -> bool {
    match kind {
        ReceiverType::Github | ReceiverType::Gitea => event == "ping",
        ReceiverType::Bitbucket => event == "diagnostics:ping",
        ReceiverType::Gitlab
        | ReceiverType::AzureDevops
        | ReceiverType::Generic
        | ReceiverType::GenericHmac
        | ReceiverType::GenericOidc
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Gcr
        | ReceiverType::Harbor
        | ReceiverType::Nexus
        | ReceiverType::Cdevents => false,
    }
}

/// Returns the events that report a push, in lower case; `None` if all events count.
pub(super) const fn pushes(kind: ReceiverType) -> Option<&'static [&'static str]> {
    match kind {
        ReceiverType::Github | ReceiverType::Gitea => Some(&["push"]),
        ReceiverType::Gitlab => Some(&["push hook", "tag push hook", "system hook"]),
        ReceiverType::Bitbucket => Some(&["repo:push", "repo:refs_changed"]),
        ReceiverType::AzureDevops => Some(&["git.push"]),
        ReceiverType::Generic
        | ReceiverType::GenericHmac
        | ReceiverType::GenericOidc
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Gcr
        | ReceiverType::Harbor
        | ReceiverType::Nexus
        | ReceiverType::Cdevents => None,
    }
}

fn counts(receiver: &Resolved, event: &str) -> bool {
    let event = event.to_lowercase();
    if receiver.events.is_empty() {
        return pushes(receiver.kind).is_none_or(|pushes| pushes.contains(&event.as_str()));
    }
    receiver.events.contains(&event)
}

/// Whether the event in the body reports a push that the Receiver accepts.
fn body_counts(receiver: &Resolved, push: &Push) -> bool {
    let Some(event) = &push.event else { return true };
    match receiver.kind {
        ReceiverType::AzureDevops => counts(receiver, event),
        // A system hook sends all events under one name.
        ReceiverType::Gitlab if receiver.events.is_empty() => {
            matches!(event.as_str(), "push" | "tag_push" | "repository_update")
        }
        ReceiverType::Gitlab
        | ReceiverType::Github
        | ReceiverType::Gitea
        | ReceiverType::Bitbucket
        | ReceiverType::Generic
        | ReceiverType::GenericHmac
        | ReceiverType::GenericOidc
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Gcr
        | ReceiverType::Harbor
        | ReceiverType::Nexus
        | ReceiverType::Cdevents => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::filter::{Filter, STEPS_OF_DELIVERY};
    use super::super::sources::SourceKind;
    use super::*;
    use mainstay_object::Secret;

    fn receiver(kind: ReceiverType, events: &[&str]) -> Resolved {
        Resolved {
            namespace: "shop".into(),
            name: "web".into(),
            kind,
            token: Secret::new(b"token".to_vec()),
            tokens: None,
            events: events.iter().map(|&event| event.to_owned()).collect(),
            sources: Sources::All,
            filter: None,
            without_effect: Vec::new(),
            is_suspended: false,
        }
    }

    /// Returns the class of a GitLab delivery with this event and the right token.
    fn gitlab(events: &[&str], event: &'static str, body: &str) -> &'static str {
        let headers = [("X-Gitlab-Token", "token"), ("X-Gitlab-Event", event)];
        kind(&receiver(ReceiverType::Gitlab, events), &headers, body)
    }

    fn kind(receiver: &Resolved, headers: &[(&'static str, &str)], body: &str) -> &'static str {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(*name, value.parse().unwrap());
        }
        match judge(receiver, &all, body.as_bytes()) {
            Delivery::Push(_) => "push",
            Delivery::Ping => "ping",
            Delivery::PassedOver => "passed over",
            Delivery::Refused(_) => "refused",
            Delivery::Malformed(_) => "malformed",
        }
    }

    #[test]
    fn events_that_report_no_push_are_passed_over_unless_they_are_asked_for() {
        assert_eq!(gitlab(&[], "Push Hook", r#"{"event_name": "push"}"#), "push");
        assert_eq!(gitlab(&[], "Tag Push Hook", r#"{"event_name": "tag_push"}"#), "push");
        assert_eq!(gitlab(&[], "System Hook", r#"{"event_name": "repository_update"}"#), "push");
        assert_eq!(gitlab(&[], "System Hook", r#"{"event_name": "user_create"}"#), "passed over");
        assert_eq!(gitlab(&[], "Issue Hook", "not read"), "passed over");
        assert_eq!(gitlab(&["issue hook"], "Issue Hook", "{}"), "push");
        assert_eq!(gitlab(&["issue hook"], "Push Hook", "{}"), "passed over");
        assert_eq!(gitlab(&[], "Push Hook", "{"), "malformed");
        let azure = |body| kind(&receiver(ReceiverType::AzureDevops, &[]), &[("Authorization", "Bearer token")], body);
        assert_eq!(azure(r#"{"eventType": "git.push"}"#), "push");
        assert_eq!(azure(r#"{"eventType": "build.complete"}"#), "passed over");
    }

    #[test]
    fn cdevents_are_selected_by_the_type_in_a_header() {
        let body = r#"{"context": {"specversion": "0.5.0", "id": "1", "source": "ci", "timestamp": "2026-01-01T00:00:00Z",
            "type": "dev.cdevents.artifact.published.0.2.0"}, "subject": {"id": "web", "content": {}}}"#;
        let check = |events: &[&str], headers: &[(&'static str, &str)], body: &str, expected| {
            assert_eq!(
                kind(&receiver(ReceiverType::Cdevents, events), headers, body),
                expected,
                "{events:?} {headers:?}"
            );
        };
        let published = [("Ce-Type", "dev.cdevents.artifact.Published.0.2.0")];
        check(&[], &published, body, "push");
        check(&[], &[], body, "push");
        check(&[], &published, "{}", "malformed");
        check(&["dev.cdevents.artifact.published.0.2.0"], &published, body, "push");
        check(&["dev.cdevents.change.merged.0.2.0"], &published, body, "passed over");
        check(&["dev.cdevents.artifact.published.0.2.0"], &[], body, "passed over");
    }

    #[test]
    fn expressions_read_a_body_that_is_json() {
        let read = |kind: ReceiverType, content: &str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::CONTENT_TYPE, content.parse().unwrap());
            request(kind, &headers, body.as_bytes())
        };
        let check = |kind: ReceiverType, content: &str, body: &str, expected: Result<Option<Value>, Malformed>| {
            assert_eq!(read(kind, content, body), expected, "{content} {body}");
        };
        let tag = || Ok(Some(json!({"tag": "1"})));
        check(ReceiverType::Quay, "application/json; charset=utf-8", r#"{"tag": "1"}"#, tag());
        check(ReceiverType::Generic, "application/cloudevents+JSON", r#"{"tag": "1"}"#, tag());
        check(ReceiverType::Generic, "text/plain", r#"{"tag": "1"}"#, Ok(None));
        check(ReceiverType::Github, "application/x-www-form-urlencoded", "payload=%7B%22tag%22%3A%221%22%7D", tag());
        check(ReceiverType::Generic, "application/x-www-form-urlencoded", "payload=%7B%7D", Ok(None));
        assert!(matches!(read(ReceiverType::Generic, "application/json", "[1]"), Err(Malformed::Json { .. })));
        let many = format!("{{\"l\": [{}0]}}", "0,".repeat(payload::MAX_VALUES));
        check(ReceiverType::Generic, "application/json", &many, Err(Malformed::TooMuch));
    }

    #[test]
    fn a_delivery_without_an_effect_names_the_labels_the_filter_or_the_type_of_its_body() {
        let chosen = |filter: Option<&str>, names: &[&str], content: &str, body: &str| {
            let mut receiver = receiver(ReceiverType::Generic, &[]);
            receiver.filter = Filter::of_spec(filter).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert(http::header::CONTENT_TYPE, content.parse().unwrap());
            let object = |name: &&str| Object {
                kind: SourceKind::GitRepository,
                name: (*name).to_owned(),
                shown: json!({"kind": "GitRepository", "metadata": {"name": name}}),
            };
            let objects: Vec<_> = names.iter().map(object).collect();
            let budget = &mut Budget::new(STEPS_OF_DELIVERY);
            let chosen = select(&receiver, &objects, &headers, body.as_bytes(), budget).unwrap();
            (chosen.none, chosen.failed.unwrap_or_default())
        };
        let (json, text) = ("application/json", "text/plain");
        let by_name = Some("req.name == res.metadata.name");
        let none = |none: NoneSelected| (Some(none), String::new());
        assert_eq!(chosen(None, &["web"], text, "{}"), (None, String::new()));
        assert_eq!(chosen(None, &[], text, "{}"), none(NoneSelected::Names));
        assert_eq!(chosen(by_name, &[], text, "{}"), none(NoneSelected::Names));
        assert_eq!(chosen(by_name, &["web", "api"], json, r#"{"name": "web"}"#), (None, String::new()));
        let is_false = |objects, is_unread| none(NoneSelected::Filter { objects, is_unread });
        assert_eq!(chosen(by_name, &["web", "api"], json, r#"{"name": "other"}"#), is_false(2, false));
        assert_eq!(chosen(Some("has(req.name)"), &["web"], text, r#"{"name": "web"}"#), is_false(1, true));
        assert_eq!(chosen(Some("has(req.name)"), &["web"], text, ""), is_false(1, false), "there is no body to read");
        let unread = format!("there is no field `name`{}", NoneSelected::UNREAD);
        let (none, failed) = chosen(by_name, &["web"], text, r#"{"name": "web"}"#);
        assert!(none.is_none() && failed.ends_with(&unread), "{failed}");
        let (none, failed) = chosen(by_name, &["web"], json, "{}");
        assert!(none.is_none() && failed.ends_with("there is no field `name`"), "{failed}");
    }

    #[test]
    fn gitea_signs_the_field_of_a_form_and_github_the_whole_form() {
        let payload = r#"{"ref": "refs/heads/main"}"#;
        let form: String = form_urlencoded::Serializer::new(String::new()).append_pair("payload", payload).finish();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"token");
        let signed = |body: &str| hex::encode(ring::hmac::sign(&key, body.as_bytes()));
        let check = |of: ReceiverType, header, signature: String, body: &str, expected| {
            let headers = [("Content-Type", "application/x-www-form-urlencoded"), (header, signature.as_str())];
            assert_eq!(kind(&receiver(of, &[]), &headers, body), expected, "{of:?} {body}");
        };
        check(ReceiverType::Gitea, "X-Gitea-Signature", signed(payload), &form, "push");
        check(ReceiverType::Gitea, "X-Gitea-Signature", signed(&form), &form, "refused");
        check(ReceiverType::Gitea, "X-Gitea-Signature", signed("a=b"), "a=b", "malformed");
        check(ReceiverType::Github, "X-Hub-Signature-256", format!("sha256={}", signed(&form)), &form, "push");
        check(ReceiverType::Github, "X-Hub-Signature-256", format!("sha256={}", signed(payload)), &form, "refused");
    }

    #[test]
    fn a_ping_is_answered_when_it_is_authentic() {
        let github = receiver(ReceiverType::Github, &["issues"]);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"token");
        let right = format!("sha256={}", hex::encode(ring::hmac::sign(&key, b"{}")));
        let check = |event, signature: &str, expected| {
            let headers = [("X-GitHub-Event", event), ("X-Hub-Signature-256", signature)];
            assert_eq!(kind(&github, &headers, "{}"), expected, "{event}");
        };
        check("ping", "sha256=00", "refused");
        check("ping", &right, "ping");
        check("push", &right, "passed over");
        check("issues", &right, "push");
    }
}
