//! Base images of Functions.
//!
//! Invariant: the operator's base images are immutable: empty, a directory, or an image with a digest. A Function may
//! also choose a tag, which can move. The build resolves it and reports the image.

use std::fmt;

/// The base image below the runtime server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseImage {
    /// No base image: the code runs with the node's Node.js and Python.
    Scratch,
    /// A directory of the builder image with an OCI layout.
    Layout(String),
    /// An image in a registry: `repository@sha256:…`.
    Image(String),
    /// An image in a registry: `repository:tag`.
    Tagged(String),
}

/// The reason that a string is not a base image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBaseImage {
    /// The string is not an image name.
    #[error("it is neither `scratch`, nor `oci:` with an absolute path, nor an image name")]
    Malformed,
    /// The image has no digest.
    #[error("the image must be pinned by its digest: `repository@sha256:…`")]
    NoDigest,
    /// The image has neither a digest nor a tag.
    #[error("the image must be named by a digest or by a tag")]
    NoTag,
}

impl BaseImage {
    /// Parses the operator's setting: `scratch`, `oci:/path` or `repository@sha256:…`.
    pub fn parse(text: &str) -> Result<Self, InvalidBaseImage> {
        if text == "scratch" {
            return Ok(Self::Scratch);
        }
        if let Some(path) = text.strip_prefix("oci:") {
            let plain = path.starts_with('/') && path.len() < 4096 && !path.chars().any(char::is_control);
            return if plain { Ok(Self::Layout(path.to_owned())) } else { Err(InvalidBaseImage::Malformed) };
        }
        match Self::chosen(text)? {
            Self::Image(image) => Ok(Self::Image(image)),
            _ => Err(InvalidBaseImage::NoDigest),
        }
    }

    /// Parses a Function's choice: an image in a registry, with a digest or a tag.
    pub fn chosen(text: &str) -> Result<Self, InvalidBaseImage> {
        if !is_reference(text) {
            return Err(InvalidBaseImage::Malformed);
        }
        match text.rsplit_once("@sha256:") {
            Some((_, digest)) if digest.len() == 64 && digest.bytes().all(is_lower_hex) => {
                Ok(Self::Image(text.to_owned()))
            }
            None if has_tag(text) => Ok(Self::Tagged(text.to_owned())),
            _ => Err(InvalidBaseImage::NoTag),
        }
    }
}

impl fmt::Display for BaseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch => f.write_str("scratch"),
            Self::Layout(path) => write!(f, "oci:{path}"),
            Self::Image(name) | Self::Tagged(name) => f.write_str(name),
        }
    }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Whether an image name ends with a tag and has no digest.
fn has_tag(text: &str) -> bool {
    let last = text.rsplit('/').next().unwrap_or_default();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let is_tag = |tag: &str| tag.len() <= 128 && tag.bytes().next().is_some_and(word) && !tag.contains(['@', ':', '[']);
    !text.contains('@') && last.split_once(':').is_some_and(|(_, tag)| is_tag(tag))
}

/// Whether a string may be an image name. The registry makes the final check.
fn is_reference(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@[]".contains(&b);
    text.len() <= 512
        && text.bytes().all(allowed)
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'[')
        && text.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
        && !text.starts_with("oci:")
        && text != "scratch"
        && !text.contains("//")
        && !text.contains("..")
}
