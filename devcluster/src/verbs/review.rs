//! Questions about oneself and about access: answered at once, never stored.
//!
//! Whoever may talk to this server may do everything, so every question about access is answered with yes.
//!
//! Deliberately absent: users, roles and their evaluation.

use super::{Target, decode, text};
use crate::status::Status;
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
    body["status"] = match kind.plural.as_str() {
        "selfsubjectreviews" => json!({"userInfo": {"username": USER, "groups": GROUPS}}),
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "tokenreviews" => {
            if text(&body, "/spec/token").is_empty() {
                json!({"user": {}})
            } else {
                json!({"authenticated": true, "user": {"username": USER, "groups": GROUPS}})
            }
        }
        _ => json!({"allowed": true, "reason": "everything is allowed on a development cluster"}),
    };
    Ok(body)
}
