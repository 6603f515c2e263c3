//! The hand edits over all GitSyncs as a picture and as a time line, and the objects that two writers fight over.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{history, lanes, parts};
use crate::address;
use crate::drift::{Choice, Fight, OwnedEdit};
use crate::row::Row;
use crate::text::{SHORT, plain};

/// Maximum number of changes on the page, and of contended objects. The CSV file contains more changes.
const MOST: usize = 500;
/// Maximum number of field managers to select.
const MANAGERS: usize = 500;
/// Maximum size of the page without its frame, and of its parts other than the changes, in bytes.
const PAGE: usize = 4 << 20;
const OF_MANAGERS: usize = 512 << 10;
const OF_CONTENDED: usize = 1 << 20;
const OF_PICTURE: usize = 1 << 20;

/// Contents of the page.
pub(crate) struct Drift<'d> {
    pub(crate) edits: &'d [OwnedEdit<'d>],
    /// The objects to which somebody else keeps writing.
    pub(crate) contended: &'d [Fight<'d>],
    /// The field managers of all edits.
    pub(crate) managers: &'d BTreeSet<&'d str>,
    /// The person or field manager whose edits are shown.
    pub(crate) choice: &'d Choice,
    pub(crate) notes: &'d [String],
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn drift(page: &Drift<'_>) -> Markup {
    let Drift { edits, contended, notes, now, .. } = page;
    let fights = fitting(contended.iter().take(MOST).map(fight_of), OF_CONTENDED);
    let picture = lanes::picture_of(edits.iter().map(|(row, edit)| (Some(*row), *edit)), *now);
    let picture = fitting([picture], OF_PICTURE);
    let shown = edits.iter().take(MOST).map(|(row, edit)| history::edit(edit, *now, Some(git_sync(row))));
    let shown = fitting(shown, PAGE - OF_MANAGERS - OF_CONTENDED - OF_PICTURE);
    html! {
        h1 { "Drift" }
        p { "Hand edits of managed objects: those that remain, then the last 10 reverts of each GitSync, each newest first." }
        @for note in *notes { (parts::note(note)) }
        (form(page))
        @if !contended.is_empty() {
            section.problems aria-labelledby="contended" {
                h2 #contended { "Contended objects" }
                ul {
                    @for fight in &fights { li { (fight) } }
                    @if contended.len() > fights.len() { li { "and " (contended.len() - fights.len()) " more" } }
                }
            }
        }
        @if !edits.is_empty() { p { a href="#edits" { "Skip to the list of edits" } } }
        @for picture in &picture { (picture) }
        @if picture.is_empty() { p.note { "The picture is too large for this page. Filter the edits." } }
        p.quiet role="status" { (edits.len()) @if edits.len() == 1 { " edit" } @else { " edits" } }
        ol.timeline #edits {
            @for edit in &shown { li { (edit) } }
        }
        @if edits.len() > shown.len() {
            p.note { (edits.len() - shown.len()) " more are not shown. Filter them, or download the CSV file." }
        }
    }
}

/// Returns the first parts, up to this size in bytes together.
fn fitting(parts: impl IntoIterator<Item = Markup>, most: usize) -> Vec<Markup> {
    let mut size = 0;
    let fits = |part: &Markup| {
        size += part.0.len();
        size <= most
    };
    parts.into_iter().take_while(fits).collect()
}

/// Returns the form that selects edits. It needs no script.
fn form(page: &Drift<'_>) -> Markup {
    let Drift { managers, choice, .. } = page;
    let option = |manager: &&str| html! { option value=(manager) { (manager) } };
    // The chosen one has its place even if the others leave it none.
    let others = managers.iter().filter(|manager| **manager != choice.manager);
    let options = fitting(others.take(MANAGERS).map(option), OF_MANAGERS);
    html! {
        form.filter method="get" action="/drift" role="search" {
            label { "Person or tool contains" input type="search" name="who" value=(choice.who); }
            label { "Field manager"
                select name="manager" {
                    option value="" { "All" }
                    @if !choice.manager.is_empty() { option value=(choice.manager) selected { (plain(&choice.manager, SHORT)) } }
                    @for option in &options { (option) }
                }
            }
            button type="submit" { "Filter" }
            @if **choice != Choice::default() { a href="/drift" { "Clear" } }
            a href=(address::with_query("/drift.csv", &choice.pairs())) download="drift.csv" { "Download as CSV" }
        }
    }
}

fn git_sync(row: &Row) -> Markup {
    html! { a href=(address::of_git_sync(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) } }
}

/// Returns who keeps writing to an object.
fn fight_of(fight: &Fight<'_>) -> Markup {
    html! {
        @if fight.who.is_empty() { (git_sync(fight.row)) ": " span.text { (fight.text) } (parts::advice("Contended")) }
        @else {
            (parts::named_object(fight.object, fight.row.cluster)) " of " (git_sync(fight.row)) ": " strong { (fight.who) }
            " and Mainstay keep writing to " code { (fight.text) }
            (parts::advice_about("Contended", fight.object))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::drift::{contended, managers, newest_first};
    use crate::row::{FleetKind, row};

    /// Returns the page of GitSyncs with 40 edits each, whose texts have this size.
    fn page_of(syncs: usize, size: usize) -> String {
        let text = "<".repeat(size);
        let change = json!({"field": text, "found": text, "restored": text});
        let revert = |at: usize| {
            let (object, who) = (format!("Service a/{text}"), format!("{at}{text}"));
            let when = format!("2030-01-01T00:00:{at:02}Z");
            json!({"object": object, "who": who, "when": when, "latencyMs": 1, "changes": vec![change.clone(); 40]})
        };
        let reverts: Vec<Value> = (0..40).map(revert).collect();
        let message = vec![format!("{text} keeps writing to Service a/b: {text}"); 8].join("; ");
        let live = |at: usize| {
            json!({"metadata": {"namespace": "apps", "name": format!("shop-{at}")}, "status": {
                "lastReverts": reverts,
                "conditions": [{"type": "Contended", "status": "True", "reason": "Contended", "message": message}],
            }})
        };
        let rows: Vec<Row> = (0..syncs).map(|at| row(FleetKind::GitSync, &live(at))).collect();
        let choice = Choice::default();
        let page = drift(&Drift {
            edits: &newest_first(&rows, &choice),
            contended: &contended(&rows, &choice),
            managers: &managers(&rows),
            choice: &choice,
            notes: &[],
            now: "2030-01-02T00:00:00Z".parse().unwrap(),
        });
        page.into_string()
    }

    #[test]
    fn a_page_has_a_maximum_size_and_says_how_many_edits_are_missing() {
        let page = page_of(100, 500);
        assert!(page.len() < PAGE + (64 << 10), "{}", page.len());
        let (_, edits) = page.split_once("id=\"edits\"").unwrap();
        let shown = edits.matches("reverted after").count();
        assert!(shown > 10 && edits.contains(&format!("{} more are not shown", 100 * 40 - shown)), "{shown}");
        assert!(page.contains("4000 edits"));
    }

    #[test]
    fn a_small_page_shows_all_edits() {
        let page = page_of(2, 1);
        let (_, edits) = page.split_once("id=\"edits\"").unwrap();
        assert_eq!(edits.matches("reverted after").count(), 80);
        assert!(!page.contains("are not shown") && !page.contains("too large"), "{page}");
    }
}
