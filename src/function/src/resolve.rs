//! Resolves a Function with presets and defaults to a [`ResolvedFunction`], or to all of its violations.
//!
//! Invariant: this is the only place that refuses a Function; children can be built from whatever is resolved.
//! Invariant: all violations are found, not only the first.
//! Invariant: no resolved Function hands a credential of a build, a repository, a Receiver, a ServiceAccount or the agent to its
//! code.
//! Invariant: no pod of a Function or of its builds has a label or an annotation that `pod_keys` does not allow.
//!
//! Deliberately absent: whether a GitRepository, a Secret or a registry exists. That is observed.

mod code;
mod env;
mod findings;
mod knative;
mod pods;
mod sizes;

use std::collections::BTreeMap;
use std::fmt;

use kube::ResourceExt as _;

use super::base::{BaseImage, InvalidBaseImage};
use super::credentials::Credentials;
use super::flavour::Flavour;
use super::settings::NodePrograms;
pub use super::settings::Settings;
use super::violation::shown;
pub use super::violation::{Violation, reason, text};
use crate::runtimes::{self, Runtime};
use findings::Findings;
pub use findings::Warning;
use mainstay_api::events::Reason;
use mainstay_api::function::{EnvVar, FunctionSpec, Resources, SecretMount};
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_api::{Function, names};
use mainstay_git::{BaseDir, Reference, RemoteUrl};
use mainstay_object::syntax;
use pods::is_ours;

/// A valid Function with all defaults.
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
    /// Labels of every child: the Function's own, and those that identify its children.
    pub labels: BTreeMap<String, String>,
    /// Labels of the pods of builds: those of every child that pods may have.
    pub build_labels: BTreeMap<String, String>,
    /// Labels of the serving pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations that the serving pods have beside ours.
    pub pod_annotations: BTreeMap<String, String>,
    /// Secrets whose keys are files in the serving pods.
    pub secret_mounts: Vec<SecretMount>,
    /// Secrets whose keys are environment variables of the serving pods, each with what stands before the keys; the last
    /// one counts. They are bound, not of the spec.
    pub bound_secrets: Vec<BoundSecret>,
    /// Digest of the values that the environment gets from Secrets.
    pub secrets_digest: Option<String>,
    /// The runtime of the spec, or the default.
    pub runtime: &'static Runtime,
    /// The base image.
    pub base: BaseImage,
    /// Whether its user names the base image, and not the operator.
    pub has_own_base: bool,
    /// The source.
    pub code: Code,
    /// Environment of the serving pods, in order, with unique names.
    pub env: Vec<EnvVar>,
    /// Resources of a serving pod.
    pub resources: Resources,
    /// Resources of the build.
    pub build_resources: Resources,
    /// How it is run.
    pub flavour: Flavour,
    /// Number of serving pods.
    pub replicas: Replicas,
    /// Value of the annotation that requests another build.
    pub rebuild: Option<String>,
    /// Problems that do not prevent the Function from working.
    pub warnings: Vec<Warning>,
}

/// A Secret whose keys are environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSecret {
    /// What stands before each key.
    pub prefix: String,
    /// Its name.
    pub secret: String,
}

/// The source of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// Inline.
    Inline {
        /// Content of the handler file.
        source: String,
        /// Content of the dependency file; without dependencies it is empty for Python and `{}` for Node.js.
        dependencies: String,
    },
    /// In a Git repository.
    Git {
        /// The repository.
        repository: Origin,
        /// The reference.
        reference: Reference,
        /// The directory of the source.
        base_dir: BaseDir,
    },
}

/// Which repository the source is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// That of the GitRepository with this name in the same namespace.
    Named(String),
    /// One that the Function has itself, at this address.
    Own(RemoteUrl, Box<GitRepositorySpec>),
}

impl fmt::Display for Origin {
    /// The name, or the address without credentials; none of the two can be taken for the other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Own(url, _) => url.fmt(f),
        }
    }
}

/// Number of serving pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Minimum.
    pub min: i64,
    /// Maximum.
    pub max: i64,
    /// The number that somebody has set, whatever the other two say.
    pub set: Option<i64>,
}

impl Replicas {
    /// Whether an autoscaler sets the number.
    pub(crate) fn are_scaled(self) -> bool {
        self.fixed().is_none()
    }

    /// The number, unless an autoscaler sets it.
    pub fn fixed(self) -> Option<i64> {
        self.set.or_else(|| (self.min == self.max).then_some(self.min))
    }
}

impl ResolvedFunction {
    /// The labels that select all children.
    pub fn selector(&self) -> BTreeMap<String, String> {
        internal_labels(&self.name, &self.uid)
    }

    /// The labels that select the serving pods.
    pub fn pod_selector(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(names::RESOURCE.to_owned(), names::DEPLOYMENT.to_owned());
        labels
    }

    /// The same as one text.
    pub(crate) fn pod_selector_text(&self) -> String {
        let terms: Vec<_> = self.pod_selector().iter().map(|(label, value)| format!("{label}={value}")).collect();
        terms.join(",")
    }

    /// Whether the code is in a Git repository.
    pub fn is_git(&self) -> bool {
        matches!(self.code, Code::Git { .. })
    }
}

/// Resolves a Function as far as it depends on the object and the settings alone.
///
/// `credentials` are the Secrets of its namespace that its code may not read, and its own repository is not read with.
pub fn resolve(
    function: &Function,
    settings: &Settings,
    credentials: &Credentials,
) -> Result<ResolvedFunction, Vec<Violation>> {
    let mut found = Findings::default();
    let spec = &function.spec;
    let credentials = &*credentials.and_own(spec);
    let name = function.name_any();
    let uid = function.uid().unwrap_or_default();
    for words in syntax::dns_label(&name) {
        let what = format!("metadata.name: Invalid value: \"{}\": {words}", shown(&name));
        found.wrong(Violation::invalid(what, "metadata.name"));
    }
    let flavour = knative::flavour(function, settings, &mut found);
    let is_git = code::is_git(spec, &mut found);
    let runtime = runtime(function, settings, is_git, &mut found);
    let base = runtime.and_then(|runtime| base(spec, settings, runtime, &mut found));
    let code = code::code(spec, (is_git, runtime), credentials, &mut found);
    let replicas = sizes::replicas(function, settings, &mut found);
    let resources = sizes::of_pod(function, settings, runtime, &mut found);
    let ours = env::ours(function, settings, runtime, &resources);
    let env = env::env(spec, (settings, credentials), ours, &mut found);
    let build_resources = sizes::of_build(function, settings, &mut found);
    let internal = internal_labels(&name, &uid);
    let pod_labels = pods::labels(spec, &internal, &settings.pod_keys, &mut found);
    let pod_annotations = pods::annotations(spec, &settings.pod_keys, &mut found);
    let secret_mounts = pods::secret_mounts(spec, credentials, &mut found);
    let (Some(runtime), Some(base), Some(code), true) = (runtime, base, code, found.violations.is_empty()) else {
        return Err(found.violations);
    };
    let labels = labels(function, internal);
    Ok(ResolvedFunction {
        build_labels: settings.pod_keys.allowed(&labels),
        labels,
        namespace: function.namespace().unwrap_or_default(),
        generation: function.metadata.generation,
        rebuild: function.annotations().get(names::REBUILD).cloned(),
        name,
        uid,
        pod_labels,
        pod_annotations,
        secret_mounts,
        bound_secrets: Vec::new(),
        secrets_digest: None,
        runtime,
        base,
        has_own_base: own_base(spec).is_some(),
        code,
        env,
        resources,
        build_resources,
        flavour,
        replicas,
        warnings: found.warnings,
    })
}

fn internal_labels(name: &str, uid: &str) -> BTreeMap<String, String> {
    [(names::FUNCTION_NAME, name), (names::MANAGED_BY, names::FUNCTION_CONTROLLER), (names::FUNCTION_UID, uid)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The Function's labels, overridden by those that identify its children. Two kinds are left out: Mainstay's own, which
/// would mark the children as applied by a GitSync, and the one that marks serving pods, because the pods of builds get
/// these labels, too.
fn labels(function: &Function, internal: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = function.labels().iter().filter(|(key, _)| !is_ours(key) && *key != names::RESOURCE);
    let mut labels: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.extend(internal);
    labels
}

/// The runtime of a Function, which may not exist.
pub(super) fn runtime_of<'a>(function: &'a Function, settings: &'a Settings) -> &'a str {
    let given = function.spec.runtime.as_deref().filter(|name| !name.is_empty());
    // A Function without a runtime keeps the one that it was built with.
    let kept = function.status.as_ref().and_then(|status| status.runtime.as_deref()).filter(|name| !name.is_empty());
    let name = given.or_else(|| kept.filter(|name| runtimes::find(name).is_some()));
    name.unwrap_or(&settings.default_runtime)
}

/// The number of pods of a Function, valid or not.
pub(super) fn replicas_of(function: &Function, settings: &Settings) -> Replicas {
    sizes::replicas(function, settings, &mut Findings::default())
}

/// The resources of a Function's pods and of its builds, valid or not.
pub(super) fn resources_of(function: &Function, settings: &Settings) -> [Resources; 2] {
    let (runtime, mut found) = (runtimes::find(runtime_of(function, settings)), Findings::default());
    [sizes::of_pod(function, settings, runtime, &mut found), sizes::of_build(function, settings, &mut found)]
}

fn runtime(function: &Function, settings: &Settings, is_git: bool, found: &mut Findings) -> Option<&'static Runtime> {
    let name = runtime_of(function, settings);
    let Some(runtime) = runtimes::find(name) else {
        let path = if is_git { "spec.runtime" } else { "spec.deps" };
        let known: Vec<_> = runtimes::all().iter().map(|runtime| runtime.name).collect();
        let details = format!("spec.runtime is one of {}", known.join(", "));
        found.wrong(Violation::runtime(format!("cannot find runtime: {}", shown(name)), path, details));
        return None;
    };
    Some(runtime)
}

/// A name whose runtime has ended is served by another row, which the warning names.
fn warn_of(runtime: &Runtime, row: &str, found: &mut Findings) {
    if runtime.is_deprecated() {
        let message = format!("runtime {} is deprecated: the Function runs on {row}", runtime.name);
        found.warn(Reason::RuntimeDeprecated, message);
    }
}

/// Warns of a version that the node does not have.
fn warn_of_node(runtime: &Runtime, programs: &NodePrograms, found: &mut Findings) {
    let (name, wanted) = (runtime.name, runtime.version);
    let language = runtime.language.name();
    match programs.version(runtime.language) {
        Some(version) if version == wanted || version.starts_with(&format!("{wanted}.")) => {}
        Some(version) => {
            let message = format!(
                "runtime {name} names {language} {wanted}: this Function runs on {language} {version}, the one of its node"
            );
            found.warn(Reason::RuntimeVersionDiffers, message);
        }
        None => {
            let message = format!("runtime {name} needs {language} {wanted}: its node has no {language} on its PATH");
            found.warn(Reason::RuntimeMissing, message);
        }
    }
}

/// Why no base image is used.
const NODE_RUNS: &str = "Functions of this cluster run on the Node.js and Python of its node";

fn own_base(spec: &FunctionSpec) -> Option<&str> {
    spec.runtime_image_override.as_deref().filter(|image| !image.is_empty())
}

fn base(
    spec: &FunctionSpec,
    settings: &Settings,
    runtime: &'static Runtime,
    found: &mut Findings,
) -> Option<BaseImage> {
    let own = own_base(spec).map(|image| {
        BaseImage::chosen(image)
            .map_err(|why| found.wrong(invalid_base_image(image, why)))
            .map(|chosen| (image, chosen))
    });
    let own = own.transpose().ok()?;
    if let Some(programs) = &settings.node_programs {
        if let Some((image, _)) = own {
            let message =
                format!("{}, which spec.runtimeImageOverride names, is not used here: {NODE_RUNS}", shown(image));
            found.warn(Reason::RuntimeImageNotUsed, message);
        }
        warn_of_node(runtime, programs, found);
        return Some(BaseImage::Scratch);
    }
    if let Some((_, chosen)) = own {
        warn_of(runtime, runtime.runs_as, found);
        return Some(chosen);
    }
    let names = [(runtime.name, runtime.runs_as), (runtime.runs_as, runtime.runs_as), ("*", runtime.runs_as)];
    let others = runtime.served_by().map(|row| (row.name, row.name));
    let set = names.into_iter().chain(others).find_map(|(name, row)| Some((settings.base_images.get(name)?, row)));
    warn_of(runtime, set.map_or(runtime.runs_as, |(_, row)| row), found);
    let shipped = || Some(BaseImage::Image(runtime.base_image().to_owned()));
    set.map(|(base, _)| base.clone()).or_else(shipped)
}

/// The violation for an invalid base image, with what to write instead.
fn invalid_base_image(image: &str, why: InvalidBaseImage) -> Violation {
    let (path, image) = ("spec.runtimeImageOverride", shown(image));
    match why {
        InvalidBaseImage::Malformed => Violation::invalid(format!("\"{image}\" is not the name of an image"), path),
        InvalidBaseImage::NoDigest | InvalidBaseImage::NoTag => {
            let name = image.split_once('@').map_or(image.as_str(), |(name, _)| name);
            let details = format!(
                "write it with its digest, as {name}@sha256:…, or with a tag, as {name}:TAG, which each build resolves; `skopeo \
                 inspect docker://{name}` prints the digest"
            );
            Violation::invalid(format!("\"{image}\" is named by neither a digest nor a tag"), path).because(details)
        }
    }
}

#[cfg(test)]
mod tests;
