//! The source of a Function, and whether it is valid.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Code, Findings};
use crate::api::FunctionSpec;
use crate::api::function::OwnRepository;
use crate::function::violation::{Violation, shown};
use crate::object::syntax;
use crate::runtimes::{Language, Runtime};
use crate::source::{BaseDir, Reference};

/// Maximum bytes in a ConfigMap.
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

/// The source; `None` after a violation.
pub(super) fn code(spec: &FunctionSpec, is_git: bool, runtime: Option<&Runtime>, found: &mut Findings) -> Option<Code> {
    let own = spec.git_repository.as_ref().filter(|own| is_git && **own != OwnRepository::default());
    if own.is_some() {
        let what = "a repository cannot be named by its address here";
        let why = "create a GitRepository with this url and auth, and name it (spec.source, in v1alpha2 spec.source.gitRepository.name)";
        found.wrong(Violation::invalid(what, "spec.gitRepository").because(why));
    }
    let blank = spec.source.trim().is_empty();
    if blank && own.is_none() {
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

/// The dependency file, normalised for all ways to have no dependencies.
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

/// A parsed field. A missing one was reported already.
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
