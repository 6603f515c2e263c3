//! Hand edits over time as a picture.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::axis::Tick;
use crate::edits::Edit;
use crate::lanes::{Lane, Mark, Owned, WIDTH, lanes};

/// Height of a lane in units, and of a mark.
const HEIGHT: i64 = 24;
const MARK: i64 = 10;

/// Returns the picture of these edits, or nothing if no edit has a time.
pub(super) fn picture<'e>(edits: impl IntoIterator<Item = &'e Edit>, now: Timestamp) -> Markup {
    picture_of(edits.into_iter().map(|edit| (None, edit)), now)
}

/// Returns the picture of edits whose GitSync is known, or nothing if no edit has a time.
pub(super) fn picture_of<'e>(edits: impl IntoIterator<Item = Owned<'e>>, now: Timestamp) -> Markup {
    let Some(all) = lanes(edits, now) else { return html! {} };
    html! {
        figure.lanes {
            figcaption.quiet {
                "Each mark is a hand edit, as long as it lasted, and a link to its object: "
                (parts::sign("good", "■", "reverted")) ", " (parts::sign("warn", "■", "remains")) "."
                @if !all.ticks.is_empty() { " Times are in UTC." }
            }
            @for one in &all.lanes { (lane(one, &all.ticks)) }
            @if !all.ticks.is_empty() { (axis(&all.ticks)) }
            div.lane {
                span {}
                div.scale.quiet { span { (parts::age(Some(all.begin), now)) " ago" } span { "now" } }
            }
            @if all.more > 0 { p.quiet { "The edits of " (all.more) " others are in the list only." } }
        }
    }
}

fn lane(lane: &Lane, ticks: &[Tick]) -> Markup {
    let edits = if lane.edits == 1 { "1 hand edit".to_owned() } else { format!("{} hand edits", lane.edits) };
    let label = format!("{edits} of {}, {} remaining", lane.who, lane.remaining);
    html! {
        div.lane {
            span.lane-who { (lane.who) " " span.quiet { (lane.edits) } }
            // A picture has no links for screen readers, so this is a group of links.
            svg.marks viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="group" aria-label=(label) {
                @for tick in ticks { line.tick x1=(tick.at) x2=(tick.at) y1="0" y2=(HEIGHT) {} }
                @for mark in &lane.marks {
                    @if mark.link.is_empty() { (bar(mark)) }
                    @else { a href=(mark.link) aria-label={ (mark.title) ", " (time(mark.when)) } { (bar(mark)) } }
                }
            }
        }
    }
}

fn bar(mark: &Mark) -> Markup {
    html! {
        rect.mark.(if mark.is_remaining { "warn" } else { "good" })
            x=(mark.at) y=((HEIGHT - MARK) / 2) width=(mark.length.max(1)) height=(MARK) { title { (mark.title) ", " (time(mark.when)) } }
    }
}

/// Returns the time at which an edit began, in seconds.
fn time(when: Timestamp) -> String {
    format!("{when:.0}")
}

/// Returns the names of the marks of the axis. Their places are parts of the width, so that the text keeps its shape.
fn axis(ticks: &[Tick]) -> Markup {
    let names: Vec<&str> = ticks.iter().map(|tick| tick.label.as_str()).collect();
    html! {
        div.lane {
            span {}
            svg.axis height="18" role="img" aria-label={ "Times in UTC: " (names.join(", ")) } {
                @for tick in ticks {
                    text x={ (tick.at * 100 / WIDTH) "%" } y="13" text-anchor=(anchor(tick.at)) { (tick.label) }
                }
            }
        }
    }
}

/// Returns which part of a name is at its mark, so that names at the ends stay within the picture.
const fn anchor(at: i64) -> &'static str {
    match at * 100 / WIDTH {
        ..10 => "start",
        10..90 => "middle",
        _ => "end",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::End;
    use crate::objects_cluster::ObjectsCluster;

    #[test]
    fn each_bar_is_a_link_with_a_text_and_the_axis_has_times() {
        let edit = Edit {
            when: "2030-01-01T10:00:00Z".parse().ok(),
            object: "Service shop/\"><b>".into(),
            cluster: ObjectsCluster::This,
            who: "<i>bob".into(),
            fields: Vec::new(),
            end: End::Reverted(60_000),
        };
        let html = picture(&[edit], "2030-01-01T11:00:00Z".parse().unwrap()).into_string();
        for text in [
            "<a href=\"/object?kind=Service&amp;namespace=shop&amp;name=%22%3E%3Cb%3E\" aria-label=\"Service shop/&quot;&gt;&lt;b&gt; ",
            "reverted after 60 s, 2030-01-01T10:00:00Z\">",
            "aria-label=\"Times in UTC: 10:15, 10:30, 10:45\"",
            "<text x=\"25%\" y=\"13\" text-anchor=\"middle\">10:15</text>",
            "role=\"group\" aria-label=\"1 hand edit of &lt;i&gt;bob, 0 remaining\"",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("style="), "{html}");
    }
}
