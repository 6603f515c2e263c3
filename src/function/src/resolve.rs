//! Resolves a Function with presets and defaults to a [`ResolvedFunction`], or to the list of its violations.
//!
//! Invariant: only this module refuses a Function. Children can be built from every resolved Function. Invariant: all
//! violations are returned, not only the first. Invariant: a resolved Function never exposes credentials to its code:
//! not the credentials of builds, repositories, Receivers, ServiceAccounts or the agent. Invariant: pods of a Function
//! and of its builds have only labels and annotations that `pod_keys` allows.
//!
//! Not here: whether a GitRepository, a Secret or a registry exists; see `observe`.

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
    /// The Function's namespace.
    pub namespace: String,
    /// The Function's name.
    pub name: String,
    /// The Function's UID.
    pub uid: String,
    /// The Function's `metadata.generation`.
    pub generation: Option<i64>,
    /// Labels of every child: the Function's own and the identifying labels.
    pub labels: BTreeMap<String, String>,
    /// Labels of build pods: the labels of every child that are allowed on pods.
    pub build_labels: BTreeMap<String, String>,
    /// Labels of the serving pods.
    pub pod_labels: BTreeMap<String, String>,
    /// Annotations of the serving pods, without annotations that Mainstay sets.
    pub pod_annotations: BTreeMap<String, String>,
    /// Secrets whose keys are files in the serving pods.
    pub secret_mounts: Vec<SecretMount>,
    /// Secrets whose keys become environment variables of the serving pods. The value of a later Secret takes
    /// precedence. These Secrets come from bindings, not from the spec.
    pub bound_secrets: Vec<BoundSecret>,
    /// Digest of the values of environment variables from Secrets.
    pub secrets_digest: Option<SecretsDigest>,
    /// The runtime in the spec, or the default.
    pub runtime: &'static Runtime,
    /// The base image.
    pub base: BaseImage,
    /// Whether the Function's spec specifies the base image.
    pub has_own_base: bool,
    /// The source.
    pub code: Code,
    /// Environment of the serving pods, in order, with unique names.
    pub env: Vec<EnvVar>,
    /// Resources of a serving pod.
    pub resources: Resources,
    /// Resources of the build.
    pub build_resources: Resources,
    /// Whether the Function runs as a Deployment or on Knative.
    pub flavour: Flavour,
    /// Number of serving pods.
    pub replicas: Replicas,
    /// Value of the annotation that requests a rebuild.
    pub rebuild: Option<String>,
    /// Problems that do not prevent the Function from working.
    pub warnings: Vec<Warning>,
}

/// A digest of the values of environment variables from Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretsDigest {
    /// Digest of all values. A change restarts the pods.
    pub total: String,
    /// The digest of each Secret, for a later agent; `None` if there are too many.
    pub record: Option<String>,
}

/// A Secret whose keys are environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundSecret {
    /// Prefix of each variable name.
    pub prefix: String,
    /// Name of the Secret.
    pub secret: String,
}

/// The source of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// Inline code.
    Inline {
        /// The source code.
        source: String,
        /// Content of the dependency file. Without dependencies: empty for Python, `{}` for Node.js.
        dependencies: String,
    },
    /// Source in a Git repository.
    Git {
        /// The repository.
        repository: Origin,
        /// The reference.
        reference: Reference,
        /// The directory of the source.
        base_dir: BaseDir,
    },
}

/// The Git repository of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The GitRepository with this name in the same namespace.
    Named(String),
    /// A repository at this URL, declared in the Function itself.
    Own(RemoteUrl, Box<GitRepositorySpec>),
}

impl fmt::Display for Origin {
    /// Writes the name, or the URL without credentials. A name cannot be mistaken for a URL.
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
    /// Minimum number of pods.
    pub min: i64,
    /// Maximum number of pods.
    pub max: i64,
    /// A number that was set through `spec.replicas`. It overrides minimum and maximum.
    pub set: Option<i64>,
}

impl Replicas {
    /// Whether an autoscaler sets the number of pods.
    pub(crate) fn are_scaled(self) -> bool {
        self.fixed().is_none()
    }

    /// Returns the number of pods, unless an autoscaler sets it.
    pub fn fixed(self) -> Option<i64> {
        self.set.or_else(|| (self.min == self.max).then_some(self.min))
    }
}

impl ResolvedFunction {
    /// Returns the labels that select all children.
    pub fn selector(&self) -> BTreeMap<String, String> {
        internal_labels(&self.name, &self.uid)
    }

    /// Returns the labels that select the serving pods.
    pub fn pod_selector(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(names::RESOURCE.to_owned(), names::DEPLOYMENT.to_owned());
        labels
    }

    /// Returns the selector of the serving pods as a string.
    pub(crate) fn pod_selector_text(&self) -> String {
        let terms: Vec<_> = self.pod_selector().iter().map(|(label, value)| format!("{label}={value}")).collect();
        terms.join(",")
    }

    /// Whether the code is in a Git repository.
    pub fn is_git(&self) -> bool {
        matches!(self.code, Code::Git { .. })
    }
}

/// Resolves a Function from the object and the settings alone.
///
/// `credentials` are the Secrets of the namespace that must not be read by the Function's code and must not be used for
/// the Function's own repository.
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

/// Returns the Function's labels, overridden by the identifying labels. Mainstay's labels are excluded, because they
/// would mark the children as applied by a GitSync. The label of serving pods is excluded, because build pods get these
/// labels too.
fn labels(function: &Function, internal: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = function.labels().iter().filter(|(key, _)| !is_ours(key) && *key != names::RESOURCE);
    let mut labels: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    labels.extend(internal);
    labels
}

/// Returns the runtime name of a Function. The runtime may not exist.
pub(super) fn runtime_of<'a>(function: &'a Function, settings: &'a Settings) -> &'a str {
    let given = function.spec.runtime.as_deref().filter(|name| !name.is_empty());
    // A Function without a runtime keeps the runtime of its last build.
    let kept = function.status.as_ref().and_then(|status| status.runtime.as_deref()).filter(|name| !name.is_empty());
    let name = given.or_else(|| kept.filter(|name| runtimes::find(name).is_some()));
    name.unwrap_or(&settings.default_runtime)
}

/// Returns the replicas of a Function, even if it is invalid.
pub(super) fn replicas_of(function: &Function, settings: &Settings) -> Replicas {
    sizes::replicas(function, settings, &mut Findings::default())
}

/// Returns the resources of a Function's serving pods and builds, even if it is invalid.
pub(super) fn resources_of(function: &Function, settings: &Settings) -> [Resources; 2] {
    let (runtime, mut found) = (runtimes::find(runtime_of(function, settings)), Findings::default());
    [sizes::of_pod(function, settings, runtime, &mut found), sizes::of_build(function, settings, &mut found)]
}

fn runtime(function: &Function, settings: &Settings, is_git: bool, found: &mut Findings) -> Option<&'static Runtime> {
    let name = runtime_of(function, settings);
    let Some(runtime) = runtimes::find(name) else {
        let path = if is_git { "spec.runtime" } else { "spec.deps" };
        let known: Vec<_> = runtimes::all().iter().map(|runtime| runtime.name).collect();
        let details = format!("spec.runtime must be one of {}", known.join(", "));
        found.wrong(Violation::runtime(format!("cannot find runtime: {}", shown(name)), path, details));
        return None;
    };
    Some(runtime)
}

/// Warns that the runtime is deprecated and names the runtime that replaces it.
fn warn_of(runtime: &Runtime, row: &str, found: &mut Findings) {
    if runtime.is_deprecated() {
        let message = format!("runtime {} is deprecated: the Function runs on {row}", runtime.name);
        found.warn(Reason::RuntimeDeprecated, message);
    }
}

/// Warns if the node has a different version of the language.
fn warn_of_node(runtime: &Runtime, programs: &NodePrograms, found: &mut Findings) {
    let (name, wanted) = (runtime.name, runtime.version);
    let language = runtime.language.name();
    match programs.version(runtime.language) {
        Some(version) if version == wanted || version.starts_with(&format!("{wanted}.")) => {}
        Some(version) => {
            let message = format!(
                "runtime {name} names {language} {wanted}: this Function runs on {language} {version}, the version on its node"
            );
            found.warn(Reason::RuntimeVersionDiffers, message);
        }
        None => {
            let message = format!("runtime {name} needs {language} {wanted}: its node has no {language} on its PATH");
            found.warn(Reason::RuntimeMissing, message);
        }
    }
}

/// The message for a base image on a cluster that runs Functions with the node's programs.
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

/// Returns the violation for an invalid base image, with a hint about its correction.
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
