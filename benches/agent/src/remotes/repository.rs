//! Bare repositories, each with a ConfigMap that contains its revision, and other content.

use std::{
    fmt::Write as _,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Error;

/// Files per directory of the repository with many files.
const PER_DIRECTORY: usize = 100;
/// Size of a file of the large repository in bytes.
const LARGE_FILE: usize = 1 << 20;

/// A bare repository. Its ConfigMap has the same name.
pub(super) struct Repository {
    directory: PathBuf,
    name: String,
}

impl Repository {
    /// Creates an empty repository with this name in a directory.
    pub(super) fn new(root: &Path, name: &str) -> Result<Self, Error> {
        let directory = root.join(format!("{name}.git"));
        let mut options = git2::RepositoryInitOptions::new();
        options.bare(true).initial_head("main").external_template(false);
        git2::Repository::init_opts(&directory, &options).map_err(Error::Commit)?;
        Ok(Self { directory, name: name.to_owned() })
    }

    /// Commits a revision of the ConfigMap only.
    pub(super) fn commit(&self, revision: u32) -> Result<(), Error> {
        self.import(revision, |_| Ok(()))
    }

    /// Commits a revision of the ConfigMap and this many small files without manifests.
    pub(super) fn commit_with_files(&self, revision: u32, files: usize) -> Result<(), Error> {
        self.import(revision, |stream| {
            for number in 0..files {
                let path = format!("src/d{:04}/f{number:06}.txt", number / PER_DIRECTORY);
                file(stream, &path, format!("line {number}\n").repeat(8).as_bytes())?;
            }
            Ok(())
        })
    }

    /// Commits a revision of the ConfigMap and this many incompressible files of 1 MiB.
    pub(super) fn commit_with_noise(&self, revision: u32, files: usize) -> Result<(), Error> {
        let mut noise = vec![0; LARGE_FILE];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        self.import(revision, |stream| {
            for number in 0..files {
                for word in noise.chunks_exact_mut(8) {
                    // xorshift64: incompressible.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    word.copy_from_slice(&state.to_le_bytes());
                }
                file(stream, &format!("assets/{number:04}.bin"), &noise)?;
            }
            Ok(())
        })
    }

    /// Adds this many branches at the commit of `main`.
    pub(super) fn add_branches(&self, branches: usize) -> Result<(), Error> {
        let repository = git2::Repository::open(&self.directory).map_err(Error::Commit)?;
        let head = repository.refname_to_id("refs/heads/main").map_err(Error::Commit)?;
        let mut text = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        for number in 0..branches {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{head} refs/heads/feature/number-{number:06}");
        }
        fs::write(self.directory.join("packed-refs"), text).map_err(Error::Load)
    }

    fn import(&self, revision: u32, more: impl FnOnce(&mut dyn io::Write) -> io::Result<()>) -> Result<(), Error> {
        let mut command = Command::new("git");
        command.args(["fast-import", "--quiet", "--force"]).current_dir(&self.directory).stdin(Stdio::piped());
        let mut child = command.spawn().map_err(Error::Start)?;
        let stream = child.stdin.take().ok_or_else(|| Error::Start(io::ErrorKind::BrokenPipe.into()))?;
        let mut stream = io::BufWriter::new(stream);
        let wrote = self.write(&mut stream, revision, more).and_then(|()| stream.flush());
        drop(stream);
        let ended = child.wait().map_err(Error::Load)?;
        wrote.map_err(Error::Load)?;
        if ended.success() { Ok(()) } else { Err(Error::Load(io::Error::other("git fast-import failed"))) }
    }

    fn write(
        &self,
        stream: &mut dyn io::Write,
        revision: u32,
        more: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let message = format!("revision {revision}");
        let length = message.len();
        writeln!(stream, "commit refs/heads/main\ncommitter Mainstay <mainstay@localhost> {revision} +0000")?;
        writeln!(stream, "data {length}\n{message}")?;
        if revision > 0 {
            writeln!(stream, "from refs/heads/main^0")?;
        }
        let name = &self.name;
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  revision: \"{revision}\"\n");
        file(stream, "deploy.yaml", text.as_bytes())?;
        more(stream)
    }
}

fn file(stream: &mut dyn io::Write, path: &str, content: &[u8]) -> io::Result<()> {
    writeln!(stream, "M 100644 inline {path}\ndata {}", content.len())?;
    stream.write_all(content)?;
    writeln!(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_commit_keeps_the_files_and_changes_one() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::new(folder.path(), "mono").unwrap();
        repository.commit_with_files(0, 250).unwrap();
        repository.commit(1).unwrap();
        repository.add_branches(3).unwrap();
        let opened = git2::Repository::open_bare(folder.path().join("mono.git")).unwrap();
        assert_eq!(opened.references().unwrap().count(), 4);
        let head = opened.head().unwrap().peel_to_commit().unwrap();
        let (new, old) = (head.tree().unwrap(), head.parent(0).unwrap().tree().unwrap());
        assert!(new.get_path(Path::new("src/d0002/f000249.txt")).is_ok());
        assert_eq!(opened.diff_tree_to_tree(Some(&old), Some(&new), None).unwrap().deltas().len(), 1);
    }
}
