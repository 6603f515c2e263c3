//! The hand edits over all GitSyncs as a picture and as a time line, and the objects that two writers fight over.

use std::collections::BTreeSet;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{history, lanes, parts};
use crate::address;
use crate::drift::{Choice, Fight, OwnedEdit};
use crate::row::Row;
use crate::text::{SHORT, plain};

/// Maximum number of changes on the page. The CSV file contains all changes.
const MOST: usize = 500;
/// Maximum number of field managers to select.
const MANAGERS: usize = 500;

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
    html! {
        h1 { "Drift" }
        p { "Hand edits of managed objects: those that remain, then the last 10 reverts of each GitSync, each newest first." }
        @for note in *notes { (parts::note(note)) }
        (form(page))
        @if !contended.is_empty() {
            section.problems aria-labelledby="contended" {
                h2 #contended { "Contended objects" }
                ul {
                    @for fight in contended.iter().take(MOST) { li { (fight_of(fight)) } }
                }
            }
        }
        @if !edits.is_empty() { p { a href="#edits" { "Skip to the list of edits" } } }
        (lanes::picture_of(edits.iter().map(|(row, edit)| (Some(*row), *edit)), *now))
        p.quiet role="status" { (edits.len()) @if edits.len() == 1 { " edit" } @else { " edits" } }
        ol.timeline #edits {
            @for (row, edit) in edits.iter().take(MOST) {
                li {
                    (history::edit(edit, *now, Some(git_sync(row))))
                }
            }
        }
        @if edits.len() > MOST { p.note { "Only the first " (MOST) " are shown. The CSV file has all of them." } }
    }
}

/// Returns the form that selects edits. It needs no script.
fn form(page: &Drift<'_>) -> Markup {
    let Drift { managers, choice, .. } = page;
    let is_other = !choice.manager.is_empty() && !managers.contains(choice.manager.as_str());
    html! {
        form.filter method="get" action="/drift" role="search" {
            label { "Person or tool contains" input type="search" name="who" value=(choice.who); }
            label { "Field manager"
                select name="manager" {
                    option value="" { "All" }
                    @for manager in managers.iter().take(MANAGERS) {
                        option value=(manager) selected[*manager == choice.manager] { (manager) }
                    }
                    @if is_other { option value=(choice.manager) selected { (plain(&choice.manager, SHORT)) } }
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
