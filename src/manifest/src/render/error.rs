//! Why nothing is known of what a directory is rendered to. What is wrong with the directory is a `Problem`.

use mainstay_object::failure::Class;

/// Why nothing was rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The repository cannot be read.
    #[error(transparent)]
    Source(#[from] mainstay_git::Error),
    /// The container with the tools does not answer.
    #[error(
        "the container `renderer` of the agent's pod does not answer; if it was killed for want of memory, raise its \
         limits.memory"
    )]
    Renderer(#[source] std::io::Error),
}

impl Error {
    /// What kind of failure it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Source(error) => error.class(),
            Self::Renderer(_) => Class::Unavailable,
        }
    }
}
