//! The load: a Git repository with a directory per GitSync, each with four objects of four kinds.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::Error;
use crate::commit;

/// Objects per GitSync.
pub(super) const OBJECTS: usize = 4;

/// A repository in a temporary directory, and the committed revision of each GitSync's ConfigMap.
pub(super) struct Load {
    directory: PathBuf,
    revisions: Vec<u32>,
}

impl Load {
    /// Creates the repository with one commit of this many directories.
    pub(super) fn new(directory: &Path, syncs: usize) -> Result<Self, Error> {
        let load = Self { directory: directory.to_owned(), revisions: vec![0; syncs] };
        fs::create_dir_all(directory).map_err(Error::Load)?;
        commit::init(directory).map_err(Error::Commit)?;
        for number in 0..syncs {
            load.write(number)?;
        }
        commit::everything(directory, "load").map_err(Error::Commit)?;
        Ok(load)
    }

    /// Returns the number of GitSyncs.
    pub(super) fn len(&self) -> usize {
        self.revisions.len()
    }

    /// Returns the name of a GitSync and of its objects.
    pub(super) fn name(number: usize) -> String {
        format!("many-{number:05}")
    }

    /// Returns the directory of a GitSync in the repository.
    pub(super) fn base_dir(number: usize) -> String {
        format!("/apps/{}", Self::name(number))
    }

    /// Returns the committed `data.revision` of its ConfigMap.
    pub(super) fn revision(&self, number: usize) -> String {
        self.revisions[number].to_string()
    }

    /// Commits a change of one GitSync's ConfigMap.
    pub(super) fn change(&mut self, number: usize) -> Result<(), Error> {
        self.revisions[number] += 1;
        self.write(number)?;
        commit::everything(&self.directory, "change one").map_err(Error::Commit)
    }

    /// Commits a change of all four objects of each GitSync.
    pub(super) fn change_all(&mut self) -> Result<(), Error> {
        for number in 0..self.len() {
            self.revisions[number] += 1;
            self.write(number)?;
        }
        commit::everything(&self.directory, "change all").map_err(Error::Commit)
    }

    /// Commits a file that no GitSync reads. Returns the commit ID.
    pub(super) fn unrelated(&mut self) -> Result<String, Error> {
        fs::write(self.directory.join("README.md"), "Nothing but words.\n").map_err(Error::Load)?;
        commit::everything(&self.directory, "no manifests").map_err(Error::Commit)?;
        self.commit()
    }

    /// Returns the ID of the newest commit.
    pub(super) fn commit(&self) -> Result<String, Error> {
        commit::head(&self.directory).map_err(Error::Commit)
    }

    fn write(&self, number: usize) -> Result<(), Error> {
        let objects = objects(&Self::name(number), &self.revision(number));
        // JSON is YAML, too.
        let text = objects.map(|object| format!("---\n{object:#}\n")).concat();
        let directory = self.directory.join(&Self::base_dir(number)[1..]);
        fs::create_dir_all(&directory).map_err(Error::Load)?;
        fs::write(directory.join("objects.yaml"), text).map_err(Error::Load)
    }
}

/// Returns the objects of a GitSync. All of them change with the revision.
pub(super) fn objects(name: &str, revision: &str) -> [Value; OBJECTS] {
    let metadata = || json!({ "name": name, "annotations": { "revision": revision } });
    [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": { "revision": revision } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata() }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata(), "stringData": { "word": name } }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": metadata(),
            "spec": { "selector": { "app": name }, "ports": [{ "port": 80 }] },
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_one_object_of_one_directory() {
        let folder = tempfile::tempdir().unwrap();
        let mut load = Load::new(folder.path(), 3).unwrap();
        let read = |number: usize| {
            fs::read_to_string(folder.path().join(&Load::base_dir(number)[1..]).join("objects.yaml")).unwrap()
        };
        let before = [read(0), read(1), read(2)];
        assert_eq!(before[1].matches("\"kind\":").count(), OBJECTS);
        load.change(1).unwrap();
        assert_eq!((read(0), read(2)), (before[0].clone(), before[2].clone()));
        assert!(read(1).contains("\"revision\": \"1\""));
        assert_eq!((load.len(), load.revision(1), load.revision(2)), (3, "1".into(), "0".into()));
    }
}
