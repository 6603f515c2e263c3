//! Builds the kustomizations of a commit, one at a time.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::closure::{Closure, closure, parent};
use super::refusal::refusal;
use super::tool::{Run, Tool};
use crate::manifest::{self, Problem};
use crate::object::{Digest, Place, printable};
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
    turns: Arc<Turns>,
}

/// One is built at a time: each takes a core, and memory. Of each namespace one at most waits for that, so whoever has many
/// that take long delays others by one of them.
#[derive(Debug)]
struct Turns {
    all: Arc<Semaphore>,
    namespaces: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Lasts as long as it is held.
struct Turn(#[expect(dead_code, reason = "they are held")] [Option<OwnedSemaphorePermit>; 2]);

impl Turns {
    async fn next(&self, namespace: &str) -> Turn {
        let own = {
            let mut namespaces = self.namespaces.lock();
            namespaces.retain(|_, own| own.strong_count() > 0);
            let known = namespaces.get(namespace).and_then(Weak::upgrade);
            let own = known.unwrap_or_else(|| Arc::new(Semaphore::new(1)));
            namespaces.insert(namespace.to_owned(), Arc::downgrade(&own));
            own
        };
        // Neither is ever closed. A permit keeps its semaphore.
        let own = own.acquire_owned().await.ok();
        Turn([own, Arc::clone(&self.all).acquire_owned().await.ok()])
    }
}

/// Why the files of a kustomization are not there for the tool.
enum NotCopied {
    Disk(std::io::Error),
    /// This one is not in the repository itself.
    InLfs(String),
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
        let turns = Turns { all: Arc::new(Semaphore::new(1)), namespaces: Mutex::default() };
        Self { tool, scratch, turns: Arc::new(turns) }
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
                let root = self.copy(snapshot, &closure).await?;
                let built = match &root {
                    Err(NotCopied::Disk(error)) => Err(problem(
                        &format!("its files cannot be copied: {error}"),
                        "see that the agent's volume has room, and that the agent may write to it",
                    )),
                    Err(NotCopied::InLfs(path)) => Err(problem(
                        &format!("it reads {}, which is kept in Git LFS and not fetched", printable(path)),
                        "let the GitRepository say `spec.lfs: true`, and keep it below baseDir",
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
    ) -> Result<Result<tempfile::TempDir, NotCopied>, source::Error> {
        let (files, scratch) = (closure.files.clone(), self.scratch.clone());
        snapshot
            .blocking(move |snapshot| {
                let root = std::fs::create_dir_all(&scratch).and_then(|()| tempfile::tempdir_in(&scratch));
                let root = match root {
                    Ok(root) => root,
                    Err(error) => return Ok(Err(NotCopied::Disk(error))),
                };
                for (path, entry) in &files {
                    let content = snapshot.read(entry)?;
                    if manifest::is_in_lfs(&content) {
                        return Ok(Err(NotCopied::InLfs(path.clone())));
                    }
                    if let Err(error) = write(&root.path().join(path), &content) {
                        return Ok(Err(NotCopied::Disk(error)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_namespace_with_many_of_them_delays_another_one_by_one() {
        let turns = Arc::new(Turns { all: Arc::new(Semaphore::new(1)), namespaces: Mutex::default() });
        let first = turns.next("greedy").await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for namespace in ["greedy", "greedy", "greedy", "modest"] {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            waiting.spawn(async move {
                let turn = turns.next(namespace).await;
                order.lock().push(namespace);
                tokio::task::yield_now().await;
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        while waiting.join_next().await.is_some() {}
        let order = order.lock().clone();
        assert!(order.iter().position(|namespace| *namespace == "modest") <= Some(1), "{order:?}");
        turns.next("modest").await;
        assert_eq!(turns.namespaces.lock().len(), 1, "who has none is forgotten");
    }
}
