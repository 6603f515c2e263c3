//! Manifests beside the objects of Flux, in a directory that the GitSyncs do not read: the directory of a Kustomization
//! that applies other Kustomizations.

use std::fs;
use std::path::{Path, PathBuf};

use super::document::{Document, others};
use super::fields::{Fate, Note};
use super::flux::GROUP;
use super::report::Judged;
use mainstay_manifest::Limits;

/// The directory of a Kustomization.
struct Applied<'a> {
    by: &'a Document,
    directory: PathBuf,
    /// Whether Kustomizations are in the directory.
    is_parent: bool,
}

/// Returns notes about the objects in `files` that only a parent Kustomization applies. The files of the documents are
/// relative to `root`.
pub(super) fn judged(documents: &[Document], root: &Path, files: &[PathBuf], limits: &Limits) -> Vec<Judged> {
    let applied = applied(documents, root);
    let mut judged = Vec::new();
    for file in files {
        let nearest = applied.iter().filter(|one| file.starts_with(&one.directory));
        let nearest = nearest.max_by_key(|one| one.directory.components().count());
        let Some(parent) = nearest.filter(|nearest| nearest.is_parent) else { continue };
        let text = fs::read(file).unwrap_or_default();
        let name = file.strip_prefix(root).unwrap_or(file).display().to_string();
        for subject in others(&String::from_utf8_lossy(&text), GROUP, limits) {
            let text = format!(
                "not of Flux: move it to the directory of the GitSyncs, because only {} applies it",
                parent.by.subject()
            );
            let notes = vec![Note { fate: Fate::ToDo, field: String::new(), text }];
            judged.push(Judged { subject, file: name.clone(), notes });
        }
    }
    judged
}

fn applied<'a>(documents: &'a [Document], root: &Path) -> Vec<Applied<'a>> {
    let kustomizations = || documents.iter().filter(|document| document.kind() == "Kustomization");
    let files: Vec<PathBuf> = kustomizations().map(|document| root.join(&document.file)).collect();
    let mut all = Vec::new();
    for by in kustomizations() {
        let path = Path::new(by.field("/spec/path").trim_start_matches("./").trim_matches('/'));
        // A path is relative to the repository, and `root` may be a directory in it.
        let below = files.iter().find_map(|file| ends_with(file.parent()?, path));
        let is_parent = below.is_some();
        if let Some(directory) = below.or_else(|| ends_with(root, path)).or_else(|| in_repository(root, path)) {
            all.push(Applied { by, directory, is_parent });
        }
    }
    all
}

/// Returns the directory at or above `from` whose path ends with `path`.
fn ends_with(from: &Path, path: &Path) -> Option<PathBuf> {
    let is_it = |above: &&Path| {
        if path.as_os_str().is_empty() { above.join(".git").exists() } else { above.ends_with(path) }
    };
    from.ancestors().find(is_it).map(Path::to_owned)
}

/// Returns `path` in the repository that contains `from`.
fn in_repository(from: &Path, path: &Path) -> Option<PathBuf> {
    Some(from.ancestors().find(|above| above.join(".git").exists())?.join(path))
}
