//! Directories that are built rather than read.
//!
//! Invariant: nothing below a directory with a kustomization is read as a manifest: its files mean something only
//! through the kustomization.
//!
//! Deliberately absent: building one (`render`).

use super::directories::Directories;

/// The names under which a directory's kustomization is looked for.
pub(super) const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The outermost directories with a kustomization among these paths.
pub(super) fn among<'p>(paths: impl Iterator<Item = &'p str>) -> Directories {
    Directories::of(paths.filter(|path| NAMES.contains(&path.rsplit('/').next().unwrap_or_default())))
}
