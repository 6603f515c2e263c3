//! The origin of an object on its page: the GitSync, the file, the difference, and the owners of its fields.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{lanes, parts};
use crate::address;
use crate::command::Command;
use crate::difference::{Side, difference as lines};
use crate::edits::{Edit, End, of_status};
use crate::row::conditions_of;
use crate::shown::changed_yaml;
use crate::text::{MESSAGE, SHORT, ago, plain, short_id};
use crate::trace::{FieldManager, Manager, Trace};
use mainstay_object::Key;

/// Number of fields that are listed without a click.
const NAMED: usize = 5;
/// Maximum number of decisions.
const DECISIONS: usize = 10;

/// Returns the agent's next action with an object. It may quote a message of others, so only the command that ends the
/// pause of the managed object can be copied.
pub(super) fn next(trace: &Trace, key: &Key, now: Timestamp) -> Markup {
    let subject = if trace.next.starts_with("nothing") { "" } else { "the agent " };
    let text = plain(&trace.next, MESSAGE);
    let resume = Command::resume(trace.owners.last().unwrap_or(key));
    let code = resume.as_ref().map(|resume| format!("`{}`", resume.as_str())).unwrap_or_default();
    let around = text.split_once(&code).filter(|_| !code.is_empty());
    html! {
        p.next {
            strong { "What happens next: " } (subject)
            @match (around, &resume) {
                (Some((before, after)), Some(resume)) => { (with_times(before, now)) (parts::command(resume)) (after) },
                _ => (with_times(&text, now)),
            }
        }
    }
}

/// Returns a text whose times in the future have the time until then.
fn with_times(text: &str, now: Timestamp) -> Markup {
    html! {
        @for (at, word) in text.split(' ').enumerate() {
            @let bare = word.trim_end_matches(':');
            @if at > 0 { " " }
            (bare)
            @if let Some(time) = bare.parse::<Timestamp>().ok().filter(|time| *time > now) { " (" (parts::until(time, now)) ")" }
            (&word[bare.len()..])
        }
    }
}

/// Returns the origin as rows of facts.
pub(super) fn facts(trace: &Trace, now: Timestamp) -> Markup {
    html! {
        @for owner in &trace.owners {
            div { dt { "Child of" } dd { a href=(address::of_object(owner)) { (plain(&owner.to_string(), SHORT)) } } }
        }
        @if let Some(manager) = &trace.manager {
            @let namespace = manager.git_sync.namespace.as_deref().unwrap_or_default();
            div { dt { "GitSync" } dd { a href=(address::of_git_sync(namespace, &manager.git_sync.name)) { (namespace) "/" wbr; (manager.git_sync.name) } } }
            div.long { dt { "Repository" } dd { (plain(&manager.repository, MESSAGE)) } }
            @if let Some(commit) = &manager.commit {
                div { dt { "Commit" } dd { code title=(plain(commit, SHORT)) { (short_id(&plain(commit, SHORT))) } } }
            }
            div.long { dt { "File" } dd { (plain(&manager.file, MESSAGE)) } }
            @if let Some(applied) = manager.applied {
                div { dt { "Last write of Mainstay" } dd { (parts::age(Some(applied), now)) " ago" } }
            }
        }
    }
}

/// Returns the difference between the repository and the cluster, and the last reverts of the object.
pub(super) fn difference(key: &Key, live: Option<&Value>, trace: &Trace, now: Timestamp) -> Markup {
    let Some(manager) = trace.manager.as_ref().filter(|_| trace.owners.is_empty()) else { return html! {} };
    let name = key.to_string();
    let mut edits: Vec<Edit> = of_status(&json!({ "status": manager.status }));
    edits.retain(|edit| edit.object == plain(&name, SHORT));
    let picture = lanes::picture(&edits, now);
    let (remaining, reverted): (Vec<_>, Vec<_>) =
        edits.into_iter().partition(|edit| matches!(edit.end, End::Remains(_)));
    html! {
        section aria-labelledby="difference" {
            h2 #difference { "Difference from the repository" }
            @if remaining.is_empty() { p.quiet { (no_difference(&name, live, manager)) } }
            @let changed = changed_lines(key, manager);
            @for edit in &remaining { (edit_of(edit, now, key.is("", "Secret") || changed.is_some())) }
            @if let Some(changed) = changed { (changed) }
            @if !reverted.is_empty() {
                h3 { "Last reverts" }
                @for edit in &reverted { (edit_of(edit, now, key.is("", "Secret"))) }
            }
            (picture)
        }
    }
}

/// Returns what is known about the object if the status lists no difference for it.
fn no_difference(name: &str, live: Option<&Value>, manager: &Manager) -> String {
    let at = |field: &str| manager.status.get(field);
    if live.is_none() {
        return "The object does not exist in the cluster.".to_owned();
    }
    let failures = at("failures").and_then(Value::as_array);
    if failures.into_iter().flatten().any(|one| one["object"] == name && one["reason"] != "Progressing") {
        return "Not known: the agent could not apply the object.".to_owned();
    }
    let differing =
        at("driftedObjects").and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let named = at("drifted").and_then(Value::as_array).map_or(0, Vec::len);
    let conditions = conditions_of(&json!({ "status": manager.status }));
    match conditions.iter().find(|one| one.kind == "Drifted") {
        None => "Not known: the agent has not compared the object yet.".to_owned(),
        Some(one) if one.status == "Unknown" => format!("Not known: {}", one.message),
        Some(_) if differing > named => {
            format!("Not known: {differing} objects differ, and the status names the first {named} of them only.")
        }
        Some(_) => "None. Each field that the manifest sets has the value of the repository.".to_owned(),
    }
}

/// Returns a change with the names of its fields, and with the values unless these are hidden or shown elsewhere.
pub(super) fn edit_of(edit: &Edit, now: Timestamp, is_short: bool) -> Markup {
    html! {
        p { "By " strong { (edit.who) } ", " (parts::age(edit.when, now)) " ago; " (edit.end_text()) }
        @for field in &edit.fields {
            @if is_short { p.change { code { (field.path) } } } @else { (parts::change(field)) }
        }
    }
}

/// Returns the lines that differ; `None` if there are none.
fn changed_lines(key: &Key, manager: &Manager) -> Option<Markup> {
    let part = manager.part.as_ref()?;
    let (found, wanted) = changed_yaml(key, &part.found, &part.wanted);
    let all = lines(&found, &wanted);
    let shown = html! {
        p.quiet { span.bad { "− in the cluster" } ", " span.good { "+ in the repository" } }
        (lines_of(&all, "Difference as YAML"))
    };
    (!all.is_empty()).then_some(shown)
}

/// Returns the lines of a difference.
pub(super) fn lines_of(all: &[(Side, String)], label: &str) -> Markup {
    html! {
        pre.lines tabindex="0" aria-label=(label) data-copy="the difference" {
            @for (side, line) in all {
                @match side {
                    Side::Both => span { "  " (line) },
                    Side::Cluster => del { "− " (line) },
                    Side::Repository => ins { "+ " (line) },
                    Side::Gap => span.quiet { (line) },
                }
                "\n"
            }
        }
    }
}

/// Returns the agent's last decisions about the managed object.
pub(super) fn decisions(trace: &Trace, now: Timestamp) -> Markup {
    html! {
        @if !trace.decisions.is_empty() {
            section aria-labelledby="decisions" {
                h2 #decisions { "Last decisions" }
                @if let Some(owner) = trace.owners.last() { p.quiet { "About " (plain(&owner.to_string(), SHORT)) "." } }
                ol.steps {
                    @for (when, text) in trace.decisions.iter().take(DECISIONS) {
                        li {
                            time datetime=(when) title=(when) { (ago(now.duration_since(*when).as_secs())) " ago" }
                            " " (plain(text, MESSAGE))
                        }
                    }
                }
            }
        }
    }
}

/// Returns the steps of a Function's newest build and rollout.
pub(super) fn moments(trace: &Trace) -> Markup {
    let Some((first, _)) = trace.moments.first() else { return html! {} };
    html! {
        section aria-labelledby="steps" {
            h2 #steps { "Newest build and rollout" }
            ol.steps {
                @for (at, what) in trace.moments.iter().take(200) {
                    li { time datetime=(at) title=(at) { "+" (ago(at.duration_since(*first).as_secs())) } " " (plain(what, MESSAGE)) }
                }
            }
        }
    }
}

/// Returns the owners of the fields.
pub(super) fn field_managers(trace: &Trace, now: Timestamp) -> Markup {
    html! {
        @if !trace.field_managers.is_empty() {
            section aria-labelledby="managers" {
                h2 #managers { "Field managers" }
                table.cards {
                    thead { tr { th scope="col" { "Manager" } th scope="col" { "Operation" } th scope="col" { "Last write" } th scope="col" { "Fields" } } }
                    tbody { @for one in &trace.field_managers { (field_manager(one, now)) } }
                }
            }
        }
    }
}

fn field_manager(one: &FieldManager, now: Timestamp) -> Markup {
    let fields: Vec<String> = one.fields.iter().map(|field| plain(field, SHORT)).collect();
    let rest = fields.len().saturating_sub(NAMED) + one.more;
    html! {
        tr {
            th scope="row" data-label="Manager" { (plain(&one.name, SHORT)) }
            td data-label="Operation" {
                (plain(&one.operation, SHORT))
                @if !one.subresource.is_empty() { " of " (plain(&one.subresource, SHORT)) }
            }
            td data-label="Last write" { (parts::age(one.time, now)) }
            td data-label="Fields" {
                @for field in fields.iter().take(NAMED) { code { (field) } " " }
                @if rest > 0 {
                    details id={ "fields-" (plain(&one.name, SHORT)) "-" (plain(&one.operation, SHORT)) "-" (plain(&one.subresource, SHORT)) } {
                        summary { (rest) " more" }
                        @for field in fields.iter().skip(NAMED) { code { (field) } " " }
                        @if one.more > 0 { "and " (one.more) " more" }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(next: &str, decisions: Vec<(Timestamp, String)>) -> Trace {
        Trace {
            owners: Vec::new(),
            manager: None,
            field_managers: Vec::new(),
            health: None,
            next: next.to_owned(),
            decisions,
            moments: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn decisions_are_bounded_and_their_texts_are_escaped() {
        let hostile = format!("reverted, after <b>{} changed it", "x".repeat(100_000));
        let many = vec![(Timestamp::UNIX_EPOCH, hostile); 30];
        let html = decisions(&trace("", many), "1970-01-01T00:03:00Z".parse().unwrap()).into_string();
        assert!(html.contains("3 min ago</time> reverted, after &lt;b&gt;x") && !html.contains("<b>"), "{html}");
        assert_eq!(html.matches("<li>").count(), DECISIONS);
        assert!(html.len() < DECISIONS * (2 * MESSAGE + 200), "{} bytes", html.len());
        assert_eq!(decisions(&trace("", Vec::new()), Timestamp::UNIX_EPOCH).into_string(), "");
    }

    #[test]
    fn only_the_command_that_ends_the_pause_of_the_object_can_be_copied() {
        let key = Key::new("", "ConfigMap", Some("shop"), "a");
        let of = |next: &str| super::next(&trace(next, Vec::new()), &key, Timestamp::UNIX_EPOCH).into_string();
        let text = of("nothing until `mainstay resume ConfigMap/a -n shop` (<no time>): it is paused");
        let expected = "nothing until <code data-copy=\"the command\">mainstay resume ConfigMap/a -n shop</code> (&lt;no time&gt;)";
        assert!(text.contains(expected), "{text}");
        let text = of("nothing until 1970-01-01T02:00:00Z: <its> GitSync is suspended");
        assert!(text.contains("1970-01-01T02:00:00Z (<time") && text.contains("in 2 h</time>): &lt;its&gt;"), "{text}");
        for quoted in ["`kubectl delete namespace prod`", "`mainstay resume ConfigMap/b -n shop`"] {
            let text = of(&format!("tries again: Unhealthy: run {quoted}"));
            assert!(text.contains(quoted) && !text.contains("data-copy"), "{text}");
        }
    }
}
