//! Resolves the replicas of a Function, and the resources of its pods and builds, from the spec or from presets.

use kube::ResourceExt as _;

use super::{Findings, Replicas, Settings};
use crate::Builder;
use crate::flavour::{self, Flavour};
use crate::presets::{Chosen, Presets, ReplicasPreset, ResourcesPreset};
use crate::resources;
use crate::runtimes::Runtime;
use crate::violation::{Violation, shown};
use mainstay_api::events::Reason;
use mainstay_api::function::Resources;
use mainstay_api::{Function, names};

/// Resolves the replicas.
pub(super) fn replicas(function: &Function, settings: &Settings, found: &mut Findings) -> Replicas {
    let spec = &function.spec;
    let preset = preset(function, (None, names::REPLICAS_PRESET), &settings.replicas, found);
    let fallback = settings.replicas.fallback();
    let of = |pick: fn(&ReplicasPreset) -> Option<i64>| {
        preset.and_then(pick).filter(|n| *n != 0).or_else(|| fallback.and_then(pick)).unwrap_or(1)
    };
    let (preset_min, preset_max) = (of(|p| p.min), of(|p| p.max));
    let min = spec.min_replicas.unwrap_or_else(|| spec.max_replicas.map_or(preset_min, |max| preset_min.min(max)));
    let max = spec.max_replicas.unwrap_or_else(|| preset_max.max(min));
    let is_knative = flavour::of(function, settings.serving) == Ok(Flavour::Knative);
    // Only Knative can start a pod when a request arrives.
    let least = if is_knative { 0 } else { settings.min_replicas };
    if min > max {
        found.wrong(Violation::invalid(
            format!("maxReplicas({max}) is less than minReplicas({min})"),
            "spec.maxReplicas",
        ));
    }
    for (word, number) in [("minReplicas", min), ("maxReplicas", max)] {
        let path = format!("spec.{word}");
        if number < least {
            let what = format!("{word}({number}) is less than the smallest allowed value({least})");
            found.wrong(Violation::invalid(what, &path));
        } else if number > i64::from(i32::MAX) {
            found.wrong(Violation::invalid(format!("{word}({number}) is more than {}", i32::MAX), &path));
        }
    }
    let set = spec.replicas;
    match set {
        Some(number) if number < 0 => {
            found.wrong(Violation::invalid(format!("replicas({number}) is less than 0"), "spec.replicas"));
        }
        Some(number) if number > i64::from(i32::MAX) => {
            let what = format!("replicas({number}) is more than {}", i32::MAX);
            found.wrong(Violation::invalid(what, "spec.replicas"));
        }
        Some(number) if min < max => {
            let message = format!(
                "spec.replicas is {number}, so the number of pods is not scaled by CPU between minReplicas({min}) and \
                 maxReplicas({max}) until spec.replicas is removed"
            );
            found.warn(Reason::ScalingOff, message);
        }
        _ => {}
    }
    Replicas { min, max, set }
}

/// Resolves the resources of a serving pod. A preset's memory limit is raised to the runtime's minimum. A limit in the
/// spec is kept, with a warning if it is lower than the minimum.
pub(super) fn of_pod(
    function: &Function,
    settings: &Settings,
    runtime: Option<&'static Runtime>,
    found: &mut Findings,
) -> Resources {
    let named = (function.spec.profile.as_ref().map(|name| (name, "spec.profile")), names::FUNCTION_RESOURCES_PRESET);
    let preset = preset(function, named, &settings.resources, found);
    let mut preset = complete_preset(preset, &settings.resources);
    let given = function.spec.resources.as_ref();
    if let Some(runtime) = runtime {
        let least = runtime.least_memory().into();
        if let Some(limit) = resources::limit_below(given, "memory", &least) {
            let message = format!(
                "spec.resources.limits.memory is {}, but runtime {} needs {least}: the pod may run out of memory \
                 (OOMKilled) or not start at all",
                shown(&limit.0),
                runtime.name
            );
            found.warn(Reason::MemoryLow, message);
        }
        preset = preset.with_memory(&least);
    }
    resources::complete(given, &preset, &settings.min_resources, "spec.resources", &mut found.violations)
}

/// Resolves CPU and memory of a build.
pub(super) fn of_build(function: &Function, settings: &Settings, found: &mut Findings) -> Resources {
    let own = function.spec.build_profile.as_ref();
    let named = (own.map(|name| (name, "spec.buildProfile")), names::BUILD_RESOURCES_PRESET);
    let presets = &settings.build_resources;
    let preset = match (preset(function, named, presets, found), settings.builder) {
        // The lower requests were measured with Mainstay's own builder.
        (preset, Builder::Kaniko) if preset == presets.unnamed.as_ref() => presets.fallback(),
        (preset, _) => preset,
    };
    let preset = complete_preset(preset, presets);
    let given = function.spec.build_resources.as_ref();
    resources::complete(given, &preset, &settings.min_build_resources, "spec.buildResources", &mut found.violations)
}

fn complete_preset(preset: Option<&ResourcesPreset>, presets: &Presets<ResourcesPreset>) -> ResourcesPreset {
    match (preset, presets.fallback()) {
        (Some(preset), Some(fallback)) => preset.or(fallback),
        (preset, fallback) => preset.or(fallback).cloned().unwrap_or_default(),
    }
}

/// Returns the preset that a field of the spec selects, else the preset that a label selects.
fn preset<'a, T>(
    function: &Function,
    (own, label): (Option<(&String, &str)>, &str),
    presets: &'a Presets<T>,
    found: &mut Findings,
) -> Option<&'a T> {
    let own = own.filter(|(name, _)| !name.is_empty());
    let name = own.map(|(name, _)| name).or_else(|| function.labels().get(label)).map(String::as_str);
    match presets.choose(name)? {
        Chosen::Known(preset) => Some(preset),
        Chosen::Unknown(preset) => {
            let what = own.map_or_else(|| format!("the label {label}"), |(_, path)| path.to_owned());
            let message = format!(
                "{what} names the preset \"{}\", which does not exist; {} is used. There are: {}",
                shown(name.unwrap_or_default()),
                presets.default,
                presets.names()
            );
            found.warn(Reason::PresetUnknown, message);
            Some(preset)
        }
    }
}
