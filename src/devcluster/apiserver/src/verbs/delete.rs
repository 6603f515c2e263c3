//! DELETE of an object or collection: mark, wait for finalizers, remove.
//!
//! Invariant: an object with finalizers is only marked, which is an ordinary write (one resource version, one event).
//!
//! Not here: deletion of dependents and contents, which controllers do later.

use super::{
    Settings, Shown, Target, metadata, namespace, text, to_storage, update, value_as,
    write::{ATTEMPTS, Live},
};
use crate::{
    admission::{Stop, consult, hooks::Write},
    kinds::table::Kind,
    registration,
    server::{Server, stamp},
    status::{Cause, GroupResource, Status},
    store::Base,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};

/// The propagation policy for the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The propagation policy; `None`: the default of the kind.
    pub propagation: Option<Propagation>,
    /// Grace period of a pod, in seconds.
    pub grace: Option<i64>,
    /// Precondition: the object must have this UID.
    pub uid: Option<String>,
    /// Precondition: the object must have this resource version.
    pub version: Option<String>,
    /// Whether nothing is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Parses the body and the query parameters, which take precedence; 422 for unknown values.
    pub fn parse(body: &Value, query: &crate::route::Query) -> Result<Self, Status> {
        let refuse = |field: &str, value: &str, supported: &[&str]| {
            let cause = Cause::not_supported(field, &value.into(), supported);
            Status::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause])
        };
        let policy = match query.text("propagationPolicy") {
            "" => text(body, "/propagationPolicy"),
            given => given,
        };
        let orphan = |value: &Value| value.is_boolean();
        if !policy.is_empty() && (orphan(&body["orphanDependents"]) || !query.text("orphanDependents").is_empty()) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            let cause = Cause::invalid("propagationPolicy", &policy.into(), why);
            return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause]));
        }
        let grace = query.text("gracePeriodSeconds");
        if !grace.is_empty() && grace.parse::<i64>().is_err() {
            let why = format!("strconv.ParseInt: parsing \"{grace}\": invalid syntax");
            return Err(Status::bad_request(why));
        }
        let propagation = match policy {
            "" if body["orphanDependents"] == true || query.text("orphanDependents") == "true" => {
                Some(Propagation::Orphan)
            }
            "" if body["orphanDependents"] == false || query.text("orphanDependents") == "false" => {
                Some(Propagation::Background)
            }
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => return Err(refuse("propagationPolicy", other, &["Foreground", "Background", "Orphan", "nil"])),
        };
        let in_body = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut dry_run = false;
        for value in in_body.chain(query.all("dryRun")) {
            if value != "All" {
                let cause = Cause::not_supported("dryRun", &json!([value]), &["All"]);
                return Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause]));
            }
            dry_run = true;
        }
        let given = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(ToOwned::to_owned);
        Ok(Self {
            propagation,
            grace: query.text("gracePeriodSeconds").parse().ok().or_else(|| body["gracePeriodSeconds"].as_i64()),
            uid: given("/preconditions/uid"),
            version: given("/preconditions/resourceVersion"),
            dry_run,
        })
    }
}

/// Fails with 400 if the body names another kind.
pub(crate) fn is_options(body: &Value) -> Result<(), Status> {
    if body.is_array() {
        return Err(Status::bad_request(
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { \
             APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        ));
    }
    let (kind, version) = (text(body, "/kind"), text(body, "/apiVersion"));
    if kind.is_empty() || kind == "DeleteOptions" {
        return Ok(());
    }
    let why = format!("no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\"");
    Err(Status::bad_request(why))
}

impl DeleteOptions {
    /// Returns the options as webhooks receive them.
    pub(crate) fn to_options(&self) -> serde_json::Map<String, Value> {
        let mut options = serde_json::Map::new();
        let mut put = |name: &str, value: Value| {
            options.insert(name.to_owned(), value);
        };
        if let Some(grace) = self.grace {
            put("gracePeriodSeconds", grace.into());
        }
        if let Some(propagation) = self.propagation {
            put("propagationPolicy", format!("{propagation:?}").into());
        }
        if self.uid.is_some() || self.version.is_some() {
            let mut wanted = json!({});
            for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.version)] {
                if let Some(value) = value {
                    wanted[name] = value.clone().into();
                }
            }
            put("preconditions", wanted);
        }
        if self.dry_run {
            put("dryRun", json!(["All"]));
        }
        options
    }
}

/// The result of a deletion.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; holds its last state.
    Gone(Arc<Value>),
    /// The object is marked and waits.
    Marked(Shown),
}

/// Deletes an object.
pub fn delete(
    server: &Server,
    target: &Target,
    settings: &Settings,
    options: &DeleteOptions,
) -> Result<(Deleted, Vec<String>), Stop> {
    let kind = &*target.kind;
    protect(target)?;
    for _ in 0..ATTEMPTS {
        let stored = server.store().get(&kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let old = value_as(kind, &stored);
        preconditions(target, options, &old)?;
        let live = Live { stored, old };
        let write = Write { target, operation: "DELETE", old: Some(&live.old) };
        consult::mutate(server, settings, &write, None)?;
        consult::validate(server, settings, &write, None)?;
        if let Some(deleted) = attempt(server, target, settings, options, &live) {
            return Ok((deleted, warnings(kind, options)));
        }
    }
    Err(Status::stale(&kind.group_resource(), &target.name).into())
}

fn protect(target: &Target) -> Result<(), Status> {
    let protected = &*target.kind.storage == "namespaces" && namespace::PROTECTED.contains(&target.name.as_str());
    if protected {
        return Err(Status::forbidden(
            &target.kind.group_resource(),
            &target.name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

fn preconditions(target: &Target, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
    // Unlike every other conflict, this conflict names the kind and not the resource.
    let gr = GroupResource { group: target.kind.group.clone(), resource: target.kind.kind.clone() };
    let differs = |wanted: &Option<String>, pointer: &str| wanted.as_ref().is_some_and(|w| w != text(old, pointer));
    if differs(&options.uid, "/metadata/uid") {
        let why = format!(
            "the UID in the precondition ({}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            options.uid.as_deref().unwrap_or_default(),
            text(old, "/metadata/uid")
        );
        return Err(Status::conflict(&gr, &target.name, &why));
    }
    if differs(&options.version, "/metadata/resourceVersion") {
        let why = format!(
            "the ResourceVersion in the precondition ({}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
            options.version.as_deref().unwrap_or_default(),
            text(old, "/metadata/resourceVersion")
        );
        return Err(Status::conflict(&gr, &target.name, &why));
    }
    Ok(())
}

/// Attempts a deletion; `None` on a conflicting write.
fn attempt(
    server: &Server,
    target: &Target,
    settings: &Settings,
    options: &DeleteOptions,
    live: &Live,
) -> Option<Deleted> {
    let kind = &*target.kind;
    let old = &*live.old;
    let mut new = old.clone();
    let grace = grace(kind, old, options);
    finalizers(&mut new, propagation(kind, options));
    if kind.kind == "CustomResourceDefinition" {
        registration::mark_terminating(server, &mut new, &settings.now);
    }
    let waits = !metadata::finalizers(&new).is_empty()
        || grace > 0
        || kind.kind == "Namespace" && new["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    if !waits {
        let gone = options.dry_run || update::remove(server, target, live);
        return gone.then(|| Deleted::Gone(live.old.clone()));
    }
    let already = metadata::is_terminating(old);
    let shorter = old["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|g| grace < g);
    if already && !shorter && metadata::finalizers(old) == metadata::finalizers(&new) {
        return Some(Deleted::Marked(Shown::Stored(live.stored.clone())));
    }
    mark(&mut new, grace, already, server.now());
    if matches!(kind.kind.as_str(), "Namespace" | "CustomResourceDefinition") {
        // Namespaces and definitions wait for their contents, not for a grace period.
        metadata::of(&mut new).remove("deletionGracePeriodSeconds");
    }
    if kind.kind == "Namespace" {
        new["status"]["phase"] = "Terminating".into();
    }
    if options.dry_run {
        return Some(Deleted::Marked(Shown::Value(new)));
    }
    let names = (kind.storage_api_version.as_str(), kind.kind.as_str());
    let base = Base::Version(live.stored.rv);
    let new = to_storage(kind, new);
    let Ok(stored) = server.store().put(&kind.storage, names, &target.key(), base, new, Instant::now()) else {
        return None;
    };
    if kind.kind == "CustomResourceDefinition" {
        registration::terminate(server, &target.name, |target, settings| {
            // Every failure here means that the object is gone or waits for its finalizers.
            let _ = self::delete(server, target, settings, &DeleteOptions::default());
        });
    }
    Some(Deleted::Marked(Shown::Stored(stored)))
}

/// Returns the grace period of a pod in seconds. Zero for other kinds, for unscheduled pods and for finished pods.
fn grace(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    let finished = matches!(text(old, "/status/phase"), "Succeeded" | "Failed");
    if &*kind.storage != "pods" || text(old, "/spec/nodeName").is_empty() || finished {
        return 0;
    }
    let wanted = options.grace.or_else(|| old["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or(30).max(0);
    match old["metadata"]["deletionGracePeriodSeconds"].as_i64() {
        Some(running) if metadata::is_terminating(old) => wanted.min(running),
        _ => wanted,
    }
}

fn propagation(kind: &Kind, options: &DeleteOptions) -> Option<Propagation> {
    options.propagation.or_else(|| orphans_by_default(kind).then_some(Propagation::Orphan))
}

fn orphans_by_default(kind: &Kind) -> bool {
    matches!(&*kind.storage, "jobs.batch" | "replicationcontrollers")
}

fn warnings(kind: &Kind, options: &DeleteOptions) -> Vec<String> {
    if options.propagation.is_some() || &*kind.storage != "jobs.batch" {
        return Vec::new();
    }
    vec![
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning"
            .to_owned(),
    ]
}

/// Sets the finalizers that make the garbage collector act before the object is removed.
fn finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let wanted = match propagation {
        None => return,
        Some(Propagation::Background) => None,
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        Some(Propagation::Orphan) => Some("orphan"),
    };
    let mut list: Vec<String> = metadata::finalizers(object).into_iter().map(ToOwned::to_owned).collect();
    list.retain(|f| f != "foregroundDeletion" && f != "orphan" || Some(f.as_str()) == wanted);
    if let Some(wanted) = wanted.filter(|w| !list.iter().any(|f| f == w)) {
        list.push(wanted.to_owned());
    }
    if list.is_empty() {
        metadata::of(object).remove("finalizers");
    } else {
        metadata::of(object).insert("finalizers".to_owned(), json!(list));
    }
}

fn mark(object: &mut Value, grace: i64, already: bool, now: Timestamp) {
    let due = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
    let metadata = metadata::of(object);
    metadata.insert("deletionTimestamp".to_owned(), stamp(due).into());
    metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
    if !already && metadata.get("generation").and_then(Value::as_i64).is_some_and(|g| g > 0) {
        metadata::next_generation(object);
    }
}

/// Returns whether a deletion of this kind returns the object, even if the object was removed immediately.
pub fn answers_object(kind: &Kind) -> bool {
    matches!(
        &*kind.storage,
        "pods"
            | "services"
            | "namespaces"
            | "serviceaccounts"
            | "persistentvolumeclaims"
            | "persistentvolumes"
            | "resourcequotas"
            | "podtemplates"
            | "storageclasses.storage.k8s.io"
    )
}

/// Returns the `Status` of a completed deletion.
pub fn success(target: &Target, old: &Value) -> Value {
    let mut details = json!({"name": target.name, "kind": target.kind.plural, "uid": old["metadata"]["uid"]});
    if !target.kind.group.is_empty() {
        details["group"] = target.kind.group.clone().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
