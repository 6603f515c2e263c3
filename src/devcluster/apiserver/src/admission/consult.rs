//! Applies the responses of webhooks and the decisions of policies to a write.

use super::{
    Answer, Digest, Response, Stop, WebhookCall, conditions,
    hooks::{self, Hook, Write, as_seen},
    policies, review,
};
use crate::{
    kinds::table::Kind,
    patch, pod_security,
    server::Server,
    status::{Cause, Status},
    verbs::Settings,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// Lets the mutating webhooks change a write. Returns whether the object changed. A deletion has no object.
pub(crate) fn mutate(
    server: &Server,
    settings: &Settings,
    write: &Write<'_>,
    mut object: Option<&mut Value>,
) -> Result<bool, Stop> {
    if !settings.admit {
        return Ok(false);
    }
    let hooks = hooks::all(server, true);
    let (mut changed, mut again, mut before) = (false, BTreeSet::new(), Vec::new());
    for round in 0..2 {
        for (index, hook) in hooks.iter().enumerate() {
            if round == 1 && !again.contains(&index) {
                continue;
            }
            let Some(kind) = hooks::concerned(server, hook, write, object.as_deref())? else { continue };
            let webhook_call = webhook_call(settings, hook, round, write, &kind, object.as_deref());
            if !conditions::hold(server, settings, hook, write.target, &webhook_call.review["request"])? {
                continue;
            }
            let Some(answer) = settings.answers.get(&webhook_call.digest) else {
                return Err(Stop::Ask(vec![webhook_call]));
            };
            let patch = judge(hook, answer)?.and_then(|response| response.patch);
            if let Some(patch) = patch.filter(|patch| patch.as_array().is_some_and(|p| !p.is_empty())) {
                let Some(object) = object.as_deref_mut() else {
                    let why = "attempted to modify the object, which is not supported for this operation";
                    return Err(Stop::Refused(internal(&format!("admission webhook {:?} {why}", hook.name))));
                };
                if apply(write, &kind, object, &patch)? {
                    changed = true;
                    again.extend(before.drain(..));
                }
            }
            if hook.is_reinvoked() {
                before.push(index);
            }
        }
    }
    Ok(changed)
}

/// Validates a write by Pod Security, then by policies, then by validating webhooks.
pub(crate) fn validate(
    server: &Server,
    settings: &Settings,
    write: &Write<'_>,
    object: Option<&Value>,
) -> Result<(), Stop> {
    pod_security::judge(server, settings, write, object)?;
    if !settings.admit {
        return Ok(());
    }
    policies::judge(server, settings, write, object)?;
    let mut asked = Vec::new();
    for hook in hooks::all(server, false) {
        if let Some(kind) = hooks::concerned(server, &hook, write, object)? {
            let webhook_call = webhook_call(settings, &hook, 0, write, &kind, object);
            if conditions::hold(server, settings, &hook, write.target, &webhook_call.review["request"])? {
                asked.push((hook, webhook_call));
            }
        }
    }
    let open: Vec<WebhookCall> =
        asked.iter().filter(|(_, q)| !settings.answers.contains_key(&q.digest)).map(|(_, q)| q.clone()).collect();
    if !open.is_empty() {
        return Err(Stop::Ask(open));
    }
    for (hook, webhook_call) in &asked {
        if let Some(answer) = settings.answers.get(&webhook_call.digest) {
            judge(hook, answer)?;
        }
    }
    Ok(())
}

/// Returns a webhook's response; `None` if a failure is ignored. Fails if the webhook denies the write.
fn judge(hook: &Hook, answer: &Answer) -> Result<Option<Response>, Status> {
    match answer {
        Ok(response) if response.allowed => Ok(Some(response.clone())),
        Ok(response) => Err(review::denied(&hook.name, &response.status)),
        Err(_) if !hook.must_answer() => Ok(None),
        Err(why) => Err(internal(&format!("failed calling webhook {:?}: {why}", hook.name))),
    }
}

/// Returns a 500 in the words of a real server.
pub(super) fn internal(why: &str) -> Status {
    Status::internal(format!("Internal error occurred: {why}")).because(Cause::new("", "", why))
}

fn webhook_call(
    settings: &Settings,
    hook: &Hook,
    round: u8,
    write: &Write<'_>,
    kind: &Kind,
    object: Option<&Value>,
) -> WebhookCall {
    let seen = |object: Option<&Value>| object.map_or(Value::Null, |object| as_seen(write, kind, object));
    let (object, old) = (seen(object), seen(write.old));
    let review = review::of(settings, hook, write, kind, object, old);
    WebhookCall {
        digest: digest(hook, round, &review),
        client: hook.value["clientConfig"].clone(),
        mutating: hook.mutating,
        timeout: hook.value["timeoutSeconds"].as_u64().unwrap_or(10).clamp(1, 30),
        review,
    }
}

/// Returns the identity of a review within one request.
///
/// Addresses allocated by the server are excluded, because they may differ when the write is computed again.
fn digest(hook: &Hook, round: u8, review: &Value) -> Digest {
    let mut review = review.clone();
    if review["request"]["kind"]["kind"] == "Service"
        && let Some(spec) = review.pointer_mut("/request/object/spec").and_then(Value::as_object_mut)
    {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port["nodePort"] = Value::Null;
        }
    }
    let identity = json!([hook.configuration.0, hook.configuration.1, hook.name, hook.mutating, round]);
    Sha256::digest(format!("{identity}{review}")).into()
}

/// Applies a webhook's patch. Returns whether the object changed.
fn apply(write: &Write<'_>, kind: &Kind, object: &mut Value, wanted: &Value) -> Result<bool, Status> {
    let seen = as_seen(write, kind, object);
    let new = patch::json(&seen, wanted).map_err(|status| internal(&status.message))?;
    if new == seen {
        return Ok(false);
    }
    if !new.is_object() || seen["metadata"].is_object() && !new["metadata"].is_object() {
        return Err(internal("the patched object is none"));
    }
    if write.target.subresource == "scale" {
        let replicas = new["spec"]["replicas"].as_i64().unwrap_or(0);
        crate::kinds::scale::set_replicas(&write.target.kind, object, replicas.into());
    } else if kind.api_version == write.target.kind.api_version {
        *object = new;
    } else {
        *object = kind.converted(&new, &kind.api_version, &write.target.kind.api_version);
    }
    Ok(true)
}
