//! The time line of the manual changes of all GitSyncs.

use jiff::Timestamp;
use maud::{Markup, html};

use super::history;
use crate::address;
use crate::drift::OwnedEdit;

/// Maximum number of changes on the page. The CSV file contains all changes.
const MOST: usize = 500;

/// Returns the page.
pub(crate) fn drift(edits: &[OwnedEdit<'_>], who: &str, notes: &[String], now: Timestamp) -> Markup {
    html! {
        h1 { "Drift" }
        p { "Hand edits of managed objects, newest first: the last 10 reverts of each GitSync, and the edits that remain." }
        @for note in notes { p.note { (note) } }
        form.filter method="get" action="/drift" role="search" {
            label { "Person or field manager" input type="search" name="who" value=(who); }
            button type="submit" { "Filter" }
            a href=(address::with_query("/drift.csv", &[("who", who)])) download="drift.csv" { "Download as CSV" }
        }
        p.quiet role="status" { (edits.len()) @if edits.len() == 1 { " edit" } @else { " edits" } }
        ol.timeline {
            @for (row, edit) in edits.iter().take(MOST) {
                li {
                    (history::edit(edit, now, Some(html! { a href=(address::of_git_sync(&row.namespace, &row.name)) { (row.namespace) "/" (row.name) } })))
                }
            }
        }
        @if edits.len() > MOST { p.note { "Only the first " (MOST) " are shown. The CSV file has all of them." } }
    }
}
