//! The `scale` subresource: replicas of a workload as an `autoscaling/v1` Scale.
//!
//! Not here: field ownership of the replicas (`patch`).

use super::{
    Done, Settings, Shown, Target, decode,
    patch::Form,
    text, update, value_as,
    write::{self, ATTEMPTS, Live, Tracking, context},
};
use crate::{
    admission::Stop,
    kinds::{
        scale::{paths, set_replicas},
        table::Kind,
    },
    patch, schema,
    server::Server,
    status::{Cause, Status},
};
use serde_json::Value;

pub use crate::kinds::scale::of;

/// Returns the Scale of a stored object.
pub fn get(server: &Server, target: &Target) -> Result<Value, Status> {
    let stored = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    of_counted(&target.kind, &value_as(&target.kind, &stored))
}

/// Returns the Scale of an object. Fails if a custom object has no replicas field.
pub fn of_counted(kind: &Kind, object: &Value) -> Result<Value, Status> {
    if has_number(kind, object) {
        return Ok(of(kind, object));
    }
    Err(Status::internal(format!("Internal error occurred: the spec replicas field {:?} does not exist", field(kind))))
}

fn has_number(kind: &Kind, object: &Value) -> bool {
    kind.custom.is_none() || object.pointer(&paths(kind).spec).is_some()
}

/// Returns the path of the replicas, as in the definition.
fn field(kind: &Kind) -> String {
    paths(kind).spec.replace('/', ".")
}

/// Writes a Scale by an update, a patch or an apply.
pub fn write(
    server: &Server,
    target: &Target,
    settings: &Settings,
    form: Option<Form>,
    body: &Value,
) -> Result<Done, Stop> {
    let kind = &*target.kind;
    match form {
        None => {
            is_scale(body)?;
            decodes(body).map_err(|why| {
                Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
            })?;
            write::same_name(target, body)?;
        }
        Some(Form::Apply) => configuration(target, body)?,
        Some(_) => {}
    }
    let spec = paths(kind).spec;
    let path: Vec<&str> = spec.split('/').skip(1).collect();
    let cx = context(kind, settings, &target.subresource, &[]);
    for _ in 0..ATTEMPTS {
        let stored = server.store().get(&kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let old = value_as(kind, &stored);
        let current = of(kind, &old);
        let wanted = match form {
            None | Some(Form::Apply) => body.clone(),
            Some(Form::Json) => patch::json(&current, body)?,
            Some(_) => patch::merge(&current, body),
        };
        if matches!(form, Some(Form::Json | Form::Merge | Form::Strategic)) {
            decodes(&wanted).map_err(|why| decode::patch_flaw(&why))?;
        }
        let mut new = with_replicas((kind, target), &old, &wanted, form.is_some())?;
        if form == Some(Form::Apply) {
            patch::apply_scale(&cx, &path, &old, &mut new)?;
        } else {
            patch::track_scale(&cx, &path, &old, &mut new);
        }
        let live = Live { stored, old };
        if let Some(done) = update::replace(server, target, settings, &live, new, Tracking::Applied)? {
            let object = Shown::Value(of(kind, &done.object.value(kind)));
            return Ok(Done::new(200, object, done.warnings));
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

/// Checks the field types of a Scale.
fn decodes(scale: &Value) -> Result<(), String> {
    schema::builtin("autoscaling/v1", "Scale").map_or(Ok(()), |schema| schema::check_types(&schema, scale, "Scale"))
}

/// Validates an applied Scale.
fn configuration(target: &Target, config: &Value) -> Result<(), Status> {
    let (version, given) = (text(config, "/apiVersion"), text(config, "/kind"));
    if (version, given) != ("autoscaling/v1", "Scale") {
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        return Err(Status::bad_request(format!("invalid object type: {group}/{short}, Kind={given}")));
    }
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    if !text(config, "/metadata/name").is_empty() {
        write::same_name(target, config)?;
    }
    if let Some(schema) = schema::builtin("autoscaling/v1", "Scale") {
        patch::check_typed(&schema, config)?;
    }
    if target.kind.custom.is_some() {
        // A real server cannot apply a Scale of a custom resource either, and answers with this text.
        let (namespace, name) = (text(config, "/metadata/namespace"), text(config, "/metadata/name"));
        let text = format!(
            "failed to convert new object ({namespace}/{name}; autoscaling/v1, Kind=Scale) to proper version: request to \
             convert CR to an invalid group/version: autoscaling/v1"
        );
        return Err(Status::new(500, "", text));
    }
    Ok(())
}

/// Fails with 400 if the body names another kind.
fn is_scale(body: &Value) -> Result<(), Status> {
    let (given, api_version) = (text(body, "/kind"), text(body, "/apiVersion"));
    if given.is_empty() || given == "Scale" {
        return Ok(());
    }
    let version = api_version.rsplit('/').next().unwrap_or_default();
    Err(Status::bad_request(format!(
        "{given} in version \"{version}\" cannot be handled as a Scale: converting ({version}.{given}) to \
         (autoscaling.Scale): unknown conversion"
    )))
}

fn with_replicas(
    (kind, target): (&Kind, &Target),
    old: &Value,
    wanted: &Value,
    is_patch: bool,
) -> Result<Value, Status> {
    let given = text(wanted, "/metadata/resourceVersion");
    if !given.is_empty() && given != text(old, "/metadata/resourceVersion") {
        return Err(Status::stale(&kind.group_resource(), &target.name));
    }
    let given = wanted["spec"].get("replicas");
    if given.is_none() && is_patch && !has_number(kind, old) {
        return Err(Status::bad_request(format!("the spec replicas field {:?} cannot be empty", field(kind))));
    }
    let replicas = given.cloned().unwrap_or_else(|| 0.into());
    if replicas.as_i64().is_none_or(|n| n < 0) {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &replicas, why);
        return Err(Status::invalid("autoscaling", "Scale", &target.name, vec![cause]));
    }
    let mut new = old.clone();
    set_replicas(kind, &mut new, replicas);
    Ok(new)
}
