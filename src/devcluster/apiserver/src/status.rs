//! The error bodies of the API: `Status` objects with the exact reason, message, details and causes.
//!
//! Every error inside the server is a [`Status`], which the service turns into an HTTP response. The texts are those of
//! a real 1.36 API server.
//!
//! Not here: success `Status` bodies of deletions, which the delete verb builds itself.

use serde::Serialize;
use serde_json::{Map, Value, json};

/// Group and plural resource name, written in errors as `configmaps` or `deployments.apps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupResource {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural name.
    pub resource: String,
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

/// One cause of an error: a field and its problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Machine-readable reason: `FieldValueRequired`, `FieldValueInvalid`, `FieldManagerConflict`, ….
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Human-readable message, without the path of the field.
    pub message: String,
    /// Path of the field, such as `spec.template.spec.containers[0].image`; empty if the cause has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// Creates a cause from its three parts.
    pub fn new(reason: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), message: message.into(), field: field.into() }
    }

    /// Creates the cause `Required value: why` (`FieldValueRequired`).
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// Creates the cause `Invalid value: <json>: why` (`FieldValueInvalid`), with `value` as compact JSON.
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
    }

    /// Creates the cause `Forbidden: why` (`FieldValueForbidden`).
    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    /// Creates the cause `Unsupported value: "x": supported values: "a", "b"` (`FieldValueNotSupported`).
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self::new("FieldValueNotSupported", field, format!("Unsupported value: {value}: supported values: {list}"))
    }
}

/// An error as clients receive it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// `NotFound`, `Conflict`, …; empty for a 500 without a reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// `details`, without its causes.
    pub details: Option<Map<String, Value>>,
    /// `details.causes`.
    pub causes: Vec<Cause>,
    /// `metadata.continue` of a 410 on a list.
    pub continue_token: Option<String>,
    /// Seconds for the header `Retry-After`.
    pub retry_after: Option<u32>,
}

impl Status {
    /// Creates an error without details.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            causes: Vec::new(),
            continue_token: None,
            retry_after: None,
        }
    }

    /// Creates a 400 BadRequest.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Creates a 404 NotFound for an object.
    pub fn not_found(gr: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{gr} \"{name}\" not found")).about(gr, name)
    }

    /// Creates a 409 AlreadyExists for an object.
    pub fn already_exists(gr: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{gr} \"{name}\" already exists")).about(gr, name)
    }

    /// Creates a 409 Conflict: `Operation cannot be fulfilled on …: why`.
    pub fn conflict(gr: &GroupResource, name: &str, why: &str) -> Self {
        Self::new(409, "Conflict", format!("Operation cannot be fulfilled on {gr} \"{name}\": {why}")).about(gr, name)
    }

    /// Creates a 409 Conflict for a stale resourceVersion.
    pub fn stale(gr: &GroupResource, name: &str) -> Self {
        Self::conflict(
            gr,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Creates a 403 Forbidden: `<resource> "<name>" is forbidden: why`.
    pub fn forbidden(gr: &GroupResource, name: &str, why: &str) -> Self {
        let what = if name.is_empty() { gr.to_string() } else { format!("{gr} \"{name}\"") };
        Self::new(403, "Forbidden", format!("{what} is forbidden: {why}")).about(gr, name)
    }

    /// Creates a 422 Invalid for an object: `Deployment.apps "x" is invalid: …`. `details.kind` is the kind. Equal
    /// texts of causes appear once in the message.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|c| format!("{}: {}", c.field, c.message)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        let about = GroupResource { group: group.to_owned(), resource: kind.to_owned() };
        let mut status =
            Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {text}")).about(&about, name);
        status.causes = causes;
        status
    }

    /// Creates a 500 InternalError.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// Returns the error with `details.name`, `.group` and `.kind`.
    #[must_use]
    pub fn about(mut self, gr: &GroupResource, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !gr.group.is_empty() {
            details.insert("group".into(), gr.group.clone().into());
        }
        if !gr.resource.is_empty() {
            details.insert("kind".into(), gr.resource.clone().into());
        }
        self.details = Some(details);
        self
    }

    /// Returns the error with empty `details`, as for errors before the resource is known.
    #[must_use]
    pub fn unspecific(mut self) -> Self {
        self.details = Some(Map::new());
        self
    }

    /// Returns the error with one more cause.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.causes.push(cause);
        self
    }

    /// Returns the body as the API sends it.
    pub fn body(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.clone().into();
        }
        let mut details = self.details.clone();
        if !self.causes.is_empty() {
            details.get_or_insert_default().insert("causes".into(), json!(self.causes));
        }
        if let Some(seconds) = self.retry_after {
            details.get_or_insert_default().insert("retryAfterSeconds".into(), seconds.into());
        }
        if let Some(details) = details {
            body["details"] = Value::Object(details);
        }
        body
    }
}
