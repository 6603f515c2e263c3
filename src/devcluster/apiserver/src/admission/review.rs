//! AdmissionReviews: the request to a webhook and its response.

use super::{
    Response,
    hooks::{Hook, Write},
};
use crate::{
    kinds::table::Kind,
    status::Status,
    verbs::{Settings, decode::BOUNDS, text},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bounded_json::Unreadable;
use serde_json::{Map, Value, json};

/// Returns the AdmissionReview of a write, without its uid.
pub(super) fn of(settings: &Settings, hook: &Hook, write: &Write<'_>, kind: &Kind, object: Value, old: Value) -> Value {
    let accepted = hook.value["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let version = accepted.into_iter().find(|v| matches!(*v, "v1" | "v1beta1")).unwrap_or("v1");
    let request = request(settings, write, kind, object, old);
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": request})
}

/// Returns the request of an AdmissionReview, without its uid.
pub(super) fn request(settings: &Settings, write: &Write<'_>, kind: &Kind, object: Value, old: Value) -> Value {
    let target = write.target;
    let kind_of = |kind: &Kind| {
        let part = kind.subresource(&target.subresource);
        let name = part.map_or(&kind.kind, |part| &part.kind);
        let (group, version) = part
            .filter(|part| !part.version.is_empty())
            .map_or((&kind.group, &kind.version), |part| (&part.group, &part.version));
        json!({"group": group, "version": version, "kind": name})
    };
    let resource_of = |kind: &Kind| json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    let mut request = Map::new();
    let mut put = |name: &str, value: Value| {
        request.insert(name.to_owned(), value);
    };
    put("kind", kind_of(kind));
    put("resource", resource_of(kind));
    put("requestKind", kind_of(&target.kind));
    put("requestResource", resource_of(&target.kind));
    if !target.subresource.is_empty() {
        put("subResource", target.subresource.clone().into());
        put("requestSubResource", target.subresource.clone().into());
    }
    if !target.name.is_empty() && !settings.generated {
        put("name", target.name.clone().into());
    }
    if !write.namespace().is_empty() {
        put("namespace", write.namespace().into());
    }
    put("operation", write.operation.into());
    put("userInfo", settings.user.info());
    put("object", object);
    put("oldObject", old);
    put("dryRun", settings.dry_run.into());
    put("options", options(settings, write));
    Value::Object(request)
}

fn options(settings: &Settings, write: &Write<'_>) -> Value {
    let kind = match write.operation {
        "CONNECT" => return Value::Null,
        "CREATE" => "CreateOptions",
        "DELETE" => "DeleteOptions",
        _ => "UpdateOptions",
    };
    let mut options = settings.options.clone();
    options.insert("kind".to_owned(), kind.into());
    options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    Value::Object(options)
}

/// Parses a response. Errors are those of a real server.
pub(super) fn read(body: &[u8], review: &Value, mutating: bool) -> Result<Response, String> {
    let answer: Value = BOUNDS.read(body).map_err(|error| {
        let what = match error {
            Unreadable::Malformed(error) => error.to_string(),
            other => other.to_string(),
        };
        let what = what.split(" at line").next().unwrap_or_default();
        format!("failed to call webhook: couldn't get version/kind; json parse error: {what}")
    })?;
    let invalid = |why: String| Err(format!("received invalid webhook response: {why}"));
    let (wanted, given) = (text(review, "/apiVersion"), text(&answer, "/apiVersion"));
    if answer["kind"] != "AdmissionReview" || wanted != given {
        if text(&answer, "/kind").is_empty() {
            let body = "Object 'Kind' is missing in the answer";
            return Err(format!("failed to call webhook: {body}"));
        }
        let kind = text(&answer, "/kind");
        return invalid(format!(
            "expected webhook response of {wanted}, Kind=AdmissionReview, got {given}, Kind={kind}"
        ));
    }
    let response = &answer["response"];
    if !response.is_object() {
        return invalid("webhook response was absent".to_owned());
    }
    let (wanted, given) = (text(review, "/request/uid"), text(response, "/uid"));
    if wanted != given {
        return invalid(format!("expected response.uid={wanted:?}, got {given:?}"));
    }
    let (patch, kind) = (text(response, "/patch"), response["patchType"].as_str());
    match (mutating, patch.is_empty(), kind) {
        (false, false, _) => return invalid("validating webhook may not return response.patch".to_owned()),
        (false, _, Some(_)) => return invalid("validating webhook may not return response.patchType".to_owned()),
        (true, false, None) => return invalid("webhook returned response.patch but not response.patchType".to_owned()),
        (true, true, Some(_)) => {
            return invalid("webhook returned response.patchType but not response.patch".to_owned());
        }
        (true, false, Some(kind)) if kind != "JSONPatch" => return Err(format!("unsupported patch type {kind:?}")),
        _ => {}
    }
    let patch = if patch.is_empty() { None } else { Some(decode(patch)?) };
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(Response {
        allowed: response["allowed"] == true,
        status: response["status"].clone(),
        patch,
        warnings: warnings.map(ToOwned::to_owned).collect(),
    })
}

fn decode(patch: &str) -> Result<Value, String> {
    let bytes = STANDARD.decode(patch).map_err(|_| "failed to call webhook: illegal base64 data in response.patch")?;
    let patch: Value =
        BOUNDS.read(&bytes).map_err(|_| "received undecodable patch in webhook response: it is not JSON".to_owned())?;
    if patch.is_array() {
        Ok(patch)
    } else {
        Err("received undecodable patch in webhook response: it is no list".to_owned())
    }
}

/// Returns the error of a webhook's denial.
pub(super) fn denied(name: &str, given: &Value) -> Status {
    let denied = format!("admission webhook {name:?} denied the request");
    let (message, reason) = (text(given, "/message"), text(given, "/reason"));
    let message = match (message, reason) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let code =
        given["code"].as_u64().and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let mut status = Status::new(code.unwrap_or(400), reason, message);
    status.details = given["details"].as_object().cloned();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(response: Value, mutating: bool) -> Result<Response, String> {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}});
        let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        read(answer.to_string().as_bytes(), &review, mutating)
    }

    #[test]
    fn reads_what_a_webhook_says() {
        let response = check(
            json!({"uid": "u", "allowed": true, "warnings": ["w"], "patchType": "JSONPatch", "patch": STANDARD.encode("[]")}),
            true,
        );
        let response = response.unwrap();
        assert_eq!(
            (response.allowed, response.warnings, response.patch),
            (true, vec!["w".to_owned()], Some(json!([])))
        );
    }

    #[test]
    fn refuses_answers_that_are_none() {
        for (response, mutating) in [
            (json!(null), true),
            (json!({"uid": "other", "allowed": true}), true),
            (json!({"uid": "u", "allowed": true, "patch": "W10="}), true),
            (json!({"uid": "u", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"}), false),
            (json!({"uid": "u", "allowed": true, "patch": "###", "patchType": "JSONPatch"}), true),
        ] {
            assert!(check(response.clone(), mutating).is_err(), "{response}");
        }
    }

    #[test]
    fn a_refusal_without_a_code_is_a_400() {
        assert_eq!(denied("v", &json!({"code": 200})).code, 400);
        assert_eq!(denied("v", &json!({"code": 418, "message": "no"})).code, 418);
        assert_eq!(denied("v", &Value::Null).message, "admission webhook \"v\" denied the request without explanation");
    }
}
