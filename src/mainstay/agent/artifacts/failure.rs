//! The failure of a lookup.

/// Why an artifact is not taken.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cannot be found or read.
    Read(String),
    /// It is not signed by a trusted signer.
    Unsigned(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Read(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::Read(why.to_owned())
    }
}
