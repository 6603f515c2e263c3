//! Writes the defaults of a Function into its spec. [`resolve`](super::resolve) uses the same defaults for missing
//! values.
//!
//! Invariant: a Function resolves to the same value with and without these defaults, so writing them causes no build
//! and no restart. Invariant: a value that a field manager owns is never replaced, except a quantity of zero, which
//! counts as missing. Invariant: written defaults stay after a change of the presets, until the author changes the
//! fields that determine these defaults.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt as _;
use serde_json::Value;

use super::Settings;
use super::resolve::{replicas_of, resources_of, runtime_of};
use mainstay_api::function::Resources;
use mainstay_api::function_v1alpha2::{Form, PATHS};
use mainstay_api::{Amount, Amounts, Function, FunctionSpec, names};

/// Annotation in which kubectl stores the applied object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The amounts of a spec that have defaults.
const AMOUNTS: [(&str, &str); 4] =
    [("requests", "memory"), ("requests", "cpu"), ("limits", "memory"), ("limits", "cpu")];

/// Returns the spec with all defaults. `old` is the replaced object.
///
/// An earlier default is kept while the fields that determine it are unchanged, above all the preset's label. After a
/// change of these fields, the default is chosen again. No field manager owns a default.
pub fn complete(new: &Function, old: Option<&Function>, settings: &Settings) -> FunctionSpec {
    let given = old.map(|old| (written(new, Some(old)), written(old, None), old));
    let chosen_anew = |label: &str, same: fn(&FunctionSpec, &FunctionSpec) -> bool| {
        given
            .as_ref()
            .is_some_and(|(now, before, old)| new.labels().get(label) != old.labels().get(label) || !same(now, before))
    };
    let mut base = new.clone();
    // Without a runtime in the spec, the runtime in the status is used.
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

/// Whether two states of a Function are equal apart from defaults.
pub(crate) fn same_input(new: &Function, old: &Function) -> bool {
    new.spec == old.spec || written(new, Some(old)) == written(old, None)
}

/// Returns the spec as its authors wrote it, without defaults.
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

/// Returns the spec without written defaults: values that no field manager owns and that kubectl did not apply. Without
/// field managers, defaults are the values that `old` lacks.
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

/// Returns the path of a field in the version that its author used.
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

/// Removes empty maps, which request nothing.
fn without_empty(mut resources: Resources) -> Option<Resources> {
    for part in [&mut resources.requests, &mut resources.limits] {
        *part = part.take().filter(|amounts| !amounts.is_empty());
    }
    (resources.requests.is_some() || resources.limits.is_some()).then_some(resources)
}
