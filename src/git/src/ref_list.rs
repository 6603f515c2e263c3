//! Selects the references to request from a remote, filters its response by them, and resolves references.
//!
//! Invariant: for a version range, only the listed tag with the highest version is kept.
//! Not here: requests to the remote.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;

use super::error::Fault;
use super::id::{Commit, Id};
use super::reference::{BRANCHES, Reference, ResolvedRef, TAGS};
use super::version_range::{VersionRange, version};
use mainstay_object::is_unprintable;

/// The target of a reference.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) id: Id,
    /// The commit of an annotated tag.
    pub(super) peeled: Option<Id>,
    /// The branch that HEAD points to ([`branch_of_head`]).
    pub(super) symbolic: Option<String>,
}

/// Returns the branch to which HEAD points according to the server. Targets other than branches are ignored: a server
/// must not rename a signed tag, or cause an invalid name in a status.
pub(super) fn branch_of_head(target: &str) -> Option<String> {
    let is_branch = target.strip_prefix(BRANCHES).is_some_and(|branch| !branch.is_empty());
    let is_name = Reference::parse(target).is_ok() && !target.chars().any(is_unprintable);
    (is_branch && is_name).then(|| target.to_owned())
}

/// References to request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RefNames {
    /// Full names. A name that ends in a slash stands for all names with this prefix.
    names: BTreeSet<String>,
    /// Version ranges. The tag with the highest version in each is kept.
    ranges: BTreeSet<VersionRange>,
}

impl RefNames {
    pub(super) fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self { names: names.into_iter().collect(), ranges: BTreeSet::new() }
    }

    /// Adds the tags of these ranges.
    pub(super) fn with_ranges(mut self, ranges: impl IntoIterator<Item = VersionRange>) -> Self {
        self.ranges.extend(ranges);
        self
    }

    /// Requests all branches.
    pub(super) fn branches() -> Self {
        Self::new([BRANCHES.to_owned()])
    }

    /// Requests branches, tags and HEAD.
    pub(super) fn tips() -> Self {
        Self::new(["HEAD", BRANCHES, TAGS].map(str::to_owned))
    }

    /// Returns the names and prefixes to send to the server.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let of_ranges = (!self.ranges.is_empty() && !self.names.contains(TAGS)).then_some(TAGS);
        self.names.iter().map(String::as_str).chain(of_ranges)
    }

    /// Returns whether a reference is kept regardless of ranges. Servers match prefixes loosely, so responses are
    /// filtered again.
    fn covers(&self, name: &str) -> bool {
        self.names.contains(name) || self.names.iter().any(|all| all.ends_with('/') && name.starts_with(all.as_str()))
    }
}

/// The requested references of a remote, by full name.
#[derive(Clone, Debug, Default)]
pub(super) struct Refs(pub(super) BTreeMap<String, At>, Tags);

/// The tags that were listed for version ranges.
#[derive(Clone, Debug, Default)]
struct Tags {
    count: usize,
    highest: Option<(Version, String)>,
    /// For each range, the highest version and its tag.
    chosen: BTreeMap<VersionRange, (Version, String)>,
}

impl Refs {
    /// Adds a reference if it was requested.
    pub(super) fn add(&mut self, name: String, at: At, wanted: &RefNames) {
        let (is_chosen, dropped) = match name.strip_prefix(TAGS) {
            Some(tag) if !wanted.ranges.is_empty() => self.1.add(tag, &wanted.ranges),
            _ => (false, Vec::new()),
        };
        for tag in dropped {
            let name = format!("{TAGS}{tag}");
            if !wanted.covers(&name) && !self.1.chosen.values().any(|(_, chosen)| *chosen == tag) {
                self.0.remove(&name);
            }
        }
        if is_chosen || wanted.covers(&name) {
            self.0.insert(name, at);
        }
    }

    /// Resolves a reference.
    pub(super) fn resolve(&self, reference: &Reference) -> Result<ResolvedRef, Fault> {
        if let Some(commit) = reference.commit() {
            return Ok(ResolvedRef::pinned(commit));
        }
        let hit = match reference.range() {
            Some(range) => Some(self.chosen(range)?),
            None => reference.candidates().into_iter().find_map(|name| self.0.get(&name).map(|at| (name, at))),
        };
        match hit {
            Some((name, at)) => Ok(ResolvedRef {
                commit: Commit(at.peeled.unwrap_or(at.id)),
                name: at.symbolic.clone().unwrap_or(name),
                tip: at.id,
            }),
            None => Err(Fault::MissingReference { default_branch: self.default_branch(), empty: self.0.is_empty() }),
        }
    }

    /// Returns the tag with the highest version in a range.
    fn chosen(&self, range: &VersionRange) -> Result<(String, &At), Fault> {
        let name = self.1.chosen.get(range).map(|(_, tag)| format!("{TAGS}{tag}"));
        name.and_then(|name| self.0.get(&name).map(|at| (name, at))).ok_or_else(|| Fault::MissingVersion {
            tags: self.1.count,
            highest: self.1.highest.as_ref().map(|(_, tag)| tag.clone()),
        })
    }

    /// Returns the branch that HEAD points to.
    fn default_branch(&self) -> Option<String> {
        let target = self.0.get("HEAD")?.symbolic.as_deref()?;
        Some(target.strip_prefix(BRANCHES).unwrap_or(target).to_owned())
    }
}

impl Tags {
    /// Adds a tag. Returns whether it is now the highest one of a range, and the tags that it replaces.
    fn add(&mut self, tag: &str, ranges: &BTreeSet<VersionRange>) -> (bool, Vec<String>) {
        self.count += 1;
        let (mut is_chosen, mut dropped) = (false, Vec::new());
        let Some(version) = version(tag) else { return (is_chosen, dropped) };
        let this = (version, tag.to_owned());
        for range in ranges.iter().filter(|range| range.holds(&this.0)) {
            match self.chosen.get_mut(range) {
                Some(known) if *known >= this => {}
                Some(known) => dropped.push(std::mem::replace(known, this.clone()).1),
                None => drop(self.chosen.insert(range.clone(), this.clone())),
            }
            is_chosen |= self.chosen.get(range).is_some_and(|(_, chosen)| *chosen == tag);
        }
        if self.highest.as_ref().is_none_or(|highest| *highest < this) {
            self.highest = Some(this);
        }
        (is_chosen, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    fn at(digit: char, peeled: Option<char>) -> At {
        let id = |c: char| Id::parse(c.to_string().repeat(40).as_bytes()).unwrap();
        At { id: id(digit), peeled: peeled.map(id), symbolic: None }
    }

    /// Returns the references that are kept for `reference`.
    fn refs(reference: &Reference) -> Refs {
        let wanted = RefNames::new(
            ["HEAD", BRANCHES, "refs/pull/"].map(str::to_owned).into_iter().chain(reference.candidates()),
        );
        let wanted = wanted.with_ranges(reference.range().cloned());
        let mut head = at('1', None);
        head.symbolic = Some("refs/heads/trunk".into());
        let all = [
            ("HEAD", head),
            ("refs/heads/trunk", at('1', None)),
            ("refs/heads/feature/x", at('7', None)),
            ("refs/heads/v1", at('2', None)),
            ("refs/tags/v1", at('3', None)),
            ("refs/tags/v2", at('4', Some('5'))),
            ("refs/tags/v2.1.0", at('8', Some('9'))),
            ("refs/tags/v2.2.0-rc.1", at('a', None)),
            ("refs/tags/x/v2.9.0", at('b', None)),
            ("refs/pull/7/head", at('6', None)),
        ];
        let mut refs = Refs::default();
        for (name, at) in all {
            refs.add(name.to_owned(), at, &wanted);
        }
        refs
    }

    #[track_caller]
    fn check(reference: &str, expected: &str) {
        let got = match Reference::parse(reference)
            .and_then(|r| refs(&r).resolve(&r).map_err(|cause| Error::parse("x", cause)))
        {
            Ok(found) => format!("{} {}", &found.commit.to_string()[..2], found.name),
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn tries_full_name_then_commit_then_branch_then_tag() {
        check("trunk", "11 refs/heads/trunk");
        check("v1", "22 refs/heads/v1");
        check("refs/tags/v1", "33 refs/tags/v1");
        check("v2", "55 refs/tags/v2");
        check("refs/pull/7/head", "66 refs/pull/7/head");
        check("HEAD", "11 refs/heads/trunk");
        check(&"A".repeat(40), &format!("aa {}", "a".repeat(40)));
    }

    #[test]
    fn a_range_of_versions_chooses_a_tag() {
        check("semver:>=2 <3", "99 refs/tags/v2.1.0");
        check("semver: 2.x-0", "aa refs/tags/v2.2.0-rc.1");
        let missing = "no tag is a version in this range; of 5 tags the highest version is v2.2.0-rc.1, and a pre-release is \
                       chosen only by a range that names one, such as `>=1.2.0-0`";
        check("semver:>=2.2", missing);
        check("semver:", "a range of versions must have between 1 and 255 characters, such as `>=1.2 <2`");
        check("semver:main", "a part of it is not a version such as `1.2.3`, `1.2` or `1.x`");
        assert_eq!(Reference::parse("semver: ^1 ").unwrap().to_string(), "semver:^1");
    }

    #[test]
    fn a_name_matches_only_in_full() {
        check("feature/x", "77 refs/heads/feature/x");
        for part in ["feature", "x", "Trunk", "TRUNK"] {
            check(part, "there is no such branch or tag; the repository's default branch is trunk");
        }
    }

    #[test]
    fn names_the_default_branch_when_the_reference_is_missing() {
        check("main", "there is no such branch or tag; the repository's default branch is trunk");
    }

    #[test]
    fn keeps_one_tag_of_each_range_however_many_are_listed() {
        let range = |text: &str| VersionRange::parse(text).unwrap();
        let wanted = RefNames::new(["refs/tags/v1.0.1".to_owned()]).with_ranges([range("1.x"), range(">=2")]);
        assert_eq!(wanted.names().collect::<Vec<_>>(), ["refs/tags/v1.0.1", "refs/tags/"]);
        let at = || At { id: Id::parse("1".repeat(40).as_bytes()).unwrap(), peeled: None, symbolic: None };
        let mut refs = Refs::default();
        let mut most = 0;
        for major in [1, 2] {
            for patch in 0..1000 {
                refs.add(format!("refs/tags/v{major}.0.{patch}"), at(), &wanted);
                most = most.max(refs.0.len());
            }
        }
        refs.add("refs/tags/other".to_owned(), at(), &wanted);
        refs.add("refs/heads/main".to_owned(), at(), &wanted);
        let names: Vec<_> = refs.0.keys().map(String::as_str).collect();
        assert_eq!(names, ["refs/tags/v1.0.1", "refs/tags/v1.0.999", "refs/tags/v2.0.999"]);
        assert_eq!(most, 3);
        assert_eq!(refs.chosen(&range("1.x")).unwrap().0, "refs/tags/v1.0.999");
        let missing = refs.chosen(&range(">=3")).unwrap_err().to_string();
        assert!(missing.contains("of 2001 tags the highest version is v2.0.999"), "{missing}");
    }
}
