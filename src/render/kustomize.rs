//! Builds the kustomizations of a commit, one at a time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::closure::{Closure, closure, parent};
use super::refusal::refusal;
use super::tool::{Run, Tool};
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
    scratch: PathBuf,
    /// One is built at a time: each takes a core, and memory.
    turn: Arc<Semaphore>,
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
        let tool = path.and_then(Tool::find);
        // What an agent left there that was killed.
        _ = std::fs::remove_dir_all(&scratch);
        Self { tool, scratch, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Builds the kustomization in a file, unless `known` is the digest of what it reads.
    ///
    /// # Errors
    /// The repository cannot be read. What the tool refuses is a problem.
    pub async fn build(
        &self,
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
                let turn = self.turn.acquire().await;
                let root = self.copy(snapshot, &closure).await?;
                let built = match &root {
                    Err(error) => Err(problem(
                        &format!("its files cannot be copied: {error}"),
                        "see that the agent's volume has room, and that the agent may write to it",
                    )),
                    Ok(root) => match tool.build(root.path(), &root.path().join(parent(file))).await {
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

    /// Copies what is read into a directory of its own, and nothing else.
    async fn copy(
        &self,
        snapshot: &Snapshot,
        closure: &Closure,
    ) -> Result<Result<tempfile::TempDir, std::io::Error>, source::Error> {
        let (files, scratch) = (closure.files.clone(), self.scratch.clone());
        snapshot
            .blocking(move |snapshot| {
                let root = std::fs::create_dir_all(&scratch).and_then(|()| tempfile::tempdir_in(&scratch));
                let root = match root {
                    Ok(root) => root,
                    Err(error) => return Ok(Err(error)),
                };
                for (path, entry) in &files {
                    let content = snapshot.read(entry)?;
                    if let Err(error) = write(&root.path().join(path), &content) {
                        return Ok(Err(error));
                    }
                }
                Ok(Ok(root))
            })
            .await?
    }
}

fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::File::create_new(path)?.write_all(content)
}
