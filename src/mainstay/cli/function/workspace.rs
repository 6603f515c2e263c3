//! The directory of a Function: reads and writes its files.
//!
//! Invariant: no file outside of the directory is read or written, whatever `config.yaml` contains: `..`, absolute
//! paths and symbolic links have no such effect. Invariant: a file is written completely or not at all.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Component, Path, PathBuf},
};

use super::error::Error;

/// Name of the configuration file in its directory.
pub(super) const CONFIG: &str = "config.yaml";
/// The message for a handler without code.
pub(super) const EMPTY: &str = "it is empty; the code of the Function is missing";
/// Maximum size of a file, in bytes. A Function may have 1 MiB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The existing directory of a Function.
pub(super) struct Workspace {
    /// The path of the directory, without symbolic links.
    root: PathBuf,
}

impl Workspace {
    /// Returns the workspace of this configuration file.
    pub(super) fn of_file(file: &Path) -> Result<Self, Error> {
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self::at(directory)
    }

    /// Returns the workspace in this directory.
    pub(super) fn at(directory: &Path) -> Result<Self, Error> {
        let root = fs::canonicalize(directory).map_err(|cause| Error::Read { path: directory.to_owned(), cause })?;
        Ok(Self { root })
    }

    /// Returns the workspace in this directory. Creates the directory if necessary, with access only for its owner.
    pub(super) fn create(directory: &Path) -> Result<Self, Error> {
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        created.map_err(|cause| Error::Write { path: directory.to_owned(), cause })?;
        Self::at(directory)
    }

    /// Returns the path of the directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory that `sourcePath` names: relative to this directory or, as in files of older tools, to the
    /// working directory.
    pub(super) fn source(&self, path: Option<&str>) -> Result<Self, Error> {
        let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(Self { root: self.root.clone() }) };
        let found =
            [self.root.join(path), PathBuf::from(path)].into_iter().find_map(|path| fs::canonicalize(path).ok());
        let refused = |why| Error::NotRead { path: path.into(), why };
        let found =
            found.ok_or(refused("sourcePath is not a directory; without it, the directory of config.yaml is used"))?;
        if !found.starts_with(&self.root) {
            return Err(refused("sourcePath is outside of the directory of config.yaml; put the files beside it"));
        }
        if found.is_dir() { Ok(Self { root: found }) } else { Err(refused("sourcePath is not a directory")) }
    }

    /// Reads the text of a file.
    pub(super) fn read(&self, name: &str) -> Result<String, Error> {
        let path = self.inside(name).map_err(|why| Error::NotRead { path: name.into(), why })?;
        let real = fs::canonicalize(&path).map_err(|cause| Error::Read { path: path.clone(), cause })?;
        if !real.starts_with(&self.root) {
            return Err(Error::NotRead { path, why: "it is a symbolic link that points outside the directory" });
        }
        read_text(&real)
    }

    /// Reads the code of a Function, which must not be empty.
    pub(super) fn read_code(&self, name: &str) -> Result<String, Error> {
        let text = self.read(name)?;
        if text.trim().is_empty() {
            return Err(Error::NotRead { path: self.root.join(name), why: EMPTY });
        }
        Ok(text)
    }

    /// Reads the bytes of an existing file, which must be a regular file.
    fn present(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let refused = |why| Error::NotWritten { path: self.root.join(name), why };
        let path = self.inside(name).map_err(refused)?;
        let parent = path.parent().unwrap_or(&self.root);
        match fs::canonicalize(parent) {
            Ok(real) if real.starts_with(&self.root) => {}
            Ok(_) => return Err(refused("a symbolic link points outside the directory")),
            Err(cause) => return Err(Error::Write { path: parent.to_owned(), cause }),
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() => fs::read(&path).map(Some).map_err(|cause| Error::Read { path, cause }),
            Ok(found) if found.is_symlink() => Err(refused("it is a symbolic link, which is not followed")),
            Ok(_) => Err(refused("it is not a file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(Error::Read { path, cause }),
        }
    }

    /// Writes changed files. Replacing existing files requires `may_replace`.
    pub(super) fn write(&self, files: &[(String, String)], may_replace: bool) -> Result<(), Error> {
        let mut changed = Vec::new();
        let mut lost = Vec::new();
        for (name, text) in files {
            match self.present(name)? {
                Some(present) if present == text.as_bytes() => {}
                present => {
                    lost.extend(present.map(|_| name.clone()));
                    changed.push((self.root.join(name), text));
                }
            }
        }
        if !lost.is_empty() && !may_replace {
            return Err(Error::WouldBeLost { directory: self.root.clone(), files: lost });
        }
        for (path, text) in changed {
            replace(&path, text.as_bytes()).map_err(|cause| Error::Write { path, cause })?;
        }
        Ok(())
    }

    /// Returns the path of the file with this name, in the directory or below it.
    fn inside(&self, name: &str) -> Result<PathBuf, &'static str> {
        let mut parts = Path::new(name).components();
        if name.is_empty() || name.contains('\0') {
            return Err("it is not the name of a file");
        }
        if !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err("it is outside of the directory of config.yaml");
        }
        Ok(self.root.join(name))
    }
}

/// Reads the text of a file that the user has named.
pub(super) fn read_text(path: &Path) -> Result<String, Error> {
    let failed = |cause| Error::Read { path: path.to_owned(), cause };
    let refused = |why| Error::NotRead { path: path.to_owned(), why };
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(refused("it is not a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(refused("it is larger than 4 MiB"));
    }
    String::from_utf8(bytes).map_err(|_| refused("it is not UTF-8"))
}

/// Replaces a file as a whole. If the path is a link, the link is replaced, not followed.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", fastrand::u32(..)));
    let written = fs::OpenOptions::new().write(true).create_new(true).open(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        fs::rename(&beside, path)
    });
    if written.is_err() {
        // The file may not exist.
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Creates a workspace beside a file with a secret.
    fn room() -> (tempfile::TempDir, Workspace) {
        let room = tempfile::tempdir().unwrap();
        fs::write(room.path().join("secret"), "hunter2").unwrap();
        let workspace = Workspace::create(&room.path().join("a/b")).unwrap();
        (room, workspace)
    }

    fn texts(files: &[(&str, &str)]) -> Vec<(String, String)> {
        files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn no_file_outside_is_read() {
        let (room, workspace) = room();
        symlink(room.path().join("secret"), workspace.root().join("link")).unwrap();
        symlink(room.path(), workspace.root().join("up")).unwrap();
        let secret = room.path().join("secret");
        for name in
            ["../../secret", secret.to_str().unwrap(), "link", "up/secret", "", ".", "a\0b", "x/../../../secret"]
        {
            assert!(workspace.read(name).is_err(), "{name}");
        }
        for path in ["..", "up", room.path().to_str().unwrap()] {
            assert!(workspace.source(Some(path)).is_err(), "{path}");
        }
        fs::create_dir(workspace.root().join("src")).unwrap();
        fs::write(workspace.root().join("src/main.js"), "1").unwrap();
        symlink("src/main.js", workspace.root().join("inside")).unwrap();
        assert_eq!(workspace.read("src/main.js").unwrap(), "1");
        assert_eq!(workspace.read("inside").unwrap(), "1");
        assert_eq!(workspace.source(Some("src")).unwrap().read("main.js").unwrap(), "1");
        assert_eq!(workspace.source(workspace.root().to_str()).unwrap().root(), workspace.root());
    }

    #[test]
    fn no_file_outside_is_written_and_no_link_is_followed() {
        let (room, workspace) = room();
        symlink(room.path().join("secret"), workspace.root().join("link")).unwrap();
        symlink(room.path(), workspace.root().join("up")).unwrap();
        for name in ["../../secret", "link", "up/secret", "up/new", "missing/new"] {
            assert!(workspace.write(&texts(&[("new", "x"), (name, "x")]), true).is_err(), "{name}");
        }
        assert!(!workspace.root().join("new").exists(), "nothing is written when something cannot be");
        assert_eq!(fs::read_to_string(room.path().join("secret")).unwrap(), "hunter2");
    }

    #[test]
    fn existing_files_are_replaced_only_if_permitted() {
        let (_room, workspace) = room();
        workspace.write(&texts(&[("a", "1"), ("b", "2")]), false).unwrap();
        workspace.write(&texts(&[("a", "1"), ("c", "3")]), false).unwrap();
        let refused = workspace.write(&texts(&[("a", "9"), ("d", "4")]), false).unwrap_err();
        assert!(matches!(refused, Error::WouldBeLost { files, .. } if files == ["a"]));
        assert!(!workspace.root().join("d").exists());
        workspace.write(&texts(&[("a", "9")]), true).unwrap();
        assert_eq!(workspace.read("a").unwrap(), "9");
        let names = fs::read_dir(workspace.root()).unwrap().count();
        assert_eq!(names, 3, "nothing is left over");
    }

    #[test]
    fn a_file_that_is_no_text_is_refused() {
        let (_room, workspace) = room();
        fs::write(workspace.root().join("binary"), [0xff, 0xfe]).unwrap();
        assert!(matches!(workspace.read("binary"), Err(Error::NotRead { why: "it is not UTF-8", .. })));
        assert!(matches!(workspace.read("."), Err(Error::NotRead { .. })));
    }

    #[test]
    fn empty_code_is_refused_by_the_name_of_its_file() {
        let (_room, workspace) = room();
        fs::write(workspace.root().join("handler.js"), " \n").unwrap();
        let path = workspace.root().join("handler.js");
        let refused = workspace.read_code("handler.js").unwrap_err().to_string();
        assert_eq!(refused, format!("{} is not read: {EMPTY}", path.display()));
        fs::write(path, "1").unwrap();
        assert_eq!(workspace.read_code("handler.js").unwrap(), "1");
    }
}
