//! The tools for kustomizations and charts, in the agent's container or in the renderer.

use std::ffi::OsString;
use std::path::Path;

use super::program::{Program, Purpose, Run};
use super::renderer::Renderer;

/// A tool that builds kustomizations or renders charts.
#[derive(Clone, Debug)]
pub(super) enum Tool {
    /// A program in the agent's container.
    Here(Program),
    /// A program in the renderer's container.
    Beside(Renderer, Purpose),
}

impl Tool {
    /// Runs the tool as described at [`Program::run`].
    pub(super) async fn run(
        &self,
        root: &Path,
        arguments: &[OsString],
        variables: &[(&str, &Path)],
        input: Option<&[u8]>,
    ) -> Run {
        match self {
            Self::Here(program) => program.run(root, arguments, variables, input).await,
            Self::Beside(renderer, purpose) => renderer.run(*purpose, root, arguments, variables, input).await,
        }
    }
}
