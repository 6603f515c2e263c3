//! Directories that are built rather than read.
//!
//! Invariant: nothing below a directory with a kustomization is read as a manifest: its files mean something only
//! through the kustomization.
//!
//! Deliberately absent for now: building one. Each is a problem that says so.

use super::Problem;
use super::ignore::parent;
use crate::object::Place;

/// The names under which a directory's kustomization is looked for.
pub(super) const NAMES: &[&str] = &["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The directories of a listing that have a kustomization.
#[derive(Default)]
pub(super) struct Directories(Vec<String>);

impl Directories {
    /// Finds the outermost directories with a kustomization among these paths.
    pub(super) fn among<'p>(paths: impl Iterator<Item = &'p str>) -> Self {
        let is_one = |path: &&str| NAMES.contains(&path.rsplit('/').next().unwrap_or_default());
        let mut all: Vec<&str> = paths.filter(is_one).collect();
        all.sort_unstable_by_key(|path| parent(path));
        let mut outermost = Self::default();
        for path in all {
            if !outermost.contains(path) {
                outermost.0.push(path.to_owned());
            }
        }
        outermost
    }

    /// Whether a path is in or below one of them.
    pub(super) fn contains(&self, path: &str) -> bool {
        self.0.iter().any(|kustomization| match parent(kustomization) {
            "" => true,
            directory => path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
        })
    }

    /// One problem for each of them.
    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.0.iter().map(|path| {
            let hint = "point baseDir at plain manifests, or name the directory in .mainstayignore";
            Problem::new(Place::file(path.as_str()), "kustomizations are not built yet", Some(hint))
        })
    }
}
