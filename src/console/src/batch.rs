//! Syncs of several GitSyncs: those that the filter of the fleet shows, those of a form, and the result of each.
//!
//! Invariant: the number of GitSyncs and the length of their names are limited, so that the form with them can be sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::filter::{Filter, Query, git_syncs};
use crate::row::{FleetKind, Row, State};
use mainstay_object::Key;

/// Maximum number of GitSyncs.
pub(crate) const MOST: usize = 200;
/// Maximum length of their names together, in bytes. A form has at most 64 KiB, with a field for each.
const NAMES: usize = 32 << 10;
/// The name of the field with a GitSync.
pub(crate) const FIELD: &str = "sync";

/// The GitSyncs that a filter shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The GitSyncs to sync.
    pub(crate) chosen: Vec<Key>,
    /// The first suspended ones, which are left out.
    pub(crate) suspended: Vec<Key>,
    /// Number of further suspended ones.
    pub(crate) more_suspended: usize,
    /// Number of GitSyncs that are left out, because there are too many.
    pub(crate) more: usize,
}

impl Batch {
    /// Returns the GitSyncs of these rows that match the filter, the worst state first.
    pub(crate) fn of(rows: Vec<Arc<Row>>, filter: &Filter) -> Self {
        let (mut batch, mut names) = (Self::default(), 0);
        for row in git_syncs(rows, filter) {
            let key = FleetKind::GitSync.key(&row.namespace, &row.name);
            if row.state == State::Suspended {
                if batch.suspended.len() < MOST {
                    batch.suspended.push(key);
                } else {
                    batch.more_suspended += 1;
                }
                continue;
            }
            names += row.namespace.len() + row.name.len();
            if batch.chosen.len() < MOST && names <= NAMES {
                batch.chosen.push(key);
            } else {
                batch.more += 1;
            }
        }
        batch
    }
}

/// Returns a GitSync as the form names it.
pub(crate) fn field_of(git_sync: &Key) -> String {
    format!("{}/{}", git_sync.namespace.as_deref().unwrap_or_default(), git_sync.name)
}

/// Returns the GitSyncs of a form, each once.
///
/// # Errors
/// Fails with the problem.
pub(crate) fn chosen(form: &Query) -> Result<Vec<Key>, &'static str> {
    let (mut chosen, mut seen) = (Vec::new(), BTreeSet::new());
    for field in form.all(FIELD) {
        let is_name = |text: &str| !text.is_empty() && !text.contains('/');
        let names = field.split_once('/').filter(|(namespace, name)| is_name(namespace) && is_name(name));
        let (namespace, name) = names.ok_or("The form names a GitSync without its namespace. Open the fleet again.")?;
        if seen.insert(field) {
            chosen.push(FleetKind::GitSync.key(namespace, name));
        }
    }
    match chosen.len() {
        0 => Err("The form names no GitSync. Open the fleet again."),
        1..=MOST => Ok(chosen),
        _ => Err("The form names too many GitSyncs. Filter the fleet."),
    }
}

/// The result of the request for a GitSync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requested {
    Done,
    /// The GitSync was suspended in the meantime.
    Suspended,
    /// The API server changed nothing, for this reason.
    Refused(String),
    /// No response of the API server arrived, so the request may be done.
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::row;

    fn rows(count: usize, name: &str, suspended: usize) -> Vec<Arc<Row>> {
        let object = |at: usize| {
            let status = if at < suspended { "True" } else { "False" };
            json!({
                "metadata": {"namespace": format!("team-{}", at % 2), "name": format!("{name}{at:04}")},
                "status": {"conditions": [{"type": "Suspended", "status": status}, {"type": "Ready", "status": "True"}]},
            })
        };
        (0..count).map(|at| Arc::new(row(FleetKind::GitSync, &object(at)))).collect()
    }

    #[test]
    fn the_filter_selects_git_syncs_and_suspended_ones_are_left_out() {
        let mut all = rows(10, "s", 3);
        all.push(Arc::new(row(FleetKind::Function, &json!({"metadata": {"namespace": "team-0", "name": "f"}}))));
        let of = |query: &str| Batch::of(all.clone(), &Filter::of(&Query::parse(query.as_bytes())));
        let batch = of("");
        assert_eq!((batch.chosen.len(), batch.suspended.len(), batch.more), (7, 3, 0));
        let batch = of("namespace=team-1&page=7");
        assert_eq!(
            batch.chosen.iter().map(field_of).collect::<Vec<_>>().join(" "),
            "team-1/s0003 team-1/s0005 team-1/s0007 team-1/s0009"
        );
        assert_eq!(of("kind=Function"), Batch::default());
        assert_eq!(of("state=Suspended").chosen, Vec::new());
    }

    #[test]
    fn the_number_and_the_names_are_limited() {
        let of = |all: Vec<Arc<Row>>| Batch::of(all, &Filter::default());
        let batch = of(rows(MOST + 5, "s", 0));
        assert_eq!((batch.chosen.len(), batch.more), (MOST, 5));
        let batch = of(rows(2 * MOST, "s", MOST + 1));
        assert_eq!((batch.chosen.len(), batch.suspended.len(), batch.more_suspended), (MOST - 1, MOST, 1));
        let long = of(rows(MOST, &"x".repeat(240), 0));
        assert!(long.chosen.len() < MOST && long.chosen.len() + long.more == MOST, "{}", long.chosen.len());
    }

    #[test]
    fn a_form_names_each_git_sync_with_its_namespace() {
        let of = |form: &str| chosen(&Query::parse(form.as_bytes()));
        let all = of("csrf=x&sync=a%2Fb&sync=a%2Fc&sync=a%2Fb").unwrap();
        assert_eq!(all.iter().map(field_of).collect::<Vec<_>>(), ["a/b", "a/c"]);
        for wrong in ["", "sync=", "sync=b", "sync=%2Fb", "sync=a%2F", "sync=a%2Fb%2Fc", "sync=a%2Fb&sync=x"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let many: Vec<String> = (0..=MOST).map(|at| format!("sync=a%2F{at}")).collect();
        assert!(of(&many.join("&")).is_err());
        assert!(of(&many[1..].join("&")).is_ok());
    }
}
