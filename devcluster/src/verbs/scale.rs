//! The `scale` subresource: replicas of a workload, seen and written as an `autoscaling/v1` Scale.
//!
//! Deliberately absent: server-side apply of a Scale, which no client here sends.

use super::{
    Done, Settings, Shown, Target,
    create::{Tracking, context},
    patch::Form,
    text,
    update::{self, ATTEMPTS, Live},
    value_as,
};
use crate::{
    admission::Stop,
    kinds::table::{Kind, ScalePaths},
    patch,
    server::Server,
    status::{Cause, Status},
};
use serde_json::{Value, json};

fn paths(kind: &Kind) -> ScalePaths {
    kind.custom.as_ref().and_then(|c| c.scale.clone()).unwrap_or_else(|| ScalePaths {
        spec: "/spec/replicas".to_owned(),
        status: "/status/replicas".to_owned(),
        selector: None,
    })
}

/// The Scale of an object.
pub fn of(kind: &Kind, object: &Value) -> Value {
    let paths = paths(kind);
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let mut status = json!({"replicas": number(&paths.status)});
    let selector = match &paths.selector {
        Some(pointer) => text(object, pointer).to_owned(),
        None => selector_text(&object["spec"]["selector"]),
    };
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    // A wanted zero is left out, a counted one is not.
    let spec = match number(&paths.spec) {
        0 => json!({}),
        wanted => json!({"replicas": wanted}),
    };
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status})
}

/// A label selector in its text form.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").or(Some(selector)).and_then(Value::as_object);
    let mut terms: Vec<String> =
        labels.into_iter().flatten().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let name = text(expression, "/key");
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match text(expression, "/operator") {
            "In" => terms.push(format!("{name} in ({})", values.join(","))),
            "NotIn" => terms.push(format!("{name} notin ({})", values.join(","))),
            "Exists" => terms.push(name.to_owned()),
            _ => terms.push(format!("!{name}")),
        }
    }
    terms.join(",")
}

/// Reads a Scale.
pub fn get(server: &Server, target: &Target) -> Result<Value, Status> {
    let stored = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    Ok(of(&target.kind, &value_as(&target.kind, &stored)))
}

/// Writes a Scale: the whole one, or a patch of it.
pub fn write(
    server: &Server,
    target: &Target,
    settings: &Settings,
    form: Option<Form>,
    body: &Value,
) -> Result<Done, Stop> {
    let kind = &*target.kind;
    if form.is_none() {
        is_scale(body)?;
        update::same_name(target, body)?;
    }
    for _ in 0..ATTEMPTS {
        let stored = server.store().get(&kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let old = value_as(kind, &stored);
        let current = of(kind, &old);
        let wanted = match form {
            None => body.clone(),
            Some(Form::Json) => patch::json(&current, body)?,
            Some(_) => patch::merge(&current, body),
        };
        let mut new = with_replicas(kind, target, &old, &wanted)?;
        let spec = paths(kind).spec;
        let path: Vec<&str> = spec.split('/').skip(1).collect();
        patch::track_scale(&context(kind, settings, &target.subresource, &[]), &path, &old, &mut new);
        let live = Live { stored, old };
        if let Some(done) = update::replace(server, target, settings, &live, new, Tracking::Applied)? {
            let object = Shown::Value(of(kind, &done.object.value(kind)));
            return Ok(Done::new(200, object, done.warnings));
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

/// 400 for a body that says that it is something else.
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

fn with_replicas(kind: &Kind, target: &Target, old: &Value, wanted: &Value) -> Result<Value, Status> {
    let given = text(wanted, "/metadata/resourceVersion");
    if !given.is_empty() && given != text(old, "/metadata/resourceVersion") {
        return Err(Status::stale(&kind.group_resource(), &target.name));
    }
    let replicas = wanted["spec"].get("replicas").cloned().unwrap_or_else(|| 0.into());
    if replicas.as_i64().is_none_or(|n| n < 0) {
        let why = "must be greater than or equal to 0";
        let cause = Cause::invalid("spec.replicas", &replicas, why);
        return Err(Status::invalid("autoscaling", "Scale", &target.name, vec![cause]));
    }
    let mut new = old.clone();
    set_replicas(kind, &mut new, replicas);
    Ok(new)
}

/// Makes the wanted replicas of an object so many.
pub(crate) fn set_replicas(kind: &Kind, object: &mut Value, replicas: Value) {
    let mut at = object;
    for part in paths(kind).spec.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = replicas;
}
