//! Parts that several pages use.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use crate::action::Action;
use crate::address;
use crate::asked::Asked;
use crate::assessment::Assessment;
use crate::command::{Command, Holder};
use crate::edits::Field;
use crate::lookup::Lookup;
use crate::objects_cluster::ObjectsCluster;
use crate::remote::commit_page;
use crate::row::{ConditionRow, FleetKind, State, remedy};
use crate::shown::EventRow;
use crate::text::{SHORT, ago, plain, short_id, with_short_ids};
use crate::tree::Mark;
use mainstay_api::git_sync::WHOLE_OBJECT;
use mainstay_api::names;
use mainstay_object::Key;

/// Returns a state, as a symbol and a word.
pub(super) fn state(state: State) -> Markup {
    let (class, symbol) = match state {
        State::Failed => ("bad", "✖"),
        State::Attention => ("warn", "▲"),
        State::Progressing => ("wait", "◌"),
        State::Suspended => ("off", "◼"),
        State::Ready => ("good", "✔"),
    };
    html! { span.state.(class) { span aria-hidden="true" { (symbol) } " " (state.word()) } }
}

/// Returns the class and the symbol of a health.
const fn of_mark(mark: Mark) -> (&'static str, &'static str) {
    match mark {
        Mark::Failed => ("bad", "✖"),
        Mark::Waiting => ("wait", "◌"),
        Mark::Healthy => ("good", "✔"),
    }
}

/// Returns a health, as a symbol with a word for screen readers.
pub(super) fn mark(mark: Mark) -> Markup {
    let (class, symbol) = of_mark(mark);
    html! { span.state.(class) { span aria-hidden="true" { (symbol) } span.unseen { (mark.word()) } } }
}

/// Returns a health, as a symbol and a word.
pub(super) fn health(mark: Mark) -> Markup {
    let (class, symbol) = of_mark(mark);
    sign(class, symbol, mark.word())
}

/// Returns a deviation of an object from the repository, with its symbol.
pub(super) fn deviation(word: &str) -> Markup {
    match word {
        "paused" => sign("off", "◼", word),
        "held" => sign("wait", "◆", word),
        _ => sign("warn", "▲", word),
    }
}

/// Returns the place of an object: the list with objects of its kind, its namespace, and what is above the page.
pub(super) fn place(key: &Key, above: Option<Markup>) -> Markup {
    let (list, label) = match FleetKind::of(key) {
        Some(kind) if FleetKind::LISTED.contains(&kind) => ("/sources", "Sources"),
        Some(kind) if FleetKind::SERVED.contains(&kind) => ("/served", "APIs and events"),
        _ => ("/", "Fleet"),
    };
    let namespace = key.namespace.as_deref().unwrap_or_default();
    html! {
        nav aria-label="Place" {
            a href=(list) { (label) }
            @if !namespace.is_empty() { " / " a href=(address::with_query(list, &[("namespace", namespace)])) { (plain(namespace, SHORT)) } }
            @if let Some(above) = above { " / " (above) }
        }
    }
}

/// Returns the GitSync of a label, `NAMESPACE.NAME`, as a link. For a hashed label, there is no link.
pub(super) fn git_sync_of_label(label: &str) -> Markup {
    html! {
        @match label.split_once('.') {
            Some((namespace, name)) => a href=(address::of_git_sync(namespace, name)) { (namespace) "/" wbr; (name) },
            None => (label),
        }
    }
}

/// Returns the GitSync that manages an object as a fact, if it has the label of one.
pub(super) fn managing_git_sync(live: &Value) -> Markup {
    let labels = live.pointer("/metadata/labels");
    let label = labels.and_then(|labels| labels.get(names::SYNC_LABEL)).and_then(Value::as_str);
    html! {
        @if let Some(label) = label { div { dt { "Managed by GitSync" } dd { (git_sync_of_label(&plain(label, SHORT))) } } }
    }
}

/// Returns a word with its symbol.
pub(super) fn sign(class: &str, symbol: &str, word: &str) -> Markup {
    html! { span.state.(class) { span aria-hidden="true" { (symbol) } " " (word) } }
}

/// Returns a time as its age, with the full time as the tooltip.
pub(super) fn age(time: Option<Timestamp>, now: Timestamp) -> Markup {
    html! {
        @if let Some(time) = time {
            time datetime=(time) title=(time) { (ago(now.duration_since(time).as_secs())) }
        }
    }
}

/// Returns the time until a moment, with the full time as the tooltip.
pub(super) fn until(time: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(time) title=(time) { "in " (ago(time.duration_since(now).as_secs())) } }
}

/// Returns the beginning of a commit ID. `remote` is the address of the repository, whose host may have a page for it.
pub(super) fn commit(id: &str, remote: Option<&str>) -> Markup {
    html! {
        @match remote.and_then(|remote| commit_page(remote, id)) {
            Some(page) => a href=(page) rel="noopener noreferrer" { code title=(id) { (short_id(id)) } },
            None => code title=(id) { (short_id(id)) },
        }
    }
}

/// Returns when a repository is looked up again.
pub(super) fn lookup(lookup: Lookup, now: Timestamp) -> Markup {
    html! { (lookup.words()) @if let Lookup::Retried(since) = lookup { " for " (age(Some(since), now)) } }
}

/// Returns a link to the page of an object in a status. If the name cannot be parsed, or if the object is in a remote
/// cluster, returns it as plain text.
pub(super) fn named_object(text: &str, cluster: ObjectsCluster) -> Markup {
    html! {
        @match address::key_of(text).filter(|_| cluster == ObjectsCluster::This) {
            Some(key) => a href=(address::of_object(&key)) { (text) },
            None => (text),
        }
    }
}

/// Returns the GitSync that manages an object, as the beginning of a sentence. `None` is one without a known name.
pub(super) fn named_keeper(git_sync: Option<&Key>) -> Markup {
    html! {
        @match git_sync {
            Some(key) => {
                "The GitSync "
                a href=(address::of_object(key)) { (plain(&format!("{}/{}", key.namespace.as_deref().unwrap_or_default(), key.name), SHORT)) }
            },
            None => "A GitSync",
        }
    }
}

/// Returns a held object of a GitSync as a link, and the text after it, from `OBJECT: TEXT`.
pub(super) fn held_object(text: &str, holder: Holder<'_>, cluster: ObjectsCluster) -> Markup {
    let (object, rest) = text.split_once(": ").map_or((text, None), |(object, rest)| (object, Some(rest)));
    let key = address::key_of(object);
    html! {
        (named_object(object, cluster))
        @if let Some(rest) = rest { ": " (held_text(rest, holder, key.as_ref())) }
    }
}

/// Returns a note about missing objects. A note about objects that the user may not list is on each page of that user, so
/// it is a quiet sentence.
pub(super) fn note(text: &str) -> Markup {
    if !text.contains("you may not list them") {
        return html! { p.note { (text) } };
    }
    let mut rest = text.chars();
    let sentence: String = rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect();
    html! { p.quiet { (sentence.trim_end_matches('.')) "." } }
}

/// Returns a command, which can be copied.
pub(super) fn command(command: &Command) -> Markup {
    html! { code data-copy="the command" { (command.as_str()) } }
}

/// Returns a text of this program whose parts between backticks are code. Commands can be copied.
pub(super) fn with_code(text: &'static str) -> Markup {
    remedy_with_code(text)
}

/// Same as `with_code`, for a remedy with the name of an object.
fn remedy_with_code(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 0 { (part) }
            @else {
                @match Command::of_remedy(part) { Some(one) => (command(&one)), None => code { (part) }, }
            }
        }
    }
}

/// Returns a text whose parts between backticks are code. Others may have written it, so it has no command to copy.
pub(crate) fn coded(text: &str) -> Markup {
    html! { @for (at, part) in text.split('`').enumerate() { @if at % 2 == 0 { (part) } @else { code { (part) } } } }
}

/// Returns the text of a held object of a GitSync. The command of the agent at its end can be copied.
pub(super) fn held_text(text: &str, holder: Holder<'_>, object: Option<&Key>) -> Markup {
    html! {
        @match object.and_then(|object| Command::of_held(text, holder, object)) {
            Some((before, one)) => { (before) (command(&one)) },
            None => (text),
        }
    }
}

/// Returns what a user can do about a reason. Text between backticks is code.
pub(super) fn advice(reason: &str) -> Markup {
    html! {
        @let text = remedy(reason);
        @if !text.is_empty() { p.advice { (with_code(text)) } }
    }
}

/// Returns what a user can do about a reason of this object, with the object in the command.
pub(super) fn advice_about(reason: &str, object: &str) -> Markup {
    html! {
        @let text = remedy(reason);
        @if !text.is_empty() { p.advice { (remedy_with_code(&text.replace("KIND NAME", &argument(object)))) } }
    }
}

/// Returns an object of a status as the arguments of a command. A name that a shell could read in another way stays a
/// placeholder, because others write a status, too.
fn argument(object: &str) -> String {
    let is_plain = |text: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || ['-', '.', ':'].contains(&c);
        !text.starts_with('-') && text.chars().all(is_allowed)
    };
    let key = address::key_of(object).filter(|key| {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        [&*key.group, &*key.kind, &*key.name, namespace].into_iter().all(is_plain)
    });
    let Some(key) = key else { return "KIND NAME".to_owned() };
    let group = if key.group.is_empty() { String::new() } else { format!(".{}", key.group) };
    let namespace = key.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    format!("{}{group} {}{namespace}", key.kind, key.name)
}

/// Returns a changed field with its two values.
pub(super) fn change(field: &Field) -> Markup {
    html! { p.change { (changed(field)) } }
}

/// Returns a changed field with its two values within a line.
pub(super) fn changed(field: &Field) -> Markup {
    html! {
        @if field.path == WHOLE_OBJECT { "the object was deleted" } @else { code { (field.path) } }
        @if let Some((repository, found)) = &field.values { ": " del { (repository) } " → " ins { (found) } }
    }
}

/// Returns a time of an object as the time until then, or its text if it is no time.
pub(super) fn time(text: &str, now: Timestamp) -> Markup {
    html! { @match text.parse::<Timestamp>() { Ok(time) => (until(time, now)), Err(_) => (text), } }
}

/// Returns the end of a pause or a hold in a status, which is a time or another text.
pub(super) fn end(text: &str, now: Timestamp) -> Markup {
    html! {
        @match text.parse::<Timestamp>() {
            Ok(time) => { "ends " (until(time, now)) },
            Err(_) => { "until " (text) },
        }
    }
}

/// Returns the status of a condition. The symbol says whether it is good, which is known for kinds of Mainstay only.
fn status(key: &Key, condition: &ConditionRow) -> Markup {
    let meaning = if FleetKind::of(key).is_some() { condition.assessment() } else { Assessment::Neutral };
    match meaning {
        Assessment::Good => sign("good", "✔", &condition.status),
        Assessment::Bad => sign("bad", "✖", &condition.status),
        Assessment::Attention => sign("warn", "▲", &condition.status),
        Assessment::Waits => sign("wait", "◌", &condition.status),
        Assessment::Stopped => sign("off", "◼", &condition.status),
        Assessment::Neutral => html! { (condition.status) },
    }
}

/// Returns the table of an object's conditions, `Ready` first. Advice about a reason is shown only at the first condition
/// with this reason.
pub(super) fn conditions(key: &Key, all: &[ConditionRow], now: Timestamp) -> Markup {
    let mut all: Vec<&ConditionRow> = all.iter().collect();
    all.sort_by_key(|one| one.kind != "Ready");
    let is_first = |at: usize| all[..at].iter().all(|one| one.reason != all[at].reason);
    html! {
        @if all.is_empty() { p.quiet { "There are no conditions yet." } }
        @else {
            table.cards {
                thead { tr { th scope="col" { "Condition" } th scope="col" { "Status" } th scope="col" { "Reason and message" } th scope="col" { "Since" } } }
                tbody {
                    @for (at, one) in all.iter().enumerate() {
                        tr {
                            th scope="row" data-label="Condition" { (one.kind) }
                            td data-label="Status" { (status(key, one)) }
                            td data-label="Reason" {
                                strong { (one.reason) } " " span.text { (with_short_ids(&one.message)) }
                                @if is_first(at) { (advice(&one.reason)) }
                            }
                            td data-label="Since" { (age(one.since, now)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the table of Events.
pub(super) fn events(all: &Result<Vec<EventRow>, String>, now: Timestamp) -> Markup {
    html! {
        @match all {
            Err(why) => p.note { (why) },
            Ok(all) if all.is_empty() => p.quiet { "There are no Events of the last hour." },
            Ok(all) => table.cards {
                thead { tr { th scope="col" { "Last" } th scope="col" { "Type" } th scope="col" { "Reason" } th scope="col" { "Message" } } }
                tbody {
                    @for one in all.iter().take(100) {
                        tr {
                            td data-label="Last" { (age(one.last, now)) @if one.count > 1 { " (" (one.count) "×)" } }
                            td data-label="Type" { (one.severity) }
                            td data-label="Reason" { (one.reason) }
                            td data-label="Message" { span.text { (one.message) } }
                        }
                    }
                }
            },
        }
    }
}

/// The user's permission to change an object: `Ok`, or the reason why it is missing.
pub(crate) type Right = Result<(), String>;

/// Returns the buttons of actions. Without the permission, a button is greyed out and shows the reason.
pub(super) fn actions(actions: &[Action], key: &Key, right: &Right) -> Markup {
    html! {
        div.actions {
            @for action in actions {
                (action_button(&Asked::plain(*action, key.clone()), action.label(), right))
            }
            @if let Err(why) = right { p.note { (coded(why)) } }
        }
    }
}

/// Returns the button that opens the page which asks before this action.
pub(super) fn action_button(asked: &Asked, label: &str, right: &Right) -> Markup {
    html! {
        @match right {
            Ok(()) => a.button href=(address::with_query("/act", &asked.pairs())) { (label) },
            Err(_) => span.button.off aria-disabled="true" { (label) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_about_a_permission_is_a_quiet_sentence() {
        let check = |text: &str, expected: &str| assert_eq!(note(text).into_string(), expected);
        check(
            "children are missing, because you may not list them in shop: a",
            "<p class=\"quiet\">Children are missing, because you may not list them in shop: a.</p>",
        );
        check("pods in shop: refused", "<p class=\"note\">pods in shop: refused</p>");
        let of_kinds = "Objects of these kinds are not shown, because you may not list them: jobs.batch";
        check(of_kinds, &format!("<p class=\"quiet\">{of_kinds}.</p>"));
    }

    #[test]
    fn a_page_is_below_the_list_and_the_namespace_of_its_object() {
        let of = |key: &Key| place(key, None).into_string();
        let text = of(&FleetKind::OciRepository.key("a&b", "shop"));
        assert!(
            text.contains("<a href=\"/sources\">Sources</a> / <a href=\"/sources?namespace=a%26b\">a&amp;b</a>"),
            "{text}"
        );
        assert!(of(&FleetKind::Trigger.key("shop", "a")).contains("href=\"/served\""));
        let text = of(&Key::new("", "Namespace", None, "shop"));
        assert_eq!(text, "<nav aria-label=\"Place\"><a href=\"/\">Fleet</a></nav>");
    }

    #[test]
    fn a_text_of_others_has_code_and_no_command_to_copy() {
        let text = coded("needs `patch` on <b>: run `kubectl delete ns prod`").into_string();
        assert_eq!(text, "needs <code>patch</code> on &lt;b&gt;: run <code>kubectl delete ns prod</code>");
    }

    #[test]
    fn the_status_of_a_condition_has_a_symbol_if_its_meaning_is_known() {
        let condition = |kind: &str, status: &str| ConditionRow {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: String::new(),
            since: None,
        };
        let of = |key: &Key, kind: &str, value: &str| status(key, &condition(kind, value)).into_string();
        let sync = FleetKind::GitSync.key("shop", "a");
        assert!(of(&sync, "Ready", "False").contains("state bad"));
        assert!(of(&sync, "Drifted", "True").contains("state warn"));
        assert_eq!(of(&sync, "Contended", "False"), "False");
        assert_eq!(of(&Key::new("", "Pod", Some("shop"), "a"), "Ready", "False"), "False");
    }

    #[test]
    fn a_plain_command_can_be_copied() {
        let check = |text: &'static str, expected: &str| assert_eq!(with_code(text).into_string(), expected);
        check("Run `mainstay sync shop -n a`.", "Run <code data-copy=\"the command\">mainstay sync shop -n a</code>.");
        check("Set `spec.drift`.", "Set <code>spec.drift</code>.");
    }

    #[test]
    fn the_command_of_a_held_object_can_be_copied() {
        let git_sync = Key::new("mainstay.dev", "GitSync", Some("b"), "shop");
        let holder = Holder { git_sync: &git_sync, attempted: "" };
        let map = Key::new("", "ConfigMap", Some("b"), "a");
        let check = |text: &str, expected: &str| {
            assert_eq!(held_text(text, holder, Some(&map)).into_string(), expected);
        };
        check(
            "it is paused; to delete it: kubectl annotate ConfigMap a -n b mainstay.dev/reconcile-",
            "it is paused; to delete it: <code data-copy=\"the command\">kubectl annotate ConfigMap a -n b mainstay.dev/reconcile-</code>",
        );
        for text in
            ["kept", "run: kubectl delete ns prod", "`mainstay uninstall`", "a; to delete it: kubectl delete ns prod"]
        {
            check(text, text);
        }
        let of_another = "a; to delete it: kubectl annotate ConfigMap c -n b mainstay.dev/reconcile-";
        check(of_another, of_another);
        let text = "a; to delete it: kubectl annotate ConfigMap a -n b mainstay.dev/reconcile-";
        assert_eq!(held_text(text, holder, None).into_string(), text);
        let whole =
            |object: &str| held_object(&format!("{object}: {text}"), holder, ObjectsCluster::This).into_string();
        assert!(whole("ConfigMap b/a").contains("data-copy") && !whole("ConfigMap b/c").contains("data-copy"));
    }

    #[test]
    fn a_command_names_an_object_that_no_shell_reads_in_another_way() {
        let check = |object: &str, expected: &str| assert_eq!(argument(object), expected);
        check("Deployment.apps shop/web", "Deployment.apps web -n shop");
        check("ClusterRole.rbac.authorization.k8s.io system:view", "ClusterRole.rbac.authorization.k8s.io system:view");
        for object in ["Service shop/$(id)", "Service shop/a;id", "Service shop/--all", "Service `id`/a", "text", ""] {
            check(object, "KIND NAME");
        }
    }
}
