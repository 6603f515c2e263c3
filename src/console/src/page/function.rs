//! A Function: its state, image, source, variables, pods, logs, and the objects that belong to it.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::delete::delete_button;
use super::facts::addresses;
use super::parts::Right;
use super::pods::{Log, Pod, log as log_section, table};
use super::{belonging, parts, source};
use crate::action::offered;
use crate::address;
use crate::belonging::Belonging;
use crate::field::{text_at, time_at};
use crate::row::{State, conditions_of};
use crate::shown::{EventRow, Variable, VariableValue, variables};
use crate::source::runtime;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_object::Key;

/// Contents of the page.
pub(crate) struct FunctionPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) state: State,
    pub(crate) pods: &'p Result<Vec<Pod>, String>,
    pub(crate) log: &'p Option<Log>,
    pub(crate) belonging: &'p Belonging,
    /// The address of the repository with its code, if the user may read it.
    pub(crate) remote: Option<&'p str>,
    /// Whether the page of its files in Git can be read.
    pub(crate) has_files: bool,
    pub(crate) right: &'p Right,
    /// The permission to delete it.
    pub(crate) deletion: &'p Right,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn function(page: &FunctionPage<'_>) -> Markup {
    let FunctionPage { key, live, state, pods, log, belonging: all, remote, has_files, right, deletion, events, now } =
        page;
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let warnings =
        live.pointer("/status/warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let health = |pod: &str| {
        html! {
            @if let Some(known) = all.pod(pod) { (parts::mark(known.mark)) " " span.text { (known.why) } }
        }
    };
    let files = has_files.then(|| address::path(&["function", namespace, &key.name, "files"]));
    html! {
        (parts::place(key, None))
        h1 { "Function " (key.name) " " (parts::state(*state)) }
        div.actions {
            a.button href=(address::path(&["function", namespace, &key.name, "call"])) { "Call" }
            a.button href=(address::path(&["function", namespace, &key.name, "edit"])) { "Edit" }
            a.button href=(address::with_query("/expose", &[("namespace", namespace), ("service", &*key.name)])) { "Expose" }
            (parts::actions(&offered(key, live, false), key, right))
        }
        (delete_button(key, live, deletion))
        (anchors(page))
        p { a href=(address::of_any(key)) { "Origin, steps, field managers and YAML of this Function" } }
        p { a href=(address::of_network(key)) { "Network" } ": the routes, Services and pods of this Function" }
        @for warning in warnings.take(20) { p.note { (plain(warning, MESSAGE)) } }
        (facts(page))
        section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(key, &conditions_of(live), *now)) }
        section aria-labelledby="pods" { h2 #pods { "Pods" } (table(&address::of_object(key), Some(namespace), pods, Some(&health))) }
        @if let Some(log) = log { (log_section(log)) }
        (source::source(namespace, &crate::source::source(live), *remote, files.as_deref()))
        section aria-labelledby="variables" {
            h2 #variables { "Variables" }
            @let own = variables(live);
            @if own.is_empty() { p.quiet { "The Function has no variables of its own." } }
            @else { dl.facts { @for one in &own { div { dt { code { (one.name) } } dd { (value(namespace, one)) } } } } }
        }
        (belonging::belonging(namespace, all))
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
    }
}

/// Returns links to the sections of the page.
fn anchors(page: &FunctionPage<'_>) -> Markup {
    let all = page.belonging;
    html! {
        nav.anchors aria-label="Sections" {
            a href="#conditions" { "Conditions" }
            a href="#pods" { "Pods" }
            @if page.log.is_some() { a href="#log" { "Log" } }
            a href="#source" { "Source" }
            a href="#variables" { "Variables" }
            a href="#children" { "Children" }
            @if !all.bindings.is_empty() { a href="#bindings" { "Bound Secrets" } }
            @if !all.subscriptions.is_empty() { a href="#subscriptions" { "Triggers and Subscriptions" } }
            @if !all.rules.is_empty() { a href="#rules" { "APIRules" } }
            a href="#events" { "Events" }
        }
    }
}

fn facts(page: &FunctionPage<'_>) -> Markup {
    let FunctionPage { live, belonging: all, now, .. } = page;
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
    let served = number("/status/servedGeneration").zip(number("/metadata/generation"));
    let due = [("Failed build is retried", "/status/retryAt"), ("Moves to a newer base image", "/status/movesAt")];
    html! {
        dl.facts {
            @if !runtime(live).is_empty() { div { dt { "Runtime" } dd { (runtime(live)) } } }
            @if let Some(place) = number("/status/queue") { div { dt { "Build queue" } dd { "position " (place) ", " (before(place)) } } }
            @if !text("/status/image").is_empty() {
                div.long { dt { "Image" } dd { code { (text("/status/image")) } } }
                div { dt { "Base image" } dd { (base(live)) } }
            }
            @if let Some((served, newest)) = served {
                div { dt { "Serves" } dd { "version " (served) @if served != newest { " of " (newest) } } }
            }
            div { dt { "Replicas" } dd { (number("/status/replicas").unwrap_or_default()) @let wanted = replicas(live); @if !wanted.is_empty() { ", wanted " (wanted) } } }
            @if let Some(service) = all.service() { div.long { dt { "Address" } dd { (addresses(&service.facts)) } } }
            (parts::managing_git_sync(live))
            @for (what, pointer) in due {
                @if let Some(time) = time_at(live, pointer) { div { dt { (what) } dd { (parts::until(time, *now)) } } }
            }
        }
    }
}

/// Returns the number of builds before a position in the queue.
fn before(place: i64) -> String {
    match place.saturating_sub(1) {
        ..=0 => "no other build waits before it".to_owned(),
        1 => "1 build waits before it".to_owned(),
        more => format!("{more} builds wait before it"),
    }
}

/// Returns the base image: the one of the last build if a tag was resolved, or the one in the spec.
fn base(live: &Value) -> Markup {
    let images = ["/status/built/base", "/spec/runtimeImageOverride"].map(|pointer| text_at(live, pointer, SHORT));
    html! {
        @match images.iter().find(|image| !image.is_empty()) {
            Some(image) => code { (image) },
            None => "that of the runtime",
        }
    }
}

/// Returns the number of replicas in the spec; empty if a preset determines it.
fn replicas(live: &Value) -> String {
    let number = |field: &str| live.pointer(&format!("/spec/{field}")).and_then(Value::as_i64);
    match (number("replicas"), number("minReplicas"), number("maxReplicas")) {
        (Some(set), ..) => format!("{set}, set by a scaler"),
        (_, Some(least), Some(most)) if least == most => least.to_string(),
        (_, Some(least), Some(most)) => format!("{least} to {most}"),
        (_, Some(least), None) => format!("at least {least}"),
        (_, None, Some(most)) => format!("at most {most}"),
        (None, None, None) => String::new(),
    }
}

/// Returns the value of a variable, or a link to the object with the value.
fn value(namespace: &str, variable: &Variable) -> Markup {
    html! {
        @match &variable.value {
            VariableValue::Plain(text) => span.text { (text) },
            VariableValue::KeyOf { kind, name, key } => {
                "key " code { (key) } " of "
                a href=(address::of_object(&Key::new("", *kind, Some(namespace), name.as_str()))) { (kind) " " (name) }
            }
            VariableValue::Field(path) => { "field " code { (path) } " of the pod" }
        }
    }
}
