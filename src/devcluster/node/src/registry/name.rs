//! Parses names of repositories, tags and digests that are safe as path components.
//!
//! Invariant: a name contains no `..`, no leading dot and no character with a special meaning in file names.

use sha2::{Digest as _, Sha256};

/// Maximum length of a repository name in bytes.
const LONGEST_REPOSITORY: usize = 255;
/// Maximum length of a tag in bytes.
const LONGEST_TAG: usize = 128;

/// A repository name: components of lower-case letters and digits with single separators, joined by slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repository(String);

impl Repository {
    /// Parses a name by the distribution specification.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= LONGEST_REPOSITORY && text.split('/').all(is_part);
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the directory name. A plus sign replaces the slash, because repository names have none.
    pub(super) fn folder(&self) -> String {
        self.0.replace('/', "+")
    }

    pub(super) fn of_folder(folder: &str) -> Option<Self> {
        Self::parse(&folder.replace('+', "/"))
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_part(part: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = bytes.first().is_some_and(|b| alphanumeric(*b)) && bytes.last().is_some_and(|b| alphanumeric(*b));
    let separators = part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends && separators.filter(|s| !s.is_empty()).all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

/// A SHA-256 digest: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Parses a digest. Other algorithms are unsupported.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.strip_prefix("sha256:")?;
        let fits = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        fits.then(|| Self(text.to_owned()))
    }

    /// Computes the digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finished(Sha256::new_with_prefix(bytes))
    }

    pub(super) fn finished(hasher: Sha256) -> Self {
        Self(format!("sha256:{}", hex::encode(hasher.finalize())))
    }

    /// Returns the digest with its algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the digest without its algorithm.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

/// Identifies a manifest in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// By tag.
    Tag(String),
    /// By digest.
    Digest(Digest),
}

impl Reference {
    /// Parses a tag or a digest.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains(':') {
            return Digest::parse(text).map(Self::Digest);
        }
        let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        (first && text.len() <= LONGEST_TAG && text.bytes().all(inside)).then(|| Self::Tag(text.to_owned()))
    }
}

/// Splits an image reference into host, repository and tag or digest; `None` without a host or if it is malformed.
///
/// If a reference has both, the digest is returned. The default tag is `latest`.
pub fn split(image: &str) -> Option<(&str, Repository, Reference)> {
    let (host, rest) = image.split_once('/')?;
    if !host.contains([':', '.']) && host != "localhost" {
        return None; // A path on the default registry, which is a different registry.
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(Reference::Digest(Digest::parse(digest)?))),
        None => (rest, None),
    };
    let (name, tag) = rest.split_once(':').unwrap_or((rest, "latest"));
    let tag = Reference::parse(tag).filter(|tag| matches!(tag, Reference::Tag(_)))?;
    Some((host, Repository::parse(name)?, digest.unwrap_or(tag)))
}

/// Formats a reference for errors of the image store.
pub(super) fn shown(reference: &Reference) -> String {
    match reference {
        Reference::Tag(tag) => format!(":{tag}"),
        Reference::Digest(digest) => format!("@{}", digest.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_names_of_the_specification_only() {
        for name in ["a", "a/b", "library/node", "a-b.c_d__e--f/0"] {
            assert!(Repository::parse(name).is_some(), "{name}");
        }
        for name in ["", "/", "a/", "/a", "a//b", "A", "a..b", "../a", ".a", "a.", "a_-b", "a___b", "a+b", "a\0", "a b"]
        {
            assert!(Repository::parse(name).is_none(), "{name}");
        }
        assert!(Repository::parse(&"a".repeat(256)).is_none());
        let name = Repository::parse("a/b-c").unwrap();
        assert_eq!(Repository::of_folder(&name.folder()), Some(name));
    }

    #[test]
    fn takes_tags_and_digests() {
        let digest = format!("sha256:{}", "a".repeat(64));
        assert!(matches!(Reference::parse(&digest), Some(Reference::Digest(_))));
        assert!(matches!(Reference::parse("v1.0_x-y"), Some(Reference::Tag(_))));
        for wrong in ["", ".a", "-a", "a/b", "a:b", "sha256:ab", "sha512:ab", &digest.to_uppercase(), &"a".repeat(129)]
        {
            assert_eq!(Reference::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn splits_references_of_pods() {
        let digest = format!("sha256:{}", "b".repeat(64));
        let short = |image: &str| split(image).map(|(host, name, reference)| (host.to_owned(), name.0, reference));
        let tag = |text: &str| Reference::Tag(text.to_owned());
        assert_eq!(short("localhost:80/a/b:c"), Some(("localhost:80".into(), "a/b".into(), tag("c"))));
        assert_eq!(short("[::1]:80/a"), Some(("[::1]:80".into(), "a".into(), tag("latest"))));
        let pinned = format!("127.0.0.1:80/a:t@{digest}");
        let expected = Reference::Digest(Digest::parse(&digest).unwrap());
        assert_eq!(short(&pinned), Some(("127.0.0.1:80".into(), "a".into(), expected)));
        for other in ["nginx", "library/nginx:1", "localhost:80/", "localhost:80/a@sha256:x", "localhost:80/../a"] {
            assert_eq!(short(other), None, "{other}");
        }
    }
}
