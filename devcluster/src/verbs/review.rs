//! Questions about oneself and about access: answered at once, never stored.
//!
//! Whoever may talk to this server may do everything, so every question about access is answered with yes.
//!
//! Deliberately absent: users, roles and their evaluation.

use super::{Target, decode, text};
use crate::status::{Cause, Status};
use serde_json::{Value, json};

/// The user that everyone is.
pub const USER: &str = "admin";
/// The groups of the user.
const GROUPS: [&str; 2] = ["system:masters", "system:authenticated"];

/// Whether a kind is a question.
pub fn is_review(plural: &str) -> bool {
    plural.ends_with("reviews")
}

/// Answers a question; 201 on the wire.
pub fn answer(target: &Target, mut body: Value) -> Result<Value, Status> {
    let kind = &target.kind;
    if !body.is_object() {
        return Err(decode::unsupported("application/json, application/yaml"));
    }
    body["kind"] = kind.kind.clone().into();
    body["apiVersion"] = kind.api_version.clone().into();
    if !body["metadata"].is_object() {
        body["metadata"] = json!({});
    }
    check(target, &body)?;
    body["status"] = match kind.plural.as_str() {
        "selfsubjectreviews" => json!({"userInfo": {"username": USER, "groups": GROUPS}}),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "tokenreviews" => {
            // Only the credentials of this server are known, and those are compared before anyone can ask.
            json!({"user": {}, "error": "invalid bearer token"})
        }
        _ => json!({"allowed": true, "reason": "everything is allowed on a development cluster"}),
    };
    Ok(body)
}

/// Refuses a question that cannot be answered.
fn check(target: &Target, body: &Value) -> Result<(), Status> {
    let plural = target.kind.plural.as_str();
    if plural == "tokenreviews" && text(body, "/spec/token").is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    if !plural.ends_with("accessreviews") {
        return Ok(());
    }
    let causes = access_causes(target, body);
    if causes.is_empty() {
        return Ok(());
    }
    // A real server does not know the kind any more when it says this.
    Err(Status::invalid(&target.kind.group, "", "", causes))
}

/// Why a question about access is refused.
fn access_causes(target: &Target, body: &Value) -> Vec<Cause> {
    let spec = &body["spec"];
    let (resource, other) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let mut causes = Vec::new();
    if !resource.is_null() && !other.is_null() {
        let why = "cannot be specified in combination with resourceAttributes";
        causes.push(Cause::invalid("spec.nonResourceAttributes", other, why));
    }
    if resource.is_null() && other.is_null() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, why));
    }
    let plural = target.kind.plural.as_str();
    let groups = spec["groups"].as_array().is_some_and(|groups| !groups.is_empty());
    if plural != "selfsubjectaccessreviews" && text(body, "/spec/user").is_empty() && !groups {
        causes.push(Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    if plural == "localsubjectaccessreviews" {
        let namespace = text(body, "/spec/resourceAttributes/namespace");
        if !resource.is_null() && namespace != target.namespace {
            let why = "must match metadata.namespace";
            causes.push(Cause::invalid("spec.resourceAttributes.namespace", &namespace.into(), why));
        }
        if !other.is_null() {
            let why = "disallowed on this kind of request";
            causes.push(Cause::invalid("spec.nonResourceAttributes", other, why));
        }
    }
    causes
}
