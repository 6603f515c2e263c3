//! Parses image references.
//!
//! Invariant: an [`ImageRef`] is valid in a URL without encoding.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The default host of references.
const DOCKER_HUB: &str = "docker.io";
const MAX_REPOSITORY: usize = 255;
const MAX_TAG: usize = 128;

/// A SHA-256 digest, `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// Returns the digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finished(Sha256::new_with_prefix(bytes))
    }

    /// Returns the digest of a hasher's input.
    pub fn finished(hasher: Sha256) -> Self {
        Self(format!("sha256:{}", hex::encode(hasher.finalize())))
    }

    /// Returns the digest with the algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the hexadecimal digits without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = ParseImageRefError;

    fn from_str(text: &str) -> Result<Self, ParseImageRefError> {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        let hex = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex && digits.len() == 64 { Ok(Self(text.to_owned())) } else { Err(ParseImageRefError::Digest) }
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseImageRefError;

    fn try_from(text: String) -> Result<Self, ParseImageRefError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// The reason that a string is not an image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseImageRefError {
    /// The host or port is invalid.
    #[error("the registry must be HOST or HOST:PORT")]
    Host,
    /// The name of the repository is invalid.
    #[error(
        "the repository must consist of lower-case letters and digits with single separators, and have at most 255 \
         characters"
    )]
    Repository,
    /// The tag is invalid.
    #[error("the tag must consist of at most 128 letters, digits, `_`, `.` and `-`")]
    Tag,
    /// The digest is invalid.
    #[error("the digest must be `sha256:` and 64 lower-case hexadecimal digits")]
    Digest,
}

/// An image reference: `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageRef {
    /// Host and port of the registry; `docker.io` if the reference contains no host.
    pub registry: String,
    /// Name of the repository in that registry.
    pub repository: String,
    /// Tag.
    pub tag: Option<String>,
    /// Digest; takes precedence over the tag.
    pub digest: Option<Digest>,
}

impl ImageRef {
    /// Returns this image pinned to a digest.
    #[must_use]
    pub fn at(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// Returns the reference for manifest requests: the digest, the tag, or `latest`.
    pub fn reference(&self) -> &str {
        let tag = || self.tag.as_deref().unwrap_or("latest");
        self.digest.as_ref().map_or_else(tag, Digest::as_str)
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ImageRef {
    type Err = ParseImageRefError;

    fn from_str(text: &str) -> Result<Self, ParseImageRefError> {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse()?)),
            None => (text, None),
        };
        let (registry, rest) = match rest.split_once('/') {
            Some((host, rest)) if names_host(host) => (host, rest),
            _ => (DOCKER_HUB, rest),
        };
        let (name, tag) = match rest.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (rest, None),
        };
        if !is_host(registry) {
            return Err(ParseImageRefError::Host);
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(ParseImageRefError::Tag);
        }
        let official = registry == DOCKER_HUB && !name.contains('/');
        let repository = if official { format!("library/{name}") } else { name.to_owned() };
        if !is_repository(&repository) {
            return Err(ParseImageRefError::Repository);
        }
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.map(str::to_owned), digest })
    }
}

/// Whether the first part of a reference is a host: it contains a dot or a colon, or is `localhost`.
pub(super) fn names_host(part: &str) -> bool {
    part.contains(['.', ':']) || part == "localhost"
}

/// Whether a string is `HOST` or `HOST:PORT`. An IPv6 address has brackets.
pub(super) fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("", port),
            _ => return false,
        },
        None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
    };
    let port_fits = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    let named = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let host_fits = text.starts_with('[') || (host.len() <= 253 && host.split('.').all(named));
    host_fits && port_fits
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_tag(tag: &str) -> bool {
    let first = tag.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let inside = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    first && tag.len() <= MAX_TAG && tag.bytes().all(inside)
}

/// Whether a name matches `PART(/PART)*`, where `PART` is `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`.
pub(super) fn is_repository(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_REPOSITORY && name.split('/').all(is_part)
}

fn is_part(part: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    part.starts_with(alphanumeric) && part.ends_with(alphanumeric) && part.split(alphanumeric).all(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = text.parse::<ImageRef>().map_or_else(|error| format!("{error:?}"), |image| image.to_string());
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn reads_references_as_every_client_does() {
        check("node", "docker.io/library/node");
        check("user/app:1", "docker.io/user/app:1");
        check("localhost/app", "localhost/app");
        check("gcr.io/p/q/app:V1.0_x-y", "gcr.io/p/q/app:V1.0_x-y");
        check("registry:5000/a-b--c.d__e:t", "registry:5000/a-b--c.d__e:t");
        check("[::1]:5000/a", "[::1]:5000/a");
        let digest = format!("sha256:{}", "0".repeat(64));
        check(&format!("h.io/a:t@{digest}"), &format!("h.io/a:t@{digest}"));
        assert_eq!(format!("h.io/a:t@{digest}").parse::<ImageRef>().unwrap().reference(), digest);
    }

    #[test]
    fn refuses_what_no_registry_takes() {
        for text in ["", "h.io/", "h.io/A", "h.io/a//b", "h.io/../a", "h.io/a?b", "h.io/a b", "h.io/a___b", "h.io/a/.b"]
        {
            check(text, "Repository");
        }
        check(&format!("h.io/{}", "a".repeat(256)), "Repository");
        for text in ["h.io:x/a", "h.io:0/a", "h.io:99999/a", "h..io/a", "u:p@h.io/a", "h.io:1:2/a", "[x]:1/a", ".:/a"] {
            assert!(text.parse::<ImageRef>().is_err(), "{text}");
        }
        check("h.io/a:", "Tag");
        check("h.io/a:-x", "Tag");
        check("h.io/a@sha256:0", "Digest");
        check(&format!("h.io/a@sha512:{}", "0".repeat(64)), "Digest");
    }
}
