//! What a Function's image is built on.
//!
//! Invariant: a base image names its content: nothing, a directory, or an image by its digest. A tag can lead elsewhere
//! tomorrow, and nobody who could follow it there knows the images that were built on it.

use std::fmt;

/// The image below the runtime server's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseImage {
    /// Nothing: the node's own Node.js and Python run the code.
    Scratch,
    /// A directory in the builder image that holds an image in the OCI layout.
    Layout(String),
    /// An image in a registry: `repository@sha256:…`.
    Image(String),
}

/// Why a text names no base image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABase {
    /// It is no name of an image at all.
    #[error("it is neither `scratch`, nor `oci:` with an absolute path, nor the name of an image")]
    Malformed,
    /// Its content is not fixed.
    #[error("an image is named by its digest: `repository@sha256:…`")]
    NoDigest,
}

impl BaseImage {
    /// What the operator sets: `scratch`, `oci:/path` or `repository@sha256:…`.
    pub fn parse(text: &str) -> Result<Self, NotABase> {
        if text == "scratch" {
            return Ok(Self::Scratch);
        }
        if let Some(path) = text.strip_prefix("oci:") {
            let plain = path.starts_with('/') && path.len() < 4096 && !path.chars().any(char::is_control);
            return if plain { Ok(Self::Layout(path.to_owned())) } else { Err(NotABase::Malformed) };
        }
        Self::chosen(text)
    }

    /// What a Function may choose for itself: an image of a registry, by its digest.
    pub fn chosen(text: &str) -> Result<Self, NotABase> {
        if !is_reference(text) {
            return Err(NotABase::Malformed);
        }
        match text.rsplit_once("@sha256:") {
            Some((_, digest)) if digest.len() == 64 && digest.bytes().all(is_lower_hex) => {
                Ok(Self::Image(text.to_owned()))
            }
            _ => Err(NotABase::NoDigest),
        }
    }
}

impl fmt::Display for BaseImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scratch => f.write_str("scratch"),
            Self::Layout(path) => write!(f, "oci:{path}"),
            Self::Image(name) => f.write_str(name),
        }
    }
}

fn is_lower_hex(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
}

/// Whether it can be the name of an image. The registry has the last word.
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
