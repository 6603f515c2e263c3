//! The update that an ImageUpdateAutomation asks for.
//!
//! Invariant: a field that is not supported is reported by its name, not ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::Template;
use mainstay_api::ImageUpdateAutomationSpec;
use mainstay_api::image_update_automation::{PolicyOperator, PolicySelector, UpdateCommit, UpdateGit};
use mainstay_git::{BaseDir, Reference};

/// Minimum time between two lookups.
const SHORTEST: Duration = Duration::from_secs(10);

/// The update that an ImageUpdateAutomation asks for.
#[derive(Clone, Debug)]
pub(super) struct Update {
    /// Name of the GitRepository.
    pub(super) repository: String,
    /// The branch that is read.
    pub(super) read: Reference,
    /// Full name of the branch that is pushed; `None` for the branch that is read.
    pub(super) push: Option<String>,
    /// The Secret with write access; without it, nothing is pushed.
    pub(super) secret: Option<String>,
    pub(super) author: (String, String),
    pub(super) message: Option<Template>,
    pub(super) directory: BaseDir,
    pub(super) interval: Duration,
}

/// Reads the spec of the ImageUpdateAutomation `namespace/name`.
///
/// # Errors
/// Fails with the invalid fields.
pub(super) fn update(namespace: &str, name: &str, spec: &ImageUpdateAutomationSpec) -> Result<Update, Vec<String>> {
    let mut problems = Vec::new();
    let source = &spec.source_ref;
    if source.kind.as_deref().is_some_and(|kind| kind != "GitRepository") {
        problems.push("spec.sourceRef.kind: must be GitRepository".to_owned());
    }
    if source.namespace.as_deref().is_some_and(|other| other != namespace) {
        problems.push("spec.sourceRef.namespace: must be the namespace of the ImageUpdateAutomation".to_owned());
    }
    if spec.interval.0 < SHORTEST {
        problems.push("spec.interval: must be at least 10s".to_owned());
    }
    let path = spec.update.as_ref().and_then(|update| update.path.as_deref()).unwrap_or_default();
    let directory = BaseDir::parse(path).map_err(|error| problems.push(format!("spec.update.path: {error}"))).ok();
    let Some(git) = &spec.git else {
        problems.push("spec.git: must name the author of the commits and the Secret of the push".to_owned());
        return Err(problems);
    };
    let message = message(&git.commit, &mut problems);
    let read = read(git, &mut problems);
    let push = git.push.as_ref();
    let branch = push.and_then(|push| push.branch.as_deref());
    let branch = branch.map(|branch| full(branch, "spec.git.push.branch", &mut problems));
    if push.is_some_and(|push| push.refspec.is_some()) {
        problems.push("spec.git.push.refspec: is not supported; name a branch in spec.git.push.branch".to_owned());
    }
    if push.is_some_and(|push| !push.options.is_empty()) {
        problems.push("spec.git.push.options: are not supported; remove them".to_owned());
    }
    let author = git.commit.author.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| name.to_owned());
    let author = (author, git.commit.author.email.clone());
    if [&author.0, &author.1].into_iter().any(|text| text.contains(['<', '>']) || text.contains(char::is_control)) {
        problems.push("spec.git.commit.author: must not contain `<`, `>` or control characters".to_owned());
    }
    match (directory, read) {
        (Some(directory), Some(read)) if problems.is_empty() => Ok(Update {
            repository: source.name.clone(),
            read,
            push: branch.flatten(),
            secret: push.and_then(|push| push.secret_ref.as_ref()).map(|secret| secret.name.clone()),
            author,
            message,
            directory,
            interval: spec.interval.0,
        }),
        _ => Err(problems),
    }
}

fn message(commit: &UpdateCommit, problems: &mut Vec<String>) -> Option<Template> {
    if commit.signing_key.is_some() {
        problems.push("spec.git.commit.signingKey: signed commits are not supported; remove it".to_owned());
    }
    let template = commit.message_template.as_deref().map(Template::parse);
    let mut add = |why| problems.push(format!("spec.git.commit.messageTemplate: {why}"));
    template.transpose().map_err(&mut add).ok().flatten()
}

/// Returns the reference that is read.
fn read(git: &UpdateGit, problems: &mut Vec<String>) -> Option<Reference> {
    let Some(checkout) = &git.checkout else { return Some(Reference::head()) };
    let reference = &checkout.reference;
    let others = [&reference.tag, &reference.semver, &reference.name, &reference.commit];
    for (field, _) in ["tag", "semver", "name", "commit"].iter().zip(others).filter(|(_, value)| value.is_some()) {
        problems.push(format!("spec.git.checkout.ref.{field}: is not supported; name a branch"));
    }
    let Some(branch) = &reference.branch else { return Some(Reference::head()) };
    let full = full(branch, "spec.git.checkout.ref.branch", problems)?;
    Reference::parse(&full).ok()
}

/// Returns the full name of a branch.
fn full(branch: &str, field: &str, problems: &mut Vec<String>) -> Option<String> {
    let full = format!("refs/heads/{}", branch.strip_prefix("refs/heads/").unwrap_or(branch));
    let parsed = Reference::parse(&full).map_err(|error| problems.push(format!("{field}: {error}")));
    parsed.ok().map(|_| full)
}

/// Whether labels meet a selector.
pub(super) fn selects(selector: Option<&PolicySelector>, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return true };
    let has = |(name, value): (&String, &String)| labels.get(name) == Some(value);
    selector.match_labels.iter().all(has)
        && selector.match_expressions.iter().all(|needed| {
            let value = labels.get(&needed.key);
            let is_listed = value.is_some_and(|value| needed.values.contains(value));
            match needed.operator {
                PolicyOperator::In => is_listed,
                PolicyOperator::NotIn => !is_listed,
                PolicyOperator::Exists => value.is_some(),
                PolicyOperator::DoesNotExist => value.is_none(),
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read_spec(change: Value) -> Result<Update, String> {
        let mut spec = json!({
            "sourceRef": {"kind": "GitRepository", "name": "repo"},
            "git": {"commit": {"author": {"email": "bot@example.org"}}, "push": {"secretRef": {"name": "write"}}},
        });
        json_patch::merge(&mut spec, &change);
        let spec = serde_json::from_value(spec).unwrap();
        update("team", "images", &spec).map_err(|problems| problems.join("; "))
    }

    #[test]
    fn reads_the_branches_the_author_and_the_secret() {
        let usual = read_spec(json!({})).unwrap();
        assert_eq!((usual.read, usual.push, usual.secret.as_deref()), (Reference::head(), None, Some("write")));
        assert_eq!(usual.author, ("images".to_owned(), "bot@example.org".to_owned()));
        let git = json!({"checkout": {"ref": {"branch": "main"}}, "push": {"branch": "images", "secretRef": null}});
        let named = read_spec(json!({"git": git, "update": {"path": "./apps"}})).unwrap();
        assert_eq!(named.read, Reference::parse("refs/heads/main").unwrap());
        assert_eq!((named.push.as_deref(), named.secret), (Some("refs/heads/images"), None));
        assert_eq!(named.directory.path(), "apps");
    }

    #[test]
    fn names_each_field_that_is_wrong_or_not_supported() {
        for (change, problem) in [
            (json!({"git": null}), "spec.git: must name"),
            (json!({"sourceRef": {"kind": "Bucket"}}), "spec.sourceRef.kind: must be GitRepository"),
            (json!({"sourceRef": {"namespace": "other"}}), "spec.sourceRef.namespace: must be the namespace"),
            (json!({"interval": "1s"}), "spec.interval: must be at least 10s"),
            (json!({"update": {"path": "../a"}}), "spec.update.path: "),
            (json!({"git": {"checkout": {"ref": {"tag": "v1"}}}}), "spec.git.checkout.ref.tag: is not supported"),
            (json!({"git": {"checkout": {"ref": {"branch": "a b"}}}}), "spec.git.checkout.ref.branch: "),
            (json!({"git": {"push": {"branch": "a..b"}}}), "spec.git.push.branch: "),
            (json!({"git": {"push": {"refspec": "a:b"}}}), "spec.git.push.refspec: is not supported"),
            (json!({"git": {"push": {"options": {"a": "b"}}}}), "spec.git.push.options: are not supported"),
            (json!({"git": {"commit": {"signingKey": {}}}}), "spec.git.commit.signingKey: signed commits"),
            (json!({"git": {"commit": {"author": {"name": "a <b>"}}}}), "spec.git.commit.author: must not"),
            (
                json!({"git": {"commit": {"messageTemplate": "{{ printf }}"}}}),
                "spec.git.commit.messageTemplate: line 1",
            ),
        ] {
            let said = read_spec(change.clone()).unwrap_err();
            assert!(said.starts_with(problem), "{change}: {said}");
        }
    }

    #[test]
    fn selects_policies_by_their_labels() {
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let check = |selector: Value, expected: bool| {
            let selector: PolicySelector = serde_json::from_value(selector).unwrap();
            assert_eq!(selects(Some(&selector), &labels), expected);
        };
        assert!(selects(None, &labels));
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "api"}}), false);
        for (operator, values, expected) in [
            ("In", json!(["web"]), true),
            ("NotIn", json!(["web"]), false),
            ("Exists", json!([]), true),
            ("DoesNotExist", json!([]), false),
        ] {
            check(json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}), expected);
        }
    }
}
