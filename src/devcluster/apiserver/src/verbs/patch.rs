//! PATCH: merge, JSON and strategic merge patches, and server-side apply.
//!
//! After a conflicting write, a patch without a resource version is computed again on the new state.
//!
//! Not here: the computation of patches (`crate::patch`).

use super::{
    Done, FieldValidation, Settings, Target, create, decode, metadata, reset_paths, text, update, value_as,
    write::{self, ATTEMPTS, Live, Sent, Tracking, context},
};
use crate::{
    admission::Stop,
    patch,
    server::Server,
    status::{Cause, Status},
};
use serde_json::Value;

/// Maximum number of operations in one JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// The forms of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `application/merge-patch+json`.
    Merge,
    /// `application/json-patch+json`.
    Json,
    /// `application/strategic-merge-patch+json`.
    Strategic,
    /// `application/apply-patch+yaml`.
    Apply,
}

impl Form {
    /// Parses a content type; 415 if it is unknown, and for strategic merge on custom resources.
    pub fn of(content_type: &str, custom: bool) -> Result<Self, Status> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/json-patch+json" => Ok(Self::Json),
            "application/strategic-merge-patch+json" if !custom => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ if custom => Err(decode::unsupported(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            // On a real server, routes of built-in kinds refuse the type without a list of supported types.
            _ => Err(Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").unspecific()),
        }
    }
}

/// Patches an object. An apply creates the object if it is missing.
pub fn patch(server: &Server, target: &Target, settings: &Settings, form: Form, body: &Value) -> Result<Done, Stop> {
    match form {
        Form::Apply => apply(server, target, settings, body),
        _ => change(server, target, settings, form, body),
    }
}

fn change(server: &Server, target: &Target, settings: &Settings, form: Form, body: &Value) -> Result<Done, Stop> {
    let kind = &*target.kind;
    well_formed(form, body)?;
    for _ in 0..ATTEMPTS {
        let live = server.store().get(&kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let old = value_as(kind, &live);
        let mut new = compute(target, form, &old, body)?;
        let origin = if form == Form::Strategic { decode::Origin::Strategic } else { decode::Origin::Patch };
        let warnings = decode::object(kind, &mut new, settings, origin)?;
        write::same_name(target, &new)?;
        write::same_namespace(target, &new)?;
        same_uid(target, &old, &new)?;
        write::same_version(target, &old, &new, Sent::Part)?;
        if let Some(mut done) =
            update::replace(server, target, settings, &Live { stored: live, old }, new, Tracking::Track)?
        {
            done.warnings.splice(0..0, warnings);
            return Ok(done);
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

fn well_formed(form: Form, body: &Value) -> Result<(), Status> {
    match (form, body) {
        (Form::Json, Value::Array(operations)) if operations.len() > MAX_OPERATIONS => Err(Status::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        )),
        (Form::Json, Value::Array(_)) | (Form::Merge | Form::Strategic, Value::Object(_)) => Ok(()),
        (Form::Json, _) => Err(Status::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        )),
        (Form::Merge, Value::Null) => Err(Status::bad_request("Invalid JSON Patch")),
        (form, body) => {
            let what = match body {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            let why = format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}");
            Err(Status::bad_request(if form == Form::Strategic { why } else { format!("error decoding patch: {why}") }))
        }
    }
}

/// Returns the patched object.
pub(crate) fn compute(target: &Target, form: Form, old: &Value, body: &Value) -> Result<Value, Status> {
    match form {
        Form::Merge => Ok(patch::merge(old, body)),
        Form::Json => patch::json(old, body),
        Form::Strategic => patch::strategic(&target.kind.schema, old, body),
        Form::Apply => Ok(old.clone()),
    }
}

fn same_uid(target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
    let given = text(new, "/metadata/uid");
    if given.is_empty() || given == text(old, "/metadata/uid") {
        return Ok(());
    }
    let cause = Cause::invalid("metadata.uid", &given.into(), "field is immutable");
    // Reported twice, as by a real server: by the general validation and by the validation of the kind.
    let causes = vec![cause.clone(), cause];
    Err(Status::invalid(&target.kind.group, &target.kind.kind, &target.name, causes))
}

fn apply(server: &Server, target: &Target, settings: &Settings, body: &Value) -> Result<Done, Stop> {
    let kind = &*target.kind;
    let config = configuration(target, body)?;
    // Fields of the live object are not reported: the client did not send them.
    let quiet = Settings { validation: FieldValidation::Ignore, ..settings.clone() };
    let reset = reset_paths(kind, &target.subresource);
    let cx = context(kind, settings, &target.subresource, &reset);
    for _ in 0..ATTEMPTS {
        let live = server.store().get(&kind.storage, &target.key());
        let Some(live) = live else {
            match first_apply(server, target, &quiet, &config, &cx) {
                // A concurrent request created the object: apply to it.
                Err(Stop::Refused(status)) if status.reason == "AlreadyExists" => continue,
                outcome => return outcome,
            }
        };
        let old = value_as(kind, &live);
        same_uid(target, &old, &config)?;
        write::same_version(target, &old, &config, Sent::Part)?;
        let mut new = patch::apply(&cx, Some(&old), &config)?;
        addressed(target, &mut new);
        decode::converted(kind, &config, &mut new)?;
        decode::object(kind, &mut new, &quiet, decode::Origin::Apply)?;
        let live = Live { stored: live, old };
        if let Some(done) = update::replace(server, target, settings, &live, new, Tracking::Applied)? {
            return Ok(done);
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

fn first_apply(
    server: &Server,
    target: &Target,
    settings: &Settings,
    config: &Value,
    cx: &patch::ApplyContext<'_>,
) -> Result<Done, Stop> {
    if !target.subresource.is_empty() {
        return Err(target.not_found().into());
    }
    let uid = text(config, "/metadata/uid");
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Status::conflict(&target.kind.group_resource(), &target.name, &why).into());
    }
    // The name may be omitted only if the object exists.
    write::same_name(target, config)?;
    let mut new = patch::apply(cx, None, config)?;
    addressed(target, &mut new);
    decode::converted(&target.kind, config, &mut new)?;
    decode::object(&target.kind, &mut new, settings, decode::Origin::Apply)?;
    create::insert(server, target, settings, new, Tracking::Applied)
}

/// Validates the head of an applied configuration.
fn configuration(target: &Target, body: &Value) -> Result<Value, Status> {
    let kind = &*target.kind;
    if !body.is_object() && !body.is_null() {
        let what = match body {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        return Err(Status::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {what} into Go value \
             of type map[string]interface {{}}"
        )));
    }
    let (version, given) = (text(body, "/apiVersion"), text(body, "/kind"));
    if version != kind.api_version || given != kind.kind {
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        return Err(Status::bad_request(format!("invalid object type: {group}/{short}, Kind={given}")));
    }
    if body.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if !text(body, "/metadata/name").is_empty() {
        write::same_name(target, body)?;
    }
    write::same_namespace(target, body)?;
    Ok(body.clone())
}

/// Sets the name and namespace of the path on the result of an apply. A configuration may omit them.
///
/// The configuration itself stays unchanged, so that errors quote it as it was sent.
fn addressed(target: &Target, object: &mut Value) {
    let metadata = metadata::of(object);
    metadata.insert("name".to_owned(), target.name.clone().into());
    if target.kind.namespaced {
        metadata.insert("namespace".to_owned(), target.namespace.clone().into());
    }
}
