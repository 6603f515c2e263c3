//! One live object: its owner, health, conditions, Events and YAML.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{self, Right};
use crate::action::Action;
use crate::address;
use crate::field::text_at;
use crate::row::conditions_of;
use crate::shown::{EventRow, yaml};
use crate::text::{MESSAGE, SHORT, plain};
use crate::tree::Mark;
use mainstay_api::names;
use mainstay_object::{Health, Key, health};

/// Contents of the page.
pub(crate) struct ObjectPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) right: &'p Right,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn object(page: &ObjectPage<'_>) -> Markup {
    let ObjectPage { key, live, events, right, now } = page;
    let (mark, state) = match health(key, live) {
        Health::Healthy => (Mark::Healthy, "healthy".to_owned()),
        Health::Progressing(why) => (Mark::Waiting, why),
        Health::Failed(why) => (Mark::Failed, why),
    };
    let metadata = |kind: &str, name: &str| {
        live.pointer(&format!("/metadata/{kind}"))
            .and_then(|map| map.get(name))
            .and_then(Value::as_str)
            .map(|text| plain(text, SHORT))
            .unwrap_or_default()
    };
    let owner = metadata("labels", names::SYNC_LABEL);
    let is_paused = metadata("annotations", names::RECONCILE) == names::DISABLED;
    let conditions = conditions_of(live);
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten().take(10);
    html! {
        nav aria-label="Place" { a href="/" { "Fleet" } @if let Some(namespace) = &key.namespace { " / " (plain(namespace, SHORT)) } }
        h1 { (plain(&key.kind, SHORT)) " " (plain(&key.name, SHORT)) " " (parts::mark(mark)) }
        @if !owner.is_empty() && !key.is("mainstay.dev", "GitSync") {
            (parts::actions(&[if is_paused { Action::EndPause } else { Action::Pause }], key, right))
        }
        dl.facts {
            div { dt { "Health" } dd { span.text { (plain(&state, MESSAGE)) } } }
            @if !owner.is_empty() { div { dt { "GitSync" } dd { (owner_link(&owner)) } } }
            @for one in owners {
                div { dt { "Owner" } dd { (text_at(one, "/kind", SHORT)) " " (text_at(one, "/name", SHORT)) } }
            }
            @if is_paused { div { dt { "Paused" } dd { (if metadata("annotations", names::UNTIL).is_empty() { "until it is resumed".to_owned() } else { format!("until {}", metadata("annotations", names::UNTIL)) }) } } }
            div { dt { "Created" } dd { (text_at(live, "/metadata/creationTimestamp", SHORT)) } }
        }
        @if !conditions.is_empty() {
            section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(&conditions, *now)) }
        }
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
        section aria-labelledby="yaml" {
            h2 #yaml { "YAML" }
            @if key.is("", "Secret") { p.note { "The values of a Secret are never shown." } }
            pre tabindex="0" aria-label="YAML of the object" { (yaml(key, live)) }
        }
    }
}

/// Returns the link to the GitSync of a label, `NAMESPACE.NAME`. A hashed label is no link.
fn owner_link(label: &str) -> Markup {
    html! {
        @match label.split_once('.') {
            Some((namespace, name)) => a href=(address::of_git_sync(namespace, name)) { (namespace) "/" (name) },
            None => (label),
        }
    }
}
