//! Finds directories that are built by kustomize and not read as manifests.
//!
//! Invariant: no file below a directory with a kustomization is read as a manifest, because the meaning of the file
//! depends on the kustomization.
//!
//! Not here: building a kustomization (`render`).

use super::directories::Directories;

/// File names of kustomizations.
pub(super) const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Returns the outermost directories with a kustomization among these paths.
pub(super) fn among<'p>(paths: impl Iterator<Item = &'p str>) -> Directories {
    Directories::of(paths.filter(|path| NAMES.contains(&path.rsplit('/').next().unwrap_or_default())))
}
