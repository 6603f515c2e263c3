//! The runnable content of a workspace, from its current files.

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{
    check::supported,
    config::{Config, Source},
    environment::{self, Found},
    error::Error,
    workspace::{Workspace, read_text},
};
use mainstay_function::runtimes::Runtime;

/// A Function and its files.
pub(super) struct Project {
    pub(super) config: Config,
    pub(super) runtime: &'static Runtime,
    pub(super) handler: PathBuf,
    /// Content of the dependency file.
    pub(super) dependencies: String,
    /// The variables of the environment file, by name.
    pub(super) given: BTreeMap<String, String>,
    pub(super) variables: Vec<(String, String)>,
    /// Variables without a value, with the value's location in the cluster.
    pub(super) missing: Vec<String>,
    /// The directories to watch for saved files.
    pub(super) directories: Vec<PathBuf>,
}

impl Project {
    /// Reads a configuration, its files in `source` or in the configured directory, and the variables of a file.
    pub(super) fn read(filename: &Path, source: Option<&Path>, env_file: Option<&Path>) -> Result<Self, Error> {
        let text = read_text(filename)?;
        // A configuration without a namespace can run, too.
        let config = Config::read(&text, None).or_else(|wrong| Config::read(&text, Some("default")).map_err(|_| wrong));
        let config = config.map_err(|wrong| Error::unusable(filename, &wrong))?;
        let unsupported = || Error::Runtime { given: config.runtime.clone(), supported: supported() };
        let runtime = config.runtime().ok_or_else(unsupported)?;
        let workspace = Workspace::of_file(filename)?;
        let source = match source {
            Some(directory) => Workspace::at(directory)?,
            None => workspace.source(config.source.path())?,
        };
        let defaults = || [runtime.handler_file().to_owned(), runtime.dependency_file().to_owned()];
        let [handler, dependencies] = config.files().unwrap_or_else(defaults);
        // The check reports a problem of the file before an interpreter does.
        source.read_code(&handler).map_err(|error| match (error, &config.source) {
            (Error::Read { path, cause }, Source::Git(_)) if cause.kind() == ErrorKind::NotFound => {
                Error::CodeInGit { path }
            }
            (error, _) => error,
        })?;
        let dependencies = source.read(&dependencies)?;
        let handler = source.root().join(handler);
        let mut directories = vec![workspace.root().to_owned(), source.root().to_owned()];
        directories.extend(handler.parent().map(Path::to_owned));
        let mut given = BTreeMap::new();
        if let Some(file) = env_file {
            given = environment::parse(&read_text(file)?).map_err(|wrong| Error::unusable(file, &wrong))?;
            directories.push(Workspace::of_file(file)?.root().to_owned());
        }
        let (variables, missing) = environment::variables(&config, &given, &Found::new());
        directories.sort();
        directories.dedup();
        Ok(Self { config, runtime, handler, dependencies, given, variables, missing, directories })
    }

    /// Adds values from a cluster.
    pub(super) fn with(mut self, found: &Found) -> Self {
        (self.variables, self.missing) = environment::variables(&self.config, &self.given, found);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_missing_handler_of_a_git_source_is_in_the_clone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.yaml");
        let source =
            "sourceType: git\n    url: https://git.example.com/a.git\n    reference: main\n    baseDir: /quote\n";
        fs::write(&file, format!("name: quote\nnamespace: team\nruntime: nodejs22\nsource:\n    {source}")).unwrap();
        let read = |clone: Option<&Path>| Project::read(&file, clone, None);
        let error = read(None).err().unwrap();
        assert!(matches!(&error, Error::CodeInGit { path } if path.ends_with("handler.js")), "{error}");
        assert!(error.hint().unwrap().contains("--source-dir"));
        let clone = tempfile::tempdir().unwrap();
        fs::write(clone.path().join("handler.js"), "module.exports = { main: () => 1 };").unwrap();
        fs::write(clone.path().join("package.json"), "{}").unwrap();
        assert_eq!(read(Some(clone.path())).ok().map(|project| project.runtime.name), Some("nodejs22"));
        // The files of an inline Function are not in a clone, so they are missing here.
        fs::write(&file, "name: quote\nnamespace: team\nruntime: nodejs22\nsource:\n    sourceType: inline\n").unwrap();
        assert!(matches!(read(None), Err(Error::Read { .. })));
    }
}
