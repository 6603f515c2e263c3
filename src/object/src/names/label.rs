//! Single labels: [`DnsLabel`] and [`ServiceName`].

use std::fmt;
use std::sync::Arc;

use super::InvalidName;

/// Maximum length of a label.
const MAX_LENGTH: usize = 63;

/// A label as in RFC 1123, such as the name of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsLabel(Arc<str>);

impl DnsLabel {
    /// Parses a label in lower case.
    ///
    /// # Errors
    /// If it is not a label.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        if is_label(text) { Ok(Self(text.into())) } else { Err(InvalidName::Label) }
    }

    /// Returns the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DnsLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a Service: a label as in RFC 1035.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName(Arc<str>);

impl ServiceName {
    /// Parses the name of a Service.
    ///
    /// # Errors
    /// If it is not a name of a Service.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let is_name = is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase());
        if is_name { Ok(Self(text.into())) } else { Err(InvalidName::Service) }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a string is a label as in RFC 1123, in lower case.
pub(super) fn is_label(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_LENGTH).contains(&text.len())
        && text.bytes().all(is_part)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
