//! The defaults of a Function as values of its spec: what [`resolve`](super::resolve) uses where the spec has nothing.
//!
//! Invariant: a Function resolves to the same with and without them, so writing them into the object builds and restarts
//! nothing.
//! Invariant: a value that some field manager owns is never replaced, except a quantity of zero, which counts as none.
//! Invariant: an object that has been completed is not changed again, whatever the presets are by then, until what its author
//! wrote about the same subject changes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt as _;
use serde_json::Value;

use super::Settings;
use super::resolve::{replicas_of, resources_of, runtime_of};
use mainstay_api::function::Resources;
use mainstay_api::function_v1alpha2::{Form, PATHS};
use mainstay_api::{Amount, Amounts, Function, FunctionSpec, names};

/// Where kubectl keeps what its user applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The amounts of a spec that have defaults.
const AMOUNTS: [(&str, &str); 4] =
    [("requests", "memory"), ("requests", "cpu"), ("limits", "memory"), ("limits", "cpu")];

/// The spec with all defaults. `old` is the object that this one replaces.
///
/// A default that was written before is kept while what it follows from stays; when that changes, the preset's label above all,
/// it is chosen anew: no manager owns it.
pub fn complete(new: &Function, old: Option<&Function>, settings: &Settings) -> FunctionSpec {
    let given = old.map(|old| (written(new, Some(old)), written(old, None), old));
    let chosen_anew = |label: &str, same: fn(&FunctionSpec, &FunctionSpec) -> bool| {
        given
            .as_ref()
            .is_some_and(|(now, before, old)| new.labels().get(label) != old.labels().get(label) || !same(now, before))
    };
    let mut base = new.clone();
    // The runtime of the object before, as far as its own spec had none.
    base.status = old.and_then(|old| old.status.clone());
    if let Some((now, ..)) = &given {
        let spec = &mut base.spec;
        let scale =
            |a: &FunctionSpec, b: &FunctionSpec| (a.min_replicas, a.max_replicas) == (b.min_replicas, b.max_replicas);
        if chosen_anew(names::REPLICAS_PRESET, scale) {
            (spec.min_replicas, spec.max_replicas) = (now.min_replicas, now.max_replicas);
        }
        let pods = |a: &FunctionSpec, b: &FunctionSpec| {
            (&a.resources, &a.profile, &a.runtime) == (&b.resources, &b.profile, &b.runtime)
        };
        if chosen_anew(names::FUNCTION_RESOURCES_PRESET, pods) {
            spec.resources.clone_from(&now.resources);
        }
        let builds = |a: &FunctionSpec, b: &FunctionSpec| {
            (&a.build_resources, &a.build_profile) == (&b.build_resources, &b.build_profile)
        };
        if chosen_anew(names::BUILD_RESOURCES_PRESET, builds) {
            spec.build_resources.clone_from(&now.build_resources);
        }
    }
    let replicas = replicas_of(&base, settings);
    let runtime = runtime_of(&base, settings).to_owned();
    let [resources, build_resources] = resources_of(&base, settings);
    let spec = &mut base.spec;
    if spec.runtime.as_deref().is_none_or(str::is_empty) {
        spec.runtime = Some(runtime);
    }
    spec.min_replicas = Some(replicas.min);
    spec.max_replicas = Some(replicas.max);
    fill(&mut spec.resources, &resources);
    fill(&mut spec.build_resources, &build_resources);
    base.spec
}

/// Whether two states of a Function ask for the same: their specs differ in defaults at most.
pub(crate) fn same_input(new: &Function, old: &Function) -> bool {
    new.spec == old.spec || written(new, Some(old)) == written(old, None)
}

/// The spec as its authors have written it, without defaults.
pub fn authored(function: &Function) -> FunctionSpec {
    written(function, None)
}

/// Copies CPU and memory.
fn fill(given: &mut Option<Resources>, complete: &Resources) {
    let given = given.get_or_insert_default();
    let parts = [(&mut given.requests, &complete.requests), (&mut given.limits, &complete.limits)];
    for (part, complete) in parts {
        for name in ["cpu", "memory"] {
            if let Some(amount) = complete.as_ref().and_then(|amounts| amounts.get(name)) {
                part.get_or_insert_default().insert(name, amount.clone());
            }
        }
    }
}

/// The spec without the defaults that were written into it: values that no field manager owns, and that kubectl's user has not
/// applied. Of an object without managers these are the ones that `old` did not have.
fn written(function: &Function, old: Option<&Function>) -> FunctionSpec {
    let mut spec = function.spec.clone();
    let managed = function.metadata.managed_fields.as_deref().unwrap_or_default();
    let applied = function.annotations().get(LAST_APPLIED).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let is_given = |path: &[&str], was_there: bool| {
        let is_applied = applied
            .as_ref()
            .is_some_and(|applied| at(&applied["spec"], &placed(path, applied["apiVersion"].as_str()), "").is_some());
        let owns = |entry: &ManagedFieldsEntry| {
            let fields =
                entry.fields_v1.as_ref().filter(|_| entry.subresource.as_deref().unwrap_or_default().is_empty());
            let path = placed(path, entry.api_version.as_deref());
            fields.is_some_and(|fields| at(&fields.0["f:spec"], &path, "f:").is_some())
        };
        is_applied || if managed.is_empty() { was_there } else { managed.iter().any(owns) }
    };
    let before = |present: fn(&FunctionSpec) -> bool| old.is_none_or(|old| present(&old.spec));
    if !is_given(&["minReplicas"], before(|spec| spec.min_replicas.is_some())) {
        spec.min_replicas = None;
    }
    if !is_given(&["maxReplicas"], before(|spec| spec.max_replicas.is_some())) {
        spec.max_replicas = None;
    }
    if !is_given(&["runtime"], before(|spec| spec.runtime.is_some())) {
        spec.runtime = None;
    }
    let sections = [
        ("resources", &mut spec.resources, old.map(|old| &old.spec.resources)),
        ("buildResources", &mut spec.build_resources, old.map(|old| &old.spec.build_resources)),
    ];
    for (section, resources, before) in sections {
        for (part, name) in AMOUNTS {
            let was_there = before.is_none_or(|before| amount(before.as_ref(), part, name).is_some());
            if !is_given(&[section, part, name], was_there)
                && let Some(amounts) = resources.as_mut().and_then(|resources| amounts(resources, part).as_mut())
            {
                amounts.remove(name);
            }
        }
        *resources = resources.take().and_then(without_empty);
    }
    spec
}

/// Where a field is in the version in which somebody wrote it.
fn placed<'p>(path: &[&'p str], api_version: Option<&str>) -> Vec<&'p str> {
    let is_newer = api_version.is_some_and(|version| version.ends_with("/v1alpha2"));
    let moved = PATHS.iter().find(|(form, before, _)| is_newer && *form == Form::Any && path.starts_with(before));
    moved.map_or_else(|| path.to_vec(), |(_, before, after)| [after, &path[before.len()..]].concat())
}

fn at<'v>(value: &'v Value, path: &[&str], prefix: &str) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(format!("{prefix}{key}")))
}

fn amounts<'r>(resources: &'r mut Resources, part: &str) -> &'r mut Option<Amounts> {
    if part == "requests" { &mut resources.requests } else { &mut resources.limits }
}

fn amount<'r>(resources: Option<&'r Resources>, part: &str, name: &str) -> Option<&'r Amount> {
    let resources = resources?;
    (if part == "requests" { &resources.requests } else { &resources.limits }).as_ref()?.get(name)
}

/// Empty maps ask for nothing.
fn without_empty(mut resources: Resources) -> Option<Resources> {
    for part in [&mut resources.requests, &mut resources.limits] {
        *part = part.take().filter(|amounts| !amounts.is_empty());
    }
    (resources.requests.is_some() || resources.limits.is_some()).then_some(resources)
}
