//! The load: a Git repository with a directory per Function.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::{Error, servers};
use crate::{api::Runtime, commit};

/// Target for the maximum memory of the agent, in MiB.
pub(super) const MEMORY: f64 = 80.0;
/// Name of the GitRepository.
pub(super) const REPOSITORY: &str = "load";

/// A local package beside the source, so that no package registry is contacted.
const PACKAGE: &str = "words";

/// A repository in a temporary directory.
pub(super) struct Load {
    directory: PathBuf,
    functions: usize,
    depends: Depends,
}

/// Whether the Functions have dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depends {
    OnNothing,
    OnPackage,
}

/// Returns the GitRepository for a URL.
pub(super) fn repository(url: &str) -> Value {
    json!({
        "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "GitRepository",
        "metadata": { "name": REPOSITORY }, "spec": { "url": url },
    })
}

impl Load {
    /// Creates the repository with one commit of this many Functions.
    pub(super) fn new(directory: &Path, functions: usize) -> Result<Self, Error> {
        Self::begin(directory, functions, Depends::OnNothing)
    }

    /// Creates the repository with one commit of a Function with a dependency.
    pub(super) fn with_dependency(directory: &Path) -> Result<Self, Error> {
        Self::begin(directory, 1, Depends::OnPackage)
    }

    fn begin(directory: &Path, functions: usize, depends: Depends) -> Result<Self, Error> {
        let load = Self { directory: directory.to_owned(), functions, depends };
        fs::create_dir_all(directory).map_err(Error::Load)?;
        commit::init(directory).map_err(Error::Commit)?;
        for number in 0..functions {
            load.write(number, "load")?;
        }
        load.commit("load")?;
        Ok(load)
    }

    /// Returns the name of a Function and of its directory.
    pub(super) fn name(number: usize) -> String {
        format!("function-{number:04}")
    }

    /// Returns the number of Functions.
    pub(super) fn len(&self) -> usize {
        self.functions
    }

    /// Returns a Function as its user writes it.
    pub(super) fn function(number: usize) -> Value {
        let name = Self::name(number);
        json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": { "name": name },
            "spec": {
                "type": "git", "source": REPOSITORY, "reference": "main", "baseDir": name, "runtime": "nodejs22",
                "minReplicas": 1, "maxReplicas": 1,
            },
        })
    }

    /// Commits a change of a Function's source.
    pub(super) fn change(&self, number: usize, word: &str) -> Result<(), Error> {
        self.write(number, word)?;
        self.commit("change one function")
    }

    /// Returns the present tree ID of a Function's directory.
    pub(super) fn tree(&self, number: usize) -> Result<String, Error> {
        let found = git2::Repository::open(&self.directory).and_then(|repository| {
            let tree = repository.head()?.peel_to_tree()?;
            tree.get_path(Path::new(&Self::name(number))).map(|entry| entry.id().to_string())
        });
        found.map_err(Error::Commit)
    }

    fn write(&self, number: usize, word: &str) -> Result<(), Error> {
        let directory = self.directory.join(Self::name(number));
        let source = servers::hello(Runtime::NodeJs);
        let (requires, dependencies) = match self.depends {
            Depends::OnNothing => (String::new(), json!({})),
            Depends::OnPackage => (format!("require('{PACKAGE}');\n"), json!({ PACKAGE: format!("file:./{PACKAGE}") })),
        };
        write(&directory.join("handler.js"), &format!("// {word} {number}\n{requires}{source}"))?;
        write(&directory.join("package.json"), &json!({ "dependencies": dependencies }).to_string())?;
        if self.depends == Depends::OnPackage {
            let package = json!({ "name": PACKAGE, "version": "1.0.0", "main": "index.js" });
            write(&directory.join(PACKAGE).join("package.json"), &package.to_string())?;
            write(&directory.join(PACKAGE).join("index.js"), "module.exports = 'Hello World!';\n")?;
        }
        Ok(())
    }

    fn commit(&self, message: &str) -> Result<(), Error> {
        commit::everything(&self.directory, message).map_err(Error::Commit)
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder.and_then(|()| fs::write(path, text)).map_err(Error::Load)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_changes_the_tree_of_one_function() {
        let folder = tempfile::tempdir().unwrap();
        let load = Load::new(folder.path(), 3).unwrap();
        let trees = || (0..3).map(|number| load.tree(number).unwrap()).collect::<Vec<_>>();
        let before = trees();
        load.change(1, "changed").unwrap();
        let after = trees();
        assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
        assert_ne!(before[1], after[1]);
    }
}
