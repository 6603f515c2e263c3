//! [`UrlPath`]: the part of a URL after the port.

use std::fmt;
use std::sync::Arc;

use super::InvalidName;

/// Maximum length of a path with its query.
const MAX_LENGTH: usize = 4096;

/// Path and query of a URL, from the slash on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UrlPath(Arc<str>);

impl UrlPath {
    /// Parses a path with an optional query.
    ///
    /// # Errors
    /// The path does not begin with a slash, or contains characters that are not allowed in URLs.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let is_path = text.starts_with('/')
            && text.len() <= MAX_LENGTH
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if is_path { Ok(Self(text.into())) } else { Err(InvalidName::Path) }
    }

    /// Returns the path `/`.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UrlPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
