//! Hand edits over time, with a lane for each person: the values of a picture.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::address;
use crate::axis::{Tick, ticks};
use crate::edits::{Edit, End};
use crate::objects_cluster::ObjectsCluster;
use crate::row::Row;
use crate::text::plain;

/// Width of a lane in units.
pub(crate) const WIDTH: i64 = 1000;
/// Maximum number of lanes, and of marks of a lane.
const LANES: usize = 12;
const MARKS: usize = 200;
/// Maximum length of the title of a mark, in bytes.
const TITLE: usize = 120;

/// A picture of hand edits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub(crate) lanes: Vec<Lane>,
    /// Number of people without a lane.
    pub(crate) more: usize,
    /// The time at the left end. The right end is now.
    pub(crate) begin: Timestamp,
    /// The marks of the time axis.
    pub(crate) ticks: Vec<Tick>,
}

/// A hand edit with the GitSync whose status lists it, if that is known.
pub(crate) type Owned<'e> = (Option<&'e Row>, &'e Edit);

/// The edits of a person or field manager.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) who: String,
    /// Number of edits, and of those that remain.
    pub(crate) edits: usize,
    pub(crate) remaining: usize,
    pub(crate) marks: Vec<Mark>,
}

/// An edit in a lane.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Its begin and its length in units.
    pub(crate) at: i64,
    pub(crate) length: i64,
    pub(crate) is_remaining: bool,
    pub(crate) title: String,
    pub(crate) when: Timestamp,
    /// The page of its object, or else of its GitSync; empty if neither is known. An object of a remote cluster has no page.
    pub(crate) link: String,
}

/// Returns the picture of these edits, the person with most edits first; `None` if no edit has a time.
pub(crate) fn lanes<'e>(edits: impl IntoIterator<Item = Owned<'e>>, now: Timestamp) -> Option<Picture> {
    let mut by_person: BTreeMap<&str, Vec<(Owned<'e>, Timestamp)>> = BTreeMap::new();
    for (row, edit) in edits {
        if let Some(when) = edit.when {
            by_person.entry(&edit.who).or_default().push(((row, edit), when.min(now)));
        }
    }
    let begin = by_person.values().flatten().map(|(_, when)| *when).min()?;
    let mut people: Vec<_> = by_person.into_iter().collect();
    people.sort_by_key(|(_, edits)| std::cmp::Reverse(edits.len()));
    let more = people.len().saturating_sub(LANES);
    let lane = |(who, edits): (&str, Vec<(Owned<'e>, Timestamp)>)| Lane {
        who: who.to_owned(),
        edits: edits.len(),
        remaining: edits.iter().filter(|((_, edit), _)| matches!(edit.end, End::Remains(_))).count(),
        marks: edits.iter().take(MARKS).map(|(owned, when)| mark(*owned, *when, begin, now)).collect(),
    };
    let lanes = people.into_iter().take(LANES).map(lane).collect();
    Some(Picture { lanes, more, begin, ticks: ticks(begin, now, WIDTH) })
}

fn mark((row, edit): Owned<'_>, when: Timestamp, begin: Timestamp, now: Timestamp) -> Mark {
    let millis = |from: Timestamp, to: Timestamp| to.as_millisecond() - from.as_millisecond();
    let whole = millis(begin, now).max(1);
    let units = |millis: i64| (i128::from(millis) * i128::from(WIDTH) / i128::from(whole)).clamp(0, WIDTH.into());
    let at = i64::try_from(units(millis(begin, when))).unwrap_or(WIDTH);
    let (lasted, is_remaining) = match edit.end {
        End::Reverted(lasted) => (lasted, false),
        End::Remains(_) => (millis(when, now), true),
    };
    let length = i64::try_from(units(lasted)).unwrap_or(WIDTH).min(WIDTH - at);
    let fields: Vec<&str> = edit.fields.iter().map(|field| field.path.as_str()).take(3).collect();
    let title = plain(&format!("{} {}, {}", edit.object, fields.join(", "), edit.end_text()), TITLE);
    Mark { at, length, is_remaining, title, when, link: link(edit, row) }
}

/// Returns the page of the object of an edit. A name that cannot be parsed has no page, but its GitSync has one.
fn link(edit: &Edit, row: Option<&Row>) -> String {
    let key = address::key_of(&edit.object).filter(|_| edit.cluster == ObjectsCluster::This);
    match (key, row) {
        (Some(key), _) => address::of_object(&key),
        (None, Some(row)) => address::of_git_sync(&row.namespace, &row.name),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edits::Field;

    fn edit(who: &str, second: i64, end: End) -> Edit {
        let field = Field { path: "spec.replicas".into(), values: None };
        let when = Timestamp::from_second(second).ok();
        Edit {
            when,
            object: "Service a/b".into(),
            cluster: ObjectsCluster::This,
            who: who.into(),
            fields: vec![field],
            end,
        }
    }

    fn owned(all: &[Edit]) -> impl Iterator<Item = Owned<'_>> {
        all.iter().map(|edit| (None, edit))
    }

    #[test]
    fn a_mark_leads_to_its_object_or_else_to_its_git_sync() {
        let live = serde_json::json!({"metadata": {"namespace": "apps", "name": "shop"}});
        let row = crate::row::row(crate::row::FleetKind::GitSync, &live);
        let named = edit("bob", 1000, End::Reverted(5));
        let other = Edit { object: "<b>".into(), ..named.clone() };
        let now = Timestamp::from_second(2000).unwrap();
        let link = |owned: Owned<'_>| lanes([owned], now).unwrap().lanes[0].marks[0].link.clone();
        assert_eq!(link((Some(&row), &named)), "/object?kind=Service&namespace=a&name=b");
        assert_eq!(link((Some(&row), &other)), address::of_git_sync("apps", "shop"));
        assert_eq!(link((None, &other)), "");
        // A page of this cluster would show another object.
        let remote = Edit { cluster: ObjectsCluster::Remote, ..named };
        assert_eq!(link((Some(&row), &remote)), address::of_git_sync("apps", "shop"));
        assert_eq!(link((None, &remote)), "");
    }

    #[test]
    fn edits_are_in_the_lane_of_their_person_at_their_time() {
        let now = Timestamp::from_second(2000).unwrap();
        let all = [
            edit("bob", 1500, End::Remains("Paused".into())),
            edit("alice", 1000, End::Reverted(100_000)),
            edit("alice", 3000, End::Reverted(5)),
        ];
        let lanes = lanes(owned(&all), now).unwrap();
        assert_eq!((lanes.begin, lanes.more), (Timestamp::from_second(1000).unwrap(), 0));
        let marks = |lane: usize| {
            let marks = lanes.lanes[lane].marks.iter();
            marks.map(|mark| (mark.at, mark.length, mark.is_remaining)).collect::<Vec<_>>()
        };
        assert_eq!(lanes.lanes[0].who, "alice");
        // A clock ahead of this one does not lead out of the picture.
        assert_eq!(marks(0), [(0, 100, false), (1000, 0, false)]);
        assert_eq!(marks(1), [(500, 500, true)]);
        assert_eq!((lanes.lanes[1].edits, lanes.lanes[1].remaining), (1, 1));
        assert_eq!(lanes.lanes[1].marks[0].title, "Service a/b spec.replicas, remains: Paused");
    }

    #[test]
    fn the_number_of_lanes_is_bounded_and_edits_of_any_time_have_a_place() {
        let all: Vec<Edit> = (0..20).map(|at| edit(&format!("p{at}"), at, End::Reverted(i64::MAX))).collect();
        let bounded = lanes(owned(&all), Timestamp::from_second(20).unwrap()).unwrap();
        assert_eq!((bounded.lanes.len(), bounded.more), (LANES, 8));
        assert!(bounded.lanes.iter().flat_map(|lane| &lane.marks).all(|mark| mark.at + mark.length == WIDTH));
        let timeless = Edit { when: None, ..edit("a", 0, End::Reverted(0)) };
        assert_eq!(lanes(owned(&[timeless]), Timestamp::UNIX_EPOCH), None);
        let only = lanes(owned(&[edit("a", 0, End::Reverted(-5))]), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!((only.lanes[0].marks[0].at, only.lanes[0].marks[0].length), (0, 0));
    }
}
