//! Commands that users copy into a shell.
//!
//! Invariant: this program composes each command, because others write the texts of statuses, Events and errors. The only
//! command in a status is that of a held object, and all of its words must have the form that the agent writes.

use mainstay_api::names;
use mainstay_object::Key;

/// The words before the command in the text of a held object.
const TO_DELETE: &str = "; to delete it: ";

/// A command without parts that a shell reads in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command(String);

impl Command {
    /// Returns the command as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the command that takes back a commit, or the commits after `previous`; `None` if there is no commit.
    pub(crate) fn revert(previous: Option<&str>, this: Option<&str>) -> Option<Self> {
        let this = this.filter(|this| is_commit(this))?;
        let previous = previous.filter(|previous| is_commit(previous) && *previous != this);
        let from = previous.map(|previous| format!("{previous}..")).unwrap_or_default();
        Some(Self(format!("git revert --no-edit {from}{this}")))
    }

    /// Returns the command that ends the pause of an object, as the origin of the object names it.
    pub(crate) fn resume(key: &Key) -> Option<Self> {
        let namespace = key.namespace.as_deref();
        let is_plain = |text: &str| text.is_empty() || is_word(text);
        if ![&*key.group, &*key.kind, &*key.name, namespace.unwrap_or_default()].into_iter().all(is_plain) {
            return None;
        }
        let group = if key.group.is_empty() { String::new() } else { format!(".{}", key.group) };
        let namespace = namespace.map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        Some(Self(format!("mainstay resume {}{group}/{}{namespace}", key.kind, key.name)))
    }

    /// Returns the code in a remedy as a command, if it is one. The remedies are texts of this program.
    pub(crate) fn of_remedy(code: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./:=,@%+".contains(c);
        let is_known = ["mainstay ", "kubectl ", "git "].iter().any(|tool| code.starts_with(tool));
        (is_known && code.chars().all(is_plain)).then(|| Self(code.to_owned()))
    }

    /// Splits the text of a held object into the text before its command, and the command.
    pub(crate) fn of_held(text: &str) -> Option<(&str, Self)> {
        let at = text.rfind(TO_DELETE)? + TO_DELETE.len();
        let (before, code) = text.split_at_checked(at)?;
        releases(code).then(|| (before, Self(code.to_owned())))
    }
}

/// Returns whether a command permits the deletions of a commit, or removes the annotation that keeps an object. The agent
/// also writes commands that delete an object. They have no button, because others could write one, too.
fn releases(code: &str) -> bool {
    let words: Vec<&str> = code.split(' ').collect();
    match words.as_slice() {
        ["kubectl", "annotate", "--overwrite", "gitsync", name, "-n", namespace, permission] => {
            let commit = permission.strip_prefix(names::ALLOW_PRUNE).and_then(|rest| rest.strip_prefix('='));
            let commit = commit.map(|commit| commit.strip_prefix("sha256:").unwrap_or(commit));
            is_word(name) && is_word(namespace) && commit.is_some_and(is_commit)
        }
        ["kubectl", "annotate", kind, name, "-n", namespace, annotation] => {
            is_word(kind) && is_word(name) && is_word(namespace) && is_removal(annotation)
        }
        ["kubectl", "annotate", kind, name, annotation] => is_word(kind) && is_word(name) && is_removal(annotation),
        _ => false,
    }
}

/// Returns whether a word is a name and no flag.
fn is_word(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_allowed)
}

/// Returns whether a word removes an annotation.
fn is_removal(text: &str) -> bool {
    let parts = text.strip_suffix('-').and_then(|name| name.split_once('/'));
    parts.is_some_and(|(prefix, name)| is_word(prefix) && is_word(name))
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn only_the_forms_of_the_agent_are_commands_of_held_objects() {
        for code in [
            format!("kubectl annotate --overwrite gitsync shop -n team mainstay.dev/allow-prune={ID}"),
            format!(
                "kubectl annotate --overwrite gitsync shop -n team mainstay.dev/allow-prune=sha256:{}",
                "a".repeat(64)
            ),
            "kubectl annotate ClusterRole.rbac.authorization.k8s.io system:view mainstay.dev/prune-".to_owned(),
            "kubectl annotate ConfigMap a -n team mainstay.dev/reconcile-".to_owned(),
        ] {
            let text = format!("held by a guard; to delete it: {code}");
            let (before, command) = Command::of_held(&text).unwrap();
            assert_eq!((before, command.as_str()), ("held by a guard; to delete it: ", &*code));
        }
        for code in [
            "kubectl delete Namespace prod",
            "kubectl annotate gitsync/shop -n a b=c",
            "kubectl annotate --overwrite gitsync shop -n team mainstay.dev/allow-prune=abc",
            "kubectl annotate ConfigMap --all -n team mainstay.dev/reconcile-",
            "kubectl annotate ConfigMap a -n team mainstay.dev/reconcile=disabled",
            "kubectl annotate ConfigMap a -n $(id) mainstay.dev/reconcile-",
            "kubectl annotate ConfigMap a  mainstay.dev/reconcile-",
            "mainstay uninstall",
            "git push --force",
            "",
        ] {
            assert_eq!(Command::of_held(&format!("kept; to delete it: {code}")), None, "{code}");
        }
        assert_eq!(Command::of_held("ApplyFailed: kubectl annotate ConfigMap a mainstay.dev/reconcile-"), None);
    }

    #[test]
    fn a_command_to_end_a_pause_names_its_object() {
        let of = |namespace: Option<&str>, name: &str| {
            let command = Command::resume(&Key::new("apps", "Deployment", namespace, name));
            command.map(|command| command.as_str().to_owned())
        };
        assert_eq!(of(Some("shop"), "web").as_deref(), Some("mainstay resume Deployment.apps/web -n shop"));
        assert_eq!(of(None, "web").as_deref(), Some("mainstay resume Deployment.apps/web"));
        for name in ["$(id)", "a;id", "--all", "a b", "a`id`"] {
            assert_eq!(of(Some("shop"), name), None, "{name}");
        }
    }

    #[test]
    fn a_remedy_has_commands_of_known_tools_only() {
        assert!(Command::of_remedy("mainstay sync shop -n a").is_some());
        for code in [
            "kubectl get x; id",
            "git a | sh",
            "mainstay $(id)",
            "mainstay a\nid",
            "kubectl a > b",
            "mainstay",
            "spec.a",
        ] {
            assert_eq!(Command::of_remedy(code), None, "{code}");
        }
    }
}
