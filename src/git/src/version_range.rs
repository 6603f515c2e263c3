//! A version range, such as `>=1.2 <2`, and the tag that it selects: the highest version in it.
//!
//! The syntax is that of Flux, which uses Masterminds/semver. Comparisons separated by spaces or commas must all be
//! true; of alternatives separated by `||`, one must be true. `1.x`, `~1.2`, `^1.2` and `1.2 - 1.5` are ranges. A tag
//! must be a complete version, `1.2.3` or `v1.2.3`.
//!
//! Invariant: a pre-release is selected only if the range contains one, as in `>=1.2.0-0`.
//! Invariant: the selection depends on the set of tags, not on their order. Among equal versions, the one with the
//! greater build metadata is selected, then the tag that sorts last.

use std::fmt;
use std::sync::Arc;

use semver::{BuildMetadata, Prerelease, Version};

/// Maximum length of a range, in bytes.
const LONGEST: usize = 255;

/// A range of versions.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct VersionRange {
    text: Arc<str>,
    /// Alternatives. At least one must be true.
    alternatives: Arc<[Alternative]>,
}

/// Comparisons that must all be true.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Alternative {
    comparisons: Vec<Comparison>,
    /// Whether a comparison contains a pre-release.
    pre_releases: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Comparison {
    operator: Operator,
    version: Version,
    given: Given,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// The numbers of a version that are given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Given {
    None,
    Major,
    Minor,
    Patch,
}

/// The operators, ordered so that none is a prefix of a later one.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterOrEqual),
    ("=>", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("=<", Operator::LessOrEqual),
    ("~>", Operator::Tilde),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("=", Operator::Equal),
];

impl VersionRange {
    /// Parses a range. The error is the violated rule.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() || text.len() > LONGEST {
            return Err("a range of versions must have between 1 and 255 characters, such as `>=1.2 <2`");
        }
        let alternatives = text.split("||").map(Alternative::parse).collect::<Result<_, _>>()?;
        Ok(Self { text: text.into(), alternatives })
    }

    /// Returns whether a version is in the range.
    pub(super) fn holds(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|alternative| alternative.holds(version))
    }
}

/// Parses a tag as a version.
pub(super) fn version(tag: &str) -> Option<Version> {
    Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()
}

/// Returns the tag with the highest version in a range; `None` without such a tag.
///
/// # Errors
/// The rule that the range violates.
pub fn highest_version<'t>(range: &str, tags: impl Iterator<Item = &'t str>) -> Result<Option<&'t str>, &'static str> {
    let range = VersionRange::parse(range)?;
    let versions = tags.filter_map(|tag| Some((version(tag)?, tag))).filter(|(version, _)| range.holds(version));
    Ok(versions.max().map(|(_, tag)| tag))
}

impl fmt::Debug for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionRange({self})")
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Alternative {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut comparisons = Vec::new();
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err("there is nothing on one side of a `||`");
        }
        while !rest.is_empty() {
            let (comparison, after) = Comparison::parse(rest)?;
            // `1.2 - 1.5` means at least the first and at most the second version.
            let spaced = after.starts_with(char::is_whitespace);
            match after.trim_start().strip_prefix('-').filter(|to| spaced && to.starts_with(char::is_whitespace)) {
                Some(to) if comparison.operator == Operator::Equal => {
                    let (to, after) = Comparison::parse(to.trim_start())?;
                    if to.operator != Operator::Equal {
                        return Err("both sides of ` - ` must be versions");
                    }
                    comparisons.push(Comparison { operator: Operator::GreaterOrEqual, ..comparison });
                    comparisons.push(Comparison { operator: Operator::LessOrEqual, ..to });
                    rest = separated(after)?;
                }
                _ => {
                    comparisons.push(comparison);
                    rest = separated(after)?;
                }
            }
        }
        let pre_releases = comparisons.iter().any(|comparison| !comparison.version.pre.is_empty());
        Ok(Self { comparisons, pre_releases })
    }

    fn holds(&self, version: &Version) -> bool {
        (version.pre.is_empty() || self.pre_releases)
            && self.comparisons.iter().all(|comparison| comparison.holds(version))
    }
}

/// Skips the space or comma after a comparison.
fn separated(text: &str) -> Result<&str, &'static str> {
    let rest = text.trim_start();
    match rest.strip_prefix(',').map(str::trim_start) {
        Some("") => Err("there is nothing behind a comma"),
        Some(rest) => Ok(rest),
        None => Ok(rest),
    }
}

impl Comparison {
    /// Parses the first comparison of the text. Returns it with the rest of the text.
    fn parse(text: &str) -> Result<(Self, &str), &'static str> {
        let operator = OPERATORS.iter().find_map(|(word, operator)| Some((*operator, text.strip_prefix(word)?)));
        let (operator, rest) = operator.unwrap_or((Operator::Equal, text));
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let (version, given) = partial(word).ok_or("a part of it is not a version such as `1.2.3`, `1.2` or `1.x`")?;
        if given == Given::None
            && !matches!(operator, Operator::Equal | Operator::GreaterOrEqual | Operator::Caret | Operator::Tilde)
        {
            return Err("`*` cannot be combined with !=, >, < or <=; use it alone");
        }
        Ok((Self { operator, version, given }, after))
    }

    fn holds(&self, v: &Version) -> bool {
        let c = &self.version;
        let order = v.cmp_precedence(c);
        let same_major = v.major == c.major;
        let same_minor = same_major && v.minor == c.minor;
        match self.operator {
            Operator::Equal if self.given == Given::Patch => order.is_eq(),
            Operator::Equal | Operator::Tilde => {
                order.is_ge()
                    && match self.given {
                        Given::None => true,
                        Given::Major => same_major,
                        // In Masterminds/semver, `~0.0.0` matches every version because of a bug. Users may rely on
                        // that.
                        Given::Patch if (c.major, c.minor, c.patch) == (0, 0, 0) => true,
                        Given::Minor | Given::Patch => same_minor,
                    }
            }
            Operator::NotEqual => match self.given {
                Given::Major => !same_major,
                Given::Minor => !same_minor || v.pre != c.pre,
                Given::None | Given::Patch => order.is_ne(),
            },
            Operator::Greater => match self.given {
                Given::None | Given::Patch => order.is_gt(),
                Given::Major => v.major > c.major,
                Given::Minor => (v.major, v.minor) > (c.major, c.minor),
            },
            Operator::Less => order.is_lt(),
            Operator::GreaterOrEqual => order.is_ge(),
            Operator::LessOrEqual => match self.given {
                Given::Major => v.major <= c.major,
                Given::Minor => (v.major, v.minor) <= (c.major, c.minor),
                Given::None | Given::Patch => order.is_le(),
            },
            Operator::Caret => {
                order.is_ge()
                    && match self.given {
                        Given::None => true,
                        Given::Major => same_major,
                        _ if c.major > 0 => same_major,
                        Given::Minor => same_minor,
                        Given::Patch if c.minor > 0 => same_minor,
                        Given::Patch => same_minor && v.patch == c.patch,
                    }
            }
        }
    }
}

/// Parses a version whose last numbers may be missing or `x`. Missing numbers are 0.
fn partial(word: &str) -> Option<(Version, Given)> {
    let word = word.strip_prefix('v').unwrap_or(word);
    let end = word.find(['-', '+']).unwrap_or(word.len());
    let (numbers, labels) = word.split_at(end);
    let (pre, build) = labels.split_once('+').map_or((labels, None), |(pre, build)| (pre, Some(build)));
    let pre = match pre.strip_prefix('-') {
        Some(pre) => Prerelease::new(pre).ok().filter(|pre| !pre.is_empty())?,
        None => Prerelease::EMPTY,
    };
    // Build metadata does not affect comparisons.
    if let Some(build) = build {
        BuildMetadata::new(build).ok().filter(|build| !build.is_empty())?;
    }
    let mut given = [None; 3];
    let mut wild = false;
    for (place, part) in numbers.split('.').enumerate() {
        let slot = given.get_mut(place)?;
        wild |= matches!(part, "x" | "X" | "*");
        if !wild {
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            *slot = Some(part.parse().ok()?);
        } else if !matches!(part, "x" | "X" | "*") && part.parse::<u64>().is_err() {
            return None;
        }
    }
    let count = match given {
        [None, ..] => Given::None,
        [_, None, _] => Given::Major,
        [.., None] => Given::Minor,
        _ => Given::Patch,
    };
    let [major, minor, patch] = given.map(|number: Option<u64>| number.unwrap_or(0));
    Some((Version { major, minor, patch, pre, build: BuildMetadata::EMPTY }, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl VersionRange {
        /// Returns the tag with the highest version in the range, as `ref_list` selects it.
        fn choose<'a>(&self, tags: impl Iterator<Item = &'a str>) -> Option<&'a str> {
            let versions = tags.filter_map(|tag| Some((version(tag)?, tag)));
            versions.filter(|(version, _)| self.holds(version)).max().map(|(_, tag)| tag)
        }
    }

    const VERSIONS: &str = "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0-alpha 1.0.0 1.1.0 1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta 1.3.0 1.5.9 \
                            1.6.0 2.0.0-rc.1 2.0.0 2.1.0 11.0.0 11.1.0";

    /// For these ranges and versions, the results of Masterminds/semver 3.5.0, which Flux uses.
    #[rustfmt::skip]
    const JUDGED: [(&str, &str); 56] = [
        (">=1.2 <2", "1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        (">=1.2, <2", "1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        (">=1.2,<2", "1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("1.x", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("1.2.x", "1.2.0 1.2.3"),
        ("1.2", "1.2.0 1.2.3"),
        ("1", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("*", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("x", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("=1.2.3", "1.2.3"),
        ("1.2.3", "1.2.3"),
        ("v1.2.3", "1.2.3"),
        ("!=1.2.3", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("!=1.2", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("!=1.2.0-0", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0-alpha 1.0.0 1.1.0 1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta 1.3.0 1.5.9 1.6.0 2.0.0-rc.1 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("!=1", "0.0.0 0.0.3 0.1.0 0.2.3 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">1", "2.0.0 2.1.0 11.0.0 11.1.0"),
        (">1.2", "1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">1.2.3", "1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">11", ""),
        ("<1.2", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0"),
        ("<1.2.3", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0"),
        ("<=1", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("<=1.2", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3"),
        ("<=1.2.3", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3"),
        ("=<1.2.3", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3"),
        ("=>1.2.3", "1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("~1", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("~1.2", "1.2.0 1.2.3"),
        ("~1.2.3", "1.2.3"),
        ("~>1.2", "1.2.0 1.2.3"),
        ("~0.0.0", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("~*", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("^1", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("^1.2", "1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
        ("^1.2.3", "1.2.3 1.3.0 1.5.9 1.6.0"),
        ("^0.2.3", "0.2.3"),
        ("^0.2", "0.2.3"),
        ("^0.0.3", "0.0.3"),
        ("^0.0", "0.0.0 0.0.3"),
        ("^0", "0.0.0 0.0.3 0.1.0 0.2.3"),
        ("1.2 - 1.5", "1.2.0 1.2.3 1.3.0 1.5.9"),
        ("1.2.3 - 2", "1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0"),
        ("1.2 - 1.5 || 11.x", "1.2.0 1.2.3 1.3.0 1.5.9 11.0.0 11.1.0"),
        (">=1.0.0-0", "1.0.0-alpha 1.0.0 1.1.0 1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta 1.3.0 1.5.9 1.6.0 2.0.0-rc.1 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">=1.2.0-0 <2", "1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta 1.3.0 1.5.9 1.6.0 2.0.0-rc.1"),
        (">=1.2.0-0 <2.0.0-0", "1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta 1.3.0 1.5.9 1.6.0"),
        ("~1.2.0-0", "1.2.0-rc.1 1.2.0 1.2.3 1.2.4-beta"),
        ("^1.2.4-alpha", "1.2.4-beta 1.3.0 1.5.9 1.6.0"),
        ("^1 || ^11", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 11.0.0 11.1.0"),
        (">1 || <1", "0.0.0 0.0.3 0.1.0 0.2.3 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">=*", "0.0.0 0.0.3 0.1.0 0.2.3 1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        (">= 1.2", "1.2.0 1.2.3 1.3.0 1.5.9 1.6.0 2.0.0 2.1.0 11.0.0 11.1.0"),
        ("1.2.*", "1.2.0 1.2.3"),
        ("1.2.3+build", "1.2.3"),
        ("1.*.3", "1.0.0 1.1.0 1.2.0 1.2.3 1.3.0 1.5.9 1.6.0"),
    ];

    #[test]
    fn reads_ranges_as_flux_does() {
        for (text, expected) in JUDGED {
            let range = VersionRange::parse(text).unwrap();
            let holds: Vec<_> = VERSIONS.split(' ').filter(|text| range.holds(&version(text).unwrap())).collect();
            assert_eq!(holds.join(" "), expected, "{text}");
        }
        assert_eq!(VersionRange::parse(" ^* ").unwrap().choose(["1.0.0", "v2.0.0"].into_iter()), Some("v2.0.0"));
    }

    #[test]
    fn refuses_what_is_not_a_range() {
        let bad = [
            "",
            ">=",
            "1.2.3.4",
            "a",
            "1..2",
            "1.2-",
            "latest",
            "|| 1",
            "1 ||",
            ">=1.2<2",
            ",1",
            "1,",
            "1 2 -",
            "1 -2",
            "1.2.3 - >4",
            "-1",
            ">*",
            "1.x.b",
            "99999999999999999999",
            "1.2.3+",
        ];
        for text in bad {
            assert!(VersionRange::parse(text).is_err(), "{text:?}");
        }
        assert!(VersionRange::parse(&"1 ".repeat(200)).is_err());
    }

    #[track_caller]
    fn check(range: &str, tags: &[&str], expected: Option<&str>) {
        let range = VersionRange::parse(range).unwrap();
        assert_eq!(range.choose(tags.iter().copied()), expected);
        assert_eq!(range.choose(tags.iter().rev().copied()), expected, "the order of tags does not matter");
    }

    #[test]
    fn chooses_the_highest_version() {
        check(">=1.2 <2", &["v1.9.0", "v1.10.0", "v2.0.0", "v1.2", "latest", "v1.99", "x/v1.50.0"], Some("v1.10.0"));
        check("1.x", &["v1.2.0-rc.1", "v1.1.0"], Some("v1.1.0"));
        check("1.x-0", &["v1.2.0-rc.1", "v1.1.0"], Some("v1.2.0-rc.1"));
        check("1.x", &["V1.1.0", "vv1.1.0", "v 1.1.0", "01.1.0", "1.1.0 "], None);
        check("1.x", &[], None);
    }

    #[test]
    fn equal_versions_are_chosen_from_by_build_metadata_and_then_by_name() {
        check("1.x", &["1.0.0", "1.0.0+2", "1.0.0+10", "1.0.0+1"], Some("1.0.0+10"));
        check("1.x", &["1.0.0", "v1.0.0"], Some("v1.0.0"));
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text in "[0-9xX*v.<>=!~^|, +a-z-]{0,40}", tag in "[v0-9.+a-z-]{0,20}") {
            if let Ok(range) = VersionRange::parse(&text) {
                let _ = range.choose([&*tag].into_iter());
            }
        }
    }
}
