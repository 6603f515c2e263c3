//! One object: its origin, the agent's next action, its difference from the repository, the owners of its fields, its
//! conditions, Events, pods with their logs, and YAML.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::delete::delete_button;
use super::facts::addresses;
use super::origin;
use super::parts::{self, Right};
use super::pods::{Log, Pod, log as log_section, table};
use crate::action::{Action, offered};
use crate::address;
use crate::again::Again;
use crate::facts::Facts;
use crate::field::{text_at, time_at};
use crate::remote::shown;
use crate::row::{FleetKind, conditions_of, row};
use crate::shown::{EventRow, Yaml, yaml};
use crate::text::{MESSAGE, SHORT, plain, with_short_ids};
use crate::trace::Trace;
use crate::tree::Mark;
use mainstay_api::names;
use mainstay_object::{Health, Key, health};

/// Contents of the page.
pub(crate) struct ObjectPage<'p> {
    pub(crate) key: &'p Key,
    /// The live object; `None` if a GitSync manages the object but the object does not exist.
    pub(crate) live: Option<&'p Value>,
    pub(crate) trace: &'p Result<Trace, String>,
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    /// The pods of the object; `None` if objects of its kind have none.
    pub(crate) pods: &'p Option<Result<Vec<Pod>, String>>,
    pub(crate) log: &'p Option<Log>,
    pub(crate) right: &'p Right,
    /// The permission to delete it.
    pub(crate) deletion: &'p Right,
    /// The request that its GitSync takes for it, with the permission for the GitSync.
    pub(crate) again: &'p Option<(Again, Right)>,
    pub(crate) now: Timestamp,
}

impl ObjectPage<'_> {
    fn metadata(&self, kind: &str, name: &str) -> String {
        let map = self.live.and_then(|live| live.pointer(&format!("/metadata/{kind}")));
        let text = map.and_then(|map| map.get(name)).and_then(Value::as_str);
        text.map(|text| plain(text, SHORT)).unwrap_or_default()
    }

    fn health(&self) -> (Mark, String) {
        let known = self.trace.as_ref().ok().and_then(|trace| trace.health.clone());
        match known.or_else(|| self.live.map(|live| health(self.key, live))) {
            None => (Mark::Failed, "does not exist".to_owned()),
            Some(Health::Healthy) => (Mark::Healthy, "healthy".to_owned()),
            Some(Health::Progressing(why)) => (Mark::Waiting, why),
            Some(Health::Failed(why)) => (Mark::Failed, why),
        }
    }

    /// Returns the state as the lists show it for kinds of Mainstay, and the health of other objects.
    fn state(&self) -> Markup {
        match (self.live, FleetKind::of(self.key)) {
            (Some(live), Some(kind)) => parts::state(row(kind, live).state),
            _ => parts::health(self.health().0),
        }
    }

    fn is_paused(&self) -> bool {
        self.metadata("annotations", names::RECONCILE) == names::DISABLED
    }

    /// Returns in which ways the object deviates from the repository.
    fn deviations(&self) -> Vec<&'static str> {
        let manager = self.trace.as_ref().ok().filter(|trace| trace.owners.is_empty());
        let status = manager.and_then(|trace| Some(&trace.manager.as_ref()?.status));
        let name = self.key.to_string();
        let drifted = status.and_then(|status| status.get("drifted")).and_then(Value::as_array);
        let is_drifted = drifted.into_iter().flatten().any(|one| one["object"] == name.as_str());
        [(is_drifted, "drifted"), (self.is_paused(), "paused")]
            .into_iter()
            .filter_map(|(deviates, word)| deviates.then_some(word))
            .collect()
    }

    /// Returns whether the agent's next action is known. It looks up and serves the kinds of Mainstay, also if no GitSync
    /// manages them.
    fn has_next(&self, trace: &Trace) -> bool {
        trace.manager.is_some() || FleetKind::of(self.key).is_none() || !trace.next.starts_with("nothing")
    }

    fn is_managed(&self) -> bool {
        !self.metadata("labels", names::SYNC_LABEL).is_empty() && !self.key.is("mainstay.dev", "GitSync")
    }

    /// Returns the actions of the object. A kind with a page of its own has its actions there.
    fn actions(&self) -> Vec<Action> {
        let mut all = match self.live {
            Some(live) if address::of_object(self.key) == address::of_any(self.key) => {
                offered(self.key, live, live.pointer("/spec/suspend") == Some(&Value::Bool(true)))
            }
            _ => Vec::new(),
        };
        if self.is_managed() {
            all.push(if self.is_paused() { Action::EndPause } else { Action::Pause });
        }
        all
    }
}

/// Returns the page.
pub(crate) fn object(page: &ObjectPage<'_>) -> Markup {
    let ObjectPage { key, live, trace, events, pods, log, right, again, now, .. } = page;
    let actions = page.actions();
    let conditions = live.map(conditions_of).unwrap_or_default();
    html! {
        (parts::place(key, None))
        h1 {
            (plain(&key.kind, SHORT)) " " (plain(&key.name, SHORT)) " " (page.state())
            @for word in page.deviations() { " " (parts::deviation(word)) }
        }
        @if !actions.is_empty() { (parts::actions(&actions, key, right)) }
        @if let Some((again, right)) = again {
            div.actions {
                (parts::action_button(&again.asked, again.label, right))
                @if let Err(why) = right { p.note { (parts::coded(why)) } }
            }
        }
        @if let Some(live) = live { (of_kind(page, live)) }
        (anchors(page, !conditions.is_empty()))
        (facts(page))
        @match trace {
            Ok(trace) => {
                // If the object has a GitSync, the notes concern other GitSyncs or the steps. So they are shown only if
                // there are steps.
                @if trace.manager.is_none() || !trace.moments.is_empty() {
                    @for note in &trace.notes { p.note { (plain(note, MESSAGE)) } }
                }
                (origin::difference(key, *live, trace, *now))
                (origin::decisions(trace, *now))
            }
            Err(why) => p.note { "The origin of the object cannot be read: " (why) },
        }
        @if !conditions.is_empty() {
            section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(key, &conditions, *now)) }
        }
        @if let Some(pods) = pods { section aria-labelledby="pods" { h2 #pods { "Pods" } (table(&address::of_object(key), key.namespace.as_deref(), pods, None)) } }
        @if let Some(log) = log { (log_section(log)) }
        @if let Ok(trace) = trace { (origin::moments(trace)) (origin::field_managers(trace, *now)) }
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
        (documents(page))
    }
}

/// Returns the deletion of a kind without a page of its own, and the form that exposes a Service.
fn of_kind(page: &ObjectPage<'_>, live: &Value) -> Markup {
    let ObjectPage { key, deletion, .. } = page;
    let has_own_page = address::of_object(key) != address::of_any(key);
    let namespace = key.namespace.as_deref().unwrap_or_default();
    html! {
        @if key.is("", "Service") {
            @let port = live.pointer("/spec/ports/0/port").and_then(Value::as_u64).map(|port| port.to_string()).unwrap_or_default();
            div.actions {
                a.button href=(address::with_query("/expose", &[("namespace", namespace), ("service", &*key.name), ("port", port.as_str())])) { "Expose" }
            }
        }
        @if Action::Delete.is_of(key) && !has_own_page {
            (delete_button(key, live, deletion))
            @if !page.is_managed() { p.quiet { "To change the object, copy its YAML below, and apply it with " code { "kubectl apply -f FILE" } "." } }
        }
    }
}

/// Returns links to the sections of the page.
fn anchors(page: &ObjectPage<'_>, has_conditions: bool) -> Markup {
    let trace = page.trace.as_ref().ok();
    let manager = trace.filter(|trace| trace.owners.is_empty()).and_then(|trace| trace.manager.as_ref());
    html! {
        nav.anchors aria-label="Sections" {
            @if manager.is_some() { a href="#difference" { "Difference" } }
            @if has_conditions { a href="#conditions" { "Conditions" } }
            @if page.pods.is_some() { a href="#pods" { "Pods" } }
            @if page.log.is_some() { a href="#log" { "Log" } }
            @if trace.is_some_and(|trace| !trace.field_managers.is_empty()) { a href="#managers" { "Field managers" } }
            a href="#events" { "Events" }
            @if manager.is_some_and(|manager| manager.part.is_some()) { a href="#desired" { "Desired YAML" } }
            @if page.live.is_some() { a href="#yaml" { "Live YAML" } }
        }
    }
}

fn facts(page: &ObjectPage<'_>) -> Markup {
    let ObjectPage { live, trace, .. } = page;
    let until = page.metadata("annotations", names::UNTIL);
    let label = page.metadata("labels", names::SYNC_LABEL);
    let owners = live.and_then(|live| live.pointer("/metadata/ownerReferences")).and_then(Value::as_array);
    let is_traced = trace.as_ref().is_ok_and(|trace| trace.manager.is_some());
    html! {
        @if let Some(trace) = trace.as_ref().ok().filter(|trace| page.has_next(trace)) { (origin::next(trace, page.key, page.now)) }
        dl.facts {
            div.long { dt { "Health" } dd { span.text { (plain(&page.health().1, MESSAGE)) } } }
            @if let Some((live, kind)) = live.zip(FleetKind::of(page.key)) { (own_facts(kind, live)) }
            @if let Ok(trace) = trace { (origin::facts(trace, page.now)) }
            @if !is_traced && !label.is_empty() { div { dt { "GitSync of the label" } dd { (parts::git_sync_of_label(&label)) } } }
            @for one in owners.into_iter().flatten().take(10) { div { dt { "Owner" } dd { (owner(page.key, one)) } } }
            @if page.is_paused() {
                div { dt { "Paused" } dd { @if until.is_empty() { "until it is resumed" } @else { (parts::end(&until, page.now)) } } }
            }
            @if let Some(facts) = page.live.map(|live| Facts::of(page.key, live)).filter(|facts| !facts.addresses.is_empty()) {
                div { dt { "Address" } dd { (addresses(&facts)) } }
            }
            @if let Some(live) = live { div { dt { "Created" } dd { (created(live, page.now)) } } }
        }
    }
}

/// Returns the address, the version and the interval of an object of Mainstay.
fn own_facts(kind: FleetKind, live: &Value) -> Markup {
    let (url, interval) = (text_at(live, "/spec/url", SHORT), text_at(live, "/spec/interval", SHORT));
    let version = row(kind, live).version;
    html! {
        @if !url.is_empty() { div.long { dt { "Address" } dd { (shown(&url)) } } }
        @if !version.is_empty() { div { dt { "Version" } dd { code title=(version) { (with_short_ids(&version)) } } } }
        @if !interval.is_empty() { div { dt { "Interval" } dd { (interval) } } }
    }
}

/// Returns the age of an object.
fn created(live: &Value, now: Timestamp) -> Markup {
    let time = time_at(live, "/metadata/creationTimestamp");
    html! { @if time.is_some() { (parts::age(time, now)) " ago" } }
}

/// Returns the YAML in the repository, and the YAML of the live object.
fn documents(page: &ObjectPage<'_>) -> Markup {
    let ObjectPage { key, live, trace, .. } = page;
    let part = trace.as_ref().ok().and_then(|trace| trace.manager.as_ref()?.part.as_ref());
    let (wanted, found) = (part.map(|part| yaml(key, &part.wanted)), live.map(|live| yaml(key, live)));
    let has_login = [&wanted, &found].into_iter().flatten().any(|yaml| yaml.is_hidden);
    html! {
        @if key.is("", "Secret") { p.note { "The values of a Secret are never shown." } }
        @if has_login { p.note { "The logins of URLs are never shown. A document with a mark in their place is not copied." } }
        div.pair {
            @if let Some((part, wanted)) = part.zip(wanted) {
                section aria-labelledby="desired" {
                    h2 #desired { "Desired YAML" }
                    p.quiet { "The fields that the manifest sets, as the API server holds them. A drifted field has the value of the repository." }
                    @if !part.unknown.is_empty() {
                        p.note { "The value in the repository is unknown for: " (plain(&part.unknown.join(", "), MESSAGE)) }
                    }
                    (document(&wanted, "YAML of the repository", "the YAML of the repository"))
                }
            }
            @if let Some(found) = found {
                section aria-labelledby="yaml" {
                    h2 #yaml { "Live YAML" }
                    p.quiet { "The object in the cluster, without its field managers." }
                    (document(&found, "YAML of the object", "the YAML of the object"))
                }
            }
        }
    }
}

/// Returns a document. It has a button to copy it unless a login is hidden in it, as in the review of a form.
fn document(yaml: &Yaml, label: &str, copied: &str) -> Markup {
    html! { pre tabindex="0" aria-label=(label) data-copy=[(!yaml.is_hidden).then_some(copied)] { (yaml.text) } }
}

/// Returns the link to an owner reference. An owner is in the same namespace, or is cluster-scoped.
fn owner(key: &Key, one: &Value) -> Markup {
    let text = |field: &str| text_at(one, &format!("/{field}"), SHORT);
    let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
    let group = mainstay_object::split_api_version(&api_version).0;
    let owner = Key::new(group, kind.as_str(), key.namespace.as_deref(), name.as_str());
    html! { a href=(address::of_object(&owner)) { (kind) " " (name) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_with_a_hidden_login_is_not_copied() {
        let key = Key::new("mainstay.dev", "GitRepository", Some("shop"), "a");
        let html = |url: &str| {
            document(&yaml(&key, &json!({"spec": {"url": url}})), "YAML of the object", "the YAML of the object")
                .into_string()
        };
        let whole = html("https://host/a");
        assert!(whole.contains("data-copy=\"the YAML of the object\""), "{whole}");
        // A status has a mark in the value of the repository.
        for url in ["https://u:hunter2@host/a", "https://(hidden)@host/a", "https://(hidden-after)@host/a"] {
            let text = html(url);
            assert!(text.contains("@host/a") && !text.contains("data-copy") && !text.contains("hunter2"), "{text}");
        }
    }
}
