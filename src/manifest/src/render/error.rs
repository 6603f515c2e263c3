//! Errors of rendering that are not problems of the directory.

use mainstay_object::failure::Class;

/// The reason that rendering failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository cannot be read.
    #[error(transparent)]
    Source(#[from] mainstay_git::Error),
    /// The container with the tools does not respond.
    #[error(
        "the container `renderer` of the agent's pod does not respond; if it was killed because of its memory limit, \
         raise its limits.memory"
    )]
    Renderer(#[source] std::io::Error),
}

impl Error {
    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        match self {
            Self::Source(error) => error.class(),
            Self::Renderer(_) => Class::Unavailable,
        }
    }
}
