//! The page on health describes each kind that has a rule.

use std::{collections::BTreeSet, fs};

use regex::Regex;

/// The rules, in the function `rule_of`.
const RULES: &str = "src/object/src/health.rs";
/// The page with the table of kinds.
const PAGE: &str = "docs/gitops/health.md";
/// The row of the table for kinds without a rule.
const OTHERS: &str = "any other kind";

/// Returns the kinds in the match of `rule_of`. Groups begin with a lower-case letter.
fn kinds_with_a_rule(code: &str) -> BTreeSet<String> {
    let (_, body) = code.split_once("fn rule_of(").unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    let kind = Regex::new(r#""([A-Z]\w*)""#).unwrap();
    kind.captures_iter(body).map(|found| found[1].to_owned()).collect()
}

/// Returns the kinds in the first column of the table. A cell lists kinds, each with its project: `Provider of Mainstay`.
fn kinds_in_the_table(page: &str) -> BTreeSet<String> {
    let (_, table) = page.split_once("\n| kind |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_start_matches('|').split('|').next().unwrap_or_default().trim());
    let kinds = cells.filter(|cell| *cell != OTHERS).flat_map(|cell| cell.split(", "));
    kinds.map(|kind| kind.split_once(" of ").map_or(kind, |(kind, _)| kind).to_owned()).collect()
}

#[test]
fn the_page_on_health_has_a_row_for_each_rule() {
    let documented = kinds_in_the_table(&fs::read_to_string(PAGE).unwrap());
    let judged = kinds_with_a_rule(&fs::read_to_string(RULES).unwrap());
    assert!(judged.contains("Deployment"), "{judged:?}");
    assert_eq!(documented, judged, "the table of {PAGE} must have the kinds of `rule_of` in {RULES}");
}
