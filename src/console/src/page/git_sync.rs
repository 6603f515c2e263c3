//! A GitSync: its commit, its source, its problems, and its tree.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::facts::in_line;
use super::parts::{self, Right};
use super::{history, lanes, windows};
use crate::action::offered;
use crate::address;
use crate::command::Holder;
use crate::edits::{Edit, End, Field};
use crate::field::{message_at, text_at, time_at};
use crate::history::history as moments;
use crate::lookup::Lookup;
use crate::objects_cluster::ObjectsCluster;
use crate::row::{FleetKind, State, conditions_of};
use crate::shown::EventRow;
use crate::text::{SHORT, plain, short_id};
use crate::tree::{DEVIATING, Mark, Node, Tree, TreeFilter, count, kinds};
use crate::window::windows as windows_of;
use mainstay_object::{Key, counted};

/// Maximum number of rows of a list.
const MOST: usize = 200;
/// Number of fields that the line of an object names.
const NAMED: usize = 5;
/// Maximum number of objects of the tree on the page.
const OBJECTS: usize = 2000;

/// Contents of the page.
pub(crate) struct GitSyncPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) state: State,
    pub(crate) edits: &'p [Edit],
    pub(crate) tree: &'p Result<Tree, String>,
    pub(crate) filter: &'p TreeFilter,
    /// The address of the repository, if the user may read it.
    pub(crate) remote: Option<&'p str>,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) right: &'p Right,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn git_sync(page: &GitSyncPage<'_>) -> Markup {
    let GitSyncPage { key, live, state, edits, tree, filter, remote, events, right, now } = page;
    let possible = offered(key, live, *state == State::Suspended);
    html! {
        (parts::place(key, None))
        h1 { "GitSync " (key.name) " " (parts::state(*state)) }
        (parts::actions(&possible, key, right))
        (anchors(page))
        p {
            a href=(address::of_differences(key.namespace.as_deref().unwrap_or_default(), &key.name)) { "Differences" }
            ": all objects that deviate from the branch, on one page"
        }
        p { a href=(address::of_network(key)) { "Network" } ": the routes, Services and pods of this GitSync" }
        p { a href=(address::of_any(key)) { "Origin, field managers and YAML of this GitSync" } }
        (facts(page))
        (problems(page))
        (windows::windows(&windows_of(live, *now), time_at(live, "/status/frozen/until"), *now))
        section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(key, &conditions_of(live), *now)) }
        section aria-labelledby="objects" { h2 #objects { "Objects" } (tree_of(tree, filter, (&deviations(live), ObjectsCluster::of(live)), *now)) }
        @if !edits.is_empty() {
            section aria-labelledby="edits" { h2 #edits { "Hand edits" } (lanes::picture(*edits, *now)) (history::edits(edits, *now)) }
        }
        (history::history(&moments(live, events.as_deref().unwrap_or_default()), *remote, ObjectsCluster::of(live), *now))
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
    }
}

/// Returns links to the sections of the page.
fn anchors(page: &GitSyncPage<'_>) -> Markup {
    html! {
        nav.anchors aria-label="Sections" {
            @if needs_attention(page.live) { a href="#attention" { "Attention" } }
            a href="#conditions" { "Conditions" }
            a href="#objects" { "Objects" }
            @if !page.edits.is_empty() { a href="#edits" { "Hand edits" } }
            a href="#history" { "History" }
            a href="#events" { "Events" }
        }
    }
}

/// Returns whether the status lists an object or a commit that needs attention.
fn needs_attention(live: &Value) -> bool {
    let lists = ["failures", "held", "paused", "drifted", "terminating", "unread"];
    let has = |name: &str| {
        live.pointer(&format!("/status/{name}")).and_then(Value::as_array).is_some_and(|all| !all.is_empty())
    };
    lists.into_iter().any(has) || live.pointer("/status/frozen").is_some()
}

/// Returns the applied commit, linked to its page at the host, with its subject, author and times.
fn commit(live: &Value, remote: Option<&str>, now: Timestamp) -> Markup {
    let applied = text_at(live, "/status/appliedCommit", SHORT);
    let newest = live.pointer("/status/history/0").filter(|one| text_at(one, "/commit", SHORT) == applied);
    html! {
        @if applied.is_empty() { "none yet" }
        @else {
            (parts::commit(&applied, remote))
            @if let Some(newest) = newest {
                @let author = text_at(newest, "/author", SHORT);
                @let (authored, when) = (time_at(newest, "/authoredAt"), time_at(newest, "/when"));
                " " (text_at(newest, "/subject", SHORT))
                @if !author.is_empty() { " by " (author) }
                @if authored.is_some() { ", " (parts::age(authored, now)) " ago" }
                @if when.is_some() { " (applied " (parts::age(when, now)) " ago)" }
            }
        }
    }
}

fn facts(page: &GitSyncPage<'_>) -> Markup {
    let GitSyncPage { key, live, state, remote, now, .. } = page;
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let repository = text("/spec/gitRepository");
    let counts = |name: &str| live.pointer(&format!("/status/{name}")).and_then(Value::as_i64).unwrap_or(0);
    let (applied, attempted) = (text("/status/appliedCommit"), text("/status/attemptedCommit"));
    let reference = if text("/spec/semver").is_empty() {
        text("/spec/reference")
    } else {
        format!("semver {}", text("/spec/semver"))
    };
    html! {
        dl.facts {
            div.long { dt { "Commit" } dd { (commit(live, *remote, *now)) } }
            @if attempted != applied && !attempted.is_empty() { div { dt { "Attempted" } dd { code title=(attempted) { (short_id(&attempted)) } } } }
            @if repository.is_empty() {
                @let source = Key::new("mainstay.dev", text("/spec/sourceRef/kind"), key.namespace.as_deref(), text("/spec/sourceRef/name"));
                div { dt { (source.kind) } dd { a href=(address::of_object(&source)) { (source.name) } } }
            } @else {
                div { dt { "Repository" } dd { a href=(address::of_object(&FleetKind::GitRepository.key(namespace, &repository))) { (repository) } } }
            }
            div { dt { "Follows" } dd { (followed(&reference, &text("/spec/baseDir"))) } }
            @if let Some(lookup) = Lookup::of(live, *state == State::Suspended) { div { dt { "Next lookup" } dd { (parts::lookup(lookup, *now)) } } }
            div { dt { "Drift" } dd { (drift_policy(&text("/spec/drift"))) } }
            div { dt { "Objects" } dd { (counts("objects")) ", " (counts("healthy")) " healthy, " (counts("failed")) " failed" } }
            div { dt { "Reverted hand edits" } dd { (counts("reverted")) } }
            @if !text("/spec/suspendUntil").is_empty() { div { dt { "Suspended until" } dd { (parts::time(&text("/spec/suspendUntil"), *now)) } } }
        }
    }
}

/// Returns the branch, tag or versions that a GitSync follows, and the directory.
fn followed(reference: &str, directory: &str) -> Markup {
    html! {
        (reference)
        @if !directory.is_empty() { @if !reference.is_empty() { ", " } "directory " code { (directory) } }
    }
}

/// Returns the policy about drift, and its effect.
fn drift_policy(policy: &str) -> Markup {
    let (name, effect) = match policy {
        "" | "Revert" => ("Revert", ": hand edits are undone"),
        "Report" => ("Report", ": hand edits are shown and stay"),
        "Ignore" => ("Ignore", ": hand edits are not looked for"),
        other => (other, ""),
    };
    html! { (name) (effect) }
}

/// Returns an object that differs from the repository, with its fields and both values.
fn drifted(edit: &Edit) -> Markup {
    let End::Remains(reason) = &edit.end else { return html! {} };
    let is_secret = edit.object.starts_with("Secret ");
    let shown = |field: &Field| {
        let values = field.values.clone().filter(|_| !is_secret);
        parts::changed(&Field { path: field.path.clone(), values })
    };
    // The advice for this reason is that of the condition.
    let advice = if reason == "Backoff" { "Contended" } else { reason.as_str() };
    html! {
        li {
            b { "Drifted: " } (parts::named_object(&edit.object, edit.cluster)) " by " (edit.who) ": "
            @for (at, field) in edit.fields.iter().take(NAMED).enumerate() { @if at > 0 { ", " } (shown(field)) }
            @if edit.fields.len() > NAMED { " and " (edit.fields.len() - NAMED) " more fields" }
            @if !edit.fields.is_empty() { "; " } (reason)
            // The line of the pause has the advice.
            @if reason != "Paused" { (parts::advice_about(advice, &edit.object)) }
        }
    }
}

/// Returns the lists of objects that need attention, with their reasons.
fn problems(page: &GitSyncPage<'_>) -> Markup {
    let GitSyncPage { live, edits, now, .. } = page;
    let list = |name: &str| -> Vec<&Value> {
        live.pointer(&format!("/status/{name}")).and_then(Value::as_array).into_iter().flatten().take(MOST).collect()
    };
    let text = |one: &Value, field: &str| message_at(one, &format!("/{field}"));
    let held: Vec<String> = list("held").into_iter().filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect();
    let (frozen, cluster) = (live.pointer("/status/frozen"), ObjectsCluster::of(live));
    let attempted = text_at(live, "/status/attemptedCommit", SHORT);
    let holder = Holder { git_sync: page.key, attempted: &attempted };
    html! {
        @if needs_attention(live) {
            section.problems aria-labelledby="attention" {
                h2 #attention { "Needs attention" }
                ul {
                    @for one in list("failures") {
                        li { b { @if text(one, "reason") == "Progressing" { "Not healthy yet: " } @else { "Failed: " } } (parts::named_object(&text(one, "object"), cluster)) " " strong { (text(one, "reason")) } " " span.text { (text(one, "message")) }
                            (parts::advice_about(&text(one, "reason"), &text(one, "object"))) }
                    }
                    @for edit in *edits { (drifted(edit)) }
                    @for one in &held { li { b { "Held from deletion: " } (parts::held_object(one, holder, cluster)) } }
                    @for one in list("paused") {
                        li { b { "Paused: " } (parts::named_object(&text(one, "object"), cluster))
                            @if !text(one, "until").is_empty() { ", " (parts::end(&text(one, "until"), *now)) }
                            @if !text(one, "problem").is_empty() { ": " (text(one, "problem")) }
                            (parts::advice_about("Paused", &text(one, "object"))) }
                    }
                    @for one in list("terminating") {
                        @let finalizers: Vec<String> = one.pointer("/finalizers").and_then(Value::as_array).into_iter().flatten()
                            .filter_map(Value::as_str).map(|one| plain(one, SHORT)).collect();
                        li { b { "Being deleted: " } (parts::named_object(&text(one, "object"), cluster)) @if !finalizers.is_empty() { ", waits for " (finalizers.join(", ")) } }
                    }
                    @for one in list("unread") { li { b { "Not reverted until the repository is read: " } (parts::named_object(&text(one, "object"), cluster)) } }
                    @if let Some(frozen) = frozen {
                        li { b { "A window holds commit " } code { (short_id(&text(frozen, "commit"))) } ": " (text(frozen, "by"))
                            @if !text(frozen, "until").is_empty() { ", " (parts::end(&text(frozen, "until"), *now)) } }
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

fn tree_of(
    tree: &Result<Tree, String>,
    filter: &TreeFilter,
    (deviations, cluster): (&Deviations, ObjectsCluster),
    now: Timestamp,
) -> Markup {
    let tree = match tree {
        Err(why) => return html! { p.note { (why) } },
        Ok(tree) => tree,
    };
    let deviates = |node: &Node| deviations.contains_key(&plain(&node.key.to_string(), SHORT));
    let (mut nodes, found) = filter.apply(&tree.objects, &deviates);
    let branches = Branches { deviations, cluster, is_filtered: !filter.is_empty(), now };
    nodes.sort_by_cached_key(|node| {
        let worst = node.worst();
        (worst != Mark::Failed && !branches.deviates(node), worst)
    });
    html! {
        @for note in &tree.notes { (parts::note(note)) }
        @if tree.objects.is_empty() { p.quiet { "There are no objects yet." } }
        @else {
            (tree_form(tree, filter))
            p.quiet role="status" {
                @let (all, children) = (count(&tree.objects), count(&tree.objects) - tree.objects.len());
                @if filter.is_empty() {
                    (counted(tree.objects.len(), "object"))
                    @if children > 0 { " with " (children) @if children == 1 { " child" } @else { " children" } }
                } @else { (found) " of " (all) " objects and children" }
            }
            ul.tree { @for node in nodes.iter().take(OBJECTS) { (branches.branch(node, 0)) } }
            @if nodes.len() > OBJECTS { p.note { (nodes.len() - OBJECTS) " more objects are not shown. Filter the tree." } }
        }
    }
}

/// Returns the form that filters the tree. It needs no script.
fn tree_form(tree: &Tree, filter: &TreeFilter) -> Markup {
    html! {
        form.filter method="get" action="#objects" role="search" aria-label="Objects" {
            label { "Search" input type="search" name="q" value=(plain(&filter.text, SHORT)); }
            label { "Kind"
                select name="kind" {
                    option value="" { "All" }
                    @for kind in kinds(&tree.objects).into_iter().take(MOST) {
                        option value=(kind) selected[kind == filter.kind] { (plain(kind, SHORT)) }
                    }
                }
            }
            label { "State"
                select name="health" {
                    option value="" { "All" }
                    @for mark in Mark::ALL { option value=(mark.word()) selected[filter.mark == Some(mark)] { (mark.word()) } }
                    option value=(DEVIATING) selected[filter.is_deviating] { "drifted, paused or held" }
                }
            }
            button type="submit" { "Filter" }
            @if !filter.is_empty() { a href="?#objects" { "Clear" } }
        }
    }
}

/// How the branches of a tree are shown.
struct Branches<'t> {
    deviations: &'t Deviations,
    cluster: ObjectsCluster,
    /// Whether the children of an object are those that match a filter.
    is_filtered: bool,
    now: Timestamp,
}

impl Branches<'_> {
    /// Returns whether the status lists the object or one of its children.
    fn deviates(&self, node: &Node) -> bool {
        self.deviations.contains_key(&plain(&node.key.to_string(), SHORT))
            || node.children.iter().any(|child| self.deviates(child))
    }

    /// Returns an object with its children. The link is beside the control that shows them: a control contains no other.
    fn branch(&self, node: &Node, depth: usize) -> Markup {
        let (address, name) = (address::of_object(&node.key), plain(&node.key.to_string(), SHORT));
        let children = node.children.len();
        let needs_look = || node.worst() != Mark::Healthy || node.children.iter().any(|child| self.deviates(child));
        let is_open = self.is_filtered || (depth == 0 && needs_look());
        html! {
            li {
                (parts::mark(node.mark)) " " @if self.cluster == ObjectsCluster::This { a href=(address) { (name) } } @else { (name) }
                @for (at, word) in self.deviations.get(&name).into_iter().flatten().enumerate() { (if at > 0 { ", " } else { " " }) (parts::deviation(word)) }
                " " span.quiet.text { (plain(&node.state, SHORT)) }
                (in_line(&node.facts))
                @if node.created.is_some() { " " span.quiet { (parts::age(node.created, self.now)) " old" } }
                @if children > 0 && depth <= 8 {
                    details data-name=(address) open[is_open] {
                        summary.quiet { (children) @if children == 1 { " child" } @else { " children" } span.unseen { " of " (name) } }
                        ul { @for child in &node.children { (self.branch(child, depth + 1)) } }
                    }
                }
            }
        }
    }
}
