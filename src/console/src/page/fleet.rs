//! The fleet and other lists: the objects of Mainstay that the user may see, the failed ones first.

use jiff::Timestamp;
use maud::{Markup, html};

use super::form::create_links;
use super::parts;
use crate::address;
use crate::filter::{Filter, Listing};
use crate::lookup::Lookups;
use crate::row::{FleetKind, Row, State};
use crate::text::with_short_ids;

/// Maximum number of namespaces to select from.
const NAMESPACES: usize = 200;

/// Contents of the page.
pub(crate) struct Fleet<'f> {
    pub(crate) title: &'f str,
    /// The path of the page.
    pub(crate) path: &'f str,
    /// The kinds of the page.
    pub(crate) kinds: &'f [FleetKind],
    pub(crate) listing: &'f Listing,
    pub(crate) filter: &'f Filter,
    /// When GitRepositories are looked up again.
    pub(crate) lookups: &'f Lookups<'f>,
    /// Kinds that cannot be shown, with the reason.
    pub(crate) notes: &'f [String],
    /// The token of the form that selects a namespace, for a user who may not list the objects of all namespaces.
    pub(crate) within: Option<&'f String>,
    pub(crate) now: Timestamp,
}

/// The columns that not all pages have.
#[derive(Clone, Copy)]
struct Columns {
    /// The health of the objects of a GitSync, and the next lookup of its repository.
    has_syncs: bool,
    has_versions: bool,
}

impl Columns {
    /// Returns the columns of a page with these kinds.
    fn of(kinds: &[FleetKind]) -> Self {
        let has_versions = kinds.iter().any(|kind| !FleetKind::SERVED.contains(kind));
        Self { has_syncs: kinds.contains(&FleetKind::GitSync), has_versions }
    }
}

fn link(path: &str, filter: &Filter, state: Option<State>, page: usize) -> String {
    let pairs = filter.pairs(state, page);
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
    address::with_query(path, &pairs)
}

/// Returns the page.
pub(crate) fn fleet(fleet: &Fleet<'_>) -> Markup {
    let Fleet { title, path, kinds, listing, filter, lookups, notes, within, now } = fleet;
    let columns = Columns::of(kinds);
    html! {
        h1 { (title) }
        (create_links(kinds))
        @for note in *notes { (parts::note(note)) }
        @if let Some(csrf) = within {
            form.filter method="post" action="/namespace" {
                input type="hidden" name="csrf" value=(csrf);
                label { "Show the objects of the namespace" input type="text" name="in" required maxlength="63"; }
                button type="submit" { "Show" }
            }
        }
        nav.chips aria-label="States" {
            @let all: usize = listing.counts.values().sum();
            a.chip aria-current=[filter.state.is_none().then_some("true")] href=(link(path, filter, None, 1)) { "All " b { (all) } }
            @for state in State::ALL {
                @let count = listing.counts.get(&state).copied().unwrap_or(0);
                a.chip aria-current=[(filter.state == Some(state)).then_some("true")] href=(link(path, filter, Some(state), 1)) {
                    (parts::state(state)) " " b { (count) }
                }
            }
        }
        (form(fleet))
        p.quiet role="status" { (listing.found) @if listing.found == 1 { " object" } @else { " objects" } }
        @if listing.git_syncs > 0 {
            div.actions { a.button href=(link("/sync", filter, filter.state, 1)) { "Sync all shown" } }
        }
        @if !listing.rows.is_empty() {
            table.cards {
                thead { tr {
                    th scope="col" { "State" } th scope="col" { "Kind" } th scope="col" { "Name" }
                    @if columns.has_syncs { th scope="col" { "Healthy" } }
                    @if columns.has_versions { th scope="col" { "Version" } }
                    @if columns.has_syncs { th scope="col" { "Next lookup" } }
                    th scope="col" { "Message" } th scope="col" { "Since" }
                } }
                tbody { @for row in &listing.rows { (line(row, columns, lookups, *now)) } }
            }
        }
        (pages(path, listing, filter))
    }
}

fn line(row: &Row, columns: Columns, lookups: &Lookups<'_>, now: Timestamp) -> Markup {
    let of_repository = || lookups.get(&(row.namespace.as_str(), row.name.as_str())).copied();
    let lookup = row.lookup.or_else(|| of_repository().filter(|_| row.kind == FleetKind::GitRepository));
    let key = row.kind.key(&row.namespace, &row.name);
    html! {
        tr {
            td data-label="State" { (parts::state(row.state)) }
            td data-label="Kind" { (row.kind.name()) }
            th scope="row" data-label="Name" { a href=(address::of_object(&key)) { (row.namespace) "/" wbr; (row.name) } }
            @if columns.has_syncs { td data-label="Healthy" { @if let Some(objects) = row.objects { (healthy(objects)) } } }
            @if columns.has_versions {
                td data-label="Version" { @if !row.version.is_empty() { code title=(row.version) { (with_short_ids(&row.version)) } } }
            }
            @if columns.has_syncs {
                td data-label="Next lookup" { @if let Some(lookup) = lookup { span title=(lookup.words()) { (lookup.short()) } } }
            }
            td data-label="Message" {
                @let is_important = matches!(row.state, State::Failed | State::Attention);
                span.text.clamp.long[is_important] title=[is_important.then_some(&row.message)] { (with_short_ids(&without_revision(&row.message))) }
            }
            td data-label="Since" { (parts::age(row.since, now)) }
        }
    }
}

/// Returns the number of healthy objects of a GitSync among all of them.
fn healthy((all, healthy): (i64, i64)) -> Markup {
    html! { span.warn[healthy < all] title={ (healthy) " of " (all) " objects are healthy" } { (healthy) " of " (all) } }
}

/// Removes from `REASON: REVISION: TEXT` the revision, which would hide the text in a row.
fn without_revision(message: &str) -> String {
    let parts =
        message.split_once(": ").and_then(|(reason, rest)| Some((reason, rest.split_once(char::is_whitespace)?)));
    match parts {
        Some((reason, (revision, text)))
            if revision.ends_with(':')
                && ["@sha1:", "@sha256:"].iter().any(|format| revision.contains(format))
                && !text.trim().is_empty() =>
        {
            format!("{reason}: {}", text.trim_start())
        }
        _ => message.to_owned(),
    }
}

fn form(fleet: &Fleet<'_>) -> Markup {
    let Fleet { path, kinds, listing, filter, .. } = fleet;
    html! {
        form.filter method="get" action=(path) role="search" {
            label { "Search" input type="search" name="q" value=(filter.search); }
            label { "Namespace"
                @if listing.namespaces.len() > NAMESPACES { input type="text" name="namespace" value=(filter.namespace) maxlength="63" spellcheck="false"; }
                @else {
                    select name="namespace" {
                        option value="" { "All" }
                        @for namespace in &listing.namespaces {
                            option value=(namespace) selected[*namespace == filter.namespace] { (namespace) }
                        }
                    }
                }
            }
            label { "Kind"
                select name="kind" {
                    option value="" { "All" }
                    @for kind in *kinds { option value=(kind.name()) selected[filter.kind == Some(*kind)] { (kind.name()) } }
                }
            }
            label { "State"
                select name="state" {
                    option value="" { "All" }
                    @for state in State::ALL { option value=(state.word()) selected[filter.state == Some(state)] { (state.word()) } }
                }
            }
            label { "Label" input type="text" name="label" placeholder="team=web" value=(filter.label); }
            button type="submit" { "Filter" }
            @if **filter != (Filter { page: filter.page, ..Filter::default() }) { a href=(path) { "Clear" } }
        }
    }
}

fn pages(path: &str, listing: &Listing, filter: &Filter) -> Markup {
    html! {
        @if listing.pages > 1 {
            nav.pages aria-label="Pages of the list" {
                @if listing.page > 1 { a rel="prev" href=(link(path, filter, filter.state, listing.page - 1)) { "Previous" } }
                span { "Page " (listing.page) " of " (listing.pages) }
                @if listing.page < listing.pages { a rel="next" href=(link(path, filter, filter.state, listing.page + 1)) { "Next" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::listing;
    use crate::row::row;

    #[test]
    fn a_page_has_only_the_columns_of_its_kinds() {
        let columns = |kinds: &[FleetKind], kind: FleetKind| {
            let metadata = json!({"namespace": "shop", "name": "a"});
            let object = row(kind, &json!({"metadata": metadata, "status": {"objects": 3, "healthy": 2}}));
            let filter = Filter::default();
            let page = fleet(&Fleet {
                title: "T",
                path: "/",
                kinds,
                listing: &listing(vec![object.into()], &filter),
                filter: &filter,
                lookups: &Lookups::new(),
                notes: &[],
                within: None,
                now: Timestamp::UNIX_EPOCH,
            });
            let page = page.into_string();
            assert_eq!(page.contains("2 of 3"), kind == FleetKind::GitSync, "{page}");
            assert_eq!(page.contains("Create a Function"), kind == FleetKind::GitSync, "{page}");
            assert_eq!(page.contains("<a class=\"button\" href=\"/sync\">"), kind == FleetKind::GitSync, "{page}");
            let head = page.split("<tbody>").next().unwrap_or_default();
            ["Healthy", "Version", "Next lookup"].map(|name| head.contains(&format!("<th scope=\"col\">{name}</th>")))
        };
        assert_eq!(columns(&FleetKind::ALL, FleetKind::GitSync), [true; 3]);
        assert_eq!(columns(&FleetKind::LISTED, FleetKind::Alert), [false, true, false]);
        assert_eq!(columns(&FleetKind::SERVED, FleetKind::Trigger), [false; 3]);
    }

    #[test]
    fn many_namespaces_are_a_field_of_text() {
        let page = |namespaces: usize| {
            let object = |at: usize| json!({"metadata": {"namespace": format!("team-{at}"), "name": "a"}});
            let rows = (0..namespaces).map(|at| row(FleetKind::GitSync, &object(at)).into()).collect();
            let filter = Filter { namespace: "team-1".to_owned(), ..Filter::default() };
            let page = fleet(&Fleet {
                title: "T",
                path: "/",
                kinds: &FleetKind::ALL,
                listing: &listing(rows, &filter),
                filter: &filter,
                lookups: &Lookups::new(),
                notes: &[],
                within: None,
                now: Timestamp::UNIX_EPOCH,
            });
            page.into_string()
        };
        assert!(page(NAMESPACES).contains("<option value=\"team-1\" selected>"));
        let many = page(NAMESPACES + 1);
        assert!(
            many.contains("name=\"namespace\" value=\"team-1\"") && !many.contains("<option value=\"team-1\""),
            "{many}"
        );
    }

    #[test]
    fn a_message_of_a_row_has_its_cause_and_no_revision() {
        let check = |message: &str, expected: &str| assert_eq!(without_revision(message), expected);
        check("ApplyFailed: main@sha1:5f0c: Service shop/web: refused", "ApplyFailed: Service shop/web: refused");
        check("ApplyFailed: main@sha1:5f0c:\n  Service shop/web", "ApplyFailed: Service shop/web");
        check("ApplyFailed: main@sha1:5f0c:", "ApplyFailed: main@sha1:5f0c:");
        check("ApplyFailed: main@sha1:5f0c: ", "ApplyFailed: main@sha1:5f0c: ");
        check("FetchFailed: no such host", "FetchFailed: no such host");
        check("Applied", "Applied");
    }
}
