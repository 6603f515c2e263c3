//! Match conditions: expressions that say whether a webhook is asked about a write at all.
//!
//! Invariant: one condition that is false is enough, whatever becomes of the others; a condition that cannot be evaluated
//! counts as the failure policy of its webhook says.
//!
//! Deliberately absent: the fields of `namespaceObject`, which a real server does not tell conditions of webhooks either.

use super::{authorizer, hooks::Hook};
use crate::{
    access::Place,
    expression::{ENVIRONMENT, compile, condition::SCOPE, explain, value_of, walk},
    server::Server,
    status::Status,
    verbs::{Settings, Target, text},
};
use cel::{Context, ExecutionError, common::ast::IdedExpr};
use serde_json::{Value, json};

/// Whether all conditions of a webhook hold for a request of an AdmissionReview; 403 when that cannot be said and the
/// webhook must not be passed over.
pub(super) fn hold(
    server: &Server,
    settings: &Settings,
    hook: &Hook,
    target: &Target,
    request: &Value,
) -> Result<bool, Status> {
    let mut failures = Vec::new();
    for condition in hook.value["matchConditions"].as_array().into_iter().flatten() {
        let expression = text(condition, "/expression").trim();
        match evaluate(server, settings, target, request, expression) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => failures.push(format!("expression '{expression}' resulted in error: {why}")),
        }
    }
    if failures.is_empty() || !hook.must_answer() {
        return Ok(failures.is_empty());
    }
    let why = if let [one] = failures.as_slice() { one.clone() } else { format!("[{}]", failures.join(", ")) };
    Err(Status::forbidden(&target.kind.group_resource(), text(request, "/name"), &why))
}

fn evaluate(
    server: &Server,
    settings: &Settings,
    target: &Target,
    request: &Value,
    expression: &str,
) -> Result<bool, String> {
    let program = compile(expression, SCOPE)?;
    let mut parsed = program.expression().clone();
    walk::name_selection(&mut parsed, "authorizer", "requestResource");
    let mut rest = request.clone();
    let (object, old) = match rest.as_object_mut() {
        Some(rest) => (rest.remove("object"), rest.remove("oldObject")),
        None => (None, None),
    };
    let absent: Vec<&str> = [("object", &object), ("oldObject", &old)]
        .into_iter()
        .filter(|(_, value)| value.as_ref().is_none_or(Value::is_null))
        .map(|(name, _)| name)
        .collect();
    let mut context = Context::with_env(ENVIRONMENT.clone());
    // An absent object has no fields.
    let known = |value: Option<Value>| value_of(&value.unwrap_or_default());
    context.add_variable_from_value("object", known(object));
    context.add_variable_from_value("oldObject", known(old));
    context.add_variable_from_value("request", value_of(&rest));
    context.add_variable_from_value("namespaceObject", value_of(&json!({})));
    let place = Place::Resource {
        group: target.kind.group.clone(),
        resource: target.kind.plural.clone(),
        subresource: target.subresource.clone(),
        namespace: text(request, "/namespace").to_owned(),
        name: text(request, "/name").to_owned(),
    };
    authorizer::add(&mut context, server, &settings.user, place).map_err(|error| error.to_string())?;
    match context.resolve(&parsed) {
        Ok(cel::Value::Bool(held)) => Ok(held),
        Ok(_) => Err("no such overload".to_owned()),
        Err(error) => Err(missing(&error, &parsed, &absent).unwrap_or_else(|| explain(&error))),
    }
}

/// A real server says of a field of what is not there that it has no such key.
fn missing(error: &ExecutionError, expression: &IdedExpr, absent: &[&str]) -> Option<String> {
    match error {
        ExecutionError::NoSuchOverload(error) if error.function() == "_._" => {
            walk::selected(expression, absent).map(|field| format!("no such key: {field}"))
        }
        _ => None,
    }
}
