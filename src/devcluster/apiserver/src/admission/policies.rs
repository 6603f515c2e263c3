//! ValidatingAdmissionPolicies: expressions that refuse a write or cause a warning, as their bindings say.
//!
//! Invariant: policies see the object as it would be stored, before any validating webhook is called.
//! Invariant: a policy that cannot be evaluated counts as violated, unless its failure policy is `Ignore`.
//!
//! Not here: parameters (a policy with `paramKind` counts as one that cannot be evaluated), audit annotations (there is
//! no audit log), and the type check by a controller after a policy was written.

use super::{
    conditions::{Input, failed, holds},
    hooks::{Criteria, GROUP, Write, as_seen, selected},
    review,
};
use crate::{
    expression::policy::{Composed, Composition},
    kinds::table::Kind,
    server::Server,
    status::{Cause, GroupResource, Status},
    store::Key,
    verbs::{Settings, text},
};
use serde_json::{Value, json};

/// Maximum length of an expression's message, in bytes.
const LONGEST: usize = 5 * 1024;

fn storage(plural: &str) -> String {
    format!("{plural}.{GROUP}")
}

/// Returns whether there is any policy.
pub(crate) fn any(server: &Server) -> bool {
    server.store().count(&storage("validatingadmissionpolicies")) > 0
}

/// Returns the policies or the bindings, ordered by name.
fn all(server: &Server, plural: &str) -> Vec<Value> {
    let snapshot = server.store().snapshot(&storage(plural));
    snapshot.from(None, None).map(|(_, stored)| (*stored.value()).clone()).collect()
}

/// The violation of a policy.
struct Decision {
    message: String,
    reason: String,
    cannot_be_evaluated: bool,
}

impl Decision {
    fn error(message: String) -> Self {
        Self { message, reason: String::new(), cannot_be_evaluated: true }
    }
}

/// Validates a write by all policies. Fails with the first denial, and adds warnings to the settings.
pub(super) fn judge(
    server: &Server,
    settings: &Settings,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<(), Status> {
    let mut refused = None;
    let bindings = all(server, "validatingadmissionpolicybindings");
    for policy in all(server, "validatingadmissionpolicies") {
        let name = text(&policy, "/metadata/name");
        let spec = &policy["spec"];
        let must_be_evaluated = spec["failurePolicy"] != "Ignore";
        let mut refuse = |binding: Option<&str>, decision: Decision| {
            let by = binding.map_or_else(String::new, |binding| format!(" with binding '{binding}'"));
            let message = format!("ValidatingAdmissionPolicy '{name}'{by} denied request: {}", decision.message);
            refused.get_or_insert((message, decision.reason));
        };
        let constraints = &spec["matchConstraints"];
        let kind = match meets(server, constraints, write, object) {
            Ok(Some(kind)) => kind,
            Ok(None) => continue,
            Err(why) => {
                if must_be_evaluated {
                    refuse(None, Decision::error(format!("failed to configure policy: {}", why.message)));
                }
                continue;
            }
        };
        for binding in bindings.iter().filter(|binding| text(binding, "/spec/policyName") == name) {
            let bound = text(binding, "/metadata/name");
            let resources = &binding["spec"]["matchResources"];
            if !resources.is_null() && meets(server, resources, write, object)?.is_none() {
                continue;
            }
            for decision in decisions(server, settings, write, object, &kind, spec)? {
                if decision.cannot_be_evaluated && !must_be_evaluated {
                    continue;
                }
                let actions = || binding["spec"]["validationActions"].as_array().into_iter().flatten();
                if actions().any(|action| action == "Warn") {
                    warn(settings, name, bound, &decision.message);
                }
                if actions().any(|action| action == "Deny") {
                    refuse(Some(bound), decision);
                }
            }
        }
    }
    match refused {
        Some((message, reason)) => Err(refusal(write, object, message, &reason)),
        None => Ok(()),
    }
}

/// Returns the kind at the version in which a write matches a policy or binding; `None` if it does not match.
fn meets(
    server: &Server,
    about: &Value,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<Option<std::sync::Arc<Kind>>, Status> {
    let everything = json!([{
        "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"],
    }]);
    let rules = &about["resourceRules"];
    let rules = if rules.as_array().is_none_or(Vec::is_empty) { &everything } else { rules };
    let criteria = Criteria { selectors: about, rules, excluded: &about["excludeResourceRules"] };
    selected(server, criteria, write, object)
}

fn warn(settings: &Settings, policy: &str, binding: &str, message: &str) {
    let text =
        format!("Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}");
    settings.warn(text);
}

/// Returns the error of a denial, with the text and code of a real server.
fn refusal(write: &Write<'_>, object: Option<&Value>, message: String, reason: &str) -> Status {
    let target = write.target;
    let given = object.map(|object| text(object, "/metadata/name")).unwrap_or_default();
    let name = if target.name.is_empty() { given } else { &target.name };
    let mut status = Status::forbidden(&target.kind.group_resource(), name, &message);
    let (code, reason) = match reason {
        "Forbidden" => (403, reason),
        "RequestEntityTooLarge" => (413, reason),
        _ => (422, "Invalid"),
    };
    status.code = code;
    reason.clone_into(&mut status.reason);
    status.because(Cause::new("", "", message))
}

/// Returns the violations of a policy by a write.
fn decisions(
    server: &Server,
    settings: &Settings,
    write: &Write<'_>,
    object: Option<&Value>,
    kind: &Kind,
    spec: &Value,
) -> Result<Vec<Decision>, Status> {
    if !spec["paramKind"].is_null() {
        let why = "failed to configure binding: this server has no parameters of policies";
        return Ok(vec![Decision::error(why.to_owned())]);
    }
    let seen = |object: Option<&Value>| object.map_or(Value::Null, |object| as_seen(write, kind, object));
    let request = review::request(settings, write, kind, seen(object), seen(write.old));
    let without_namespace = json!({});
    let input = Input::new(server, settings, write.target, &request, &without_namespace);
    match holds(&input, &spec["matchConditions"]) {
        Ok(true) => {}
        Ok(false) => return Ok(Vec::new()),
        Err(why) => return Ok(vec![Decision::error(why)]),
    }
    let namespace = namespace_of(server, write)?;
    let input = Input::new(server, settings, write.target, &request, &namespace);
    let composition = Composition::of(spec);
    let validations = spec["validations"].as_array().into_iter().flatten();
    Ok(validations.filter_map(|validation| against(&input, &composition, validation)).collect())
}

/// Returns the violation of one validation.
fn against(input: &Input<'_>, composition: &Composition, validation: &Value) -> Option<Decision> {
    let expression = text(validation, "/expression");
    match evaluate(input, composition, expression) {
        Ok(cel::Value::Bool(true)) => return None,
        Ok(_) => {}
        Err(why) => return Some(Decision::error(failed(expression, &why))),
    }
    let worded = Some(text(validation, "/messageExpression")).filter(|expression| !expression.trim().is_empty());
    let worded = worded.and_then(|expression| match evaluate(input, composition, expression) {
        Ok(cel::Value::String(message)) => Some(message.trim().to_owned()),
        _ => None,
    });
    let worded = worded.filter(|message| message.len() <= LONGEST && !message.contains('\n'));
    let given = text(validation, "/message").trim().to_owned();
    let failed = format!("failed expression: {}", expression.trim());
    let message = worded.into_iter().chain([given, failed]).find(|message| !message.is_empty()).unwrap_or_default();
    Some(Decision { message, reason: text(validation, "/reason").to_owned(), cannot_be_evaluated: false })
}

/// Evaluates an expression with variables. An error caused by a variable names the variable.
fn evaluate(input: &Input<'_>, composition: &Composition, expression: &str) -> Result<cel::Value, String> {
    let Composed { expression, variables } = composition.compile(expression)?;
    input.evaluate(&expression).map_err(|why| {
        let failed = variables.iter().find(|(_, variable)| input.evaluate(variable).err().as_ref() == Some(&why));
        match failed {
            Some((name, _)) => format!("composited variable \"{name}\" fails to evaluate: {why}"),
            None => why,
        }
    })
}

/// Returns `namespaceObject` for expressions; null for objects without a namespace.
fn namespace_of(server: &Server, write: &Write<'_>) -> Result<Value, Status> {
    let name = &write.target.namespace;
    if name.is_empty() || &*write.target.kind.storage == "namespaces" {
        return Ok(Value::Null);
    }
    let Some(stored) = server.store().get("namespaces", &Key::new("", name)) else {
        let namespaces = GroupResource { group: String::new(), resource: "namespaces".to_owned() };
        return Err(Status::not_found(&namespaces, name));
    };
    let stored = stored.value();
    let mut metadata = stored["metadata"].clone();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.retain(|field, _| !matches!(field.as_str(), "managedFields" | "ownerReferences"));
    }
    Ok(json!({"metadata": metadata, "spec": stored["spec"], "status": stored["status"]}))
}
