//! The manual changes of all GitSyncs: ordered by time, filtered by person and field manager, and as a table.

use std::collections::BTreeSet;

use crate::address;
use crate::edits::{Edit, End, Field};
use crate::filter::Query;
use crate::row::Row;

/// A manual change with its GitSync.
pub(crate) type OwnedEdit<'r> = (&'r Row, &'r Edit);

/// The changes that a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// A part of the name of a person or field manager; empty for all.
    pub(crate) who: String,
    /// The field manager; empty for all.
    pub(crate) manager: String,
}

impl Choice {
    /// Reads the choice in a URL.
    pub(crate) fn of(query: &Query) -> Self {
        Self { who: query.get("who").to_owned(), manager: query.get("manager").to_owned() }
    }

    /// Returns the parameters of the choice.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 2] {
        [("who", &self.who), ("manager", &self.manager)]
    }

    /// Returns whether the choice includes the changes of a field manager.
    fn includes(&self, who: &str) -> bool {
        (self.manager.is_empty() || who == self.manager) && who.to_lowercase().contains(&self.who.to_lowercase())
    }
}

/// An object to which a field manager keeps writing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fight<'r> {
    pub(crate) row: &'r Row,
    /// The field manager and the object; empty if the condition of the GitSync names them in another form.
    pub(crate) who: &'r str,
    pub(crate) object: &'r str,
    /// The fields, or a text that cannot be parsed.
    pub(crate) text: &'r str,
}

/// Returns the chosen changes, newest first.
pub(crate) fn newest_first<'r>(rows: impl IntoIterator<Item = &'r Row>, choice: &Choice) -> Vec<OwnedEdit<'r>> {
    let all = rows.into_iter().flat_map(|row| row.edits.iter().map(move |edit| (row, edit)));
    let mut chosen: Vec<_> = all.filter(|(_, edit)| choice.includes(&edit.who)).collect();
    chosen.sort_by(|(a_row, a), (b_row, b)| (b.when, &a_row.name, &a.object).cmp(&(a.when, &b_row.name, &b.object)));
    chosen
}

/// Returns the chosen objects to which a person or a field manager keeps writing.
pub(crate) fn contended<'r>(rows: impl IntoIterator<Item = &'r Row>, choice: &Choice) -> Vec<Fight<'r>> {
    let mut all: Vec<_> = rows.into_iter().flat_map(fights).collect();
    all.retain(|fight| choice.includes(if fight.who.is_empty() { fight.text } else { fight.who }));
    all.sort_by(|a, b| (&a.row.namespace, &a.row.name, a.object).cmp(&(&b.row.namespace, &b.row.name, b.object)));
    all
}

/// Returns the changes with those that remain in front.
pub(crate) fn remaining_first(mut edits: Vec<OwnedEdit<'_>>) -> Vec<OwnedEdit<'_>> {
    edits.sort_by_key(|(_, edit)| !matches!(edit.end, End::Remains(_)));
    edits
}

/// Returns the field managers of all changes.
pub(crate) fn managers<'r>(rows: impl IntoIterator<Item = &'r Row>) -> BTreeSet<&'r str> {
    let of_row = |row: &'r Row| {
        let edits = row.edits.iter().map(|edit| edit.who.as_str());
        edits.chain(fights(row).into_iter().map(|fight| fight.who)).filter(|who| !who.is_empty()).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(of_row).collect()
}

/// Reads the message of the condition `Contended`: `WHO keeps writing to OBJECT: FIELDS; WHO …`.
fn fights(row: &Row) -> Vec<Fight<'_>> {
    let parts = row.contended.split("; ").filter(|part| !part.is_empty());
    parts.map(|text| named(row, text).unwrap_or(Fight { row, who: "", object: "", text })).collect()
}

fn named<'r>(row: &'r Row, part: &'r str) -> Option<Fight<'r>> {
    let (who, rest) = part.split_once(" keeps writing to ")?;
    let (object, text) = rest.split_once(": ")?;
    address::key_of(object)?;
    Some(Fight { row, who, object, text })
}

/// Returns the edits as rows of a table with titles, one after the other.
pub(crate) fn table<'e>(edits: &'e [OwnedEdit<'e>]) -> impl Iterator<Item = Vec<String>> + 'e {
    let titles = ["time", "gitsync", "object", "who", "field", "repository", "edit", "end"];
    let titles = std::iter::once(titles.map(str::to_owned).to_vec());
    titles.chain(edits.iter().flat_map(|(row, edit)| rows_of(row, edit)))
}

/// Returns a row for each field of an edit, or one row without a field.
fn rows_of<'e>(row: &'e Row, edit: &'e Edit) -> impl Iterator<Item = Vec<String>> + 'e {
    let without: Option<Option<&Field>> = edit.fields.is_empty().then_some(None);
    edit.fields.iter().map(Some).chain(without).map(move |field| {
        let (before, after) = field.and_then(|field| field.values.clone()).unwrap_or_default();
        vec![
            edit.when.map(|when| when.to_string()).unwrap_or_default(),
            format!("{}/{}", row.namespace, row.name),
            edit.object.clone(),
            edit.who.clone(),
            field.map(|field| field.path.clone()).unwrap_or_default(),
            before,
            after,
            edit.end_text(),
        ]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::{FleetKind, row};

    #[test]
    fn edits_are_ordered_by_time_and_chosen_by_person() {
        let live = json!({"metadata": {"namespace": "apps", "name": "shop"}, "status": {
            "lastReverts": [
                {"object": "Deployment.apps shop/web", "fields": ["spec.replicas"], "who": "kubectl-scale",
                 "when": "2030-01-01T00:00:00Z", "latencyMs": 12,
                 "changes": [{"field": "spec.replicas", "found": "5", "restored": "2"}]},
                {"object": "Secret shop/key", "fields": ["data.a"], "who": "alice", "when": "2030-01-01T00:01:00Z", "latencyMs": 3},
            ],
            "conditions": [{"type": "Contended", "status": "True", "reason": "Contended", "message": "bob keeps writing to Service shop/api: spec.x"}],
            "drifted": [{"object": "Service shop/api", "who": "bob", "since": "2030-01-01T00:02:00Z", "reason": "Paused"}],
        }});
        let row = row(FleetKind::GitSync, &live);
        let choice = |who: &str, manager: &str| Choice { who: who.to_owned(), manager: manager.to_owned() };
        let who =
            |choice: &Choice| newest_first([&row], choice).iter().map(|(_, edit)| edit.who.clone()).collect::<Vec<_>>();
        assert_eq!(who(&choice("", "")), ["bob", "alice", "kubectl-scale"]);
        let mut old = row.clone();
        for edit in old.edits.iter_mut().filter(|edit| edit.who == "bob") {
            edit.when = None;
        }
        let all = newest_first([&old], &choice("", ""));
        assert_eq!(all.last().unwrap().1.who, "bob");
        let all: Vec<&str> = remaining_first(all).iter().map(|(_, edit)| edit.who.as_str()).collect();
        assert_eq!(all, ["bob", "alice", "kubectl-scale"]);
        assert_eq!(who(&choice("KUBECTL", "")), ["kubectl-scale"]);
        assert_eq!(who(&choice("", "alice")), ["alice"]);
        assert_eq!(who(&choice("", "ali")), Vec::<String>::new());
        assert_eq!(managers([&row]).into_iter().collect::<Vec<_>>(), ["alice", "bob", "kubectl-scale"]);
        let edits = newest_first([&row], &choice("kubectl", ""));
        let table: Vec<Vec<String>> = table(&edits).collect();
        assert_eq!(
            table[1],
            [
                "2030-01-01T00:00:00Z",
                "apps/shop",
                "Deployment.apps shop/web",
                "kubectl-scale",
                "spec.replicas",
                "2",
                "5",
                "reverted after 12 ms"
            ]
        );
        let fights = |choice: &Choice| {
            let all = contended([&row], choice);
            all.iter().map(|one| [one.who, one.object, one.text].join("|")).collect::<Vec<_>>()
        };
        assert_eq!(fights(&choice("Bob", "")), ["bob|Service shop/api|spec.x"]);
        assert_eq!(fights(&choice("", "bob")), ["bob|Service shop/api|spec.x"]);
        assert_eq!(fights(&choice("alice", "")), Vec::<String>::new());
        let secret = newest_first([&row], &choice("alice", ""));
        assert_eq!(secret[0].1.fields, [Field { path: "data.a".into(), values: None }]);
    }

    #[test]
    fn a_condition_of_another_form_is_a_text_and_several_objects_are_named() {
        let message =
            "eve keeps writing to Service shop/api: spec.x, spec.y; bob keeps writing to <b>: x; no form and 3 more";
        let live = json!({"metadata": {"namespace": "apps", "name": "shop"}, "status": {
            "conditions": [{"type": "Contended", "status": "True", "reason": "Contended", "message": message}],
        }});
        let row = row(FleetKind::GitSync, &live);
        let all = contended([&row], &Choice::default());
        let shown: Vec<[&str; 3]> = all.iter().map(|one| [one.who, one.object, one.text]).collect();
        assert_eq!(
            shown,
            [
                ["", "", "bob keeps writing to <b>: x"],
                ["", "", "no form and 3 more"],
                ["eve", "Service shop/api", "spec.x, spec.y"],
            ]
        );
    }
}
