//! Builds the kustomizations of a commit, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::closure::{Closure, closure, parent};
use super::copies::copy;
use super::refusal::refusal;
use super::tool::{KUSTOMIZE, Run, Tool};
use super::turns::Turns;
use crate::manifest::Problem;
use crate::object::{Digest, Place};
use crate::source::{self, Snapshot};

/// What is said where there is no tool.
const NO_TOOL: &str = "it is built by `kustomize`, or `kubectl kustomize`, and neither was found";
const NO_TOOL_HINT: &str =
    "install one of the two where the agent finds it on its PATH, or name the directory in .mainstayignore";

/// Builds kustomizations with the official tool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Kustomize {
    tool: Option<Tool>,
    pub(super) scratch: PathBuf,
    pub(super) turns: Arc<Turns>,
}

/// A kustomization that was built, or was not.
#[derive(Debug)]
pub struct Rendered {
    /// What it reads; problems of it are in `documents`.
    pub closure: Closure,
    /// Its documents, or what is wrong with it; `None` if it is as it was.
    pub documents: Option<Result<Vec<u8>, Vec<Problem>>>,
}

impl Kustomize {
    /// With the tool that is found in the directories of `path`, as PATH has them. What the tool reads is copied into
    /// directories below `scratch`.
    pub fn new(path: Option<&std::ffi::OsStr>, scratch: PathBuf) -> Self {
        let tool = path.and_then(|path| Tool::find(path, KUSTOMIZE));
        // What an agent left there that was killed.
        _ = std::fs::remove_dir_all(&scratch);
        Self { tool, scratch, turns: Arc::default() }
    }

    /// How many kustomizations were built and charts rendered so far, those among them that were refused.
    pub fn renders(&self) -> u64 {
        self.turns.taken()
    }

    /// Builds the kustomization in a file for a namespace, unless `known` is the digest of what it reads.
    ///
    /// # Errors
    /// The repository cannot be read. What the tool refuses is a problem.
    pub async fn build(
        &self,
        namespace: &str,
        snapshot: &Snapshot,
        file: &str,
        known: Option<Digest>,
    ) -> Result<Rendered, source::Error> {
        let named = file.to_owned();
        let mut closure = snapshot.blocking(move |mut snapshot| closure(&mut snapshot, &named)).await??;
        let problem = |what: &str, hint: &str| vec![Problem::new(Place::file(file), what, Some(hint))];
        let documents = match &self.tool {
            _ if !closure.problems.is_empty() => Some(Err(std::mem::take(&mut closure.problems))),
            _ if known == Some(closure.digest()) => None,
            None => Some(Err(problem(NO_TOOL, NO_TOOL_HINT))),
            Some(tool) => {
                let turn = self.turns.next(namespace).await;
                let root = copy(snapshot, &closure.files, &self.scratch, |_, _| {}).await?;
                let built = match &root {
                    Err(not_copied) => Err(vec![not_copied.problem(file)]),
                    Ok(root) => match run(tool, root.path(), parent(file)).await {
                        Run::Built(documents) => Ok(documents),
                        Run::Failed(words) => Err(vec![refusal(file, &root.path().to_string_lossy(), &words)]),
                        Run::Ended(why) => Err(problem(&why, "split it")),
                    },
                };
                drop(turn);
                Some(built)
            }
        };
        Ok(Rendered { closure, documents })
    }
}

async fn run(tool: &Tool, root: &Path, directory: &str) -> Run {
    tool.run(root, &["--".into(), root.join(directory).into()], &[]).await
}
