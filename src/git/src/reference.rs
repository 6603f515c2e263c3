//! The followed [`Reference`] and [`BaseDir`] of a remote, and the result of resolving a reference.
//!
//! Invariant: a parsed reference is one line without control characters or spaces, so it cannot inject anything into
//! the protocol.
//! Not here: requests to the remote.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::abbreviation::Abbreviation;
use super::error::{Error, Fault};
use super::id::{Commit, Id};
use super::version_range::VersionRange;

/// Prefix of a reference that is a version range. Names of Git references have no colon.
const SEMVER: &str = "semver:";
/// Prefix of branches.
pub(super) const BRANCHES: &str = "refs/heads/";
/// Prefix of tags.
pub(super) const TAGS: &str = "refs/tags/";

/// The reference that a GitSync or Function follows: a full reference name, a commit id, a branch, a tag, or an
/// abbreviated commit id of at least 7 digits. These forms are tried in this order. `HEAD` is the remote's default
/// branch. `semver:` with a range is the tag with the highest version in that range.
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
    /// Returns the reference to the remote's default branch.
    pub fn head() -> Self {
        Self(Kind::Head)
    }

    /// Parses `text` by the rules of `git check-ref-format`.
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

    /// Returns the reference to a commit.
    pub(super) fn of_commit(commit: Commit) -> Self {
        Self(Kind::Commit(commit))
    }

    /// Returns the commit, if the reference is a full id.
    pub(super) fn commit(&self) -> Option<Commit> {
        match self.0 {
            Kind::Commit(commit) => Some(commit),
            _ => None,
        }
    }

    /// Returns the reference as an abbreviated commit id, if it has that form. A branch or tag with this name takes
    /// precedence.
    pub(super) fn abbreviation(&self) -> Option<Abbreviation> {
        match &self.0 {
            Kind::Short(name) => Abbreviation::parse(name),
            _ => None,
        }
    }

    /// Returns whether the reference is this commit's id, full or abbreviated.
    pub fn spells(&self, commit: Commit) -> bool {
        self.commit() == Some(commit) || self.abbreviation().is_some_and(|beginning| beginning.begins(commit))
    }

    /// Returns the full names to request from the remote, in order of precedence.
    pub(super) fn candidates(&self) -> Vec<String> {
        match &self.0 {
            Kind::Head => vec!["HEAD".into()],
            Kind::Full(name) => vec![name.to_string()],
            Kind::Short(name) => vec![format!("refs/heads/{name}"), format!("{TAGS}{name}")],
            // For a range, all tags are requested, and only the selected one is kept.
            Kind::Commit(_) | Kind::Semver(_) => Vec::new(),
        }
    }

    /// Returns the version range, if the reference is one.
    pub(super) fn range(&self) -> Option<&VersionRange> {
        match &self.0 {
            Kind::Semver(range) => Some(range),
            _ => None,
        }
    }

    /// Returns whether the reference is a full commit id. Pushes do not move it.
    pub fn is_commit_id(&self) -> bool {
        self.commit().is_some()
    }

    /// Returns whether moving the reference with the full name `name` can affect this reference. `default_branch` is
    /// the full name of the remote's default branch, if known.
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
        return Err("a reference must have between 1 and 255 characters");
    }
    if name.bytes().any(|b| b <= b' ' || b == 0x7f || b"~^:?*[\\".contains(&b)) {
        return Err(
            "a reference must not contain spaces, control characters or any of ~ ^ : ? * [ \\; resolve an expression \
             with `git rev-parse`, and use the commit",
        );
    }
    if name.contains("..") || name.contains("@{") || name == "@" {
        return Err("a reference must not contain `..` or `@{`");
    }
    let forbidden = |part: &str| part.is_empty() || part.starts_with('.') || part.strip_suffix(".lock").is_some();
    if name.split('/').any(forbidden) {
        return Err("no part of a reference may be empty, start with a dot or end in `.lock`");
    }
    if name.ends_with('.') || name.starts_with('-') {
        return Err("a reference must not end in a dot or start with a dash");
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
    /// The commit. Annotated tags are dereferenced.
    pub commit: Commit,
    /// Full name of the reference, or the commit id if the reference is one.
    pub name: String,
    /// Id of the object to which the reference points; for an annotated tag, that of the tag object.
    pub(super) tip: Id,
}

impl ResolvedRef {
    /// Returns the result for a reference that is a commit id.
    pub(super) fn pinned(commit: Commit) -> Self {
        Self { commit, name: commit.to_string(), tip: commit.0 }
    }

    /// Returns whether the reference is a commit id.
    pub(super) fn is_pinned(&self) -> bool {
        !self.name.starts_with("refs/") && self.name != "HEAD"
    }

    /// Returns the full name of the reference; `None` if it is a commit id.
    pub fn full_name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| name.starts_with("refs/"))
    }

    /// Returns the short name of the branch or tag.
    pub fn short(&self) -> &str {
        let tail = |prefix| self.name.strip_prefix(prefix);
        tail("refs/heads/").or_else(|| tail("refs/tags/")).unwrap_or(&self.name)
    }
}

/// A directory of a repository; `/` is the root directory. Leading and trailing slashes are optional.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseDir(Arc<str>);

impl BaseDir {
    /// Returns the root directory.
    pub fn root() -> Self {
        Self("".into())
    }

    /// Parses a path. `.` and empty parts are dropped.
    ///
    /// # Errors
    /// The path contains `..`, or is malformed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let malformed = |why| Error::parse("base directory", Fault::Malformed { why });
        if text.len() > 4096 || text.contains('\0') {
            return Err(malformed("a base directory must have at most 4096 bytes and must not contain NUL"));
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(malformed("a base directory must be in the repository: `..` is not allowed"));
        }
        Ok(Self(parts.join("/").into()))
    }

    /// Returns the path from the root, without leading and trailing slash; empty for the root.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Returns the parent directory and the last part; both are empty for the root.
    pub(super) fn split(&self) -> (Self, &str) {
        let (above, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (Self(above.into()), name)
    }

    /// Returns the parts of the path.
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
