//! A GitSync: its commit, its source, its problems, and its tree.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{self, Right};
use super::{history, lanes};
use crate::action::Action;
use crate::address;
use crate::edits::Edit;
use crate::field::{text_at, time_at};
use crate::history::history as moments;
use crate::row::{FleetKind, State, conditions_of};
use crate::shown::EventRow;
use crate::text::{MESSAGE, SHORT, plain, short_id};
use crate::tree::{Node, Tree};
use mainstay_object::Key;

/// Maximum number of rows of a list.
const MOST: usize = 200;
/// Maximum number of objects of the tree on the page.
const OBJECTS: usize = 2000;

/// Contents of the page.
pub(crate) struct GitSyncPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) state: State,
    pub(crate) edits: &'p [Edit],
    pub(crate) tree: &'p Result<Tree, String>,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) right: &'p Right,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn git_sync(page: &GitSyncPage<'_>) -> Markup {
    let GitSyncPage { key, live, state, edits, tree, events, right, now } = page;
    let is_suspended = *state == State::Suspended;
    let holds = live.pointer("/status/heldObjects").and_then(Value::as_i64).unwrap_or(0) > 0;
    let turn = if is_suspended { Action::Resume } else { Action::Suspend };
    // A suspended GitSync applies nothing.
    let mut possible = if is_suspended { vec![turn] } else { vec![Action::Sync, turn] };
    possible.extend(holds.then_some(Action::AllowPrune));
    html! {
        nav aria-label="Place" { a href="/" { "Fleet" } " / " (key.namespace.as_deref().unwrap_or_default()) }
        h1 { "GitSync " (key.name) " " (parts::state(*state)) }
        (parts::actions(&possible, key, right))
        (facts(key, live, *now))
        (problems(live))
        section aria-labelledby="objects" { h2 #objects { "Objects" } (tree_of(tree, &deviations(live))) }
        @if !edits.is_empty() {
            section aria-labelledby="edits" { h2 #edits { "Hand edits" } (lanes::picture(*edits, *now)) }
        }
        section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(&conditions_of(live), *now)) }
        (history::history(&moments(live, events.as_deref().unwrap_or_default(), edits), *now))
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
        p { a href=(address::with_query("/object", &[("group", &key.group), ("kind", &key.kind), ("namespace", key.namespace.as_deref().unwrap_or_default()), ("name", &key.name)])) { "Origin, field managers and YAML of this GitSync" } }
    }
}

/// Returns the subject of the applied commit, and when it was applied, from the newest entry of the history.
fn subject_of(live: &Value, commit: &str) -> Option<(String, Option<Timestamp>)> {
    let newest = live.pointer("/status/history/0").filter(|_| !commit.is_empty())?;
    (text_at(newest, "/commit", SHORT) == commit)
        .then(|| (text_at(newest, "/subject", SHORT), time_at(newest, "/when")))
}

fn facts(key: &Key, live: &Value, now: Timestamp) -> Markup {
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let repository = text("/spec/gitRepository");
    let counts = |name: &str| live.pointer(&format!("/status/{name}")).and_then(Value::as_i64).unwrap_or(0);
    let (applied, attempted) = (text("/status/appliedCommit"), text("/status/attemptedCommit"));
    let windows = live.pointer("/spec/windows").and_then(Value::as_array).into_iter().flatten().take(20);
    let reference = if text("/spec/semver").is_empty() {
        text("/spec/reference")
    } else {
        format!("semver {}", text("/spec/semver"))
    };
    html! {
        dl.facts {
            div { dt { "Commit" } dd { code title=(applied) { (if applied.is_empty() { "none yet" } else { short_id(&applied) }) }
                @if let Some((subject, when)) = subject_of(live, &applied) { " " (subject) @if when.is_some() { " (applied " (parts::age(when, now)) " ago)" } } } }
            @if attempted != applied && !attempted.is_empty() { div { dt { "Attempted" } dd { code title=(attempted) { (short_id(&attempted)) } } } }
            @if repository.is_empty() {
                div { dt { (text("/spec/sourceRef/kind")) } dd { (text("/spec/sourceRef/name")) } }
            } @else {
                div { dt { "Repository" } dd { a href=(address::of_object(&FleetKind::GitRepository.key(namespace, &repository))) { (repository) } } }
            }
            div { dt { "Follows" } dd { (reference) " " code { (text("/spec/baseDir")) } } }
            div { dt { "Looks every" } dd { (text("/spec/interval")) } }
            div { dt { "Drift" } dd { (if text("/spec/drift").is_empty() { "Revert".to_owned() } else { text("/spec/drift") }) } }
            div { dt { "Objects" } dd { (counts("objects")) ", " (counts("healthy")) " healthy, " (counts("failed")) " failed" } }
            div { dt { "Reverts" } dd { (counts("reverted")) } }
            @if !text("/spec/suspendUntil").is_empty() { div { dt { "Suspended until" } dd { (text("/spec/suspendUntil")) } } }
            @for window in windows { div { dt { "Window" } dd { code { (plain(&window.to_string(), SHORT)) } } } }
        }
    }
}

/// Returns the lists of objects that need attention, with their reasons.
fn problems(live: &Value) -> Markup {
    let list = |name: &str| -> Vec<&Value> {
        live.pointer(&format!("/status/{name}")).and_then(Value::as_array).into_iter().flatten().take(MOST).collect()
    };
    let text = |one: &Value, field: &str| text_at(one, &format!("/{field}"), MESSAGE);
    let held: Vec<String> = list("held").into_iter().filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect();
    let frozen = live.pointer("/status/frozen");
    let rows = ["failures", "held", "paused", "drifted", "terminating", "unread"].map(|name| list(name).len());
    html! {
        @if rows.iter().sum::<usize>() > 0 || frozen.is_some() {
            section.problems aria-labelledby="attention" {
                h2 #attention { "Needs attention" }
                ul {
                    @for one in list("failures") {
                        li { b { @if text(one, "reason") == "Progressing" { "Not healthy yet: " } @else { "Failed: " } } (parts::named_object(&text(one, "object"))) " " strong { (text(one, "reason")) } " " span.text { (text(one, "message")) }
                            (parts::advice(&text(one, "reason"))) }
                    }
                    @for one in list("drifted") {
                        li { b { "Drifted: " } (parts::named_object(&text(one, "object"))) " by " (text(one, "who")) ": " (text(one, "reason")) }
                    }
                    @for one in &held { li { b { "Held from deletion: " } (parts::object_and_text(one)) } }
                    @for one in list("paused") {
                        li { b { "Paused: " } (parts::named_object(&text(one, "object")))
                            @if !text(one, "until").is_empty() { " until " (text(one, "until")) }
                            @if !text(one, "problem").is_empty() { ": " (text(one, "problem")) } }
                    }
                    @for one in list("terminating") {
                        @let finalizers: Vec<String> = one.pointer("/finalizers").and_then(Value::as_array).into_iter().flatten()
                            .filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect();
                        li { b { "Being deleted: " } (parts::named_object(&text(one, "object"))) @if !finalizers.is_empty() { ", waits for " (finalizers.join(", ")) } }
                    }
                    @for one in list("unread") { li { b { "Not reverted until the repository is read: " } (parts::named_object(&text(one, "object"))) } }
                    @if let Some(frozen) = frozen {
                        li { b { "A window holds commit " } code { (short_id(&text(frozen, "commit"))) } ": " (text(frozen, "by"))
                            @if !text(frozen, "until").is_empty() { ", until " (text(frozen, "until")) } }
                    }
                }
            }
        }
    }
}

/// The deviations that the status of a GitSync lists beside the health, by object.
type Deviations = BTreeMap<String, BTreeSet<&'static str>>;

fn deviations(live: &Value) -> Deviations {
    let mut all = Deviations::new();
    for (list, word) in [("drifted", "drifted"), ("paused", "paused"), ("held", "held")] {
        let listed = live.pointer(&format!("/status/{list}")).and_then(Value::as_array).into_iter().flatten();
        for one in listed.take(MOST) {
            // A held object is a text: the object, and why it is held.
            let held = one.as_str().and_then(|text| text.split_once(": ")).map(|(object, _)| plain(object, SHORT));
            all.entry(held.unwrap_or_else(|| text_at(one, "/object", SHORT))).or_default().insert(word);
        }
    }
    all
}

fn tree_of(tree: &Result<Tree, String>, deviations: &Deviations) -> Markup {
    match tree {
        Err(why) => html! { p.note { (why) } },
        Ok(tree) => {
            let mut nodes: Vec<&Node> = tree.objects.iter().collect();
            nodes.sort_by_key(|node| node.worst());
            html! {
                @for note in &tree.notes { p.note { (note) } }
                @if nodes.is_empty() { p.quiet { "There are no objects yet." } }
                @else { ul.tree { @for node in nodes.iter().take(OBJECTS) { (branch(node, 0, deviations)) } } }
                @if nodes.len() > OBJECTS { p.note { (nodes.len() - OBJECTS) " more objects are not shown." } }
            }
        }
    }
}

/// Returns an object with its children. The link is beside the control that shows them: a control contains no other.
fn branch(node: &Node, depth: usize, deviations: &Deviations) -> Markup {
    let (address, name) = (address::of_object(&node.key), plain(&node.key.to_string(), SHORT));
    let children = node.children.len();
    html! {
        li {
            (parts::mark(node.mark)) " " a href=(address) { (name) }
            @for word in deviations.get(&name).into_iter().flatten() { " " b { (word) } }
            " " span.quiet.text { (plain(&node.state, SHORT)) }
            @if children > 0 && depth <= 8 {
                details data-name=(address) open[depth == 0 && node.worst() != crate::tree::Mark::Healthy] {
                    summary.quiet { (children) @if children == 1 { " child" } @else { " children" } }
                    ul { @for child in node.children.iter().take(MOST) { (branch(child, depth + 1, deviations)) } }
                }
            }
        }
    }
}
