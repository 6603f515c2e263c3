//! The tools that build kustomizations and render charts, wherever they are.

use std::ffi::OsString;
use std::path::Path;

use super::program::{Program, Purpose, Run};
use super::renderer::Renderer;

/// What builds kustomizations, or renders charts.
#[derive(Clone, Debug)]
pub(super) enum Tool {
    /// A program of this container.
    Here(Program),
    /// One of the container beside it.
    Beside(Renderer, Purpose),
}

impl Tool {
    /// Runs it, as [`Program::run`].
    pub(super) async fn run(&self, root: &Path, arguments: &[OsString], variables: &[(&str, &Path)]) -> Run {
        match self {
            Self::Here(program) => program.run(root, arguments, variables).await,
            Self::Beside(renderer, purpose) => renderer.run(*purpose, root, arguments, variables).await,
        }
    }
}
