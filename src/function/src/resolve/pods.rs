//! Resolves a Function's additions to its serving pods: labels, annotations, and mounted Secrets.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::Findings;
use crate::credentials::Credentials;
use crate::pod_keys::PodKeys;
use crate::runtimes;
use crate::violation::{Violation, shown};
use mainstay_api::events::Reason;
use mainstay_api::function::{FunctionSpec, PodTemplate, SecretMount};
use mainstay_api::names;
use mainstay_object::syntax;

/// Maximum number of mounted Secrets. Each mount needs a volume, and a watch of the kubelet.
const MAX_MOUNTS: usize = 32;
/// Maximum total size of annotations in bytes. An object can have 256 KiB.
const MAX_ANNOTATIONS: usize = 128 << 10;
/// Directories that a container needs to start, so nothing may be mounted there.
const TAKEN: [&str; 11] =
    ["/tmp", "/usr", "/bin", "/lib", "/lib64", "/sbin", "/dev", "/proc", "/sys", "/etc", runtimes::CODE_DIR];

/// Whether Mainstay owns a label or annotation.
pub(super) fn is_ours(key: &str) -> bool {
    key.starts_with(names::ANNOTATION_PREFIX)
}

type Texts = BTreeMap<String, String>;

/// Returns the entries of the spec and of the corresponding deprecated field, each with its path.
fn both<'a>(
    spec: &'a FunctionSpec,
    own: Option<&'a Texts>,
    of: fn(&PodTemplate) -> Option<&Texts>,
    path: &'static str,
    former: &'static str,
) -> impl Iterator<Item = (&'a String, &'a String, &'static str)> {
    let template = spec.template.as_ref().and_then(of).into_iter().flatten();
    let before = template.filter(move |(key, _)| own.is_none_or(|own| !own.contains_key(*key)));
    let own = own.into_iter().flatten();
    own.map(move |(key, value)| (key, value, path)).chain(before.map(move |(key, value)| (key, value, former)))
}

/// Reports keys that pods must not have, separately for each of the two paths.
fn steering<'a, All: Iterator<Item = (&'a String, &'a String, &'static str)>>(
    what: &str,
    paths: [&'static str; 2],
    given: impl Fn() -> All,
    allowed: &PodKeys,
    found: &mut Findings,
) {
    for path in paths {
        let of_path = given().filter(|(key, _, at)| *at == path && !is_ours(key)).map(|(key, value, _)| (key, value));
        found.violations.extend(allowed.violation(what, path, of_path));
    }
}

/// Resolves all labels. `internal` are the identifying labels of the children.
pub(super) fn labels(spec: &FunctionSpec, internal: &Texts, allowed: &PodKeys, found: &mut Findings) -> Texts {
    let mut labels = BTreeMap::new();
    let (own, former) = ("spec.labels", "spec.template.labels");
    let given = || both(spec, spec.labels.as_ref(), |t| t.labels.as_ref(), own, former);
    steering("label", [own, former], given, allowed, found);
    for (key, value, path) in given() {
        for words in syntax::label(key, value) {
            found.wrong(Violation::invalid(format!("{path}: {words}"), path));
        }
        if is_ours(key) || internal.contains_key(key) || key == names::RESOURCE {
            let message = format!("the label {} of {path} belongs to Mainstay and is ignored", shown(key));
            found.warn(Reason::LabelIgnored, message);
        } else {
            labels.insert(key.clone(), value.clone());
        }
    }
    labels.extend(internal.clone());
    labels.insert(names::RESOURCE.to_owned(), names::DEPLOYMENT.to_owned());
    labels
}

/// Resolves the annotations of the spec.
pub(super) fn annotations(spec: &FunctionSpec, allowed: &PodKeys, found: &mut Findings) -> Texts {
    let (path, former) = ("spec.annotations", "spec.template.annotations");
    let given = || both(spec, spec.annotations.as_ref(), |t| t.annotations.as_ref(), path, former);
    steering("annotation", [path, former], given, allowed, found);
    let mut annotations = BTreeMap::new();
    for (key, value, path) in given() {
        // The syntax is that of label keys, but upper case is allowed, too.
        for words in syntax::label(&key.to_lowercase(), "") {
            found.wrong(Violation::invalid(format!("{path}: {words}"), path));
        }
        if is_ours(key) {
            let message = format!("the annotation {} of {path} belongs to Mainstay and is ignored", shown(key));
            found.warn(Reason::AnnotationIgnored, message);
        } else {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_ANNOTATIONS {
        found.wrong(Violation::invalid(
            format!("the annotations have {bytes} bytes, more than {MAX_ANNOTATIONS}"),
            path,
        ));
    }
    annotations
}

/// Resolves the mounted Secrets.
pub(super) fn secret_mounts(spec: &FunctionSpec, credentials: &Credentials, found: &mut Findings) -> Vec<SecretMount> {
    const PATH: &str = "spec.secretMounts";
    let mounts = spec.secret_mounts.as_deref().unwrap_or_default();
    if mounts.len() > MAX_MOUNTS {
        found.wrong(Violation::invalid(format!("{} Secrets are mounted, more than {MAX_MOUNTS}", mounts.len()), PATH));
    }
    let (mut secrets, mut places) = (BTreeSet::new(), BTreeSet::new());
    for SecretMount { secret_name, mount_path } in mounts.iter().take(MAX_MOUNTS) {
        let mut wrong = |what: String| found.wrong(Violation::invalid(what, PATH));
        match syntax::subdomain(secret_name) {
            Some(words) => wrong(format!("\"{}\" is not the name of a Secret: {words}", shown(secret_name))),
            None if !secrets.insert(secret_name) => wrong(format!("secretNames should be unique: {secret_name}")),
            None => {}
        }
        let place = mount_path.trim_end_matches('/');
        let is_plain = place.starts_with('/')
            && !place.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."))
            && !place.chars().any(|c| c == ':' || c.is_control());
        let is_server = std::path::Path::new(place).starts_with(runtimes::SERVER_DIR);
        if mount_path.is_empty() {
            wrong("mountPath should not be empty".to_owned());
        } else if !is_plain {
            wrong(format!("mountPath \"{}\" is not an absolute path without `..` and colons", shown(mount_path)));
        } else if is_server || TAKEN.contains(&place) {
            wrong(format!("mountPath \"{}\" is a directory of the runtime or of the system", shown(mount_path)));
        } else if !places.insert(place) {
            wrong(format!("mountPath should be unique: {}", shown(mount_path)));
        }
        found.violations.extend(credentials.refusal("a mount", secret_name, PATH));
    }
    mounts.to_vec()
}
