//! A refusal: the server's `Status` response, redacted and classified.
//!
//! Invariant: texts of the server are redacted when they are read. The original text is not stored.
//! Invariant: every code has a class. Some 500 responses must not be retried, such as that for an unknown field in a
//! typed object. Some 403 responses do not mean a missing permission, but a quota, a terminating namespace or a policy.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use mainstay_object::failure::Class;
use mainstay_object::{
    Key, admission, hide_logins, redact_field_text, redact_server_text, with_remedy, withhold_server_text,
    without_item_names,
};

/// The reason of a 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// The agent lacks a permission.
    Permission,
    /// A ResourceQuota is exhausted.
    Quota,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The CustomResourceDefinition is being deleted.
    DefinitionTerminating,
    /// An admission plugin, policy or webhook rejects the object.
    Policy,
}

/// One cause of a refusal: an invalid field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldCause {
    /// The reason of the cause, such as `FieldValueInvalid`.
    pub reason: String,
    /// Path of the field, such as `spec.selector`; may be empty. It may contain the logins of URLs in keys of items.
    pub field: String,
    /// Redacted message; withheld for Secrets.
    pub message: String,
}

/// A conflict of an unforced apply with another manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// Path of the field, such as `.spec.replicas`. It may contain the logins of URLs in keys of items.
    pub field: String,
    /// The field manager that owns the field.
    pub manager: String,
}

/// A refusal of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`, or the name of the code.
    pub reason: String,
    /// Redacted message; withheld for Secrets.
    pub message: String,
    /// The invalid fields.
    pub causes: Vec<FieldCause>,
    /// The field conflicts of an unforced apply.
    pub conflicts: Vec<FieldConflict>,
    /// The reason of a 403; `None` for other codes.
    pub denial: Option<Denial>,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Plural of the kind in the server's response, such as `namespaces` in the 404 for a missing namespace.
    pub about: String,
    /// The remedy for a string that became another type. Found in the message before it is withheld.
    pub(super) quoting_hint: Option<String>,
    /// The failure and the remedy, if the cluster does not serve the kind.
    pub(super) unserved: Option<String>,
    /// Token with which an expired list can continue, but with inconsistent content.
    pub(super) continue_at: Option<String>,
    class: Class,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    message: String,
    reason: String,
    code: u16,
    metadata: Metadata,
    details: Details,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    #[serde(rename = "continue")]
    continue_at: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    kind: String,
    causes: Vec<RawCause>,
    retry_after_seconds: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawCause {
    reason: String,
    message: String,
    field: String,
}

/// Parts of 500 messages whose cause is the object, not the server.
const OBJECT_FAULTS: [&str; 8] = [
    "failed to create typed",
    "field not declared in schema",
    "duplicate entries for key",
    "cannot be handled as a",
    "cannot unmarshal",
    "illegal base64",
    "request is too large",
    "quantities must match",
];

impl Refusal {
    /// Parses an error response. The kind of `key` decides how texts are redacted.
    pub(super) fn read(key: &Key, code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let unserved = unserved(key, code, body);
        let mut body: Body =
            serde_json::from_slice(body).unwrap_or_else(|_| Body { message: first_line(body), ..Body::default() });
        let code = if body.code == 0 { code } else { body.code };
        let denial = (code == 403).then(|| denial(&body));
        if admission(&body.message).is_some() {
            // Reasons and causes may come from the webhook.
            (body.reason, body.details.causes) = (String::new(), Vec::new());
        }
        let conflicts = body.details.causes.iter().filter_map(conflict).collect();
        let reason = match http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()) {
            Some(name) if body.reason.is_empty() => name.replace(' ', ""),
            _ => hide_logins(&body.reason).into_owned(),
        };
        Self {
            class: class(code, denial, &body),
            message: shown(key, &body),
            causes: body
                .details
                .causes
                .iter()
                .map(|cause| FieldCause {
                    reason: cause.reason.clone(),
                    field: cause.field.clone(),
                    message: redact_field_text(key, &cause.field, &cause.message),
                })
                .collect(),
            retry_after: retry_after.or(body.details.retry_after_seconds.map(mainstay_object::failure::retry_after)),
            about: body.details.kind,
            continue_at: body.metadata.continue_at.filter(|token| !token.is_empty()),
            code,
            reason,
            conflicts,
            denial,
            quoting_hint: None,
            unserved,
        }
    }

    /// Removes the texts of a confidential object that is not a Secret.
    pub(super) fn withhold(&mut self) {
        self.message = withhold_server_text(&self.message).to_owned();
        for cause in &mut self.causes {
            cause.field = without_item_names(&cause.field);
            cause.message = withhold_server_text(&cause.message).to_owned();
        }
        for conflict in &mut self.conflicts {
            conflict.field = without_item_names(&conflict.field);
        }
    }

    /// Adds advice to a message from which the text of an admission webhook or policy was removed.
    pub(super) fn set_remedy(&mut self, remedy: &str) {
        if let Some(message) = with_remedy(&self.message, remedy) {
            self.message = message;
        }
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        self.class
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(unserved) = &self.unserved {
            return f.write_str(unserved);
        }
        if self.code == 500 && self.class == Class::Invalid {
            // The server cannot apply the object, but works otherwise.
            f.write_str("the API server refuses it")?;
        } else {
            write!(f, "the API server answered {} {}", self.code, self.reason)?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

impl std::error::Error for Refusal {}

/// Returns the message for a kind of a CRD that the cluster does not serve. The API server answers such a path with its
/// page for unknown paths, not with a `Status`.
fn unserved(key: &Key, code: u16, body: &[u8]) -> Option<String> {
    let is_unserved = code == 404 && body.starts_with(b"404 page not found") && !key.group.is_empty();
    is_unserved.then(|| {
        let remedy = mainstay_object::unserved::remedy(&key.group);
        format!("{} {}.{} ({remedy})", mainstay_object::unserved::NOT_SERVED, key.kind, key.group)
    })
}

/// Returns the redacted message. For Secrets, the message contains only the fields and their reasons.
fn shown(key: &Key, body: &Body) -> String {
    if body.message.is_empty() {
        return String::new();
    }
    let message = redact_server_text(key, &body.message);
    if !key.is("", "Secret") {
        return message;
    }
    let mut text = String::new();
    for cause in body.details.causes.iter().filter(|cause| !cause.field.is_empty()) {
        text.extend([&cause.field, " (", &cause.reason, ") "]);
    }
    hide_logins(&(text + &message)).into_owned()
}

fn denial(body: &Body) -> Denial {
    let text = body.message.as_str();
    let has = |reason: &str| body.details.causes.iter().any(|cause| cause.reason == reason);
    if has("NamespaceTerminating") || text.contains("because it is being terminated") {
        Denial::NamespaceTerminating
    } else if text.contains("custom resource definition is terminating") {
        Denial::DefinitionTerminating
    } else if text.contains("exceeded quota:") || text.contains("status unknown for quota:") {
        Denial::Quota
    } else if text.contains("User \"") && text.contains(" cannot ") || text.contains("not currently allowed") {
        Denial::Permission
    } else {
        Denial::Policy
    }
}

/// Reads the manager's name in a text such as `conflict with "kubectl" with subresource "scale" using apps/v1`.
fn conflict(cause: &RawCause) -> Option<FieldConflict> {
    if cause.reason != "FieldManagerConflict" {
        return None;
    }
    let manager = cause.message.split('"').nth(1).unwrap_or("unknown").to_owned();
    Some(FieldConflict { field: cause.field.clone(), manager })
}

fn class(code: u16, denial: Option<Denial>, body: &Body) -> Class {
    match code {
        401 => Class::Denied,
        403 => match denial {
            Some(Denial::NamespaceTerminating | Denial::DefinitionTerminating | Denial::Quota) => Class::NotReady,
            _ => Class::Denied,
        },
        404 => Class::NotReady,
        405 if body.message.contains("terminating") => Class::NotReady,
        409 => Class::Conflict,
        408 | 410 | 429 => Class::Unavailable,
        500 if OBJECT_FAULTS.iter().any(|fault| body.message.contains(fault)) => Class::Invalid,
        400..500 => Class::Invalid,
        _ => Class::Unavailable,
    }
}

/// Returns at most 200 bytes of the first line of a response that is not a `Status` (a proxy's page, plain text).
fn first_line(body: &[u8]) -> String {
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(200)];
    String::from_utf8_lossy(line).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::kind;
    use super::*;
    use serde_json::{Value, json};

    fn read(code: u16, body: &Value) -> Refusal {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(Some("a"), "b");
        Refusal::read(&key, code, None, body.to_string().as_bytes())
    }

    fn check(code: u16, message: &str, expected: Class) {
        assert_eq!(read(code, &json!({ "message": message, "code": code })).class(), expected, "{code} {message}");
    }

    #[test]
    fn classes_follow_codes() {
        check(401, "Unauthorized", Class::Denied);
        check(404, "namespaces \"x\" not found", Class::NotReady);
        check(409, "the object has been modified", Class::Conflict);
        check(422, "field is immutable", Class::Invalid);
        check(400, "metadata.managedFields must be nil", Class::Invalid);
        check(413, "Request entity too large: limit is 3145728", Class::Invalid);
        check(429, "Too many requests", Class::Unavailable);
        check(503, "the server is currently unable to handle the request", Class::Unavailable);
        check(504, "Timeout", Class::Unavailable);
    }

    #[test]
    fn a_500_about_the_object_is_invalid() {
        let typed =
            "failed to create typed patch object (/s1; /v1, Kind=ConfigMap): .bogus: field not declared in schema";
        check(500, typed, Class::Invalid);
        check(500, "etcdserver: request is too large", Class::Invalid);
        check(500, "etcdserver: leader changed", Class::Unavailable);
        let webhook = "Internal error occurred: failed calling webhook \"m.x.io\": failed to call webhook: EOF";
        check(500, webhook, Class::Unavailable);
    }

    #[test]
    fn distinguishes_the_reasons_of_a_403() {
        let check = |message: &str, causes: Value, denial: Denial, class: Class| {
            let refusal = read(403, &json!({ "message": message, "details": { "causes": causes } }));
            assert_eq!((refusal.denial, refusal.class()), (Some(denial), class), "{message}");
        };
        check(
            "configmaps \"new\" is forbidden: unable to create new content in namespace t2 because it is being terminated",
            json!([{ "reason": "NamespaceTerminating", "message": "namespace t2 is being terminated", "field": "metadata.namespace" }]),
            Denial::NamespaceTerminating,
            Class::NotReady,
        );
        check(
            "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
            json!([]),
            Denial::Quota,
            Class::NotReady,
        );
        check(
            "configmaps \"s1\" is forbidden: User \"alice\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"t1\"",
            json!([]),
            Denial::Permission,
            Class::Denied,
        );
        check("admission webhook \"p.x.io\" denied the request: no", json!([]), Denial::Policy, Class::Denied);
        check(
            "create not allowed while custom resource definition is terminating",
            json!([]),
            Denial::DefinitionTerminating,
            Class::NotReady,
        );
    }

    #[test]
    fn names_who_owns_what_in_a_conflict() {
        let refusal = read(
            409,
            &json!({ "reason": "Conflict", "message": "Apply failed with 1 conflict", "details": { "causes": [
                { "reason": "FieldManagerConflict", "message": "conflict with \"hpa\" with subresource \"scale\" using apps/v1", "field": ".spec.replicas" },
            ] } }),
        );
        assert_eq!(
            refusal.conflicts,
            [FieldConflict { field: ".spec.replicas".to_owned(), manager: "hpa".to_owned() }]
        );
    }

    #[test]
    fn keeps_the_values_of_secrets_out_of_every_text() {
        let key = kind("v1", "Secret", "secrets", true).key(Some("a"), "b");
        let body = json!({ "message": "Invalid value: \"hunter2\"", "reason": "Invalid", "details": { "causes": [
            { "reason": "FieldValueInvalid", "message": "Invalid value: \"hunter2\"", "field": "type" } ] } });
        let refusal = Refusal::read(&key, 422, None, body.to_string().as_bytes());
        assert!(!format!("{refusal} {refusal:?}").contains("hunter2"));
        assert!(refusal.to_string().contains("type (FieldValueInvalid)"), "{refusal}");
    }

    #[test]
    fn keeps_logins_of_urls_out_of_every_message() {
        let url = "https://u:hunter2@h";
        let message = format!("spec.url: Invalid value: \"{url}\": no; {url} is unknown");
        let causes = json!([{ "reason": "FieldValueInvalid", "message": format!("not {url}"), "field": "spec.url" }]);
        let body = json!({ "message": message, "reason": "Invalid", "details": { "causes": causes } });
        let refusal = read(422, &body);
        assert!(!format!("{refusal} {refusal:?}").contains("hunter2"), "{refusal:?}");
        assert!(refusal.to_string().ends_with("no; https://(hidden)@h is unknown"), "{refusal}");
        assert_eq!(refusal.causes[0].message, "not https://(hidden)@h");
        let key = kind("v1", "Secret", "secrets", true).key(Some("a"), "b");
        let causes = json!([{ "reason": "FieldValueInvalid", "field": format!("metadata.annotations[{url}]") }]);
        let body = json!({ "message": "no", "details": { "causes": causes } });
        let refusal = Refusal::read(&key, 422, None, body.to_string().as_bytes());
        assert!(
            refusal.message.starts_with("metadata.annotations[https://(hidden)@h] (FieldValueInvalid)"),
            "{refusal}"
        );
    }

    #[test]
    fn keeps_what_a_webhook_quotes_out_of_every_text() {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("a"), "b");
        let body = json!({
            "message": "admission webhook \"p.x.io\" denied the request: env A is hunter2", "reason": "hunter2", "code": 403,
            "details": { "causes": [{ "reason": "hunter2", "message": "hunter2", "field": "spec.hunter2" }] } });
        let refusal = Refusal::read(&key, 403, None, body.to_string().as_bytes());
        assert!(!format!("{refusal} {refusal:?}").contains("hunter2"));
        let expected =
            "the API server answered 403 Forbidden: admission webhook \"p.x.io\" denied the request: (its text";
        assert!(refusal.to_string().starts_with(expected), "{refusal}");
        assert_eq!((refusal.denial, refusal.class()), (Some(Denial::Policy), Class::Denied));
    }

    #[test]
    fn reads_answers_that_are_not_a_status() {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(None, "b");
        let refusal = Refusal::read(&key, 404, None, b"404 page not found\n");
        assert_eq!(refusal.to_string(), "the API server answered 404 NotFound: 404 page not found");
        let repository = Key::new("source.toolkit.fluxcd.io", "HelmRepository", Some("shop"), "charts");
        let mut refusal = Refusal::read(&repository, 404, None, b"404 page not found\n");
        refusal.withhold();
        assert_eq!(
            refusal.to_string(),
            "the cluster does not serve HelmRepository.source.toolkit.fluxcd.io (it is an object of Flux: remove its manifest; \
             `mainstay convert flux` prints the counterparts of objects of Flux)"
        );
        let refusal = Refusal::read(&key, 429, Some(Duration::from_secs(1)), b"Too many requests");
        assert_eq!((refusal.class(), refusal.retry_after), (Class::Unavailable, Some(Duration::from_secs(1))));
        assert_eq!(Refusal::read(&key, 599, None, b"\xff\xfe").class(), Class::Unavailable);
    }

    #[test]
    fn reads_retry_after_from_the_body_too() {
        let refusal = read(504, &json!({ "details": { "retryAfterSeconds": 3 } }));
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(3)));
    }
}
