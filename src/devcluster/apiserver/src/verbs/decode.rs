//! Decodes request bodies into objects of a kind.
//!
//! Built-in kinds may omit `kind` and `apiVersion`; custom kinds may not. `fieldValidation` decides whether unknown
//! fields are dropped, reported or refused. Values of a wrong type fail here for built-in kinds, and in validation
//! (422) for custom ones.
//!
//! Not here: defaults.

use super::{FieldValidation, Settings, duplicate_fields};
use crate::{
    kinds::{hooks, table::Kind},
    protobuf, schema,
    status::{Cause, Status},
};
use bounded_json::{Bounds, Unreadable};
use serde::de::DeserializeOwned;
use serde_json::Value;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Bounds of request JSON. The largest known definitions have a third of these values; Kubernetes has the same depth
/// limit.
pub(crate) const BOUNDS: Bounds = Bounds { bytes: usize::MAX, values: 300_000, depth: 10_000 };
/// Supported media types of whole objects.
const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Parses a body by its content type; default JSON. Also returns duplicate fields.
pub fn body(content_type: &str, bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    if matches!(media, "" | "application/json") {
        return duplicate_fields::parse(bytes, BOUNDS).map_err(|error| unreadable(&error));
    }
    let value = match media {
        "application/yaml" | "application/apply-patch+yaml" => yaml(bytes),
        PROTOBUF => protobuf::decode(bytes, BOUNDS.values).map_err(|error| {
            let mut status = unsupported(ACCEPTED);
            status.message = format!("{}: {error}; use kubectl create -f or kubectl apply instead", status.message);
            status
        }),
        _ => Err(unsupported(ACCEPTED)),
    };
    value.map(|value| (value, Vec::new()))
}

/// Parses JSON; 400 if it is invalid.
pub fn json(bytes: &[u8]) -> Result<Value, Status> {
    BOUNDS.read(bytes).map_err(|error| unreadable(&error))
}

/// Parses JSON of a test's request into a type. The 400 for invalid JSON names `what`.
pub(crate) fn typed<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Status> {
    BOUNDS.read(bytes).map_err(|error| match error {
        Unreadable::Malformed(error) => Status::bad_request(format!("reading the {what}: {error}")),
        other => too_large(&other),
    })
}

/// Parses a patch, and returns its duplicate fields; 400 if it is invalid.
pub(crate) fn patch(bytes: &[u8]) -> Result<(Value, Vec<String>), Status> {
    duplicate_fields::parse(bytes, BOUNDS).map_err(|error| match &error {
        Unreadable::Malformed(error) => Status::bad_request(format!("error decoding patch: {}", syntax(error))),
        other => too_large(other),
    })
}

/// Returns the error for exceeded bounds. Like Kubernetes: 400 for depth, 413 for size.
fn too_large(error: &Unreadable) -> Status {
    if matches!(error, Unreadable::TooDeep(_)) {
        return Status::bad_request(error.to_string());
    }
    Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {error}"))
}

fn unreadable(error: &Unreadable) -> Status {
    let Unreadable::Malformed(error) = error else { return too_large(error) };
    let what =
        if error.is_eof() { "unexpected end of JSON input".to_owned() } else { without_place(&error.to_string()) };
    Status::bad_request(format!("couldn't get version/kind; json parse error: {what}"))
}

/// Maximum size of the quoted start of a body in an error, in bytes.
const SUMMARY: usize = 30;

/// Adds the kind and the start of the body to a 400. The start is text if it looks like an object, else hexadecimal.
pub fn unrecognized(mut status: Status, kind: &str, body: &[u8]) -> Status {
    if status.code != 400 {
        return status;
    }
    let (start, more) = if body.len() > SUMMARY { (&body[..SUMMARY], " ...") } else { (body, "") };
    let summary = match (std::str::from_utf8(start), body.first()) {
        (_, None) => "<empty>".to_owned(),
        (Ok(text), Some(b'{')) => format!("{text}{more}"),
        _ => format!("{}{more}", hex::encode(start)),
    };
    status.message =
        format!("the object provided is unrecognized (must be of type {kind}): {} ({summary})", status.message);
    status
}

/// Parses YAML or JSON; 400 if it is invalid.
pub fn yaml(bytes: &[u8]) -> Result<Value, Status> {
    if bytes.first() == Some(&b'{') {
        match BOUNDS.read(bytes) {
            Ok(value) => return Ok(value),
            Err(Unreadable::Malformed(_)) => {}
            Err(other) => return Err(too_large(&other)),
        }
    }
    if bytes.iter().filter(|byte| b"\n,:-[{".contains(byte)).count() > MAX_PIECES {
        let most = format!("Request entity too large: the YAML has more than {MAX_PIECES} values");
        return Err(Status::new(413, "RequestEntityTooLarge", most));
    }
    if opened(bytes) > MAX_OPENED {
        return Err(Status::bad_request("error decoding YAML: the body nests too deep"));
    }
    // Only the first document counts.
    let first = serde_yaml::Deserializer::from_slice(bytes).next();
    first.map_or(Ok(Value::Null), serde::Deserialize::deserialize).map_err(|e: serde_yaml::Error| {
        let place = e.location().map_or_else(String::new, |l| format!("line {}: ", l.line()));
        Status::bad_request(format!("error decoding YAML: {place}the body is not a valid document"))
    })
}

/// Maximum number of characters that begin or separate YAML values. Such characters inside strings count, too; the
/// limit allows for them.
const MAX_PIECES: usize = 200_000;
/// Maximum nesting of brackets. Brackets inside strings count, too; the limit allows for them. The parser's time is
/// quadratic in the nesting.
const MAX_OPENED: usize = 4_096;

fn opened(bytes: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in bytes {
        match byte {
            b'[' | b'{' => open += 1,
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

/// Returns the 415 with the accepted types.
pub fn unsupported(accepted: &str) -> Status {
    let text = format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    Status::new(415, "UnsupportedMediaType", text)
}

/// Describes invalid JSON without quoting it.
pub fn syntax(error: &serde_json::Error) -> &'static str {
    if error.is_eof() { "unexpected end of JSON input" } else { "the body is not valid JSON" }
}

/// Removes a quotation of the body from a parser error, and keeps the position.
fn without_place(text: &str) -> String {
    text.rsplit_once(" at line").map_or_else(|| text.to_owned(), |(what, place)| format!("{what} at line{place}"))
}

/// The origin of an object, which decides how errors are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A whole body: errors are 400.
    Body,
    /// The result of a patch: errors are 422 with the field `patch`.
    Patch,
    /// The result of a strategic merge patch: like `Patch`, but numbers are converted before the type check.
    Strategic,
    /// The result of an apply, which has checked the fields itself.
    Apply,
}

/// Converts the result of an apply to its schema. On failure returns a 500 that names the applied configuration.
pub(crate) fn converted(kind: &Kind, config: &Value, object: &mut Value) -> Result<(), Status> {
    if kind.custom.is_some() {
        return Ok(());
    }
    schema::convert(&kind.schema, object).map_err(|why| {
        let version = if kind.group.is_empty() { format!("/{}", kind.version) } else { kind.api_version.clone() };
        let what = format!("{version}, Kind={}", kind.kind);
        let (namespace, name) = (super::text(config, "/metadata/namespace"), super::text(config, "/metadata/name"));
        let text = format!(
            "failed to convert new object ({namespace}/{name}; {what}) to proper version: unable to convert unstructured \
             object to {what}: {why}"
        );
        Status::new(500, "", text)
    })
}

/// Validates the head of an object and drops unknown fields. Returns warnings.
pub fn object(kind: &Kind, value: &mut Value, settings: &Settings, origin: Origin) -> Result<Vec<String>, Status> {
    head(kind, value).map_err(|status| match origin {
        Origin::Patch | Origin::Strategic if status.code == 400 && kind.custom.is_none() => patch_flaw(&status.message),
        _ => status,
    })?;
    let refuse = |text: String| match origin {
        Origin::Body => {
            let what = format!("{} in version \"{}\"", kind.kind, kind.version);
            Status::bad_request(format!("{what} cannot be handled as a {}: {text}", kind.kind))
        }
        _ => patch_flaw(&text),
    };
    if kind.custom.is_none() {
        if origin == Origin::Strategic {
            schema::convert(&kind.schema, value).map_err(|why| patch_flaw(&why))?;
        }
        schema::check_types(&kind.schema, value, &kind.kind).map_err(refuse)?;
        hooks::check_decodable(&kind.api_version, &kind.kind, value).map_err(refuse)?;
    }
    let unknown = schema::drop_unknown(&kind.schema, value);
    match (&kind.custom, value.get_mut("metadata"), kind.schema.field("metadata")) {
        (None, _, _) => schema::normalise(&kind.schema, value),
        (Some(_), Some(metadata), Some(schema)) => schema::normalise(&schema, metadata),
        _ => {}
    }
    let duplicates = settings.duplicate_fields.iter().map(|path| format!("duplicate field \"{path}\""));
    let texts: Vec<String> = duplicates.chain(unknown.iter().map(|path| format!("unknown field \"{path}\""))).collect();
    if texts.is_empty() || origin == Origin::Apply {
        return Ok(Vec::new());
    }
    match (settings.validation, origin) {
        (FieldValidation::Ignore, _) => Ok(Vec::new()),
        (FieldValidation::Warn, _) => Ok(texts),
        (FieldValidation::Strict, Origin::Patch | Origin::Strategic) => {
            Err(patch_flaw(&format!("strict decoding error: {}", texts.join(", "))))
        }
        (FieldValidation::Strict, _) => Err(Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}",
            kind.kind,
            kind.version,
            kind.kind,
            texts.join(", ")
        ))),
    }
}

/// Checks an object after webhooks changed it. Restores its managers, which webhooks cannot change.
pub(crate) fn changed(kind: &Kind, settings: &Settings, before: &Value, object: &mut Value) -> Result<(), Status> {
    let quiet = Settings { validation: FieldValidation::Ignore, duplicate_fields: Vec::new(), ..settings.clone() };
    self::object(kind, object, &quiet, Origin::Apply)
        .map_err(|status| Status::internal(format!("Internal error occurred: {}", status.message)))?;
    let metadata = super::metadata::of(object);
    match before["metadata"].get("managedFields") {
        Some(managers) => metadata.insert("managedFields".to_owned(), managers.clone()),
        None => metadata.remove("managedFields"),
    };
    Ok(())
}

fn value_name(value: &Value) -> &str {
    super::text(value, "/metadata/name")
}

/// Returns the 422 of a patch with an invalid result. As on a real server, the message names no object. Unlike on a
/// real server, the message does not quote the object, which may hold secrets.
pub(crate) fn patch_flaw(text: &str) -> Status {
    let cause = Cause::new("FieldValueInvalid", "patch", format!("Invalid value: \"<patch>\": {text}"));
    let mut status = Status::invalid("", "", "", vec![cause]);
    status.details = Some(serde_json::Map::new());
    status
}

/// Checks and completes `kind`, `apiVersion` and `metadata`.
fn head(kind: &Kind, value: &mut Value) -> Result<(), Status> {
    let given_kind = super::text(value, "/kind").to_owned();
    let given_version = super::text(value, "/apiVersion").to_owned();
    if value.is_null() {
        *value = Value::Object(serde_json::Map::new());
    }
    let name = value_name(value).to_owned();
    let found = type_name(value);
    let Some(root) = value.as_object_mut() else {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: json: \
             cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
             Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            kind.kind
        )));
    };
    if kind.custom.is_some() && (given_kind.is_empty() || given_version.is_empty()) {
        return Err(Status::bad_request(if given_kind.is_empty() {
            format!("the object provided is unrecognized (must be of type {}): Object 'Kind' is missing", kind.kind)
        } else {
            format!("the API version in the data () does not match the expected API version ({})", kind.api_version)
        }));
    }
    let unknown = kind.custom.is_none() && is_unregistered(kind, &given_version);
    if !given_version.is_empty() && unknown {
        let named = if given_kind.is_empty() { &kind.kind } else { &given_kind };
        return Err(Status::bad_request(format!(
            "{named} in version {given_version:?} cannot be handled as a {}: no kind {named:?} is registered for version \
             {given_version:?} in scheme \"pkg/runtime/scheme.go:111\"",
            kind.kind
        )));
    }
    if !given_version.is_empty() && given_version != kind.api_version {
        return Err(Status::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({})",
            kind.api_version
        )));
    }
    if !given_kind.is_empty() && given_kind != kind.kind {
        if kind.custom.is_some() {
            let wrong = given_kind.clone();
            let cause = Cause::invalid("kind", &Value::String(given_kind), &format!("must be {}", kind.kind));
            return Err(Status::invalid(&kind.group, &wrong, &name, vec![cause]));
        }
        return Err(Status::bad_request(format!(
            "{given_kind} in version \"{}\" cannot be handled as a {}: converting ({}.{given_kind}) to ({}.{}): unknown conversion",
            kind.version,
            kind.kind,
            kind.version,
            kind.package(),
            kind.kind
        )));
    }
    root.insert("kind".to_owned(), kind.kind.clone().into());
    root.insert("apiVersion".to_owned(), kind.api_version.clone().into());
    let found = root.get("metadata").map_or("", type_name);
    match root.entry("metadata").or_insert_with(|| Value::Object(serde_json::Map::new())) {
        Value::Object(_) => Ok(()),
        other @ Value::Null => {
            *other = Value::Object(serde_json::Map::new());
            Ok(())
        }
        _ => Err(Status::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: json: cannot unmarshal {found} into Go struct field {}.metadata of type v1.ObjectMeta",
            kind.kind, kind.version, kind.kind, kind.kind
        ))),
    }
}

/// Returns whether no kind of the group ever had this version.
fn is_unregistered(kind: &Kind, api_version: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    group == kind.group
        && api_version != kind.api_version
        && !version.contains("alpha")
        && !version.contains("beta")
        && kind.group != "autoscaling"
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
