//! The update that an ImageUpdateAutomation asks for.
//!
//! Invariant: a field that is not supported is reported by its name, not ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::Template;
use super::update_refspec::{Destination, destination, full_name};
use mainstay_api::ImageUpdateAutomationSpec;
use mainstay_api::image_update_automation::{
    PolicyOperator, PolicySelector, UpdateCommit, UpdateGit, UpdatePush, UpdateSigningKey,
};
use mainstay_git::{BaseDir, Reference};

/// Minimum time between two lookups.
const SHORTEST: Duration = Duration::from_secs(10);
/// Maximum number of options of a push, and maximum lengths of their names and values in bytes.
const OPTIONS: usize = 50;
const LONGEST_NAME: usize = 255;
const LONGEST_VALUE: usize = 1 << 10;

/// The update that an ImageUpdateAutomation asks for.
#[derive(Clone, Debug)]
pub(super) struct Update {
    /// Name of the GitRepository.
    pub(super) repository: String,
    /// The branch that is read.
    pub(super) read: Reference,
    pub(super) destination: Destination,
    /// The options of a push, each in one line.
    pub(super) options: Vec<String>,
    /// The Secret with write access; without it, nothing is pushed.
    pub(super) secret: Option<String>,
    /// The key that signs the commits.
    pub(super) signing: Option<UpdateSigningKey>,
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
    let destination = pushed(git, &mut problems);
    let options = push.map(|push| options(push, &mut problems)).unwrap_or_default();
    let author = git.commit.author.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| name.to_owned());
    let author = (author, git.commit.author.email.clone());
    if [&author.0, &author.1].into_iter().any(|text| text.contains(['<', '>']) || text.contains(char::is_control)) {
        problems.push("spec.git.commit.author: must not contain `<`, `>` or control characters".to_owned());
    }
    match (directory, read, destination) {
        (Some(directory), Some(read), Some(destination)) if problems.is_empty() => Ok(Update {
            repository: source.name.clone(),
            read,
            destination,
            options,
            signing: git.commit.signing_key.clone(),
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
    let template = commit.message_template.as_deref().map(Template::parse);
    let mut add = |why| problems.push(format!("spec.git.commit.messageTemplate: {why}"));
    template.transpose().map_err(&mut add).ok().flatten()
}

/// Returns where commits are pushed.
fn pushed(git: &UpdateGit, problems: &mut Vec<String>) -> Option<Destination> {
    let push = git.push.as_ref();
    let branch = match push.and_then(|push| push.branch.as_deref()) {
        Some(branch) => Some(full(branch, "spec.git.push.branch", problems)?),
        None => None,
    };
    let refspec = push.and_then(|push| push.refspec.as_deref()).filter(|refspec| !refspec.is_empty());
    let Some(refspec) = refspec else { return Some(Destination::Branch(branch)) };
    let read = git.checkout.as_ref().and_then(|checkout| checkout.reference.branch.as_deref());
    let committed = branch.clone().or_else(|| read.map(full_name));
    let to = destination(refspec, committed.as_deref());
    let to = to.map_err(|why| problems.push(format!("spec.git.push.refspec: {why}"))).ok()?;
    Some(Destination::new(branch, to))
}

/// Returns the options of a push in the form of `git push --push-option`.
fn options(push: &UpdatePush, problems: &mut Vec<String>) -> Vec<String> {
    let is_name = |name: &str| {
        (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=')
    };
    let is_value = |value: &str| value.len() <= LONGEST_VALUE && !value.contains(char::is_control);
    if push.options.len() > OPTIONS || !push.options.iter().all(|(name, value)| is_name(name) && is_value(value)) {
        problems.push(format!(
            "spec.git.push.options: must have at most {OPTIONS} options; a name has 1 to {LONGEST_NAME} characters of ASCII \
             without spaces and `=`, a value at most {LONGEST_VALUE} bytes in one line"
        ));
        return Vec::new();
    }
    let option = |(name, value): (&String, &String)| match value.as_str() {
        "" => name.clone(),
        value => format!("{name}={value}"),
    };
    push.options.iter().map(option).collect()
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
    let full = full_name(branch);
    let parsed = Reference::parse(&full).map_err(|error| problems.push(format!("{field}: {error}")));
    parsed.ok().map(|_| full)
}

/// Returns the invalid fields of the ImageUpdateAutomation `namespace/name`.
pub(crate) fn image_update_problems(namespace: &str, name: &str, spec: &ImageUpdateAutomationSpec) -> Vec<String> {
    update(namespace, name, spec).err().unwrap_or_default()
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
        assert_eq!((usual.read, usual.secret.as_deref()), (Reference::head(), Some("write")));
        assert_eq!((usual.destination, usual.options.len()), (Destination::Branch(None), 0));
        assert_eq!(usual.author, ("images".to_owned(), "bot@example.org".to_owned()));
        let git = json!({"checkout": {"ref": {"branch": "main"}}, "push": {"branch": "images", "secretRef": null}});
        let named = read_spec(json!({"git": git, "update": {"path": "./apps"}})).unwrap();
        assert_eq!(named.read, Reference::parse("refs/heads/main").unwrap());
        assert_eq!((named.destination.branch(), named.secret), (Some("refs/heads/images"), None));
        assert_eq!(named.directory.path(), "apps");
    }

    #[test]
    fn reads_the_destination_the_options_and_the_key_that_signs() {
        let push = json!({"refspec": "HEAD:refs/for/main", "options": {"topic": "images", "wip": ""}});
        let key = json!({"type": "ssh", "secretRef": {"name": "key"}});
        let review = read_spec(json!({"git": {"push": push, "commit": {"signingKey": key}}})).unwrap();
        assert_eq!(review.destination, Destination::Review("refs/for/main".to_owned()));
        assert_eq!(review.options, ["topic=images", "wip"]);
        assert_eq!(review.signing.unwrap().secret_ref.name, "key");
        let push = json!({"branch": "dev", "refspec": "refs/heads/dev:refs/heads/main"});
        let both = read_spec(json!({"git": {"push": push}})).unwrap().destination;
        assert_eq!(both, Destination::Both("refs/heads/dev".to_owned(), "refs/heads/main".to_owned()));
        let git =
            json!({"checkout": {"ref": {"branch": "main"}}, "push": {"refspec": "refs/heads/main:refs/heads/auto"}});
        assert_eq!(read_spec(json!({"git": git})).unwrap().destination.branch(), Some("refs/heads/auto"));
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
            (json!({"git": {"push": {"refspec": "+HEAD:refs/heads/b"}}}), "spec.git.push.refspec: a forced push"),
            (
                json!({"git": {"push": {"branch": "a", "refspec": "refs/heads/b:refs/heads/c"}}}),
                "spec.git.push.refspec: the source",
            ),
            (json!({"git": {"push": {"options": {"a b": "c"}}}}), "spec.git.push.options: must have at most 50"),
            (json!({"git": {"push": {"options": {"": "c"}}}}), "spec.git.push.options: must have"),
            (json!({"git": {"push": {"options": {"a": "b\nc"}}}}), "spec.git.push.options: must have"),
            (json!({"git": {"push": {"options": {"a": "b".repeat(1025)}}}}), "spec.git.push.options: must have"),
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
