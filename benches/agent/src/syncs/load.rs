//! The load: a Git repository with a Namespace and many ConfigMaps of 1 KiB, 100 per file.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::Error;
use crate::commit;

/// Namespace of the ConfigMaps.
pub(super) const NAMESPACE: &str = "mainstay-bench-load";
/// ConfigMaps per file.
pub(super) const PER_FILE: usize = 100;

/// A repository in a temporary directory, and the committed revision of each ConfigMap.
pub(super) struct Load {
    directory: PathBuf,
    revisions: Vec<u32>,
}

impl Load {
    /// Creates the repository with one commit of `objects` ConfigMaps.
    pub(super) fn new(directory: &Path, objects: usize) -> Result<Self, Error> {
        let load = Self { directory: directory.to_owned(), revisions: vec![0; objects] };
        fs::create_dir_all(directory).map_err(Error::Load)?;
        commit::init(directory).map_err(Error::Commit)?;
        let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n");
        fs::write(directory.join("namespace.yaml"), namespace).map_err(Error::Load)?;
        for file in 0..objects.div_ceil(PER_FILE) {
            load.write(file)?;
        }
        load.commit("load")?;
        Ok(load)
    }

    /// Returns the repository's directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the number of ConfigMaps.
    pub(super) fn len(&self) -> usize {
        self.revisions.len()
    }

    /// Returns the name of a ConfigMap.
    pub(super) fn name(number: usize) -> String {
        format!("load-{number:06}")
    }

    /// Returns the committed `data.revision`.
    pub(super) fn revision(&self, number: usize) -> String {
        self.revisions[number].to_string()
    }

    /// Commits a change of every ConfigMap of one file. Returns their numbers.
    pub(super) fn change_file(&mut self, file: usize) -> Result<Vec<usize>, Error> {
        let numbers: Vec<usize> = self.numbers(file).collect();
        for number in &numbers {
            self.revisions[*number] += 1;
        }
        self.write(file)?;
        self.commit("change one file")?;
        Ok(numbers)
    }

    fn numbers(&self, file: usize) -> std::ops::Range<usize> {
        file * PER_FILE..self.len().min((file + 1) * PER_FILE)
    }

    fn write(&self, file: usize) -> Result<(), Error> {
        let mut text = String::new();
        for number in self.numbers(file) {
            let (name, revision) = (Self::name(number), self.revision(number));
            let payload = format!("{number:08}").repeat(125);
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {NAMESPACE}\n\
                 data:\n  revision: \"{revision}\"\n  payload: p{payload}\n"
            );
        }
        fs::write(self.directory.join(format!("load-{file:04}.yaml")), text).map_err(Error::Load)
    }

    fn commit(&self, message: &str) -> Result<(), Error> {
        commit::everything(&self.directory, message).map_err(Error::Commit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_one_file_in_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        let mut load = Load::new(folder.path(), 250).unwrap();
        let before = fs::read_to_string(folder.path().join("load-0002.yaml")).unwrap();
        assert_eq!(before.matches("kind: ConfigMap").count(), 50);
        assert_eq!(load.change_file(2).unwrap(), (200..250).collect::<Vec<_>>());
        assert_eq!((load.revision(199), load.revision(249)), ("0".into(), "1".into()));
        let repository = git2::Repository::open(folder.path()).unwrap();
        let head = repository.head().unwrap().peel_to_commit().unwrap();
        let trees = (head.tree().unwrap(), head.parent(0).unwrap().tree().unwrap());
        let diff = repository.diff_tree_to_tree(Some(&trees.0), Some(&trees.1), None).unwrap();
        assert_eq!(diff.deltas().len(), 1);
    }
}
