//! Directories that are built rather than read.
//!
//! Invariant: nothing below a directory with a kustomization is read as a manifest: its files mean something only
//! through the kustomization.
//!
//! Deliberately absent for now: building one. Each is a problem that says so.

use super::Problem;
use super::directories::Directories;
use crate::object::Place;

/// The names under which a directory's kustomization is looked for.
pub(super) const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The outermost directories with a kustomization among these paths.
pub(super) fn among<'p>(paths: impl Iterator<Item = &'p str>) -> Directories {
    Directories::of(paths.filter(|path| NAMES.contains(&path.rsplit('/').next().unwrap_or_default())))
}

/// One problem for each of them.
pub(super) fn problems(directories: &Directories) -> impl Iterator<Item = Problem> {
    directories.files().map(|path| {
        let hint = "point baseDir at plain manifests, or name the directory in .mainstayignore";
        Problem::new(Place::file(path), "kustomizations are not built yet", Some(hint))
    })
}
