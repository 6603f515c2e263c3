//! PUT of an object or its status, and the storing half of every patch.
//!
//! Invariant: a state that equals the live one is not written: no new resource version, no event.
//! Invariant: removing the last finalizer of a terminating object removes the object.
//!
//! Not here: the computation of the new state (`patch`, `scale`).

use super::{
    Done, Settings, Shown, Target, create, decode, fits, metadata, reset_paths, text, to_storage, value_as,
    wants_rewriting,
    write::{self, ATTEMPTS, Live, Sent, Tracking, complete, context, same_name, same_version},
};
use crate::{
    access::escalation,
    addresses::Reservation,
    admission::{Stop, consult, hooks::Write},
    kinds::{hooks, table::Kind},
    patch, quota, registration,
    server::Server,
    status::{Cause, Status},
    store::Base,
};
use serde_json::Value;
use std::time::Instant;

/// Replaces an object, or its status.
pub fn update(server: &Server, target: &Target, settings: &Settings, mut body: Value) -> Result<Done, Stop> {
    let kind = &*target.kind;
    let warnings = decode::object(kind, &mut body, settings, decode::Origin::Body)?;
    same_name(target, &body)?;
    write::same_namespace(target, &body)?;
    for _ in 0..ATTEMPTS {
        let Some(live) = server.store().get(&kind.storage, &target.key()) else {
            return absent(server, target, settings, body);
        };
        let old = value_as(kind, &live);
        same_uid(target, &old, &body)?;
        same_version(target, &old, &body, Sent::Whole)?;
        let done = replace(server, target, settings, &Live { stored: live, old }, body.clone(), Tracking::Track)?;
        if let Some(mut done) = done {
            done.warnings.splice(0..0, warnings);
            return Ok(done);
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

fn absent(server: &Server, target: &Target, settings: &Settings, mut body: Value) -> Result<Done, Stop> {
    if !target.subresource.is_empty() || !creates_on_update(&target.kind) {
        return Err(target.not_found().into());
    }
    if !text(&body, "/metadata/uid").is_empty() {
        let why = format!(
            "uid mismatch: the provided object specified uid {}, and no existing object was found",
            text(&body, "/metadata/uid")
        );
        return Err(Status::conflict(&target.kind.group_resource(), &target.name, &why).into());
    }
    metadata::of(&mut body).remove("resourceVersion");
    create::insert(server, target, settings, body, Tracking::Track)
}

pub(crate) fn creates_on_update(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.plural.as_str()),
        ("", "services" | "endpoints" | "events" | "limitranges")
            | ("events.k8s.io", "events")
            | ("coordination.k8s.io", "leases")
            | ("rbac.authorization.k8s.io", _)
    )
}

fn same_uid(target: &Target, old: &Value, new: &Value) -> Result<(), Status> {
    let (given, live) = (text(new, "/metadata/uid"), text(old, "/metadata/uid"));
    if given.is_empty() || given == live {
        return Ok(());
    }
    let why = failed_precondition(target, "UID", given, live);
    Err(Status::conflict(&target.kind.group_resource(), &target.name, &why))
}

/// Returns the message of a real server's storage about a failed precondition.
pub(crate) fn failed_precondition(target: &Target, what: &str, given: &str, live: &str) -> String {
    format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} \
         in precondition: {given}, {what} in object meta: {live}",
        storage_key(target)
    )
}

/// Returns the key of an object in a real server's storage, which some errors contain.
fn storage_key(target: &Target) -> String {
    let kind = &target.kind;
    let folder = match (kind.custom.is_some(), kind.group.as_str(), kind.plural.as_str()) {
        (true, group, plural) => format!("{group}/{plural}"),
        (false, "", "services") => "services/specs".to_owned(),
        (false, "", "endpoints") => "services/endpoints".to_owned(),
        (false, "", "nodes") => "minions".to_owned(),
        (false, "", "replicationcontrollers") => "controllers".to_owned(),
        (false, "apiextensions.k8s.io", plural) => format!("apiextensions.k8s.io/{plural}"),
        (false, "networking.k8s.io", "ingresses") => "ingress".to_owned(),
        (false, _, plural) => plural.to_owned(),
    };
    let namespace = if target.namespace.is_empty() { String::new() } else { format!("/{}", target.namespace) };
    format!("/registry/{folder}{namespace}/{}", target.name)
}

/// Stores a decoded new state of an object; `None` on a conflicting write.
pub(crate) fn replace(
    server: &Server,
    target: &Target,
    settings: &Settings,
    live: &Live,
    mut new: Value,
    tracking: Tracking,
) -> Result<Option<Done>, Stop> {
    let (kind, old) = (&*target.kind, &*live.old);
    let marked = metadata::marked_by_client(old, &new);
    metadata::keep(old, &mut new);
    if tracking == Tracking::Track {
        metadata::keep_managers(old, &mut new);
    }
    complete(kind, &mut new);
    if tracking == Tracking::Track {
        let reset = reset_paths(kind, &target.subresource);
        patch::track(&context(kind, settings, &target.subresource, &reset), Some(old), &mut new);
    }
    let write = Write { target, operation: "UPDATE", old: Some(old) };
    change(server, settings, &write, old, &mut new)?;
    let mut reservation = Reservation::new(server.addresses());
    let mut causes = prepare(target, old, &mut new, &mut reservation);
    causes.extend(marked);
    if matches!(target.subresource.as_str(), "" | "scale" | "ephemeralcontainers" | "resize") && counts(kind, old, &new)
    {
        metadata::next_generation(&mut new);
    }
    if causes.is_empty() && patch::equal_but_times(old, &new) && !wants_rewriting(kind, &live.stored) {
        let as_stored = kind.shows_as_stored(&live.stored);
        let shown = if as_stored { Shown::Stored(live.stored.clone()) } else { Shown::Value(old.clone()) };
        if !ends(old, &new) {
            consult::validate(server, settings, &write, Some(&new))?;
            return Ok(Some(Done::new(200, shown, Vec::new())));
        }
    }
    let part = hooks::validate_part(&target.subresource, old, &new);
    causes.extend(part.unwrap_or_else(|| write::validate(kind, &new, Some(old))));
    if !causes.is_empty() {
        return Err(Status::invalid(&kind.group, &kind.kind, &target.name, causes).into());
    }
    if target.subresource.is_empty() {
        escalation::check(server, &settings.user, target, Some(old), &new)?;
    }
    consult::validate(server, settings, &write, Some(&new))?;
    fits(&new)?;
    let charges = quota::decide(server, target, Some(old), &new)?;
    if settings.dry_run {
        return Ok(Some(Done::new(200, Shown::Value(new), Vec::new())));
    }
    quota::charge(server, target, Some(old), &new, settings, &charges)?;
    if ends(old, &new) {
        let gone = remove(server, target, live);
        return Ok(gone.then(|| Done::new(200, Shown::Value(new), Vec::new())));
    }
    let definition = registration::prepare_changed(kind, &mut new);
    let (before, after) = (held(kind, old), held(kind, &new));
    let names = (kind.storage_api_version.as_str(), kind.kind.as_str());
    let new = to_storage(kind, new);
    let key = target.key();
    let base = Base::Version(live.stored.rv);
    let Ok(stored) = server.store().put(&kind.storage, names, &key, base, new, Instant::now()) else {
        return Ok(None);
    };
    reservation.keep();
    release_difference(server, before, &after);
    definition.finish(server, &key);
    Ok(Some(Done::new(200, Shown::Stored(stored), Vec::new())))
}

/// Calls mutating webhooks for the new state of an object.
fn change(server: &Server, settings: &Settings, write: &Write<'_>, old: &Value, new: &mut Value) -> Result<(), Stop> {
    if !settings.admit {
        return Ok(());
    }
    let kind = &write.target.kind;
    let mut seen = new.clone();
    if consult::mutate(server, settings, write, Some(&mut seen))? {
        decode::changed(kind, settings, new, &mut seen)?;
        *new = seen;
        metadata::keep(old, new);
        complete(kind, new);
    }
    Ok(())
}

fn held(kind: &Kind, object: &Value) -> hooks::Held {
    hooks::held(&kind.api_version, &kind.kind, object)
}

fn release_difference(server: &Server, mut before: hooks::Held, after: &hooks::Held) {
    before.cluster_ips.retain(|ip| !after.cluster_ips.contains(ip));
    before.node_ports.retain(|port| !after.node_ports.contains(port));
    if before != hooks::Held::default() {
        server.addresses().lock().release(&before);
    }
}

/// Removes the live object from the store, releases its allocations and updates the type table. Returns false on a
/// conflicting write.
pub(crate) fn remove(server: &Server, target: &Target, live: &Live) -> bool {
    let kind = &*target.kind;
    if server.store().remove(&kind.storage, &target.key(), live.stored.rv, Instant::now()).is_err() {
        return false;
    }
    release_difference(server, held(kind, &live.old), &hooks::Held::default());
    registration::removed(server, kind, &target.name);
    true
}

/// Restores the fields that the endpoint and the kind keep from the live object.
fn prepare(target: &Target, old: &Value, new: &mut Value, reservation: &mut Reservation<'_>) -> Vec<Cause> {
    let kind = &*target.kind;
    match (target.subresource.as_str(), kind.custom.is_some()) {
        ("status", true) => {
            let mut kept = old.clone();
            copy(new, &mut kept, "status");
            if let Some(fields) = new["metadata"].get("managedFields") {
                metadata::of(&mut kept).insert("managedFields".to_owned(), fields.clone());
            } else {
                metadata::of(&mut kept).remove("managedFields");
            }
            *new = kept;
            Vec::new()
        }
        ("status", false) => {
            hooks::prepare_status_update(&kind.api_version, &kind.kind, old, new);
            Vec::new()
        }
        ("binding", _) => Vec::new(),
        ("ephemeralcontainers" | "resize", _) => {
            hooks::prepare_part(&target.subresource, old, new);
            Vec::new()
        }
        ("finalize", _) => {
            let finalizers = new["spec"].get("finalizers").cloned();
            let managed = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            if let Some(spec) = new["spec"].as_object_mut() {
                match finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers),
                    None => spec.remove("finalizers"),
                };
            }
            if let Some(managed) = managed {
                metadata::of(new).insert("managedFields".to_owned(), managed);
            }
            Vec::new()
        }
        (_, true) => {
            if kind.has_status() {
                copy(old, new, "status");
            }
            Vec::new()
        }
        (_, false) => hooks::prepare_update(&kind.api_version, &kind.kind, old, new, reservation),
    }
}

/// Copies a field from `from`, or removes it if it is missing there.
fn copy(from: &Value, to: &mut Value, field: &str) {
    if let Some(root) = to.as_object_mut() {
        match from.get(field) {
            Some(value) => root.insert(field.to_owned(), value.clone()),
            None => root.remove(field),
        };
    }
}

/// Returns whether an update through the main endpoint increments the generation.
fn counts(kind: &Kind, old: &Value, new: &Value) -> bool {
    if kind.custom.is_none() {
        return hooks::generation_changes(&kind.api_version, &kind.kind, old, new) == Some(true);
    }
    let ignored =
        |field: &str| matches!(field, "metadata" | "apiVersion" | "kind") || field == "status" && kind.has_status();
    let fields = |object: &'_ Value| -> Vec<(String, Value)> {
        let fields = object.as_object().into_iter().flatten().filter(|(k, _)| !ignored(k));
        fields.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    fields(old) != fields(new)
}

/// Returns whether a terminating object can be removed now.
fn ends(old: &Value, new: &Value) -> bool {
    let waits_for_node = old["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    let namespace = new["kind"] == "Namespace";
    let waits_for_contents =
        namespace && new["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    metadata::is_terminating(old) && metadata::finalizers(new).is_empty() && !waits_for_node && !waits_for_contents
}
