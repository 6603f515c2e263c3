//! The load: a Git repository with a directory of ConfigMaps for each GitSync.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::Error;
use crate::commit;

/// Objects per GitSync.
pub(crate) const OBJECTS: usize = 10;
/// Prefix of the names of GitSyncs and objects.
pub(super) const PREFIX: &str = "shared-";

/// An object of the load: the number of its GitSync, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub sync: usize,
    pub number: usize,
}

impl Place {
    /// Returns the name of the object.
    pub(super) fn name(self) -> String {
        format!("{}-{}", sync_name(self.sync), self.number)
    }
}

/// Returns the name of a GitSync.
pub(super) fn sync_name(sync: usize) -> String {
    format!("{PREFIX}{sync:05}")
}

/// A repository in a temporary directory, and the committed revision of each object.
pub(super) struct Load {
    directory: PathBuf,
    revisions: Vec<[u32; OBJECTS]>,
}

impl Load {
    /// Creates the repository with one commit of the objects of this many GitSyncs.
    pub(super) fn new(directory: &Path, syncs: usize) -> Result<Self, Error> {
        let load = Self { directory: directory.to_owned(), revisions: vec![[0; OBJECTS]; syncs] };
        fs::create_dir_all(directory).map_err(Error::Load)?;
        commit::init(directory).map_err(Error::Commit)?;
        for sync in 0..syncs {
            load.write(sync)?;
        }
        commit::everything(directory, "load").map_err(Error::Commit)?;
        Ok(load)
    }

    /// Returns the number of GitSyncs.
    pub(super) fn len(&self) -> usize {
        self.revisions.len()
    }

    /// Returns all objects.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.len()).flat_map(|sync| (0..OBJECTS).map(move |number| Place { sync, number }))
    }

    /// Returns the spec of a GitSync of this repository.
    pub(super) fn spec(sync: usize, repository: &str) -> Value {
        json!({ "gitRepository": repository, "reference": "main", "baseDir": format!("/apps/{}", sync_name(sync)) })
    }

    /// Returns the committed `data.revision` of an object.
    pub(super) fn revision(&self, place: Place) -> String {
        self.revisions[place.sync][place.number].to_string()
    }

    /// Commits a change of these objects.
    pub(super) fn change(&mut self, places: &[Place]) -> Result<(), Error> {
        for place in places {
            self.revisions[place.sync][place.number] += 1;
        }
        for place in places {
            self.write(place.sync)?;
        }
        commit::everything(&self.directory, "change some").map_err(Error::Commit)
    }

    /// Returns the ID of the newest commit.
    pub(super) fn commit(&self) -> Result<String, Error> {
        commit::head(&self.directory).map_err(Error::Commit)
    }

    fn write(&self, sync: usize) -> Result<(), Error> {
        let mut text = String::new();
        for number in 0..OBJECTS {
            let place = Place { sync, number };
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\ndata:\n  revision: \"{}\"\n",
                place.name(),
                self.revision(place)
            );
        }
        let directory = self.directory.join("apps").join(sync_name(sync));
        fs::create_dir_all(&directory).map_err(Error::Load)?;
        fs::write(directory.join("objects.yaml"), text).map_err(Error::Load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_changes_the_named_objects_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut load = Load::new(folder.path(), 3).unwrap();
        let read =
            |sync| fs::read_to_string(folder.path().join("apps").join(sync_name(sync)).join("objects.yaml")).unwrap();
        let before = [read(0), read(1), read(2)];
        assert_eq!((before[1].matches("kind: ConfigMap").count(), load.places().count()), (OBJECTS, 3 * OBJECTS));
        let first = load.commit().unwrap();
        let place = Place { sync: 1, number: 4 };
        load.change(&[place]).unwrap();
        assert_eq!((read(0), read(2)), (before[0].clone(), before[2].clone()));
        assert!(read(1).contains("name: shared-00001-4\ndata:\n  revision: \"1\"\n"), "{}", read(1));
        assert_eq!(read(1).matches("revision: \"0\"").count(), OBJECTS - 1);
        assert_eq!((place.name(), load.revision(place)), ("shared-00001-4".to_owned(), "1".to_owned()));
        assert_ne!(load.commit().unwrap(), first);
    }
}
