//! Access and token reviews, which are answered immediately and never stored.
//!
//! Without RBAC, every access review is allowed.
//!
//! Not here: the evaluation of roles (`access`).

use super::{Target, decode, text};
use crate::{
    access::{Place, Request, User, authenticate::of_other_issuer, rbac, tokens},
    server::{Server, stamp},
    status::{Cause, Status},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Returns whether a kind is a review.
pub fn is_review(plural: &str) -> bool {
    plural.ends_with("reviews")
}

/// Answers a review; 201 on the wire.
pub fn answer(server: &Server, target: &Target, user: &User, mut body: Value) -> Result<Value, Status> {
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
    if kind.plural == "selfsubjectreviews" {
        body["metadata"]["creationTimestamp"] = stamp(server.now()).into();
    }
    let status = match kind.plural.as_str() {
        "selfsubjectreviews" => json!({"userInfo": user.info()}),
        "selfsubjectrulesreviews" => rules(server, user, &body)?,
        "tokenreviews" => token(server, &body),
        "selfsubjectaccessreviews" => access(server, user, &body),
        _ => access(server, &subject(&body), &body),
    };
    if kind.plural == "selfsubjectreviews" {
        body["metadata"]["creationTimestamp"] = stamp(server.now()).into();
    }
    if kind.plural == "selfsubjectrulesreviews" {
        // The response omits the spec.
        body["spec"] = json!({});
    }
    body["status"] = status;
    Ok(body)
}

/// Returns the user of a SubjectAccessReview.
fn subject(body: &Value) -> User {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let extra: BTreeMap<String, Vec<String>> = body["spec"]["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), list(value)))
        .collect();
    User {
        name: text(body, "/spec/user").to_owned(),
        uid: text(body, "/spec/uid").to_owned(),
        groups: list(&body["spec"]["groups"]),
        extra,
    }
}

fn access(server: &Server, user: &User, body: &Value) -> Value {
    let resource = &body["spec"]["resourceAttributes"];
    let of = |attributes: &Value, field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
    let request = if resource.is_null() {
        let path = &body["spec"]["nonResourceAttributes"];
        Request { verb: of(path, "verb"), place: Place::Path(of(path, "path")) }
    } else {
        let place = Place::Resource {
            group: of(resource, "group"),
            resource: of(resource, "resource"),
            subresource: of(resource, "subresource"),
            namespace: of(resource, "namespace"),
            name: of(resource, "name"),
        };
        Request { verb: of(resource, "verb"), place }
    };
    let decision = rbac::decide(server, user, &request);
    let mut status = json!({"allowed": decision.allowed});
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    status
}

fn rules(server: &Server, user: &User, body: &Value) -> Result<Value, Status> {
    let namespace = text(body, "/spec/namespace");
    if namespace.is_empty() && server.options().rbac {
        return Err(Status::bad_request("no namespace on request"));
    }
    if !server.options().rbac {
        return Ok(json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }));
    }
    let granted = rbac::granted(server, user, namespace);
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for (_, rule) in &granted.rules {
        let (resource, path) = rule.review();
        resources.extend(resource);
        paths.extend(path);
    }
    let mut status =
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": !granted.errors.is_empty()});
    if !granted.errors.is_empty() {
        status["evaluationError"] = granted.errors.join(", ").into();
    }
    Ok(status)
}

fn token(server: &Server, body: &Value) -> Value {
    let token = text(body, "/spec/token");
    let wanted: Vec<&str> =
        body["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let wanted = if wanted.is_empty() { vec![tokens::ISSUER] } else { wanted };
    if server.knows_token(token) {
        return json!({"authenticated": true, "user": User::default().info(), "audiences": wanted});
    }
    let refused = |why: &str| json!({"user": {}, "error": why});
    match tokens::check(server, token, server.now()) {
        Ok(accepted) => {
            let common: Vec<&String> = accepted.audiences.iter().filter(|a| wanted.contains(&a.as_str())).collect();
            if common.is_empty() {
                return refused(&format!(
                    "token audiences {:?} is invalid for the target audiences {wanted:?}",
                    accepted.audiences
                ));
            }
            json!({"authenticated": true, "user": accepted.user.info(), "audiences": common})
        }
        Err(tokens::Rejected::Unknown) => match of_other_issuer(server, token) {
            Some(user) if wanted.contains(&tokens::ISSUER) => {
                json!({"authenticated": true, "user": user.info(), "audiences": [tokens::ISSUER]})
            }
            _ => refused("invalid bearer token"),
        },
        Err(tokens::Rejected::Invalid(why)) => refused(&format!("[invalid bearer token, {why}]")),
    }
}

/// Validates a review.
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
    // A real server's message has no kind and name here.
    Err(Status::invalid(&target.kind.group, "", "", causes))
}

/// Validates an access review.
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
