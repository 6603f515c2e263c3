//! The button that deletes an object, the page that asks before, and the page that shows the result.

use maud::{Markup, html};
use serde_json::Value;

use super::asking::{self, Asking, head, in_cluster};
use super::facts::addresses;
use super::parts::{self, Right};
use crate::action::Action;
use crate::address;
use crate::asked::Asked;
use crate::belonging::{Belonging, Referrer};
use crate::command::Command;
use crate::deletion::{Followers, Loss, controller};
use crate::form::{Keeper, keeper_of_label};
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_cluster::Removal;
use mainstay_object::{Key, counted};

/// Maximum number of objects of a list.
const NAMED: usize = 50;

/// Contents of the page.
pub(crate) struct Deletion<'d> {
    pub(crate) asked: &'d Asked,
    pub(crate) right: &'d Right,
    pub(crate) csrf: &'d str,
    /// The name of the cluster; empty without a name.
    pub(crate) cluster: &'d str,
    pub(crate) keeper: Option<&'d Keeper>,
    /// The object that controls this one.
    pub(crate) controller: Option<&'d Key>,
    /// The identity and the version of the object that the question is about.
    pub(crate) uid: &'d str,
    pub(crate) version: &'d str,
    /// The effect on other objects; `None` for a kind without such objects.
    pub(crate) loss: Option<&'d Loss>,
    /// The reason why nothing was deleted.
    pub(crate) problem: &'d str,
}

/// Returns the page.
pub(crate) fn deletion(page: &Deletion<'_>) -> Markup {
    let Deletion { asked, cluster, keeper, controller, loss, problem, .. } = page;
    html! {
        (head(asked))
        (in_cluster(cluster))
        @if !problem.is_empty() { p.note role="alert" { (problem) } }
        @if let Some(keeper) = keeper { (of_repository(&asked.key, keeper)) }
        @else if let Some(controller) = controller { p.note { (controlled(controller)) } }
        @else {
            p { (asked.action.effect(&asked.key)) }
            @if let Some(loss) = loss { (lost(loss)) }
            (confirmation_of(page))
        }
    }
}

fn confirmation_of(page: &Deletion<'_>) -> Markup {
    let Deletion { asked, right, csrf, uid, version, .. } = page;
    let values = [("uid", *uid), ("version", *version)];
    let asking = Asking { asked, right, csrf, values: &values, back: &address::of_object(&asked.key) };
    asking::form(&asking, &html! {})
}

/// Returns the note about an object of a repository, with the commands that remove its file.
fn of_repository(key: &Key, keeper: &Keeper) -> Markup {
    let commands = keeper.path.as_deref().and_then(|path| Command::remove_file(path, key));
    html! {
        p.note {
            (parts::named_keeper(keeper.git_sync.as_ref()))
            " manages this object and would recreate it. Remove it from the repository instead. The GitSync then prunes it."
        }
        @if !keeper.note.is_empty() { p.quiet { (keeper.note) } }
        @if !keeper.file.is_empty() { p { "File: " code { (plain(&keeper.file, MESSAGE)) } } }
        @match commands {
            Some(commands) => {
                p { "If the file has no other objects, remove it, and push the commit:" }
                @for command in &commands { p { (parts::command(command)) } }
                p.quiet { "If it has other objects, remove only the document of this one." }
            },
            None => p.quiet { "Remove the document of this object from its file, and push the commit." },
        }
        p { a href=(address::of_object(key)) { "Back to the object" } }
    }
}

/// Returns what goes with the object.
fn lost(loss: &Loss) -> Markup {
    html! {
        @match loss {
            Loss::Function(all) => (of_function(all)),
            Loss::GitRepository(all) => (of_git_repository(all)),
            Loss::ApiRule(facts) if facts.addresses.is_empty() => p { "Its host is not served any more." },
            Loss::ApiRule(facts) => { p { "These hosts are not served any more:" } (addresses(facts)) },
        }
    }
}

/// Returns the objects that follow a GitRepository. It has none only if all of them are known.
fn of_git_repository(all: &Followers) -> Markup {
    html! {
        @if !all.keys.is_empty() {
            p { "These follow it. They keep what they have, read no new commit, and say that the GitRepository is missing:" }
            (keys(all.keys.iter()))
        } @else if all.unread.is_empty() { p { "No GitSync, no Function and no ImageUpdateAutomation follows it." } }
        @if !all.unread.is_empty() {
            p.note {
                @if all.keys.is_empty() { "Not known: which objects follow it. " } @else { "The list is incomplete. " }
                "The reason: " (plain(&all.unread.join("; "), MESSAGE)) "."
            }
        }
    }
}

/// Returns the objects that belong to a Function. It has none only if all of them are known.
fn of_function(all: &Belonging) -> Markup {
    html! {
        @if all.children.is_empty() && all.pods.is_empty() {
            @if all.notes.is_empty() { p { "No objects belong to it." } } @else { p { "Not known: which objects belong to it." } }
        }
        @else {
            p { "These objects belong to it, and are deleted with it" @if !all.pods.is_empty() { ", with " (counted(all.pods.len(), "pod")) } ":" }
            (keys(all.children.iter().map(|child| &child.key)))
        }
        @let left: Vec<&Referrer> = all.rules.iter().chain(&all.subscriptions).collect();
        @if !left.is_empty() {
            p { "These objects stay, and no longer reach it:" }
            (keys(left.iter().map(|one| &one.member.key)))
        }
        @if !all.notes.is_empty() { p.note { "The list is incomplete." } }
        @for note in &all.notes { (parts::note(note)) }
    }
}

fn keys<'k>(all: impl ExactSizeIterator<Item = &'k Key>) -> Markup {
    let count = all.len();
    html! {
        ul {
            @for key in all.take(NAMED) { li { a href=(address::of_object(key)) { (plain(&format!("{} {}", key.kind, key.name), SHORT)) } } }
            @if count > NAMED { li { "and " (count - NAMED) " more" } }
        }
    }
}

/// Returns why an object that another one controls cannot be deleted.
fn controlled(controller: &Key) -> Markup {
    html! {
        "The " a href=(address::of_object(controller)) { (plain(&format!("{} {}", controller.kind, controller.name), SHORT)) }
        " controls this object and would recreate it. Delete or change that one instead."
    }
}

/// Returns the button that deletes an object, or why there is none. `right` is the permission to delete it.
pub(super) fn delete_button(key: &Key, live: &Value, right: &Right) -> Markup {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let pairs = [
        ("action", Action::Delete.word()),
        ("group", &*key.group),
        ("kind", &*key.kind),
        ("namespace", namespace),
        ("name", &*key.name),
    ];
    let asking = address::with_query("/act", &pairs);
    html! {
        @if keeper_of_label(live).is_some() {
            p.quiet { "A GitSync manages this object: " a href=(asking) { "how to delete it in Git" } "." }
        } @else if let Some(controller) = controller(key, live) {
            p.quiet { (controlled(&controller)) }
        } @else {
            div.actions {
                @match right {
                    Ok(()) => a.button href=(asking) { (Action::Delete.label()) },
                    Err(why) => { span.button.off aria-disabled="true" { (Action::Delete.label()) } p.note { (parts::coded(why)) } },
                }
            }
        }
    }
}

/// Returns the page about the result.
pub(crate) fn deleted(asked: &Asked, result: &Result<Removal, String>) -> Markup {
    html! {
        (head(asked))
        @match result {
            Ok(Removal::Gone) => p role="status" { (asked.action.result(&asked.key)) },
            Ok(Removal::Absent) => p role="status" { "The object was already gone." },
            Ok(Removal::Terminating(waits)) if waits.finalizers.is_empty() => {
                p role="status" { "Terminating: the object is gone after its grace period, or after the objects that belong to it." }
            },
            Ok(Removal::Terminating(waits)) => {
                p role="status" { "Terminating: the object is gone when its finalizers are removed: " (plain(&waits.finalizers.join(", "), MESSAGE)) "." }
            },
            Err(why) => p.note role="alert" { (why) },
        }
        @if !matches!(result, Ok(Removal::Gone | Removal::Absent)) { p { a href=(address::of_object(&asked.key)) { "Back to the object" } } }
        p { a href="/" { "Back to the fleet" } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::Query;
    use crate::row::FleetKind;
    use mainstay_api::names;
    use mainstay_cluster::Terminating;

    const HOSTILE: &str = "<script>$(id)</script>";

    fn asked(name: &str) -> Asked {
        let query = [
            ("action", Action::Delete.word()),
            ("group", "serverless.kyma-project.io"),
            ("kind", "Function"),
            ("namespace", "shop"),
            ("name", name),
        ];
        let query = address::with_query("", &query);
        Asked::of(&Query::parse(query.trim_start_matches('?').as_bytes())).unwrap()
    }

    fn page(asked: &Asked, keeper: Option<&Keeper>, controller: Option<&Key>) -> String {
        let (right, loss) = (Ok(()), Loss::Function(Belonging::default()));
        let page = Deletion {
            asked,
            right: &right,
            csrf: "t",
            cluster: "",
            keeper,
            controller,
            uid: "u",
            version: "7",
            loss: Some(&loss),
            problem: "",
        };
        deletion(&page).into_string()
    }

    #[test]
    fn the_question_names_the_version_and_has_a_button_only_without_an_owner() {
        let html = page(&asked("web"), None, None);
        for part in ["name=\"uid\" value=\"u\"", "name=\"version\" value=\"7\"", "type=\"submit\""] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let controller = Key::new("example.com", HOSTILE, Some("shop"), HOSTILE);
        let html = page(&asked("web"), None, Some(&controller));
        assert!(!html.contains("<form") && !html.contains("<script>"), "{html}");
        let keeper = |path: &str| Keeper {
            git_sync: None,
            file: format!("{path}, line 1"),
            path: Some(path.to_owned()),
            note: String::new(),
        };
        let html = page(&asked("web"), Some(&keeper("apps/web.yaml")), None);
        assert!(!html.contains("<form") && html.contains(">git rm -- apps/web.yaml</code>"), "{html}");
        let html = page(&asked("web"), Some(&keeper(HOSTILE)), None);
        assert!(
            !html.contains("git rm") && !html.contains("<script>") && html.contains("Remove the document"),
            "{html}"
        );
    }

    #[test]
    fn an_object_has_no_followers_only_if_all_are_known() {
        let (none, unread) = ("No GitSync, no Function", vec!["you may not list gitsyncs in shop".to_owned()]);
        let of =
            |keys: Vec<Key>, unread: Vec<String>| lost(&Loss::GitRepository(Followers { keys, unread })).into_string();
        assert!(of(vec![], vec![]).contains(none));
        let unknown = of(vec![], unread.clone());
        assert!(unknown.contains("Not known") && unknown.contains(&unread[0]) && !unknown.contains(none), "{unknown}");
        let part = of(vec![FleetKind::GitSync.key("shop", "demo")], unread);
        assert!(part.contains("GitSync demo</a>") && part.contains("The list is incomplete."), "{part}");
        let of = |notes: Vec<String>| lost(&Loss::Function(Belonging { notes, ..Belonging::default() })).into_string();
        assert!(of(vec![]).contains("No objects belong to it."));
        let cut = of(vec!["only the first 500 jobs.batch are read".to_owned()]);
        assert!(cut.contains("The list is incomplete.") && !cut.contains("No objects"), "{cut}");
    }

    #[test]
    fn an_object_is_deleted_unless_a_git_sync_or_another_object_keeps_it() {
        let key = FleetKind::Function.key("a&b", "<web>");
        let of =
            |metadata: Value, right: &Right| delete_button(&key, &json!({"metadata": metadata}), right).into_string();
        let free = of(json!({}), &Ok(()));
        assert!(
            free.contains("/act?action=delete") && free.contains("a%26b") && free.contains(">Delete</a>"),
            "{free}"
        );
        let forbidden = of(json!({}), &Err("needs `delete`".to_owned()));
        assert!(!forbidden.contains("<a ") && forbidden.contains("<code>delete</code>"), "{forbidden}");
        let managed = of(json!({"labels": {names::SYNC_LABEL: "shop.demo"}}), &Ok(()));
        assert!(!managed.contains("button") && managed.contains("how to delete it in Git"), "{managed}");
        let owner = json!({"apiVersion": "a/v1", "kind": "<i>", "name": "x", "controller": true});
        let controlled = of(json!({"ownerReferences": [owner]}), &Ok(()));
        assert!(!controlled.contains("button") && controlled.contains("&lt;i&gt; x"), "{controlled}");
    }

    #[test]
    fn the_result_names_the_finalizers() {
        let since = jiff::Timestamp::UNIX_EPOCH;
        let result = |finalizers: &[&str]| {
            let finalizers = finalizers.iter().map(|one| (*one).to_owned()).collect();
            deleted(&asked(HOSTILE), &Ok(Removal::Terminating(Terminating { finalizers, since }))).into_string()
        };
        let html = result(&["example.com/a", HOSTILE]);
        assert!(html.contains("removed: example.com/a, &lt;script&gt;") && !html.contains("<script>"), "{html}");
        assert!(result(&[]).contains("grace period"));
        let gone = deleted(&asked("web"), &Ok(Removal::Gone)).into_string();
        assert!(gone.contains("Deleted.") && !gone.contains("Back to the object"), "{gone}");
    }
}
