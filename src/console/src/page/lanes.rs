//! Hand edits over time as a picture.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::edits::Edit;
use crate::lanes::{Lane, WIDTH, lanes};

/// Height of a lane in units, and of a mark.
const HEIGHT: i64 = 24;
const MARK: i64 = 10;

/// Returns the picture of these edits, or nothing if no edit has a time.
pub(super) fn picture<'e>(edits: impl IntoIterator<Item = &'e Edit>, now: Timestamp) -> Markup {
    let Some(all) = lanes(edits, now) else { return html! {} };
    html! {
        figure.lanes {
            figcaption.quiet {
                "Each mark is a hand edit, as long as it lasted: "
                (parts::sign("good", "■", "reverted")) ", " (parts::sign("warn", "■", "remains")) "."
            }
            @for one in &all.lanes { (lane(one)) }
            div.lane {
                span {}
                div.scale.quiet { span { (parts::age(Some(all.begin), now)) " ago" } span { "now" } }
            }
            @if all.more > 0 { p.quiet { "The edits of " (all.more) " others are in the list only." } }
        }
    }
}

fn lane(lane: &Lane) -> Markup {
    let edits = if lane.edits == 1 { "1 hand edit".to_owned() } else { format!("{} hand edits", lane.edits) };
    let label = format!("{edits} of {}, {} remaining", lane.who, lane.remaining);
    html! {
        div.lane {
            span.lane-who { (lane.who) " " span.quiet { (lane.edits) } }
            svg.marks viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
                @for mark in &lane.marks {
                    rect.mark.(if mark.is_remaining { "warn" } else { "good" })
                        x=(mark.at) y=((HEIGHT - MARK) / 2) width=(mark.length.max(1)) height=(MARK) { title { (mark.title) } }
                }
            }
        }
    }
}
