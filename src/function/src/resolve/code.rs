//! Resolves and validates the source of a Function.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Code, Findings, Origin};
use crate::credentials::Credentials;
use crate::runtimes::{Language, Runtime};
use crate::violation::{Violation, shown};
use mainstay_api::FunctionSpec;
use mainstay_api::events::Reason;
use mainstay_api::own_repository::OwnRepository;
use mainstay_git::{BaseDir, Reference, RemoteUrl};
use mainstay_object::failure::chain;
use mainstay_object::syntax;

/// Maximum total size in bytes of the data in a ConfigMap.
const CONFIG_MAP_ROOM: usize = 1024 * 1024;

/// Whether the source is in Git.
pub(super) fn is_git(spec: &FunctionSpec, found: &mut Findings) -> bool {
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

/// Resolves the source; `None` after a violation.
pub(super) fn code(
    spec: &FunctionSpec,
    (is_git, runtime): (bool, Option<&Runtime>),
    credentials: &Credentials,
    found: &mut Findings,
) -> Option<Code> {
    if is_git {
        return git(spec, credentials, found);
    }
    if spec.source.trim().is_empty() {
        found.wrong(Violation::missing("spec.source"));
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

/// Returns the content of the dependency file. All ways to have no dependencies result in the same content.
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
            Err(error) => {
                let why = format!("deps is not JSON: {error}; npm refuses it (EJSONPARSE)");
                found.wrong(Violation::invalid(why, "spec.deps"));
            }
        },
    }
    deps.to_owned()
}

/// Returns the GitRepository that the spec references.
fn named(name: &str, found: &mut Findings) -> Option<Origin> {
    if name.is_empty() {
        found.wrong(Violation::missing("spec.source"));
        return None;
    }
    if let Some(words) = syntax::subdomain(name) {
        found.wrong(Violation::invalid("source is not the name of a GitRepository", "spec.source").because(words));
        return None;
    }
    Some(Origin::Named(name.to_owned()))
}

/// Returns the repository that the Function itself declares.
fn own(own: &OwnRepository, name: &str, credentials: &Credentials, found: &mut Findings) -> Option<Origin> {
    const HERE: &str = "spec.gitRepository";
    const URL: &str = "spec.gitRepository.url";
    const SECRET: &str = "spec.gitRepository.auth.secretName";
    let spec = own.spec();
    let before = found.violations.len();
    if !name.is_empty() {
        let mut violation =
            Violation::invalid("the repository has both an address and the name of a GitRepository", "spec.source");
        violation.paths.push(HERE.into());
        found.wrong(violation.because("remove either of them"));
    }
    let secret = spec.auth.as_ref().map(|auth| &*auth.secret_name);
    match secret.map(str::trim) {
        Some("") => found.wrong(Violation::missing(SECRET)),
        Some(_) => {
            let words = secret.and_then(syntax::subdomain);
            found.violations.extend(
                words.map(|words| Violation::invalid("secretName is not the name of a Secret", SECRET).because(words)),
            );
        }
        None => {}
    }
    if spec.url.is_empty() {
        found.wrong(Violation::missing(URL));
        return None;
    }
    let url = RemoteUrl::parse(&spec.url).map_err(|error| found.wrong(Violation::invalid(chain(&error), URL))).ok()?;
    if let Err(error) = mainstay_git::supported(&url, &spec) {
        let in_address = "the address of the repository holds a user name or password; put them into a Secret with the keys \
                          username and password, and name the Secret in auth";
        let what = if url.holds_credentials() { in_address.to_owned() } else { chain(&error) };
        found.wrong(Violation::invalid(what, HERE));
    }
    let refused = spec.auth.as_ref().and_then(|auth| credentials.refusal_at(auth, &url, SECRET));
    found.violations.extend(refused);
    (found.violations.len() == before).then(|| Origin::Own(url, Box::new(spec)))
}

fn git(spec: &FunctionSpec, credentials: &Credentials, found: &mut Findings) -> Option<Code> {
    let name = spec.source.trim();
    let repository = match spec.own_repository() {
        Some(repository) => own(repository, name, credentials, found),
        None => named(name, found),
    };
    let present = |text: &Option<String>| text.as_deref().map(str::trim).unwrap_or_default().to_owned();
    let (base_dir, reference) = (present(&spec.base_dir), present(&spec.reference));
    for (text, path) in [(&base_dir, "spec.baseDir"), (&reference, "spec.reference")] {
        if text.is_empty() {
            found.wrong(Violation::missing(path));
        }
    }
    if spec.deps.as_deref().is_some_and(|deps| !deps.trim().is_empty()) {
        let message = "spec.deps is ignored: with type git the dependency file in the repository is used".to_owned();
        found.warn(Reason::DepsIgnored, message);
    }
    let base_dir = parse(&base_dir, BaseDir::parse, "spec.baseDir", found);
    let reference = parse(&reference, Reference::parse, "spec.reference", found);
    Some(Code::Git { repository: repository?, reference: reference?, base_dir: base_dir? })
}

/// Parses a field. A missing field is not reported again.
fn parse<T>(
    text: &str,
    parse: impl FnOnce(&str) -> Result<T, mainstay_git::Error>,
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
    parse(text).map_err(|error| found.wrong(Violation::invalid(chain(&error), path))).ok()
}
