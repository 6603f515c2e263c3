//! A Function: its conditions, image, variables, pods and logs.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::parts;
use super::pods::{Log, Pod, log as log_section, table};
use crate::address;
use crate::field::text_at;
use crate::row::{State, conditions_of};
use crate::shown::{EventRow, variables};
use crate::text::{MESSAGE, SHORT, plain, short_id};
use mainstay_object::Key;

/// Contents of the page.
pub(crate) struct FunctionPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) state: State,
    pub(crate) pods: &'p Result<Vec<Pod>, String>,
    pub(crate) log: &'p Option<Log>,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn function(page: &FunctionPage<'_>) -> Markup {
    let FunctionPage { key, live, state, pods, log, events, now } = page;
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64);
    let warnings =
        live.pointer("/status/warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    html! {
        nav aria-label="Place" { a href="/" { "Fleet" } " / " (namespace) }
        h1 { "Function " (key.name) " " (parts::state(*state)) }
        div.actions { a.button href=(address::path(&["function", namespace, &key.name, "call"])) { "Call" } }
        @for warning in warnings.take(20) { p.note { (plain(warning, MESSAGE)) } }
        dl.facts {
            @if !text("/status/runtime").is_empty() { div { dt { "Runtime" } dd { (text("/status/runtime")) } } }
            div { dt { "Source" } dd { (if text("/spec/type") == "git" { format!("Git, {}", text("/spec/source")) } else { "inline".to_owned() }) } }
            @if !text("/status/commit").is_empty() { div { dt { "Commit" } dd { code title=(text("/status/commit")) { (short_id(&text("/status/commit"))) } } } }
            @if !text("/status/image").is_empty() { div { dt { "Image" } dd { code { (text("/status/image")) } } } }
            @if let Some(place) = number("/status/queue") { div { dt { "Build queue" } dd { "position " (place) } } }
            @if let Some(replicas) = number("/status/replicas") { div { dt { "Replicas" } dd { (replicas) } } }
        }
        section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(&conditions_of(live), *now)) }
        section aria-labelledby="pods" { h2 #pods { "Pods" } (table(&address::of_object(key), pods)) }
        @if let Some(log) = log { (log_section(log)) }
        section aria-labelledby="variables" {
            h2 #variables { "Variables" }
            @let all = variables(live);
            @if all.is_empty() { p.quiet { "The Function has no variables of its own." } }
            @else { dl.facts { @for one in &all { div { dt { code { (one.name) } } dd { span.text { (one.value) } } } } } }
        }
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
        p { a href=(address::with_query("/object", &[("group", &key.group), ("kind", &key.kind), ("namespace", namespace), ("name", &key.name)])) { "Origin, steps, field managers and YAML of this Function" } }
    }
}
