//! The windows of a GitSync on its page.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::window::{Phase, Window, is_held};

/// Returns the section about the windows; nothing without windows. `until` is the end of the hold in the status.
pub(super) fn windows(all: &[Window], until: Option<Timestamp>, now: Timestamp) -> Markup {
    html! {
        @if !all.is_empty() {
            section aria-labelledby="windows" {
                h2 #windows { "Windows" }
                @match is_held(all) {
                    Some(false) => p { (parts::sign("good", "✔", "Open:")) " new commits are applied now." },
                    Some(true) => p {
                        (parts::sign("wait", "◼", "Closed:")) " new commits are held now"
                        @if let Some(until) = until { ", until " (time(until, now)) } "."
                    },
                    None => p.note { "A window is invalid, so no new commit is applied." },
                }
                (table(all, now))
            }
        }
    }
}

fn table(all: &[Window], now: Timestamp) -> Markup {
    html! {
        table.cards {
            thead { tr { th scope="col" { "Effect" } th scope="col" { "Begins (cron)" } th scope="col" { "Lasts" } th scope="col" { "Time zone" } th scope="col" { "Now" } } }
            tbody { @for one in all { tr {
                th scope="row" data-label="Effect" { (effect(&one.kind)) }
                td data-label="Begins (cron)" { code { (one.schedule) } }
                td data-label="Lasts" { (one.duration) }
                td data-label="Time zone" { (one.zone) }
                td data-label="Now" { (phase(&one.phase, now)) }
            } } }
        }
    }
}

/// Returns the effect of a kind of window in words.
fn effect(kind: &str) -> Markup {
    html! {
        @match kind {
            "Allow" => "Allow: new commits are applied while it is active",
            "Deny" => "Deny: new commits are held while it is active",
            other => (other),
        }
    }
}

fn phase(phase: &Result<Phase, String>, now: Timestamp) -> Markup {
    html! {
        @match phase {
            Ok(Phase::Active(end)) => { "active until " (time(*end, now)) }
            Ok(Phase::Inactive(Some(begin))) => { "not active; begins at " (time(*begin, now)) }
            Ok(Phase::Inactive(None)) => "not active; never begins again",
            Err(why) => span.bad { (why) },
        }
    }
}

/// Returns a time in the future with the time until then.
fn time(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) { (at) } " (" (parts::until(at, now)) ")" }
}
