//! A Function: its conditions, image, variables, pods and logs.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::parts;
use crate::address;
use crate::field::text_at;
use crate::row::{State, conditions_of};
use crate::shown::{EventRow, variables};
use crate::text::{MESSAGE, SHORT, plain, short_id};
use mainstay_object::Key;

/// A pod of a Function, or of its build.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) containers: Vec<String>,
    pub(crate) is_build: bool,
}

/// The log that the page shows.
pub(crate) struct Log {
    pub(crate) pod: String,
    pub(crate) container: String,
    /// The last lines of the log, or the reason why it cannot be read.
    pub(crate) lines: Result<String, String>,
}

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
        section aria-labelledby="pods" { h2 #pods { "Pods" } (pod_table(key, pods)) }
        @if let Some(log) = log {
            section aria-labelledby="log" {
                h2 #log { "Log of " (log.pod) ", " (log.container) }
                @match &log.lines {
                    Err(why) => p.note { (why) },
                    Ok(lines) => {
                        p.quiet #following { "The last lines. Reload the page for later ones." }
                        pre.log tabindex="0" role="log" aria-label="Log" data-follow={ (log.pod) "/" (log.container) } { (lines) }
                    }
                }
            }
        }
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

fn pod_table(key: &Key, pods: &Result<Vec<Pod>, String>) -> Markup {
    let here = address::of_object(key);
    html! {
        @match pods {
            Err(why) => p.note { (why) },
            Ok(pods) if pods.is_empty() => p.quiet { "There are no pods." },
            Ok(pods) => table.cards {
                thead { tr { th scope="col" { "Pod" } th scope="col" { "For" } th scope="col" { "Phase" } th scope="col" { "Logs" } } }
                tbody { @for pod in pods {
                    tr {
                        th scope="row" data-label="Pod" { (pod.name) }
                        td data-label="For" { (if pod.is_build { "build" } else { "function" }) }
                        td data-label="Phase" { (pod.phase) }
                        td data-label="Logs" { @for container in &pod.containers {
                            a href={ (address::with_query(&here, &[("pod", &pod.name), ("container", container)])) "#log" } { (container) } " "
                        } }
                    }
                } }
            },
        }
    }
}
