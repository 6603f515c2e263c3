//! A Function, the presets and the defaults become a [`ResolvedFunction`], or every reason why they cannot.
//!
//! Invariant: this is the only place that refuses a Function; whatever is resolved can be built into children.
//! Invariant: all violations are found, not only the first.
//!
//! Deliberately absent: whether a GitRepository, a Secret or a registry exists. That is observed, not decided.

mod code;
mod env;
mod sizes;

use std::collections::BTreeMap;
use std::fmt;

use kube::ResourceExt as _;

use super::base::{BaseImage, NotABase};
pub use super::settings::Settings;
use super::syntax;
use super::violation::shown;
pub use super::violation::{Violation, reason, text};
use crate::api::function::{EnvVar, FunctionSpec, Resources};
use crate::api::{Function, names};
use crate::runtimes::{self, Runtime};
use crate::source::{BaseDir, Reference};

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

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
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
    let is_git = code::is_git(spec, &mut found);
    let runtime = runtime(function, settings, is_git, &mut found);
    let base = runtime.and_then(|runtime| base(spec, settings, runtime, &mut found));
    let code = code::code(spec, is_git, runtime, &mut found);
    let env = env::env(spec, settings, runtime, &mut found);
    let replicas = sizes::replicas(function, settings, &mut found);
    let resources = sizes::of_pod(function, settings, runtime, &mut found);
    let build_resources = sizes::of_build(function, settings, &mut found);
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

/// Most warnings that are told: each is an Event, and a Function can name a variable twice very often.
const MOST_WARNINGS: usize = 20;

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
        if self.warnings.len() < MOST_WARNINGS {
            self.warnings.push(Warning { reason, message });
        }
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
        return BaseImage::chosen(image).map_err(|why| found.wrong(not_a_base(image, why))).ok();
    }
    let base = [runtime.name, runtime.runs_as, "*"].into_iter().find_map(|name| settings.base_images.get(name));
    if base.is_none() {
        let what = format!("no base image is configured for runtime {}", runtime.name);
        let details = "set MAINSTAY_BASE_IMAGES for the agent, or spec.runtimeImageOverride here".to_owned();
        found.wrong(Violation::runtime(what, "spec.runtime", details));
    }
    base.cloned()
}

/// What is wrong with the base image that a Function chose, and what to write instead.
fn not_a_base(image: &str, why: NotABase) -> Violation {
    let (path, image) = ("spec.runtimeImageOverride", shown(image));
    match why {
        NotABase::Malformed => Violation::invalid(format!("\"{image}\" is not the name of an image"), path),
        NotABase::NoDigest => {
            let name = image.split_once('@').map_or(image.as_str(), |(name, _)| name);
            let details = format!(
                "write it with its digest, as {name}@sha256:…: a tag can name another image tomorrow, and no build would \
                 know; `skopeo inspect docker://{name}` prints the digest"
            );
            Violation::invalid(format!("\"{image}\" is not named by its digest"), path).because(details)
        }
    }
}

#[cfg(test)]
mod tests;
