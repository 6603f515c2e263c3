//! The manual changes of all GitSyncs: ordered by time, filtered by person, and as a table.

use crate::edits::{Edit, Field};
use crate::row::Row;

/// A manual change with its GitSync.
pub(crate) type OwnedEdit<'r> = (&'r Row, &'r Edit);

/// Returns the changes by a person or a field manager, newest first. An empty `who` selects all changes.
pub(crate) fn newest_first<'r>(rows: impl IntoIterator<Item = &'r Row>, who: &str) -> Vec<OwnedEdit<'r>> {
    let word = who.trim().to_lowercase();
    let all = rows.into_iter().flat_map(|row| row.edits.iter().map(move |edit| (row, edit)));
    let mut chosen: Vec<_> = all.filter(|(_, edit)| edit.who.to_lowercase().contains(&word)).collect();
    chosen.sort_by(|(a_row, a), (b_row, b)| (b.when, &a_row.name, &a.object).cmp(&(a.when, &b_row.name, &b.object)));
    chosen
}

/// Returns the GitSyncs with objects to which a person or a field manager keeps writing. An empty word selects all.
pub(crate) fn contended<'r>(rows: impl IntoIterator<Item = &'r Row>, who: &str) -> Vec<&'r Row> {
    let word = who.trim().to_lowercase();
    let is_chosen = |row: &&Row| !row.contended.is_empty() && row.contended.to_lowercase().contains(&word);
    let mut chosen: Vec<_> = rows.into_iter().filter(is_chosen).collect();
    chosen.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    chosen
}

/// Returns the edits as rows of a table with titles.
pub(crate) fn table(edits: &[OwnedEdit<'_>]) -> Vec<Vec<String>> {
    let titles = ["time", "gitsync", "object", "who", "field", "repository", "edit", "end"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for (row, edit) in edits {
        let none = [Field { path: String::new(), values: None }];
        let fields = if edit.fields.is_empty() { &none[..] } else { &edit.fields[..] };
        for field in fields {
            let (before, after) = field.values.clone().unwrap_or_default();
            rows.push(vec![
                edit.when.map(|when| when.to_string()).unwrap_or_default(),
                format!("{}/{}", row.namespace, row.name),
                edit.object.clone(),
                edit.who.clone(),
                field.path.clone(),
                before,
                after,
                edit.end_text(),
            ]);
        }
    }
    rows
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
        let who = |word: &str| newest_first([&row], word).iter().map(|(_, edit)| edit.who.clone()).collect::<Vec<_>>();
        assert_eq!(who(""), ["bob", "alice", "kubectl-scale"]);
        assert_eq!(who("KUBECTL"), ["kubectl-scale"]);
        let table = table(&newest_first([&row], "kubectl"));
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
        let fights = |word: &str| contended([&row], word).iter().map(|row| row.contended.clone()).collect::<Vec<_>>();
        assert_eq!(fights("Bob"), ["bob keeps writing to Service shop/api: spec.x"]);
        assert_eq!(fights("alice"), Vec::<String>::new());
        let secret = newest_first([&row], "alice");
        assert_eq!(secret[0].1.fields, [Field { path: "data.a".into(), values: None }]);
    }
}
