//! The hand edits over all GitSyncs as a picture and as a time line, and the objects that two writers fight over.

use jiff::Timestamp;
use maud::{Markup, html};

use super::{history, lanes, parts};
use crate::address;
use crate::drift::OwnedEdit;
use crate::row::Row;

/// Maximum number of changes on the page. The CSV file contains all changes.
const MOST: usize = 500;

/// Contents of the page.
pub(crate) struct Drift<'d> {
    pub(crate) edits: &'d [OwnedEdit<'d>],
    /// The GitSyncs with objects to which somebody else keeps writing.
    pub(crate) contended: &'d [&'d Row],
    /// The person or field manager whose edits are shown.
    pub(crate) who: &'d str,
    pub(crate) notes: &'d [String],
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn drift(page: &Drift<'_>) -> Markup {
    let Drift { edits, contended, who, notes, now } = page;
    html! {
        h1 { "Drift" }
        p { "Hand edits of managed objects, newest first: the last 10 reverts of each GitSync, and the edits that remain." }
        @for note in *notes { p.note { (note) } }
        form.filter method="get" action="/drift" role="search" {
            label { "Person or field manager" input type="search" name="who" value=(who); }
            button type="submit" { "Filter" }
            a href=(address::with_query("/drift.csv", &[("who", who)])) download="drift.csv" { "Download as CSV" }
        }
        @if !contended.is_empty() {
            section.problems aria-labelledby="contended" {
                h2 #contended { "Contended objects" }
                ul {
                    @for row in contended.iter().take(MOST) {
                        li { a href=(address::of_git_sync(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) } ": " span.text { (row.contended) } }
                    }
                }
                (parts::advice("Contended"))
            }
        }
        (lanes::picture(edits.iter().map(|(_, edit)| *edit), *now))
        p.quiet role="status" { (edits.len()) @if edits.len() == 1 { " edit" } @else { " edits" } }
        ol.timeline {
            @for (row, edit) in edits.iter().take(MOST) {
                li {
                    (history::edit(edit, *now, Some(html! { a href=(address::of_git_sync(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) } })))
                }
            }
        }
        @if edits.len() > MOST { p.note { "Only the first " (MOST) " are shown. The CSV file has all of them." } }
    }
}
