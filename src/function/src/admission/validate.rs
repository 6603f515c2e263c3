//! Validates Functions and GitRepositories. The rules and messages are those of [`resolve`] and of the crate for Git.
//!
//! Invariant: a write is accepted exactly if [`resolve`] accepts the object, as far as the object and the agent's
//! settings determine it.
//! Invariant: an update with an unchanged spec is accepted, and so is every update of an object that is being deleted.
//! So a Function that became invalid can still be labelled and deleted.
//!
//! Not here: facts from other objects, such as which Secrets GitRepositories use; see `observe`.

use super::review::Verdict;
use crate::{Credentials, Settings, resolve, same_input, text};
use mainstay_api::function_v1alpha2::{Form, path_of};
use mainstay_api::{Function, GitRepository};
use mainstay_git::RemoteUrl;
use mainstay_object::failure::chain;

/// Validates a Function. `old` is the object that it replaces. `written_in` is the version of the request, whose field
/// names the messages use.
pub(super) fn function(
    new: &Function,
    old: Option<&Function>,
    written_in: Option<&str>,
    settings: &Settings,
) -> Verdict {
    let is_kept = old.is_some_and(|old| same_input(new, old));
    if is_kept || new.metadata.deletion_timestamp.is_some() {
        return Verdict::Allowed;
    }
    match resolve(&named(new), settings, &Credentials::new(settings, [])) {
        Ok(_) => Verdict::Allowed,
        Err(mut violations) => {
            if written_in == Some("v1alpha2") {
                let form = if new.spec.kind.as_deref() == Some("git") { Form::Git } else { Form::Inline };
                let paths = violations.iter_mut().flat_map(|violation| &mut violation.paths);
                paths.for_each(|path| *path = path_of(path, form));
            }
            denied(&text(&violations))
        }
    }
}

/// Validates a GitRepository. `old` is the object that it replaces.
pub(super) fn repository(new: &GitRepository, old: Option<&GitRepository>) -> Verdict {
    let is_kept = old.is_some_and(|old| new.spec == old.spec);
    if is_kept || new.metadata.deletion_timestamp.is_some() {
        return Verdict::Allowed;
    }
    let (spec, mut missing, mut lines) = (&new.spec, Vec::new(), Vec::new());
    let names = [
        (Some(&spec.url), "spec.url"),
        (spec.auth.as_ref().map(|auth| &auth.secret_name), "spec.auth.secretName"),
        (spec.proxy_secret_ref.as_ref().map(|proxy| &proxy.name), "spec.proxySecretRef.name"),
        (spec.verify.as_ref().map(|verify| &verify.secret_ref.name), "spec.verify.secretRef.name"),
    ];
    missing.extend(
        names.iter().filter(|(name, _)| name.is_some_and(|name| name.trim().is_empty())).map(|(_, path)| *path),
    );
    if !spec.url.trim().is_empty() {
        match RemoteUrl::parse(&spec.url) {
            Err(error) => lines.push(format!("invalid value: {}: spec.url", chain(&error))),
            Ok(url) => {
                let supported = mainstay_git::supported(&url, spec);
                lines.extend(supported.err().map(|error| format!("invalid value: {}: spec.auth", chain(&error))));
            }
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        lines.push(format!("missing field(s): {}", missing.join(", ")));
    }
    if lines.is_empty() { Verdict::Allowed } else { denied(&lines.join("\n")) }
}

fn denied(text: &str) -> Verdict {
    Verdict::Denied { code: 400, text: format!("validation failed: {text}") }
}

/// Returns the Function with a name. A generated name ends with five characters.
fn named(function: &Function) -> Function {
    let mut function = function.clone();
    let metadata = &mut function.metadata;
    if let (None | Some(""), Some(prefix)) = (metadata.name.as_deref(), &metadata.generate_name) {
        metadata.name = Some(format!("{}xxxxx", mainstay_api::conditions::cut(prefix, 58)));
    }
    function
}
