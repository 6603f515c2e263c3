//! POST to a collection, and creation by apply and PUT.
//!
//! Not here: decoding, which callers do, because bodies and patches are decoded differently.

use super::{
    Done, Settings, Shown, Target, decode, fits, metadata, namespace, reset_paths, service_account, text, to_storage,
    write::{Tracking, complete, context, same_namespace, validate},
};
use crate::{
    access::escalation,
    addresses::Reservation,
    admission::{Stop, consult, hooks::Write},
    kinds::{hooks, table::Kind},
    patch, quota, registration,
    server::Server,
    status::{Cause, Status},
    store::{Base, Key},
};
use serde_json::Value;
use std::time::Instant;

/// Maximum attempts to find a free name for a `generateName`.
const NAME_ATTEMPTS: u64 = 8;

/// Creates an object from a request body.
pub fn create(server: &Server, target: &Target, settings: &Settings, mut body: Value) -> Result<Done, Stop> {
    let warnings = decode::object(&target.kind, &mut body, settings, decode::Origin::Body)?;
    let generate = text(&body, "/metadata/generateName").to_owned();
    let name = text(&body, "/metadata/name").to_owned();
    if !name.is_empty() || generate.is_empty() {
        let target = Target { name, ..target.clone() };
        return insert(server, &target, settings, body, Tracking::Track).map(|mut done| {
            done.warnings.splice(0..0, warnings);
            done
        });
    }
    let mut outcome = Err(Status::internal("no name could be generated").into());
    let settings = Settings { generated: true, ..settings.clone() };
    for attempt in 0..NAME_ATTEMPTS {
        let name = metadata::generated_name(&generate, settings.seed, attempt);
        let target = Target { name, ..target.clone() };
        outcome = insert(server, &target, &settings, body.clone(), Tracking::Track);
        if !matches!(&outcome, Err(Stop::Refused(status)) if status.reason == "AlreadyExists") {
            break;
        }
    }
    outcome.map(|mut done| {
        done.warnings.splice(0..0, warnings);
        done
    })
}

/// Completes, validates and stores a decoded object under the target's name.
pub(crate) fn insert(
    server: &Server,
    target: &Target,
    settings: &Settings,
    mut object: Value,
    tracking: Tracking,
) -> Result<Done, Stop> {
    let kind = &*target.kind;
    same_namespace(target, &object)?;
    let versioned = text(&object, "/metadata/resourceVersion").parse::<u64>().is_ok_and(|version| version > 0);
    metadata::begin(&mut object, &target.namespace, &target.name, settings.uid(), &settings.now);
    complete(kind, &mut object);
    if tracking == Tracking::Track {
        let reset = reset_paths(kind, "");
        patch::track(&context(kind, settings, "", &reset), None, &mut object);
    }
    namespace::admit_create(server, target)?;
    service_account::admit(server, target, settings, &mut object)?;
    let write = Write { target, operation: "CREATE", old: None };
    change_new(server, settings, &write, &mut object)?;
    refuse_terminating_definition(kind, target)?;
    let mut reservation = Reservation::new(server.addresses());
    let mut causes = prepare(kind, &mut object, &mut reservation);
    begin_generation(kind, &mut object);
    causes.extend(validate(kind, &object, None));
    if !causes.is_empty() {
        return Err(Status::invalid(&kind.group, &kind.kind, &target.name, causes).into());
    }
    escalation::check(server, &settings.user, target, None, &object)?;
    consult::validate(server, settings, &write, Some(&object))?;
    let key = target.key();
    fits(&object)?;
    let charges = quota::decide(server, target, None, &object)?;
    if settings.dry_run {
        if server.store().get(&kind.storage, &key).is_some() {
            return Err(exists(server, target, &key).into());
        }
        return Ok(Done::new(201, Shown::Value(object), Vec::new()));
    }
    if versioned && tracking == Tracking::Track {
        return Err(Status::new(500, "", "resourceVersion should not be set on objects to be created").into());
    }
    if !charges.is_empty() {
        if server.store().get(&kind.storage, &key).is_some() {
            return Err(exists(server, target, &key).into());
        }
        quota::charge(server, target, None, &object, settings, &charges)?;
    }
    let definition = registration::prepare_new(kind, &mut object);
    let names = (kind.storage_api_version.as_str(), kind.kind.as_str());
    let object = to_storage(kind, object);
    let stored = server
        .store()
        .put(&kind.storage, names, &key, Base::Absent, object, Instant::now())
        .map_err(|_| exists(server, target, &key))?;
    reservation.keep();
    definition.finish(server, &key);
    Ok(Done::new(201, Shown::Stored(stored), Vec::new()))
}

/// Calls mutating webhooks for a new object, before the server sets its own fields.
fn change_new(server: &Server, settings: &Settings, write: &Write<'_>, object: &mut Value) -> Result<(), Stop> {
    if !settings.admit {
        return Ok(());
    }
    let target = write.target;
    let mut seen = object.clone();
    let given = metadata::of(&mut seen);
    for field in ["uid", "creationTimestamp"] {
        given.remove(field);
    }
    if settings.generated {
        given.remove("name");
    }
    if consult::mutate(server, settings, write, Some(&mut seen))? {
        decode::changed(&target.kind, settings, object, &mut seen)?;
        *object = seen;
        metadata::begin(object, &target.namespace, &target.name, settings.uid(), &settings.now);
        complete(&target.kind, object);
    }
    Ok(())
}

fn exists(server: &Server, target: &Target, key: &Key) -> Status {
    let mut status = Status::already_exists(&target.kind.group_resource(), &target.name);
    let live = server.store().get(&target.kind.storage, key);
    if live.is_some_and(|live| metadata::is_terminating(&live.value())) {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}

fn refuse_terminating_definition(kind: &Kind, target: &Target) -> Result<(), Status> {
    if kind.custom.as_ref().is_some_and(|c| c.terminating) {
        return Err(Status::new(
            403,
            "Forbidden",
            format!(
                "{} \"{}\" is forbidden: create not allowed while custom resource definition is terminating",
                kind.group_resource(),
                target.name
            ),
        )
        .about(&kind.group_resource(), &target.name));
    }
    Ok(())
}

fn prepare(kind: &Kind, object: &mut Value, reservation: &mut Reservation<'_>) -> Vec<Cause> {
    if kind.custom.is_some() {
        if kind.has_status()
            && let Some(root) = object.as_object_mut()
        {
            root.remove("status");
        }
        return Vec::new();
    }
    hooks::prepare_create(&kind.api_version, &kind.kind, object, reservation)
}

fn begin_generation(kind: &Kind, object: &mut Value) {
    let counted =
        kind.custom.is_some() || hooks::generation_changes(&kind.api_version, &kind.kind, object, object).is_some();
    if counted {
        metadata::of(object).insert("generation".to_owned(), 1.into());
    }
}
