//! Time lines: the commits and replaced objects of a history, and manual changes.

use jiff::Timestamp;
use maud::{Markup, html};

use super::parts;
use crate::address;
use crate::edits::{Edit, End, Field};
use crate::history::{Moment, Outcome};
use crate::objects_cluster::ObjectsCluster;
use crate::shown::EventRow;
use crate::text::{plain, with_short_ids};

/// Maximum number of fields of a manual change, and maximum length of their names and values in bytes. The page of the object
/// has more of them.
const FIELDS: usize = 10;
const VALUE: usize = 200;

/// Returns the history of a GitSync. `remote` is the address of the repository, if the user may read it.
pub(super) fn history(moments: &[Moment<'_>], remote: Option<&str>, cluster: ObjectsCluster, now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="history" {
            h2 #history { "History" }
            p.quiet { "From the status: the last commits and replacements. From Events: failures of the last hour." }
            @if moments.is_empty() { p { "The history is empty." } }
            @else {
                ol.timeline {
                    @for moment in moments {
                        li { @match moment {
                            Moment::Applied { when, commit, subject, effect, objects, more, revert } => {
                                @let at = when.map(|when| when.to_string()).unwrap_or_default();
                                p { (parts::sign("good", "✔", "Applied")) " " (parts::age(*when, now)) " ago" }
                                p { "Commit " (parts::commit(commit, remote)) " " span.text { (subject) } }
                                p.quiet { (effect) }
                                @if !objects.is_empty() { (changed_objects(objects, *more, cluster, &format!("{commit} {at}"))) }
                                @if let Some(revert) = revert {
                                    details data-name=(format!("take back {commit} {at}")) { summary { "Take back with git revert" } p { "In a clone of the repository, then push:" } p { (parts::command(revert)) } }
                                }
                            }
                            Moment::Commit(event) => (commit(event, now)),
                            Moment::Replaced { when, object, fields } => {
                                p { (parts::sign("wait", "↻", "replaced")) " " (parts::age(*when, now)) " ago" }
                                p { (parts::named_object(object, cluster)) " was replaced"
                                    @if !fields.is_empty() { ", because " code { (fields) } " cannot be changed" } }
                            }
                        } }
                    }
                }
            }
        }
    }
}

/// Returns the changed objects of a commit as a list that the user opens. `of` is the commit with its time.
fn changed_objects(objects: &[(&str, String)], more: i64, cluster: ObjectsCluster, of: &str) -> Markup {
    html! {
        details data-name=(format!("objects {of}")) {
            summary { "Changed objects" }
            ul {
                @for (change, object) in objects { li { (change) " " (parts::named_object(object, cluster)) } }
                @if more > 0 { li { "and " (more) " more" } }
            }
        }
    }
}

fn commit(event: &EventRow, now: Timestamp) -> Markup {
    let (class, symbol) = match Outcome::of(event) {
        Outcome::Success => ("good", "✔"),
        Outcome::Failure => ("bad", "✖"),
        Outcome::Neutral => ("off", "●"),
    };
    html! {
        p {
            (parts::sign(class, symbol, &event.reason)) " " (parts::age(event.last, now)) " ago"
            @if event.count > 1 { ", " (event.count) " times" }
        }
        p { span.text { (with_short_ids(&event.message)) } }
    }
}

/// Returns the manual changes of a GitSync, newest first, as a list that the user opens.
pub(super) fn edits(all: &[Edit], now: Timestamp) -> Markup {
    let mut all: Vec<&Edit> = all.iter().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.when));
    html! {
        details data-name="edits" {
            summary { (all.len()) @if all.len() == 1 { " hand edit" } @else { " hand edits, newest first" } }
            ol.timeline { @for one in all { li { (edit(one, now, None)) } } }
        }
    }
}

/// Returns a manual change, with `of` after the name of its object.
pub(super) fn edit(edit: &Edit, now: Timestamp, of: Option<Markup>) -> Markup {
    let (class, symbol) = if matches!(edit.end, End::Remains(_)) { ("warn", "▲") } else { ("good", "✔") };
    let sign = parts::sign(class, symbol, &edit.end_text());
    html! {
        @match (&edit.end, edit.when) {
            (End::Remains(_), Some(since)) => p {
                (sign) " for " (parts::age(Some(since), now)) ", by " strong { (edit.who) }
            },
            _ => p { (sign) ", " (parts::age(edit.when, now)) " ago by " strong { (edit.who) } },
        }
        p { (parts::named_object(&edit.object, edit.cluster)) @if let Some(of) = of { " of " (of) } }
        @for field in edit.fields.iter().take(FIELDS) { (parts::change(&shortened(field))) }
        @if edit.fields.len() > FIELDS { p.quiet { "and " (more(edit, edit.fields.len() - FIELDS)) } }
        @if edit.object.starts_with("Secret ") { p.quiet { "The values of a Secret are not shown." } }
    }
}

fn shortened(field: &Field) -> Field {
    let value = |text: &String| plain(text, VALUE);
    let values = field.values.as_ref().map(|(restored, found)| (value(restored), value(found)));
    Field { path: value(&field.path), values }
}

/// Returns how many more fields a change has, as a link to its object.
fn more(edit: &Edit, count: usize) -> Markup {
    let key = address::key_of(&edit.object).filter(|_| edit.cluster == ObjectsCluster::This);
    html! {
        @match key {
            Some(key) => a href=(address::of_object(&key)) { (count) " more" },
            None => { (count) " more" },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_shows_some_fields_with_the_beginnings_of_their_values() {
        let field = |at: usize| Field { path: format!("spec.f{at}"), values: Some(("a".repeat(500), "b".repeat(9))) };
        let mut one = Edit {
            when: None,
            object: "Service a/b".to_owned(),
            cluster: ObjectsCluster::This,
            who: "bob".to_owned(),
            fields: (0..13).map(field).collect(),
            end: End::Reverted(1),
        };
        let of = |one: &Edit| edit(one, Timestamp::UNIX_EPOCH, None).into_string();
        let text = of(&one);
        assert!(text.contains("spec.f9<") && !text.contains("spec.f10"), "{text}");
        assert!(text.contains(&format!("<del>{}…</del>", "a".repeat(VALUE))) && text.contains("bbbbbbbbb<"), "{text}");
        let link = address::of_object(&address::key_of("Service a/b").unwrap()).replace('&', "&amp;");
        assert!(text.contains(&format!("and <a href=\"{link}\">3 more</a>")), "{text}");
        // An object of a remote cluster has no page.
        one.cluster = ObjectsCluster::Remote;
        assert!(of(&one).contains("and 3 more"));
        one.fields.truncate(FIELDS);
        assert!(!of(&one).contains(" more"));
    }
}
