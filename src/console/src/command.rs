//! Commands that users copy into a shell.
//!
//! Invariant: this program composes each command, because others write the texts of statuses, Events and errors. The only
//! command in a status is that of a held object. All of its words must have the form that the agent writes, and it must be
//! about this object, or about the attempted commit of its GitSync.

use mainstay_api::names;
use mainstay_object::Key;

/// The words before the command in the text of a held object.
const TO_DELETE: &str = "; to delete it: ";

/// The GitSync of a held object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder<'h> {
    pub(crate) git_sync: &'h Key,
    /// The commit that the agent has attempted last, as the status shows it; empty without one.
    pub(crate) attempted: &'h str,
}

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

    /// Returns the commands that remove the file of an object from its repository; `None` if a shell could read the path in
    /// another way.
    pub(crate) fn remove_file(path: &str, key: &Key) -> Option<[Self; 2]> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        if !is_path(path) || ![&*key.kind, namespace, &*key.name].into_iter().all(is_word) {
            return None;
        }
        let commit = format!("git commit -m \"Remove {} {namespace}/{}\"", key.kind, key.name);
        Some([Self(format!("git rm -- {path}")), Self(commit)])
    }

    /// Returns the command that shows the changes of a sync of this GitSync, and writes nothing.
    pub(crate) fn dry_run(git_sync: &Key) -> Option<Self> {
        let namespace = git_sync.namespace.as_deref().filter(|namespace| is_word(namespace))?;
        is_word(&git_sync.name).then(|| Self(format!("mainstay sync {} --dry-run -n {namespace}", git_sync.name)))
    }

    /// Returns the code in a remedy as a command, if it is one without a placeholder such as `NAME`. The remedies are texts of
    /// this program.
    pub(crate) fn of_remedy(code: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./:=,@%+".contains(c);
        let is_known = ["mainstay ", "kubectl ", "git "].iter().any(|tool| code.starts_with(tool));
        let is_placeholder = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        let is_whole = !code.split(' ').any(is_placeholder);
        (is_known && is_whole && code.chars().all(is_plain)).then(|| Self(code.to_owned()))
    }

    /// Splits the text of a held object of a GitSync into the text before its command, and the command.
    pub(crate) fn of_held<'t>(text: &'t str, holder: Holder<'_>, object: &Key) -> Option<(&'t str, Self)> {
        let at = text.rfind(TO_DELETE)? + TO_DELETE.len();
        let (before, code) = text.split_at_checked(at)?;
        let words: Vec<&str> = code.split(' ').collect();
        let is_known = approves(&words, holder) || releases(&words, object);
        is_known.then(|| (before, Self(code.to_owned())))
    }
}

/// Returns whether a command permits the deletions of the attempted commit of this GitSync.
fn approves(words: &[&str], Holder { git_sync, attempted }: Holder<'_>) -> bool {
    let ["kubectl", "annotate", "--overwrite", "gitsync", name, "-n", namespace, permission] = words else {
        return false;
    };
    let is_own = **name == *git_sync.name && Some(*namespace) == git_sync.namespace.as_deref();
    let commit = permission.strip_prefix(names::ALLOW_PRUNE).and_then(|rest| rest.strip_prefix('='));
    let commit = commit.filter(|commit| *commit == attempted);
    is_own && is_word(name) && is_word(namespace) && commit.is_some_and(is_revision)
}

/// Returns whether a command removes the annotation that keeps this object. The agent also writes commands that delete an
/// object. They have no button, because others could write one, too.
fn releases(words: &[&str], object: &Key) -> bool {
    let (kind, name, namespace, annotation) = match words {
        ["kubectl", "annotate", kind, name, "-n", namespace, annotation] => {
            (*kind, *name, Some(*namespace), *annotation)
        }
        ["kubectl", "annotate", kind, name, annotation] => (*kind, *name, None, *annotation),
        _ => return false,
    };
    let group = if object.group.is_empty() { String::new() } else { format!(".{}", object.group) };
    let is_own =
        kind == format!("{}{group}", object.kind) && *name == *object.name && namespace == object.namespace.as_deref();
    is_own && [kind, name].into_iter().chain(namespace).all(is_word) && is_removal(annotation)
}

/// Returns whether a word is a name and no flag.
fn is_word(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-.:".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_allowed)
}

/// Returns whether a text is the path of a file below the root of a repository.
fn is_path(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !matches!(part, "." | "..") && part.chars().all(is_allowed)
    };
    !text.starts_with('-') && text.split('/').all(is_part)
}

/// Returns whether a word removes an annotation that keeps objects.
fn is_removal(text: &str) -> bool {
    let mut keeping =
        names::KEEPS.into_iter().filter_map(|keeps| Some(keeps.split_once(": ")?.0)).chain([names::RECONCILE]);
    text.strip_suffix('-').is_some_and(|name| keeping.any(|keeps| keeps == name))
}

/// Returns whether a text is a full commit ID, or the digest of an artifact.
pub(crate) fn is_revision(text: &str) -> bool {
    is_commit(text.strip_prefix("sha256:").unwrap_or(text))
}

fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    /// Returns the command of a held object of the GitSync `team/shop`, whose attempted commit is [`ID`].
    fn of_held(object: &Key, code: &str) -> Option<String> {
        of_held_at(ID, object, code)
    }

    fn of_held_at(attempted: &str, object: &Key, code: &str) -> Option<String> {
        let git_sync = Key::new("mainstay.dev", "GitSync", Some("team"), "shop");
        let holder = Holder { git_sync: &git_sync, attempted };
        let text = format!("held by a guard; to delete it: {code}");
        let (before, command) = Command::of_held(&text, holder, object)?;
        assert_eq!((before, command.as_str()), ("held by a guard; to delete it: ", code));
        Some(command.0)
    }

    #[test]
    fn only_the_forms_of_the_agent_are_commands_of_held_objects() {
        let map = Key::new("", "ConfigMap", Some("team"), "a");
        let role = Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:view");
        for (object, code) in [
            (&map, format!("kubectl annotate --overwrite gitsync shop -n team mainstay.dev/allow-prune={ID}")),
            (
                &role,
                "kubectl annotate ClusterRole.rbac.authorization.k8s.io system:view mainstay.dev/prune-".to_owned(),
            ),
            (&map, "kubectl annotate ConfigMap a -n team mainstay.dev/reconcile-".to_owned()),
            (&map, "kubectl annotate ConfigMap a -n team argocd.argoproj.io/sync-options-".to_owned()),
        ] {
            assert_eq!(of_held(object, &code).as_deref(), Some(&*code));
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
            assert_eq!(of_held(&map, code), None, "{code}");
        }
        let text = "ApplyFailed: kubectl annotate ConfigMap a -n team mainstay.dev/reconcile-";
        assert_eq!(Command::of_held(text, Holder { git_sync: &map, attempted: ID }, &map), None);
    }

    #[test]
    fn a_permission_is_one_for_the_attempted_commit() {
        let map = Key::new("", "ConfigMap", Some("team"), "a");
        let digest = format!("sha256:{}", "a".repeat(64));
        let permission = |commit: &str| {
            format!("kubectl annotate --overwrite gitsync shop -n team mainstay.dev/allow-prune={commit}")
        };
        for commit in [ID, &digest] {
            let code = permission(commit);
            assert_eq!(of_held_at(commit, &map, &code).as_deref(), Some(&*code));
            for attempted in ["", "abc", &"b".repeat(40)] {
                assert_eq!(of_held_at(attempted, &map, &code), None, "{attempted}");
            }
        }
        assert_eq!(of_held_at("abc", &map, &permission("abc")), None, "it is no full commit");
    }

    #[test]
    fn a_command_about_another_object_or_annotation_is_none_of_a_held_object() {
        let map = Key::new("", "ConfigMap", Some("team"), "a");
        for code in [
            format!("kubectl annotate --overwrite gitsync prod -n team mainstay.dev/allow-prune={ID}"),
            format!("kubectl annotate --overwrite gitsync shop -n prod mainstay.dev/allow-prune={ID}"),
            "kubectl annotate ConfigMap b -n team mainstay.dev/reconcile-".to_owned(),
            "kubectl annotate ConfigMap a -n prod mainstay.dev/reconcile-".to_owned(),
            "kubectl annotate ConfigMap a mainstay.dev/reconcile-".to_owned(),
            "kubectl annotate Secret a -n team mainstay.dev/reconcile-".to_owned(),
            "kubectl annotate ConfigMap.apps a -n team mainstay.dev/reconcile-".to_owned(),
            "kubectl annotate ConfigMap a -n team example.com/owner-".to_owned(),
        ] {
            assert_eq!(of_held(&map, &code), None, "{code}");
        }
        // An object whose name a shell reads in another way has no command.
        let strange = Key::new("", "ConfigMap", Some("team"), "$(id)");
        assert_eq!(of_held(&strange, "kubectl annotate ConfigMap $(id) -n team mainstay.dev/reconcile-"), None);
    }

    #[test]
    fn a_command_removes_a_file_of_the_repository_only() {
        let of = |path: &str, name: &str| {
            let key = Key::new("serverless.kyma-project.io", "Function", Some("shop"), name);
            Command::remove_file(path, &key).map(|all| all.map(|command| command.0))
        };
        let expected = ["git rm -- apps/web.yaml", "git commit -m \"Remove Function shop/web\""].map(str::to_owned);
        assert_eq!(of("apps/web.yaml", "web"), Some(expected));
        for path in ["", "/etc/passwd", "../a", "a/../b", "a//b", "-r", "$(id)", "a b", "a;id", "a`id`", "a\nb", "*"] {
            assert_eq!(of(path, "web"), None, "{path}");
        }
        for name in ["", "$(id)", "a\"b", "a b"] {
            assert_eq!(of("a.yaml", name), None, "{name}");
        }
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
    fn a_command_that_shows_a_sync_names_its_git_sync() {
        let of = |namespace: &str, name: &str| {
            let command = Command::dry_run(&Key::new("mainstay.dev", "GitSync", Some(namespace), name));
            command.map(|command| command.as_str().to_owned())
        };
        assert_eq!(of("team", "shop").as_deref(), Some("mainstay sync shop --dry-run -n team"));
        for (namespace, name) in [("team", "--all"), ("$(id)", "shop"), ("team", "a b"), ("", "shop")] {
            assert_eq!(of(namespace, name), None, "{namespace} {name}");
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
            "mainstay resume KIND NAME",
            "spec.a",
        ] {
            assert_eq!(Command::of_remedy(code), None, "{code}");
        }
    }
}
