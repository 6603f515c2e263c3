//! What a command attempted in vain.

use std::io;

/// A failed attempt of a command; the cause is its source.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("could not start the runtime")]
    Start(#[source] io::Error),
    #[error("could not write to standard output")]
    Print(#[source] io::Error),
    #[error("could not write YAML")]
    WriteYaml(#[source] serde_yaml::Error),
}

impl Error {
    /// What the user can do about it.
    pub(super) fn hint(&self) -> Option<String> {
        None
    }
}
