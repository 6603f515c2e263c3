//! `serviceaccounts/token`: answers a TokenRequest with a token.
//!
//! Not here: the format of tokens (`access::tokens`).

use super::{Settings, Target, text};
use crate::{
    access::tokens::ISSUER,
    server::{Server, stamp},
    status::{Cause, GroupResource, Status},
    store::Key,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const KIND: &str = "TokenRequest";
const GROUP: &str = "authentication.k8s.io";
/// Default lifetime of a token, in seconds.
const USUAL: i64 = 3600;
const SHORTEST: i64 = 600;
const LONGEST: i64 = 1 << 32;

/// Answers a TokenRequest; 201 on the wire.
pub fn request(server: &Server, target: &Target, settings: &Settings, body: &Value) -> Result<Value, Status> {
    head(body)?;
    let refuse = |name: &str, cause: Cause| Err(Status::invalid(GROUP, KIND, name, vec![cause]));
    for (field, wanted, what) in [("name", &target.name, "name"), ("namespace", &target.namespace, "namespace")] {
        let given = text(body, &format!("/metadata/{field}"));
        if !given.is_empty() && given != wanted {
            let why = format!("must match the service account {what} if specified");
            return refuse(&target.name, Cause::invalid(format!("metadata.{field}"), &given.into(), &why));
        }
    }
    let account = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    let given = text(body, "/metadata/uid");
    if !given.is_empty() && given != account.uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({})",
            account.uid
        );
        return Err(Status::conflict(&token_request(), &target.name, &why));
    }
    let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL);
    let field = "spec.expirationSeconds";
    if seconds < SHORTEST {
        return refuse("", Cause::invalid(field, &seconds.into(), "may not specify a duration less than 10 minutes"));
    }
    if seconds > LONGEST {
        return refuse(
            "",
            Cause::invalid(field, &seconds.into(), "may not specify a duration larger than 2^32 seconds"),
        );
    }
    let audiences: Vec<&str> =
        body["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let audiences = if audiences.is_empty() { vec![ISSUER] } else { audiences };
    let bound = &body["spec"]["boundObjectRef"];
    let mut kubernetes = json!({
        "namespace": target.namespace, "serviceaccount": {"name": target.name, "uid": account.uid},
    });
    for (field, reference) in bound_to(server, target, bound)? {
        kubernetes[field] = reference;
    }
    let now = server.now();
    let ends = now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let claims = json!({
        "aud": audiences, "exp": ends.as_second(), "iat": now.as_second(), "iss": ISSUER, "jti": settings.uid(),
        "kubernetes.io": kubernetes, "nbf": now.as_second(),
        "sub": format!("system:serviceaccount:{}:{}", target.namespace, target.name),
    });
    let token = server.signer().and_then(|signer| signer.sign(&claims));
    let token = token.ok_or_else(|| Status::internal("failed to generate token: there is no key to sign it with"))?;
    Ok(json!({
        "kind": KIND, "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": target.name, "namespace": target.namespace, "uid": account.uid, "creationTimestamp": settings.now,
        },
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": bound},
        "status": {"token": token, "expirationTimestamp": stamp(ends)},
    }))
}

fn token_request() -> GroupResource {
    GroupResource { group: GROUP.to_owned(), resource: KIND.to_owned() }
}

/// Validates that the body is a TokenRequest or names no kind.
fn head(body: &Value) -> Result<(), Status> {
    let (kind, version) = (text(body, "/kind"), text(body, "/apiVersion"));
    let fits = (kind.is_empty() || kind == KIND) && (version.is_empty() || version == "authentication.k8s.io/v1");
    if body.is_object() && fits {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {KIND}): {version}, Kind={kind}"
    )))
}

/// Returns the claims of the object that the token is bound to.
fn bound_to(server: &Server, target: &Target, bound: &Value) -> Result<Vec<(&'static str, Value)>, Status> {
    if bound.is_null() {
        return Ok(Vec::new());
    }
    let (version, kind, name) = (text(bound, "/apiVersion"), text(bound, "/kind"), text(bound, "/name"));
    let (field, storage, namespace) = match (version, kind) {
        ("v1", "Pod") => ("pod", "pods", target.namespace.as_str()),
        ("v1", "Secret") => ("secret", "secrets", target.namespace.as_str()),
        ("v1", "Node") => ("node", "nodes", ""),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let gr = GroupResource { group: String::new(), resource: storage.to_owned() };
    let stored = server.store().get(storage, &Key::new(namespace, name)).ok_or_else(|| Status::not_found(&gr, name))?;
    let given = text(bound, "/uid");
    if !given.is_empty() && given != stored.uid {
        let why = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have \
             been deleted and then recreated"
        );
        let about = GroupResource { group: String::new(), resource: kind.to_owned() };
        return Err(Status::conflict(&about, name, &why));
    }
    let reference = |name: &str, uid: &str| json!({"name": name, "uid": uid});
    let mut found = vec![(field, reference(name, &stored.uid))];
    if field == "pod" {
        let pod = stored.value();
        if text(&pod, "/spec/serviceAccountName") != target.name {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                target.name
            )));
        }
        let node = text(&pod, "/spec/nodeName");
        if !node.is_empty() {
            let uid = server.store().get("nodes", &Key::new("", node)).map(|node| node.uid.clone());
            found.push(("node", reference(node, &uid.unwrap_or_default())));
        }
    }
    Ok(found)
}
