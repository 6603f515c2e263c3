//! Parses paths below `/v2/`.

use super::{
    error::Refusal,
    name::{Digest, Reference, Repository},
};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `/v2/`.
    Root,
    /// `/v2/_catalog`.
    Catalog,
    /// `…/tags/list`.
    Tags(Repository),
    /// `…/blobs/DIGEST`.
    Blob(Repository, Digest),
    /// `…/blobs/uploads/`.
    Uploads(Repository),
    /// `…/blobs/uploads/ID`.
    Upload(Repository, String),
    /// `…/manifests/REFERENCE`.
    Manifest(Repository, Reference),
}

impl Place {
    /// Returns the kind that fault injection uses.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Catalog => "catalog",
            Self::Tags(_) => "tags",
            Self::Blob(..) => "blobs",
            Self::Uploads(_) | Self::Upload(..) => "uploads",
            Self::Manifest(..) => "manifests",
        }
    }

    /// Returns the repository name; empty if there is none.
    pub(super) fn repository(&self) -> &str {
        match self {
            Self::Root | Self::Catalog => "",
            Self::Tags(name)
            | Self::Blob(name, _)
            | Self::Uploads(name)
            | Self::Upload(name, _)
            | Self::Manifest(name, _) => name.as_str(),
        }
    }
}

/// Parses a path.
pub(super) fn place(path: &str) -> Result<Place, Refusal> {
    let rest = path.strip_prefix("/v2").and_then(|rest| rest.strip_prefix('/').or(rest.is_empty().then_some("")));
    let rest = rest.ok_or_else(Refusal::unknown_path)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let name = |parts: &[&str]| Repository::parse(&parts.join("/")).ok_or_else(Refusal::name_invalid);
    match parts.as_slice() {
        [""] => Ok(Place::Root),
        ["_catalog"] => Ok(Place::Catalog),
        [repository @ .., "tags", "list"] => Ok(Place::Tags(name(repository)?)),
        [repository @ .., "blobs", "uploads"] | [repository @ .., "blobs", "uploads", ""] => {
            Ok(Place::Uploads(name(repository)?))
        }
        [repository @ .., "blobs", "uploads", id] => Ok(Place::Upload(name(repository)?, (*id).to_owned())),
        [repository @ .., "blobs", digest] => {
            Ok(Place::Blob(name(repository)?, Digest::parse(digest).ok_or_else(Refusal::digest_invalid)?))
        }
        [repository @ .., "manifests", reference] => {
            let reference = Reference::parse(reference).ok_or_else(Refusal::manifest_unknown)?;
            Ok(Place::Manifest(name(repository)?, reference))
        }
        _ => Err(Refusal::unknown_path()),
    }
}

/// Parses a `Range` header into the first and last byte; `None` for the whole blob. An invalid header is ignored (RFC
/// 9110). Several ranges yield the whole blob.
pub(super) fn range(header: Option<&str>, size: u64) -> Result<Option<(u64, u64)>, Refusal> {
    let Some((first, last)) = header.and_then(|text| text.strip_prefix("bytes=")).and_then(|text| text.split_once('-'))
    else {
        return Ok(None);
    };
    let part = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => (first, last.min(size.saturating_sub(1))),
        (Ok(first), Err(_)) if last.is_empty() => (first, size.saturating_sub(1)),
        (Err(_), Ok(length)) if first.is_empty() && length > 0 => (size.saturating_sub(length), size.saturating_sub(1)),
        _ => return Ok(None),
    };
    if part.0 >= size { Err(Refusal::range_invalid()) } else { Ok(Some(part)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_paths() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let check = |path: &str, expected: &str| {
            let got = place(path).map_or_else(|r| r.code.to_owned(), |p| format!("{} {}", p.kind(), p.repository()));
            assert_eq!(got, expected, "{path}");
        };
        check("/v2/", "root ");
        check("/v2", "root ");
        check("/v2x", "NOT_FOUND");
        check("/v2/a/b/tags/list", "tags a/b");
        check("/v2/a/blobs/uploads/", "uploads a");
        check("/v2/a/blobs/uploads/x", "uploads a");
        check("/v2/blobs/blobs/uploads", "uploads blobs");
        check(&format!("/v2/a/blobs/{digest}"), "blobs a");
        check("/v2/a/blobs/sha256:x", "DIGEST_INVALID");
        check("/v2/a/manifests/latest", "manifests a");
        check("/v2/../manifests/latest", "NAME_INVALID");
        check("/v2/manifests/latest", "NAME_INVALID");
        check("/v2/a", "NOT_FOUND");
    }

    #[test]
    fn reads_ranges() {
        let check = |header, size, expected| assert_eq!(range(header, size).ok(), expected, "{header:?} of {size}");
        check(None, 10, Some(None));
        check(Some("bytes=0-3"), 10, Some(Some((0, 3))));
        check(Some("bytes=3-"), 10, Some(Some((3, 9))));
        check(Some("bytes=3-99"), 10, Some(Some((3, 9))));
        check(Some("bytes=-4"), 10, Some(Some((6, 9))));
        check(Some("bytes=4-2"), 10, Some(None));
        check(Some("lines=1-2"), 10, Some(None));
        check(Some("bytes=10-"), 10, None);
        check(Some("bytes=0-"), 0, None);
    }
}
