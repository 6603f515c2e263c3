//! Match conditions: expressions that decide whether a webhook or a policy applies to a write.
//!
//! Invariant: with one false condition the webhook or policy does not apply, even if other conditions fail. The failure
//! policy decides about a condition that cannot be evaluated.
//!
//! Not here: the fields of `namespaceObject`, which conditions do not get from a real server either.

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

/// Returns whether all conditions of a webhook hold for an AdmissionReview's request. Fails with 403 if one cannot be
/// evaluated and the failure policy is not `Ignore`.
pub(super) fn hold(
    server: &Server,
    settings: &Settings,
    hook: &Hook,
    target: &Target,
    request: &Value,
) -> Result<bool, Status> {
    let namespace = json!({});
    let input = Input::new(server, settings, target, request, &namespace);
    match holds(&input, &hook.value["matchConditions"]) {
        Ok(held) => Ok(held),
        Err(_) if !hook.must_answer() => Ok(false),
        Err(why) => Err(Status::forbidden(&target.kind.group_resource(), text(request, "/name"), &why)),
    }
}

/// Returns whether all conditions hold. Fails with the errors of conditions that cannot be evaluated.
pub(super) fn holds(input: &Input<'_>, conditions: &Value) -> Result<bool, String> {
    let mut failures = Vec::new();
    for condition in conditions.as_array().into_iter().flatten() {
        let expression = text(condition, "/expression").trim();
        let held = compile(expression, SCOPE).and_then(|program| input.evaluate(program.expression()));
        match held {
            Ok(cel::Value::Bool(true)) => {}
            Ok(cel::Value::Bool(false)) => return Ok(false),
            Ok(_) => failures.push(failed(expression, "no such overload")),
            Err(why) => failures.push(failed(expression, &why)),
        }
    }
    match failures.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// Returns the message about an expression that could not be evaluated.
pub(super) fn failed(expression: &str, why: &str) -> String {
    format!("expression '{expression}' resulted in error: {why}")
}

/// The input of expressions about a write.
pub(super) struct Input<'a> {
    server: &'a Server,
    settings: &'a Settings,
    target: &'a Target,
    request: Value,
    object: Value,
    old: Value,
    namespace: &'a Value,
}

impl<'a> Input<'a> {
    /// Creates the input from an AdmissionReview's request and its namespace.
    pub(super) fn new(
        server: &'a Server,
        settings: &'a Settings,
        target: &'a Target,
        request: &Value,
        namespace: &'a Value,
    ) -> Self {
        let mut request = request.clone();
        let (object, old) = match request.as_object_mut() {
            Some(request) => (request.remove("object"), request.remove("oldObject")),
            None => (None, None),
        };
        let (object, old) = (object.unwrap_or_default(), old.unwrap_or_default());
        Self { server, settings, target, request, object, old, namespace }
    }

    /// Evaluates an expression. Errors are those of a real server.
    pub(super) fn evaluate(&self, expression: &IdedExpr) -> Result<cel::Value, String> {
        let mut parsed = expression.clone();
        walk::name_selection(&mut parsed, "authorizer", "requestResource");
        let mut context = Context::with_env(ENVIRONMENT.clone());
        // A missing object has no fields.
        context.add_variable_from_value("object", value_of(&self.object));
        context.add_variable_from_value("oldObject", value_of(&self.old));
        context.add_variable_from_value("request", value_of(&self.request));
        context.add_variable_from_value("namespaceObject", value_of(self.namespace));
        let (server, user) = (self.server, &self.settings.user);
        authorizer::add(&mut context, server, user, self.place()).map_err(|error| error.to_string())?;
        let absent: Vec<&str> = [("object", &self.object), ("oldObject", &self.old)]
            .into_iter()
            .filter(|(_, value)| value.is_null())
            .map(|(name, _)| name)
            .collect();
        let evaluated = context.resolve(&parsed);
        evaluated.map_err(|error| missing(&error, &parsed, &absent).unwrap_or_else(|| explain(&error)))
    }

    fn place(&self) -> Place {
        Place::Resource {
            group: self.target.kind.group.clone(),
            resource: self.target.kind.plural.clone(),
            subresource: self.target.subresource.clone(),
            namespace: text(&self.request, "/namespace").to_owned(),
            name: text(&self.request, "/name").to_owned(),
        }
    }
}

/// Returns a real server's message about a field of a missing object: no such key.
fn missing(error: &ExecutionError, expression: &IdedExpr, absent: &[&str]) -> Option<String> {
    match error {
        ExecutionError::NoSuchOverload(error) if error.function() == "_._" => {
            walk::selected(expression, absent).map(|field| format!("no such key: {field}"))
        }
        _ => None,
    }
}
