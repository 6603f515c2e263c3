//! The choice of a tag.
//!
//! Invariant: the choice depends on the set of tags only, not on the order in which the registry lists them.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};

use mainstay_api::image_policy::{ImageChoice, TagFilter, TagOrder};
use mainstay_git::highest_version;
use mainstay_object::pattern_problem;

/// Maximum size of a compiled regular expression, in bytes.
const REGEX_BYTES: usize = 1 << 20;
/// Maximum length of a compared text, in bytes. An extract may repeat groups.
const LONGEST: usize = 1 << 10;

/// How a tag is chosen.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    order: Order,
    pattern: Option<Regex>,
    extract: Option<String>,
}

#[derive(Clone, Debug)]
enum Order {
    Semver(String),
    Alphabetical(TagOrder),
    Numerical(TagOrder),
}

/// Compiles a regular expression of a user.
///
/// # Errors
/// Fails with the end of a sentence about the field.
pub(super) fn compiled(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(REGEX_BYTES).dfa_size_limit(REGEX_BYTES).build();
    built.map_err(|_| pattern_problem(text))
}

impl Chooser {
    /// Reads the fields of a spec.
    ///
    /// # Errors
    /// Fails with the invalid fields.
    pub(super) fn new(choice: &ImageChoice, filter: Option<&TagFilter>) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let order = match (&choice.semver, &choice.alphabetical, &choice.numerical) {
            (Some(semver), None, None) => {
                if let Err(why) = highest_version(&semver.range, std::iter::empty()) {
                    problems.push(format!("spec.policy.semver.range: {why}"));
                }
                Some(Order::Semver(semver.range.clone()))
            }
            (None, Some(choice), None) => Some(Order::Alphabetical(choice.order)),
            (None, None, Some(choice)) => Some(Order::Numerical(choice.order)),
            _ => {
                problems.push("spec.policy: set exactly one of semver, alphabetical and numerical".to_owned());
                None
            }
        };
        let text = filter.and_then(|filter| filter.pattern.as_deref()).filter(|pattern| !pattern.is_empty());
        let pattern = text.map(compiled).transpose();
        let pattern = pattern.map_err(|why| problems.push(format!("spec.filterTags.pattern: {why}"))).ok().flatten();
        let extract = filter.and_then(|filter| filter.extract.clone()).filter(|extract| !extract.is_empty());
        if extract.is_some() && text.is_none() {
            problems.push("spec.filterTags.extract: has an effect only together with pattern".to_owned());
        }
        order.filter(|_| problems.is_empty()).map(|order| Self { order, pattern, extract }).ok_or(problems)
    }

    /// Returns the chosen tag.
    ///
    /// # Errors
    /// No tag fits, or a tag is not a number.
    pub(super) fn choose<'t>(&self, tags: impl Iterator<Item = &'t str>) -> Result<&'t str, String> {
        let mut count = 0;
        let mut compared: BTreeMap<String, &'t str> = BTreeMap::new();
        for tag in tags {
            count += 1;
            let Some(text) = self.compared(tag) else { continue };
            let chosen = compared.entry(text).or_insert(tag);
            *chosen = (*chosen).max(tag);
        }
        if compared.is_empty() {
            let of = if self.pattern.is_some() { "matches spec.filterTags.pattern" } else { "exists" };
            return Err(format!("none of the {count} tags {of}"));
        }
        let (first, last) = (compared.first_key_value(), compared.last_key_value());
        let chosen = match &self.order {
            Order::Semver(range) => {
                let highest = highest_version(range, compared.keys().map(String::as_str))?;
                highest.and_then(|text| compared.get(text).copied()).ok_or_else(|| {
                    format!("none of the {} considered tags is a version in the range {range}", compared.len())
                })?
            }
            Order::Alphabetical(TagOrder::Asc) => last.map_or("", |(_, tag)| tag),
            Order::Alphabetical(TagOrder::Desc) => first.map_or("", |(_, tag)| tag),
            Order::Numerical(order) => numerical(&compared, *order)?,
        };
        Ok(chosen)
    }

    /// Returns the text of a tag that is compared; `None` if the tag is not considered.
    fn compared(&self, tag: &str) -> Option<String> {
        let Some(pattern) = &self.pattern else { return Some(tag.to_owned()) };
        let captures = pattern.captures(tag)?;
        let Some(extract) = &self.extract else { return Some(tag.to_owned()) };
        let mut text = String::new();
        captures.expand(extract, &mut text);
        (text.len() <= LONGEST).then_some(text)
    }
}

fn numerical<'t>(compared: &BTreeMap<String, &'t str>, order: TagOrder) -> Result<&'t str, String> {
    let mut chosen: Option<(f64, &'t str)> = None;
    for (text, tag) in compared {
        let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite());
        let number = number.ok_or_else(|| {
            let from = if text == tag { String::new() } else { format!(", the extract of the tag {tag},") };
            format!("{text}{from} is not a number; correct spec.filterTags to consider only tags with numbers")
        })?;
        let wins = chosen.is_none_or(|(best, _)| match order {
            TagOrder::Asc => number > best,
            TagOrder::Desc => number < best,
        });
        if wins {
            chosen = Some((number, tag));
        }
    }
    Ok(chosen.map_or("", |(_, tag)| tag))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chooser(policy: Value, filter: Value) -> Result<Chooser, Vec<String>> {
        let filter: Option<TagFilter> = serde_json::from_value(filter).unwrap();
        Chooser::new(&serde_json::from_value(policy).unwrap(), filter.as_ref())
    }

    #[track_caller]
    fn check(policy: Value, filter: Value, tags: &[&str], expected: Result<&str, &str>) {
        let chooser = chooser(policy, filter).unwrap();
        let forward = chooser.choose(tags.iter().copied());
        assert_eq!(forward, expected.map_err(str::to_owned));
        assert_eq!(chooser.choose(tags.iter().rev().copied()), forward);
    }

    #[test]
    fn chooses_the_highest_version_in_a_range() {
        let policy = || json!({"semver": {"range": "^1.0"}});
        check(policy(), json!(null), &["1.0.0", "v1.10.1", "1.9.9", "2.0.0", "latest", "1.11.0-rc.1"], Ok("v1.10.1"));
        let filter = json!({"pattern": "^(?P<v>1\\..*)-alpine$", "extract": "$v"});
        check(policy(), filter, &["1.2.0-alpine", "1.10.0-alpine", "1.11.0"], Ok("1.10.0-alpine"));
        let none = "none of the 1 considered tags is a version in the range ^1.0";
        check(policy(), json!(null), &["latest"], Err(none));
        check(policy(), json!(null), &[], Err("none of the 0 tags exists"));
    }

    #[test]
    fn chooses_the_last_or_the_first_in_alphabetical_order() {
        let tags = ["main-b-1", "main-a-2", "feature-z"];
        check(json!({"alphabetical": {}}), json!({"pattern": "^main-"}), &tags, Ok("main-b-1"));
        check(json!({"alphabetical": {"order": "desc"}}), json!({"pattern": "^main-"}), &tags, Ok("main-a-2"));
        let none = "none of the 3 tags matches spec.filterTags.pattern";
        check(json!({"alphabetical": {"order": "asc"}}), json!({"pattern": "^dev-"}), &tags, Err(none));
    }

    #[test]
    fn chooses_the_highest_or_the_lowest_number() {
        let filter = || json!({"pattern": "^main-[a-f0-9]+-(?P<ts>[0-9]+)", "extract": "$ts"});
        let tags = ["main-abc-900", "main-aaa-1000", "other"];
        check(json!({"numerical": {"order": "asc"}}), filter(), &tags, Ok("main-aaa-1000"));
        check(json!({"numerical": {"order": "desc"}}), filter(), &tags, Ok("main-abc-900"));
        let why = "nan, the extract of the tag v-nan, is not a number; correct spec.filterTags to consider only tags with numbers";
        check(json!({"numerical": {}}), json!({"pattern": "^v-(.*)", "extract": "$1"}), &["v-1", "v-nan"], Err(why));
    }

    #[test]
    fn names_each_wrong_field() {
        let fails = |policy, filter| chooser(policy, filter).unwrap_err().join("; ");
        assert!(fails(json!({}), json!(null)).starts_with("spec.policy: set exactly one"));
        assert!(fails(json!({"semver": {"range": "1"}, "numerical": {}}), json!(null)).starts_with("spec.policy: "));
        assert!(fails(json!({"semver": {"range": "one"}}), json!(null)).starts_with("spec.policy.semver.range: "));
        let both = fails(json!({"numerical": {}}), json!({"pattern": "("}));
        assert!(both.starts_with("spec.filterTags.pattern: is not a regular"), "{both}");
        let extract = fails(json!({"numerical": {}}), json!({"extract": "$1"}));
        assert!(extract.starts_with("spec.filterTags.extract: has an effect only"), "{extract}");
    }
}
