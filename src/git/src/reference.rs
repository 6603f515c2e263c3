//! What to follow in a remote and where to look in it, [`Reference`] and [`BaseDir`], and how a reference resolves
//! among the references that a remote has.
//!
//! Invariant: a parsed reference is one line without control characters or spaces, so it cannot inject anything into
//! the protocol.
//! Deliberately not here: requests to the remote.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::abbreviation::Abbreviation;
use super::error::{Error, Fault};
use super::id::{Commit, Id};
use super::version_range::VersionRange;

/// Beginning of a reference that is a range of versions. No name of a reference has a colon.
const SEMVER: &str = "semver:";
/// Where branches are.
pub(super) const BRANCHES: &str = "refs/heads/";
/// Where tags are.
pub(super) const TAGS: &str = "refs/tags/";

/// What a GitSync or Function follows: a full reference name, a commit id, a branch, a tag, or an abbreviated commit id
/// of at least 7 digits, tried in this order. `HEAD` is the remote's default branch, and `semver:` with a range the tag
/// with the highest version in that.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference(Kind);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Head,
    Full(Arc<str>),
    Commit(Commit),
    Short(Arc<str>),
    Semver(VersionRange),
}

impl Reference {
    /// The remote's default branch.
    pub fn head() -> Self {
        Self(Kind::Head)
    }

    /// Validates `text` by the rules of `git check-ref-format`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text == "HEAD" {
            return Ok(Self(Kind::Head));
        }
        if let Some(id) = Id::parse(text.as_bytes()) {
            return Ok(Self(Kind::Commit(Commit(id))));
        }
        if let Some(range) = text.strip_prefix(SEMVER) {
            let range = VersionRange::parse(range);
            return range.map(|range| Self(Kind::Semver(range))).map_err(malformed);
        }
        check_name(text).map_err(malformed)?;
        Ok(Self(if text.starts_with("refs/") { Kind::Full(text.into()) } else { Kind::Short(text.into()) }))
    }

    /// The commit, if the reference is a full id.
    pub(super) fn commit(&self) -> Option<Commit> {
        match self.0 {
            Kind::Commit(commit) => Some(commit),
            _ => None,
        }
    }

    /// The abbreviated commit id that the reference is if there is no branch or tag with this name.
    pub(super) fn abbreviation(&self) -> Option<Abbreviation> {
        match &self.0 {
            Kind::Short(name) => Abbreviation::parse(name),
            _ => None,
        }
    }

    /// Whether it is this commit's id, full or abbreviated.
    pub fn spells(&self, commit: Commit) -> bool {
        self.commit() == Some(commit) || self.abbreviation().is_some_and(|beginning| beginning.begins(commit))
    }

    /// The full names to request from the remote, or a prefix of them; the first that exists wins.
    pub(super) fn candidates(&self) -> Vec<String> {
        match &self.0 {
            Kind::Head => vec!["HEAD".into()],
            Kind::Full(name) => vec![name.to_string()],
            Kind::Short(name) => vec![format!("refs/heads/{name}"), format!("{TAGS}{name}")],
            // Tags are requested as a range, and only the one that it leads to is kept.
            Kind::Commit(_) | Kind::Semver(_) => Vec::new(),
        }
    }

    /// The range of versions that the reference is.
    pub(super) fn range(&self) -> Option<&VersionRange> {
        match &self.0 {
            Kind::Semver(range) => Some(range),
            _ => None,
        }
    }

    /// Whether it is a full commit id, which no push moves.
    pub fn is_commit_id(&self) -> bool {
        self.commit().is_some()
    }

    /// Whether it may lead elsewhere when the reference with this full name has moved. `default_branch` is the full name of
    /// the remote's default branch, if that is known.
    pub fn is_moved_by(&self, name: &str, default_branch: Option<&str>) -> bool {
        match &self.0 {
            Kind::Head => default_branch.is_none_or(|branch| branch == name),
            Kind::Full(_) | Kind::Commit(_) | Kind::Short(_) => {
                self.candidates().iter().any(|candidate| candidate == name)
            }
            Kind::Semver(_) => name.starts_with(TAGS),
        }
    }
}

fn malformed(why: &'static str) -> Error {
    Error::parse("reference", Fault::Malformed { why })
}

fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 255 {
        return Err("a reference has between 1 and 255 characters");
    }
    if name.bytes().any(|b| b <= b' ' || b == 0x7f || b"~^:?*[\\".contains(&b)) {
        return Err(
            "a reference has no spaces, controls or any of ~ ^ : ? * [ \\; `git rev-parse` prints the commit of an expression",
        );
    }
    if name.contains("..") || name.contains("@{") || name == "@" {
        return Err("a reference has no `..` and no `@{`");
    }
    let forbidden = |part: &str| part.is_empty() || part.starts_with('.') || part.strip_suffix(".lock").is_some();
    if name.split('/').any(forbidden) {
        return Err("no part of a reference is empty, starts with a dot or ends in `.lock`");
    }
    if name.ends_with('.') || name.starts_with('-') {
        return Err("a reference neither ends in a dot nor starts with a dash");
    }
    Ok(())
}

impl FromStr for Reference {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Head => f.write_str("HEAD"),
            Kind::Commit(commit) => commit.fmt(f),
            Kind::Full(name) | Kind::Short(name) => f.write_str(name),
            Kind::Semver(range) => write!(f, "{SEMVER}{range}"),
        }
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({self})")
    }
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedRef {
    /// The commit (annotated tags are dereferenced).
    pub commit: Commit,
    /// Full name of the reference, or the commit id if the reference is one.
    pub name: String,
    /// The object that the reference points to: the tag object of an annotated tag.
    pub(super) tip: Id,
}

impl ResolvedRef {
    /// The result for a reference that is a commit id.
    pub(super) fn pinned(commit: Commit) -> Self {
        Self { commit, name: commit.to_string(), tip: commit.0 }
    }

    /// Whether the reference is a commit id.
    pub(super) fn is_pinned(&self) -> bool {
        !self.name.starts_with("refs/") && self.name != "HEAD"
    }

    /// Full name of the reference; `None` if it is a commit id.
    pub fn full_name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| name.starts_with("refs/"))
    }

    /// Short name of the branch or tag.
    pub fn short(&self) -> &str {
        let tail = |prefix| self.name.strip_prefix(prefix);
        tail("refs/heads/").or_else(|| tail("refs/tags/")).unwrap_or(&self.name)
    }
}

/// A directory of a repository; `/` is its root. Leading and trailing slashes are optional.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseDir(Arc<str>);

impl BaseDir {
    /// The root.
    pub fn root() -> Self {
        Self("".into())
    }

    /// Refuses `..`; drops `.` and empty parts.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = |why| Error::parse("base directory", Fault::Malformed { why });
        if text.len() > 4096 || text.contains('\0') {
            return Err(malformed("a base directory has at most 4096 bytes and no NUL"));
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(malformed("a base directory lies in the repository: `..` is not allowed"));
        }
        Ok(Self(parts.join("/").into()))
    }

    /// The path from the root, without leading and trailing slash; empty for the root.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// The directory above, and the last part; both are empty for the root.
    pub(super) fn split(&self) -> (Self, &str) {
        let (above, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (Self(above.into()), name)
    }

    /// The path's parts.
    pub(super) fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }
}

impl FromStr for BaseDir {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for BaseDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0)
    }
}

impl fmt::Debug for BaseDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BaseDir({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_moved_by_the_names_that_it_may_resolve_to() {
        let check = |text: &str, name: &str, default: Option<&str>, expected: bool| {
            assert_eq!(Reference::parse(text).unwrap().is_moved_by(name, default), expected, "{text} by {name}");
        };
        check("main", "refs/heads/main", None, true);
        check("main", "refs/tags/main", None, true);
        check("main", "refs/heads/feature/main", None, false);
        check("refs/heads/main", "refs/heads/main", None, true);
        check("refs/pull/1/head", "refs/heads/main", None, false);
        check("HEAD", "refs/heads/dev", None, true);
        check("HEAD", "refs/heads/dev", Some("refs/heads/main"), false);
        check("HEAD", "refs/heads/main", Some("refs/heads/main"), true);
        check(&"1".repeat(40), "refs/heads/main", None, false);
        check("1234567", "refs/heads/main", None, false);
        check("semver:>=1.2 <2", "refs/tags/v1.3", None, true);
        check("semver:>=1.2 <2", "refs/heads/v1.3", None, false);
    }

    #[test]
    fn refuses_references_that_could_inject_into_the_protocol() {
        for bad in
            ["", "a b", "main\n0000", "a..b", "-x", "x.lock", "a//b", "/a", "a/", ".a", "a\u{7f}", "HEAD^", "a:b"]
        {
            assert!(Reference::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "feature/x", "v1.2.3", "refs/pull/1/merge", "größe", "heads/main"] {
            assert!(Reference::parse(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn base_directory_stays_in_the_repository() {
        for (text, path) in [("/", ""), ("", ""), ("./apps/", "apps"), ("/a//b", "a/b"), (".", "")] {
            assert_eq!(BaseDir::parse(text).unwrap().path(), path);
        }
        assert!(BaseDir::parse("a/../../b").is_err());
    }
}
