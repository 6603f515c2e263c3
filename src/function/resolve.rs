//! A Function, the presets and the defaults become a [`ResolvedFunction`], or every reason why they cannot.
//!
//! Invariant: this is the only place that refuses a Function; whatever is resolved can be built into children.
//! Invariant: all violations are found, not only the first.
//!
//! Deliberately absent: whether a GitRepository, a Secret or a registry exists. That is observed, not decided.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use serde_json::value::RawValue;

use super::base::BaseImage;
use super::presets::{Chosen, Presets, ReplicasPreset, ResourcesPreset};
pub use super::settings::Settings;
use super::violation::shown;
pub use super::violation::{Violation, reason, text};
use super::{resources, syntax};
use crate::api::function::{EnvVar, FunctionSpec, Resources};
use crate::api::{Function, names};
use crate::runtimes::{self, Language, Runtime};
use crate::source::{BaseDir, Reference};

/// Most that a ConfigMap holds, in bytes.
const CONFIG_MAP_ROOM: usize = 1024 * 1024;
/// Most that the kernel hands to a program as one `NAME=value` with its closing zero, in bytes.
const VARIABLE_ROOM: usize = 128 * 1024;

/// A Function with every default filled in and every rule kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedFunction {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its `metadata.generation`.
    pub generation: Option<i64>,
    /// Labels of every child: the Function's own, and those by which its children are found.
    pub labels: BTreeMap<String, String>,
    /// Labels of the pods that serve.
    pub pod_labels: BTreeMap<String, String>,
    /// The runtime as it was asked for, or the default one.
    pub runtime: &'static Runtime,
    /// What its image is built on.
    pub base: BaseImage,
    /// Where its code is.
    pub code: Code,
    /// Environment of the pods that serve, in order, each name once.
    pub env: Vec<EnvVar>,
    /// CPU and memory of a pod that serves.
    pub resources: Resources,
    /// CPU and memory of the build.
    pub build_resources: Resources,
    /// How many pods serve.
    pub replicas: Replicas,
    /// Value of the annotation that asks for another build.
    pub rebuild: Option<String>,
    /// What the user should know although the Function works.
    pub warnings: Vec<Warning>,
}

/// Where the code of a Function is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// In the Function itself.
    Inline {
        /// Text of the handler file.
        source: String,
        /// Text of the dependency file; empty text stands for none in Python, `{}` in Node.js.
        dependencies: String,
    },
    /// In a Git repository.
    Git {
        /// Name of the GitRepository in the same namespace.
        repository: String,
        /// What to follow.
        reference: Reference,
        /// Directory that holds the files.
        base_dir: BaseDir,
    },
}

/// How many pods serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Fewest.
    pub min: i64,
    /// Most.
    pub max: i64,
}

impl Replicas {
    /// Whether an autoscaler chooses the number.
    pub fn are_scaled(self) -> bool {
        self.min != self.max
    }
}

/// Something that works, but perhaps not as it was meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// Reason of the Event.
    pub reason: &'static str,
    /// What was found and what is done about it.
    pub message: String,
}

impl ResolvedFunction {
    /// The labels by which all children are found.
    pub fn selector(&self) -> BTreeMap<String, String> {
        internal_labels(&self.name, &self.uid)
    }

    /// The labels by which the Service and the Deployment find the pods that serve.
    pub fn pod_selector(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(names::RESOURCE.to_owned(), names::DEPLOYMENT.to_owned());
        labels
    }

    /// Whether the code is in a Git repository.
    pub fn is_git(&self) -> bool {
        matches!(self.code, Code::Git { .. })
    }
}

/// The Function with everything decided that the object alone decides.
pub fn resolve(function: &Function, settings: &Settings) -> Result<ResolvedFunction, Vec<Violation>> {
    let mut found = Findings::default();
    let spec = &function.spec;
    let name = function.name_any();
    let uid = function.uid().unwrap_or_default();
    for words in syntax::dns_label(&name) {
        let what = format!("metadata.name: Invalid value: \"{}\": {words}", shown(&name));
        found.wrong(Violation::invalid(what, "metadata.name"));
    }
    let is_git = source_type(spec, &mut found);
    let runtime = runtime(function, settings, is_git, &mut found);
    let base = runtime.and_then(|runtime| base(spec, settings, runtime, &mut found));
    let code = code(spec, is_git, runtime, &mut found);
    let env = env(spec, settings, runtime, &mut found);
    let replicas = replicas(function, settings, &mut found);
    let resources = resources_of_pod(function, settings, &mut found);
    let build_resources = resources_of_build(function, settings, &mut found);
    let internal = internal_labels(&name, &uid);
    let pod_labels = pod_labels(spec, &internal, &mut found);
    let (Some(runtime), Some(base), Some(code), true) = (runtime, base, code, found.violations.is_empty()) else {
        return Err(found.violations);
    };
    Ok(ResolvedFunction {
        namespace: function.namespace().unwrap_or_default(),
        generation: function.metadata.generation,
        labels: labels(function, internal),
        rebuild: function.annotations().get(names::REBUILD).cloned(),
        name,
        uid,
        pod_labels,
        runtime,
        base,
        code,
        env,
        resources,
        build_resources,
        replicas,
        warnings: found.warnings,
    })
}

/// What was found on the way.
#[derive(Default)]
struct Findings {
    violations: Vec<Violation>,
    warnings: Vec<Warning>,
}

impl Findings {
    fn wrong(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.warnings.push(Warning { reason, message });
    }
}

fn internal_labels(name: &str, uid: &str) -> BTreeMap<String, String> {
    [(names::FUNCTION_NAME, name), (names::MANAGED_BY, names::FUNCTION_CONTROLLER), (names::FUNCTION_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The Function's labels under those by which its children are found. Two sorts stay behind: Mainstay's own, because
/// they would say that a GitSync applied the children, and the one that marks serving pods, because the pods of builds
/// carry these labels, too.
fn labels(function: &Function, internal: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = function.labels().iter().filter(|(key, _)| !is_ours(key) && *key != names::RESOURCE);
    let mut labels: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.extend(internal);
    labels
}

fn is_ours(key: &str) -> bool {
    key.starts_with(names::ANNOTATION_PREFIX)
}

fn pod_labels(
    spec: &FunctionSpec,
    internal: &BTreeMap<String, String>,
    found: &mut Findings,
) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in spec.labels.iter().flatten() {
        for words in syntax::label(key, value) {
            found.wrong(Violation::invalid(format!("spec.labels: {words}"), "spec.labels"));
        }
        if is_ours(key) || internal.contains_key(key) || key == names::RESOURCE {
            let message = format!("the label {} of spec.labels belongs to Mainstay and is ignored", shown(key));
            found.warn("LabelIgnored", message);
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    labels.extend(internal.clone());
    labels.insert(names::RESOURCE.to_owned(), names::DEPLOYMENT.to_owned());
    labels
}

/// Whether the source is in Git.
fn source_type(spec: &FunctionSpec, found: &mut Findings) -> bool {
    match spec.kind.as_deref().unwrap_or_default() {
        "git" => return true,
        "" | "inline" => {}
        other => {
            let what = format!("type \"{}\" is neither \"inline\" nor \"git\"", shown(other));
            found.wrong(Violation::invalid(what, "spec.type"));
        }
    }
    false
}

fn runtime(function: &Function, settings: &Settings, is_git: bool, found: &mut Findings) -> Option<&'static Runtime> {
    let given = function.spec.runtime.as_deref().filter(|name| !name.is_empty());
    // A Function that left the choice to the default keeps what it was built with.
    let kept = function.status.as_ref().and_then(|status| status.runtime.as_deref()).filter(|name| !name.is_empty());
    let name = given.or_else(|| kept.filter(|name| runtimes::find(name).is_some()));
    let name = name.unwrap_or(&settings.default_runtime);
    let Some(runtime) = runtimes::find(name) else {
        let path = if is_git { "spec.runtime" } else { "spec.deps" };
        let known: Vec<_> = runtimes::all().iter().map(|runtime| runtime.name).collect();
        let details = format!("spec.runtime is one of {}", known.join(", "));
        found.wrong(Violation::runtime(format!("cannot find runtime: {}", shown(name)), path, details));
        return None;
    };
    if runtime.is_deprecated() {
        let message = format!("runtime {name} is deprecated: the Function runs on {}", runtime.runs_as);
        found.warn("RuntimeDeprecated", message);
    }
    Some(runtime)
}

fn base(
    spec: &FunctionSpec,
    settings: &Settings,
    runtime: &'static Runtime,
    found: &mut Findings,
) -> Option<BaseImage> {
    if let Some(image) = spec.runtime_image_override.as_deref().filter(|image| !image.is_empty()) {
        return BaseImage::chosen(image)
            .map_err(|_| {
                let what = format!("\"{}\" is not the name of an image", shown(image));
                found.wrong(Violation::invalid(what, "spec.runtimeImageOverride"));
            })
            .ok();
    }
    let base = [runtime.name, runtime.runs_as, "*"].into_iter().find_map(|name| settings.base_images.get(name));
    if base.is_none() {
        let what = format!("no base image is configured for runtime {}", runtime.name);
        let details = "set MAINSTAY_BASE_IMAGES for the agent, or spec.runtimeImageOverride here".to_owned();
        found.wrong(Violation::runtime(what, "spec.runtime", details));
    }
    base.cloned()
}

fn code(spec: &FunctionSpec, is_git: bool, runtime: Option<&Runtime>, found: &mut Findings) -> Option<Code> {
    let blank = spec.source.trim().is_empty();
    if blank {
        found.wrong(Violation::missing("spec.source"));
    }
    if is_git {
        return git(spec, blank, found);
    }
    let dependencies = dependencies(spec, runtime?, found);
    if spec.source.len().saturating_add(dependencies.len()) > CONFIG_MAP_ROOM {
        let what = format!("source and deps have {} bytes together", spec.source.len() + dependencies.len());
        let mut violation = Violation::invalid(what, "spec.source");
        violation.paths.insert(0, "spec.deps".into());
        violation.details = format!(
            "a ConfigMap holds at most {CONFIG_MAP_ROOM} bytes; larger sources belong in a Git repository (type: git)"
        );
        found.wrong(violation);
    }
    Some(Code::Inline { source: spec.source.clone(), dependencies })
}

/// The dependency file, the same for all ways to say that there are none.
fn dependencies(spec: &FunctionSpec, runtime: &Runtime, found: &mut Findings) -> String {
    let deps = spec.deps.as_deref().unwrap_or_default();
    let bare = deps.trim();
    match runtime.language {
        Language::Python if bare.is_empty() => return String::new(),
        Language::Python => {}
        Language::NodeJs if bare.is_empty() => return "{}".into(),
        Language::NodeJs if !(bare.starts_with('{') && bare.ends_with('}')) => {
            found.wrong(Violation::invalid("deps should start with '{' and end with '}'", "spec.deps"));
        }
        Language::NodeJs => match serde_json::from_str::<BTreeMap<String, &RawValue>>(deps) {
            Ok(fields) if fields.is_empty() => return "{}".into(),
            Ok(_) => {}
            Err(error) => found.wrong(Violation::invalid(format!("deps is not JSON: {error}"), "spec.deps")),
        },
    }
    deps.to_owned()
}

fn git(spec: &FunctionSpec, blank: bool, found: &mut Findings) -> Option<Code> {
    if let Some(words) = syntax::subdomain(spec.source.trim()).filter(|_| !blank) {
        found.wrong(Violation::invalid("source is not the name of a GitRepository", "spec.source").because(words));
    }
    let present = |text: &Option<String>| text.as_deref().map(str::trim).unwrap_or_default().to_owned();
    let (base_dir, reference) = (present(&spec.base_dir), present(&spec.reference));
    for (text, path) in [(&base_dir, "spec.baseDir"), (&reference, "spec.reference")] {
        if text.is_empty() {
            found.wrong(Violation::missing(path));
        }
    }
    if spec.deps.as_deref().is_some_and(|deps| !deps.trim().is_empty()) {
        let message = "spec.deps is ignored: with type git the dependency file in the repository is used".to_owned();
        found.warn("DepsIgnored", message);
    }
    let base_dir = parse(&base_dir, BaseDir::parse, "spec.baseDir", found);
    let reference = parse(&reference, Reference::parse, "spec.reference", found);
    Some(Code::Git { repository: spec.source.trim().to_owned(), reference: reference?, base_dir: base_dir? })
}

/// A parsed field; what is missing was already told.
fn parse<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, crate::source::Error>,
    path: &str,
    found: &mut Findings,
) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    if text.chars().any(char::is_control) {
        found.wrong(Violation::invalid(format!("\"{}\" has control characters", shown(text)), path));
        return None;
    }
    parse(text).map_err(|error| found.wrong(Violation::invalid(crate::failure::chain(&error), path))).ok()
}

fn env(
    spec: &FunctionSpec,
    settings: &Settings,
    runtime: Option<&'static Runtime>,
    found: &mut Findings,
) -> Vec<EnvVar> {
    let given = spec.env.as_deref().unwrap_or_default();
    let ours = ours(runtime);
    let mut seen: BTreeSet<&str> = ours.iter().map(|variable| variable.name.as_str()).collect();
    let mut told = BTreeSet::new();
    let mut kept = Vec::new();
    for variable in given.iter().rev() {
        let name = variable.name.as_str();
        check_variable(variable, settings, found);
        if seen.insert(name) {
            kept.push(variable.clone());
        } else if !settings.reserved_env.iter().any(|reserved| reserved == name) && told.insert(name) {
            let winner =
                if ours.iter().any(|v| v.name == name) { "Mainstay sets it itself" } else { "the last one counts" };
            let message = format!("the environment variable {} is ignored or stands twice: {winner}", shown(name));
            found.warn("EnvIgnored", message);
        }
    }
    kept.reverse();
    kept.extend(ours);
    kept
}

/// What every Function of this runtime has, in the order of the first system.
fn ours(runtime: Option<&'static Runtime>) -> Vec<EnvVar> {
    let of = |name: &str, value: String| EnvVar { name: name.to_owned(), value: Some(value), value_from: None };
    let mut all: Vec<_> = runtime.iter().flat_map(|r| r.pod_env()).map(|(name, value)| of(name, value)).collect();
    all.extend(
        [("FUNC_HANDLER", "main"), ("MOD_NAME", "handler"), ("FUNC_PORT", "8080")].map(|(k, v)| of(k, v.to_owned())),
    );
    all
}

fn check_variable(variable: &EnvVar, settings: &Settings, found: &mut Findings) {
    const PATH: &str = "spec.env";
    let name = variable.name.as_str();
    let words = syntax::env_name(name);
    if !words.is_empty() {
        found.wrong(Violation::key(name, PATH, words.join(", ")));
    }
    if settings.reserved_env.iter().any(|reserved| reserved == name) {
        found.wrong(Violation::key(name, PATH, "env name is reserved for the serverless domain".to_owned()));
    }
    let value = variable.value.as_deref().unwrap_or_default();
    if name.len() + value.len() + 2 > VARIABLE_ROOM {
        let what = format!("the value of env {} has {} bytes", shown(name), value.len());
        let why = "no program can be started with a variable of 128 KiB or more";
        found.wrong(Violation::invalid(what, PATH).because(why));
    }
    let Some(from) = &variable.value_from else { return };
    let sources = usize::from(from.config_map_key_ref.is_some())
        + usize::from(from.secret_key_ref.is_some())
        + usize::from(from.field_ref.is_some())
        + usize::from(from.resource_field_ref.is_some());
    if sources != 1 {
        let what = format!("env {} has {sources} sources in valueFrom instead of one", shown(name));
        found.wrong(Violation::invalid(what, PATH));
    }
    if !value.is_empty() {
        found.wrong(Violation::invalid(format!("env {} has both value and valueFrom", shown(name)), PATH));
    }
}

fn replicas(function: &Function, settings: &Settings, found: &mut Findings) -> Replicas {
    let spec = &function.spec;
    let preset = preset(function, names::REPLICAS_PRESET, &settings.replicas, found);
    let fallback = settings.replicas.fallback();
    let of = |pick: fn(&ReplicasPreset) -> Option<i64>| {
        preset.and_then(pick).filter(|n| *n != 0).or_else(|| fallback.and_then(pick)).unwrap_or(1)
    };
    let (preset_min, preset_max) = (of(|p| p.min), of(|p| p.max));
    let min = spec.min_replicas.unwrap_or_else(|| spec.max_replicas.map_or(preset_min, |max| preset_min.min(max)));
    let max = spec.max_replicas.unwrap_or_else(|| preset_max.max(min));
    let least = settings.min_replicas;
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
    Replicas { min, max }
}

fn resources_of_pod(function: &Function, settings: &Settings, found: &mut Findings) -> Resources {
    let preset = preset(function, names::FUNCTION_RESOURCES_PRESET, &settings.resources, found);
    let preset = complete_preset(preset, &settings.resources);
    let given = function.spec.resources.as_ref();
    resources::complete(given, &preset, &settings.min_resources, "spec.resources", &mut found.violations)
}

fn resources_of_build(function: &Function, settings: &Settings, found: &mut Findings) -> Resources {
    let preset = preset(function, names::BUILD_RESOURCES_PRESET, &settings.build_resources, found);
    let preset = complete_preset(preset, &settings.build_resources);
    let given = function.spec.build_resources.as_ref();
    resources::complete(given, &preset, &settings.min_build_resources, "spec.buildResources", &mut found.violations)
}

fn complete_preset(preset: Option<&ResourcesPreset>, presets: &Presets<ResourcesPreset>) -> ResourcesPreset {
    match (preset, presets.fallback()) {
        (Some(preset), Some(fallback)) => preset.or(fallback),
        (preset, fallback) => preset.or(fallback).cloned().unwrap_or_default(),
    }
}

fn preset<'a, T>(function: &Function, label: &str, presets: &'a Presets<T>, found: &mut Findings) -> Option<&'a T> {
    let name = function.labels().get(label).map(String::as_str);
    match presets.choose(name)? {
        Chosen::Known(preset) => Some(preset),
        Chosen::Unknown(preset) => {
            let message = format!(
                "the label {label} names the preset \"{}\", which does not exist; {} is used. There are: {}",
                shown(name.unwrap_or_default()),
                presets.default,
                presets.names()
            );
            found.warn("PresetUnknown", message);
            Some(preset)
        }
    }
}

#[cfg(test)]
mod tests;
