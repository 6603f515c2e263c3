//! A GitRepository: its address, its credentials by name, its host keys, its last lookup, and who follows it.

use std::sync::Arc;

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::delete::delete_button;
use super::parts::{self, Right};
use crate::action::offered;
use crate::address;
use crate::field::{text_at, time_at};
use crate::lookup::lookups;
use crate::remote::shown;
use crate::row::{FleetKind, Row, State, conditions_of};
use crate::shown::EventRow;
use crate::text::{MESSAGE, SHORT, plain, with_short_ids};
use mainstay_object::Key;

/// Maximum number of pinned host keys.
const KEYS: usize = 20;
/// Maximum number of followers.
const FOLLOWERS: usize = 500;

/// Contents of the page.
pub(crate) struct GitRepositoryPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) state: State,
    /// The GitSyncs and Functions that follow it, as far as the user may see them.
    pub(crate) followers: &'p [Arc<Row>],
    /// Why not all followers are known; empty if they are.
    pub(crate) unread: &'p [String],
    pub(crate) events: &'p Result<Vec<EventRow>, String>,
    pub(crate) right: &'p Right,
    /// The permission to delete it.
    pub(crate) deletion: &'p Right,
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn git_repository(page: &GitRepositoryPage<'_>) -> Markup {
    let GitRepositoryPage { key, live, state, followers, unread, events, right, deletion, now } = page;
    let namespace = key.namespace.as_deref().unwrap_or_default();
    html! {
        (parts::place(key, None))
        h1 { "GitRepository " (key.name) " " (parts::state(*state)) }
        div.actions {
            a.button href=(address::path(&["gitrepository", namespace, &key.name, "edit"])) { "Edit" }
            (parts::actions(&offered(key, live, false), key, right))
        }
        (delete_button(key, live, deletion))
        p { a href=(address::of_any(key)) { "Origin, field managers and YAML of this GitRepository" } }
        (facts(page))
        section aria-labelledby="followers" { h2 #followers { "Followed by" } (followed_by(followers, unread, *now)) }
        section aria-labelledby="keys" { h2 #keys { "Host keys" } (host_keys(live, *now)) }
        section aria-labelledby="conditions" { h2 #conditions { "Conditions" } (parts::conditions(key, &conditions_of(live), *now)) }
        section aria-labelledby="events" { h2 #events { "Events" } (parts::events(events, *now)) }
    }
}

fn facts(page: &GitRepositoryPage<'_>) -> Markup {
    let GitRepositoryPage { key, live, followers, now, .. } = page;
    let now = *now;
    let lookups = lookups(followers.iter().filter_map(|row| row.next_lookup()));
    let lookup = lookups.values().next();
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let secret = |name: &str| {
        let secret = Key::new("", "Secret", key.namespace.as_deref(), name);
        html! { a href=(address::of_object(&secret)) { (name) } }
    };
    let (credentials, proxy) = (text("/spec/auth/secretName"), text("/spec/proxySecretRef/name"));
    let signers = text("/spec/verify/secretRef/name");
    let url = live.pointer("/spec/url").and_then(Value::as_str).unwrap_or_default();
    let all = conditions_of(live);
    let ready = all.iter().find(|one| one.kind == "Ready");
    html! {
        dl.facts {
            div.long { dt { "Address" } dd { (plain(&shown(url), MESSAGE)) } }
            div { dt { "Authentication" } dd {
                @if credentials.is_empty() { "none" } @else { (text("/spec/auth/type")) ", Secret " (secret(&credentials)) }
            } }
            @if !proxy.is_empty() { div { dt { "Proxy" } dd { "Secret " (secret(&proxy)) } } }
            @if !signers.is_empty() { div { dt { "Signatures" } dd { "required, keys in Secret " (secret(&signers)) } } }
            div { dt { "Revision" } dd {
                @if text("/status/revision").is_empty() { "not known yet" }
                @else { code title=(text("/status/revision")) { (with_short_ids(&text("/status/revision"))) } }
            } }
            @if let Some(lookup) = lookup { div { dt { "Next lookup" } dd { (parts::lookup(*lookup, now)) } } }
            div { dt { "Last change of the result" } dd {
                @if let Some(time) = time_at(live, "/status/lastLookup") { (parts::age(Some(time), now)) " ago" } @else { "no lookup yet" }
            } }
            (parts::managing_git_sync(live))
            div.long { dt { "Result" } dd {
                @match ready {
                    Some(one) => { strong { (one.reason) } " " span.text { (with_short_ids(&one.message)) } }
                    None => "not known yet",
                }
            } }
        }
        p.quiet { "The agent looks the repository up at the intervals of its followers. The status is written when the result changes." }
    }
}

/// Returns the followers. The repository has none only if all of them are known.
fn followed_by(followers: &[Arc<Row>], unread: &[String], now: Timestamp) -> Markup {
    html! {
        @if followers.is_empty() {
            @if unread.is_empty() { p.quiet { "No GitSync and no Function follows this repository. ImageUpdateAutomations are on the page of sources." } }
            @else { p.quiet { "Not known: which GitSyncs and Functions follow this repository." } }
        } @else {
            table.cards {
                thead { tr { th scope="col" { "State" } th scope="col" { "Kind" } th scope="col" { "Name" } th scope="col" { "Version" } th scope="col" { "Since" } } }
                tbody { @for row in followers.iter().take(FOLLOWERS) {
                    tr {
                        td data-label="State" { (parts::state(row.state)) }
                        td data-label="Kind" { (row.kind.name()) }
                        th scope="row" data-label="Name" { a href=(address::of_object(&row.kind.key(&row.namespace, &row.name))) { (row.name) } }
                        td data-label="Version" { @if !row.version.is_empty() { code title=(row.version) { (with_short_ids(&row.version)) } } }
                        td data-label="Since" { (parts::age(row.since, now)) }
                    }
                } }
            }
            @if followers.len() > FOLLOWERS { p.note { (followers.len() - FOLLOWERS) " more are not shown." } }
        }
        @for why in unread { p.note { (why) } }
    }
}

fn host_keys(live: &Value, now: Timestamp) -> Markup {
    let text = |pointer: &str| text_at(live, pointer, SHORT);
    let pinned = live.pointer("/status/pinnedHostKeys").and_then(Value::as_array).into_iter().flatten().take(KEYS);
    let pinned: Vec<&Value> = pinned.collect();
    let url = text("/spec/url");
    let is_http = url.starts_with("http:") || url.starts_with("https:");
    if is_http && pinned.is_empty() && text("/status/hostKey").is_empty() {
        return html! { p.quiet { "None: the address is not one of SSH." } };
    }
    html! {
        p {
            @if text("/spec/hostKeys") == "PinAtFirstUse" { "The first key of an otherwise unknown host is pinned." }
            @else { "Only known keys are accepted." }
        }
        dl.facts {
            @if !text("/status/hostKey").is_empty() { div { dt { "Accepted last" } dd { code { (text("/status/hostKey")) } } } }
            @for one in pinned {
                div { dt { "Pinned for " (text_at(one, "/host", SHORT)) } dd {
                    code { (text_at(one, "/fingerprint", SHORT)) }
                    @if let Some(time) = time_at(one, "/pinnedAt") { ", " (parts::age(Some(time), now)) " ago" }
                } }
            }
        }
    }
}

/// Returns the rows of an object's followers, GitSyncs first.
pub(crate) fn followers(rows: Vec<Arc<Row>>, namespace: &str, name: &str) -> Vec<Arc<Row>> {
    let follows = |row: &Arc<Row>| {
        matches!(row.kind, FleetKind::GitSync | FleetKind::Function)
            && row.namespace == namespace
            && row.follows == name
    };
    let mut all: Vec<Arc<Row>> = rows.into_iter().filter(follows).collect();
    all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    all
}
