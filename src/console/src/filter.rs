//! The filter of the fleet: the parameters in a URL, and the page of matching rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::row::{FleetKind, Row, State};

/// Number of rows on a page.
pub(crate) const PER_PAGE: usize = 100;

/// Maximum number of parameters of a URL or a form.
pub(crate) const PAIRS: usize = 2000;

/// The parameters of a URL or a form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    is_cut: bool,
}

impl Query {
    /// Parses a query or a form.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut all = form_urlencoded::parse(bytes);
        let first = all.by_ref().take(PAIRS).map(|(name, value)| (name.into_owned(), value.into_owned()));
        Self { pairs: first.collect(), is_cut: all.next().is_some() }
    }

    /// Returns whether it had more than [`PAIRS`] parameters.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the first value of a parameter without blanks around it, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default().trim()
    }

    /// Returns all parameters with their values.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the values of a parameter.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(one, _)| one == name).map(|(_, value)| value.as_str())
    }
}

/// A filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) search: String,
    pub(crate) namespace: String,
    pub(crate) kind: Option<FleetKind>,
    pub(crate) state: Option<State>,
    /// A label: `label`, or `label=value`.
    pub(crate) label: String,
    /// The number of the page, from 1.
    pub(crate) page: usize,
}

impl Filter {
    /// Reads the filter. Unknown values are ignored.
    pub(crate) fn of(query: &Query) -> Self {
        Self {
            search: query.get("q").to_owned(),
            namespace: query.get("namespace").to_owned(),
            kind: FleetKind::all().find(|kind| kind.name() == query.get("kind")),
            state: State::ALL.into_iter().find(|state| state.word() == query.get("state")),
            label: query.get("label").to_owned(),
            page: query.get("page").parse().unwrap_or(1).max(1),
        }
    }

    /// Returns the parameters of this filter with a different state and page.
    pub(crate) fn pairs(&self, state: Option<State>, page: usize) -> Vec<(&'static str, String)> {
        let page = if page > 1 { page.to_string() } else { String::new() };
        vec![
            ("q", self.search.clone()),
            ("namespace", self.namespace.clone()),
            ("kind", self.kind.map_or("", FleetKind::name).to_owned()),
            ("state", state.map_or("", State::word).to_owned()),
            ("label", self.label.clone()),
            ("page", page),
        ]
    }

    /// Returns whether a row matches, regardless of its state.
    fn matches(&self, row: &Row) -> bool {
        let search = self.search.to_lowercase();
        let has_label = match self.label.split_once('=') {
            _ if self.label.is_empty() => true,
            Some((label, value)) => row.labels.get(label.trim()).is_some_and(|own| own == value.trim()),
            None => row.labels.contains_key(&self.label),
        };
        has_label
            && (self.namespace.is_empty() || row.namespace == self.namespace)
            && self.kind.is_none_or(|kind| row.kind == kind)
            && (search.is_empty()
                || [&row.name, &row.namespace, &row.message, &row.version]
                    .iter()
                    .any(|text| text.to_lowercase().contains(&search)))
    }
}

/// A page of the fleet.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) rows: Vec<Arc<Row>>,
    /// Number of rows by state, before the filter by state.
    pub(crate) counts: BTreeMap<State, usize>,
    pub(crate) namespaces: BTreeSet<String>,
    /// Number of rows that match.
    pub(crate) found: usize,
    /// Number of GitSyncs among them.
    pub(crate) git_syncs: usize,
    pub(crate) page: usize,
    pub(crate) pages: usize,
}

/// Selects the rows of a page, the worst state first.
pub(crate) fn listing(all: Vec<Arc<Row>>, filter: &Filter) -> Listing {
    let namespaces = all.iter().map(|row| row.namespace.clone()).collect();
    let mut counts: BTreeMap<State, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for row in all.into_iter().filter(|row| filter.matches(row)) {
        *counts.entry(row.state).or_default() += 1;
        if filter.state.is_none_or(|state| row.state == state) {
            rows.push(row);
        }
    }
    sort(&mut rows);
    let git_syncs = rows.iter().filter(|row| row.kind == FleetKind::GitSync).count();
    let (found, pages) = (rows.len(), rows.len().div_ceil(PER_PAGE).max(1));
    let page = filter.page.clamp(1, pages);
    let rows = rows.into_iter().skip((page - 1) * PER_PAGE).take(PER_PAGE).collect();
    Listing { rows, counts, namespaces, found, git_syncs, page, pages }
}

/// Returns the GitSyncs that match a filter on all of its pages, the worst state first.
pub(crate) fn git_syncs(mut all: Vec<Arc<Row>>, filter: &Filter) -> Vec<Arc<Row>> {
    all.retain(|row| {
        row.kind == FleetKind::GitSync && filter.matches(row) && filter.state.is_none_or(|state| row.state == state)
    });
    sort(&mut all);
    all
}

/// Sorts rows by their state, the worst first.
fn sort(rows: &mut [Arc<Row>]) {
    rows.sort_by(|a, b| (a.state, a.kind, &a.namespace, &a.name).cmp(&(b.state, b.kind, &b.namespace, &b.name)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::row::row;

    fn rows(count: usize) -> Vec<Arc<Row>> {
        let object = |at: usize| {
            let ready = if at == 7 { "False" } else { "True" };
            json!({
                "metadata": {"namespace": format!("team-{}", at % 3), "name": format!("s{at:04}"), "labels": {"tier": "web"}},
                "status": {"conditions": [{"type": "Ready", "status": ready, "reason": "R", "message": "m"}]},
            })
        };
        (0..count).map(|at| Arc::new(row(FleetKind::GitSync, &object(at)))).collect()
    }

    fn query(text: &str) -> Filter {
        Filter::of(&Query::parse(text.as_bytes()))
    }

    #[test]
    fn the_failed_come_first_and_pages_are_bounded() {
        let first = listing(rows(2000), &Filter { page: 1, ..Filter::default() });
        assert_eq!((first.rows.len(), first.found, first.pages), (PER_PAGE, 2000, 20));
        assert_eq!((first.rows[0].name.as_str(), first.rows[0].state), ("s0007", State::Failed));
        assert_eq!((first.counts.get(&State::Ready), first.git_syncs), (Some(&1999), 2000));
        assert_eq!(git_syncs(rows(30), &query("namespace=team-1&page=3")).len(), 10);
        let beyond = listing(rows(150), &query("page=99"));
        assert_eq!((beyond.page, beyond.rows.len()), (2, 50));
        assert_eq!(listing(rows(0), &query("")).pages, 1);
    }

    #[test]
    fn a_form_with_too_many_fields_is_marked() {
        let of = |count: usize| Query::parse(vec!["a=1"; count].join("&").as_bytes());
        for (count, is_cut) in [(0, false), (PAIRS, false), (PAIRS + 1, true)] {
            let query = of(count);
            assert_eq!((query.all("a").count(), query.is_cut()), (count.min(PAIRS), is_cut), "{count}");
        }
    }

    #[test]
    fn parameters_filter_rows() {
        let found = |text: &str| listing(rows(30), &query(text)).found;
        assert_eq!(found("namespace=team-1"), 10);
        assert_eq!(found("state=Failed"), 1);
        assert_eq!(found("q=S0012"), 1);
        assert_eq!(found("label=tier%3Dweb"), 30);
        assert_eq!(found("label=tier"), 30);
        assert_eq!(found("label=tier%3Ddb"), 0);
        assert_eq!(found("kind=Function"), 0);
        assert_eq!(found("kind=unknown&state=unknown&page=x"), 30);
    }
}
