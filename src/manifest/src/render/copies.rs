//! Private copies of exactly the files that a tool reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::added::Added;
use crate::Problem;
use mainstay_git::{Entry, Snapshot};
use mainstay_object::{Place, printable};

/// The reason that files cannot be copied for the tool.
#[derive(Debug)]
pub(super) enum NotCopied {
    Disk(std::io::Error),
    /// The content of this file is in Git LFS.
    InLfs(String),
}

impl NotCopied {
    /// Returns the problem of the rendered kustomization or chart.
    pub(super) fn problem(&self, file: &str) -> Problem {
        let (what, hint) = match self {
            Self::Disk(error) if error.kind() == std::io::ErrorKind::InvalidFilename => {
                ("it reads a file whose name is longer than 255 bytes".to_owned(), "give it a shorter name")
            }
            Self::Disk(error) => (
                format!("its files cannot be copied: {error}"),
                "check that the agent's volume has free space, and that the agent may write to it",
            ),
            Self::InLfs(path) => (
                format!("it reads {}, which is kept in Git LFS and not fetched", printable(path)),
                "set `spec.lfs: true` in the GitRepository, and keep it below baseDir",
            ),
        };
        Problem::new(Place::file(file), what, Some(hint))
    }
}

/// Copies the files into a new directory below `scratch`, and writes the `added` files. The directory is removed when
/// it is dropped. `look` receives the path and content of each file.
///
/// # Errors
/// If the repository cannot be read.
pub(super) async fn copy(
    snapshot: &Snapshot,
    files: &BTreeMap<String, Entry>,
    added: &Added,
    scratch: &Path,
    mut look: impl FnMut(&str, &[u8]) + Send + 'static,
) -> Result<Result<tempfile::TempDir, NotCopied>, mainstay_git::Error> {
    let (files, added, scratch) = (files.clone(), added.clone(), scratch.to_owned());
    snapshot
        .blocking(move |snapshot| {
            let root = std::fs::create_dir_all(&scratch).and_then(|()| tempfile::tempdir_in(&scratch));
            let root = match root {
                Ok(root) => root,
                Err(error) => return Ok(Err(NotCopied::Disk(error))),
            };
            for (path, entry) in &files {
                let content = match added.0.get(path) {
                    Some(content) => content.clone(),
                    None => snapshot.read(entry)?,
                };
                if crate::is_in_lfs(&content) {
                    return Ok(Err(NotCopied::InLfs(entry.path.clone())));
                }
                look(&entry.path, &content);
                if let Err(error) = write(&root.path().join(path), &content) {
                    return Ok(Err(NotCopied::Disk(error)));
                }
            }
            Ok(Ok(root))
        })
        .await?
}

/// Creates a file.
pub(super) fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::File::create_new(path)?.write_all(content)
}
