//! The common part of all writes: checks of path and version, defaults, validation, and the field manager.
//!
//! [`stored_by_server`] writes for the server itself, without the checks for clients.

use super::{Settings, Target, reset_paths, text};
use crate::{
    kinds::{
        hooks::{self, Finalizers, NameRule},
        table::Kind,
    },
    patch::{self, ApplyContext},
    schema,
    server::Server,
    status::{Cause, Status},
    store::{Base, Stored},
};
use serde_json::Value;
use std::{sync::Arc, time::Instant};

/// Maximum attempts to compute a write despite conflicts.
pub(crate) const ATTEMPTS: usize = 100;

/// Whether managedFields are computed here or were set by an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// The writer becomes the manager of the fields that it changed.
    Track,
    /// An apply has set the managers.
    Applied,
}

/// Fails with 400 if the body names another namespace than the path.
pub(crate) fn same_namespace(target: &Target, object: &Value) -> Result<(), Status> {
    let given = text(object, "/metadata/namespace");
    if given.is_empty() || given == target.namespace || !target.kind.namespaced {
        return Ok(());
    }
    Err(Status::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

/// Sets the defaults of a kind.
pub(crate) fn complete(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        schema::apply_defaults(&kind.schema, object);
    } else {
        hooks::default(&kind.api_version, &kind.kind, object);
    }
}

/// Validates an object by the rules of its kind.
pub(crate) fn validate(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    if kind.custom.is_some() {
        let mut causes = hooks::validate_metadata(object, old, NameRule::Subdomain, Finalizers::Any);
        causes.extend(schema::validate(&kind.schema, object, old));
        return causes;
    }
    let mut causes = hooks::validate(&kind.api_version, &kind.kind, object, old);
    if kind.kind == "CustomResourceDefinition" {
        causes.extend(schema::validate_definition(object, old));
    }
    causes
}

/// Returns the context of an apply for `patch`.
pub(crate) fn context<'a>(
    kind: &'a Kind,
    settings: &'a Settings,
    subresource: &'a str,
    reset: &'a [&'static [&'static str]],
) -> ApplyContext<'a> {
    ApplyContext {
        schema: &kind.schema,
        api_version: &kind.api_version,
        manager: &settings.manager,
        subresource,
        force: settings.force,
        now: &settings.now,
        reset,
    }
}

/// Fails with 400 if the body names another object than the path.
pub(crate) fn same_name(target: &Target, object: &Value) -> Result<(), Status> {
    let given = text(object, "/metadata/name");
    if given == target.name {
        return Ok(());
    }
    let text = if given.is_empty() {
        format!("the name of the object ({} based on URL) was undeterminable: name must be provided", target.name)
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({})", target.name)
    };
    Err(Status::bad_request(text))
}

/// The part of an object that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The whole object.
    Whole,
    /// A patch.
    Part,
}

/// Fails with 409 if the object names a different resource version than the live object has.
pub(crate) fn same_version(target: &Target, old: &Value, new: &Value, sent: Sent) -> Result<(), Status> {
    let given = text(new, "/metadata/resourceVersion");
    if given.is_empty() || given == "0" {
        if sent == Sent::Whole && target.subresource != "finalize" && needs_version(&target.kind) {
            let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            // A real server puts the resource in place of the kind.
            return Err(Status::invalid(&target.kind.group, &target.kind.plural, &target.name, vec![cause]));
        }
        return Ok(());
    }
    if given == text(old, "/metadata/resourceVersion") {
        return Ok(());
    }
    if given.parse::<u64>().is_err() {
        return Err(Status::new(500, "", format!("strconv.ParseUint: parsing \"{given}\": invalid syntax")));
    }
    Err(Status::stale(&target.kind.group_resource(), &target.name))
}

/// Returns whether an update of this kind must name a resource version.
fn needs_version(kind: &Kind) -> bool {
    kind.custom.is_some()
        || matches!(
            kind.kind.as_str(),
            "CustomResourceDefinition"
                | "Lease"
                | "PodDisruptionBudget"
                | "MutatingWebhookConfiguration"
                | "ValidatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "RuntimeClass"
        )
}

/// The live object that a write is based on.
pub(crate) struct Live {
    /// The object as stored.
    pub(crate) stored: Arc<Stored>,
    /// The object in the version of the request.
    pub(crate) old: Arc<Value>,
}

/// Writes the status of an object for the server itself; false on a conflicting write.
pub(crate) fn stored_by_server(server: &Server, target: &Target, now: &str, live: &Stored, mut new: Value) -> bool {
    let kind = &*target.kind;
    let settings = Settings { manager: "kube-apiserver".to_owned(), now: now.to_owned(), ..Settings::default() };
    let reset = reset_paths(kind, "status");
    patch::track(&context(kind, &settings, "status", &reset), Some(&live.value()), &mut new);
    let names = (kind.storage_api_version.as_str(), kind.kind.as_str());
    server.store().put(&kind.storage, names, &target.key(), Base::Version(live.rv), new, Instant::now()).is_ok()
}
