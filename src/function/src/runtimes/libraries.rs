//! The packages of the runtime servers. Package managers fetch them once into a directory, from lock files with hashes.
//!
//! The lock files are part of the servers, so a change of the packages changes the images. A directory is named after
//! the digest of its lock file, so releases can share one parent directory and never use each other's packages.
//!
//! Invariant: builds and pods do not fetch packages. A build without the packages fails with a message that contains
//! the command for fetching them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest as _, Sha256};

use super::{Language, files};

/// The packages' directory in Mainstay's image.
pub(crate) const IMAGE_DIR: &str = "/usr/share/mainstay/libraries";
/// Environment variable with a different directory.
pub const VARIABLE: &str = "MAINSTAY_LIBRARIES";
/// Maximum number of bytes of a package manager's output in an error.
const COMPLAINT: usize = 2000;
/// Arguments that compile the packages, because a pod cannot write bytecode. The bytecode contains its final path, and
/// identifies its source by an unchecked hash.
const COMPILE: [&str; 10] =
    ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-p", "/kubeless_rt/lib", "-s", ".", "."];

/// Why the packages are missing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The packages were not fetched.
    #[error(
        "the packages of the runtime server are not in {place}: run `mainstay runtimes fetch` once (the image of Mainstay \
         contains them)", place = .place.display()
    )]
    NotFetched {
        /// The expected directory of the packages.
        place: PathBuf,
    },
    /// A directory cannot be written.
    #[error("could not write to {path}", path = .path.display())]
    Write {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The package manager is missing.
    #[error("could not run {program}, which fetches the packages of the runtime server")]
    Run {
        /// The program.
        program: &'static str,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The package manager failed.
    #[error("{program} could not fetch the packages of the runtime server: {said}")]
    Failed {
        /// The program.
        program: &'static str,
        /// The end of the package manager's output.
        said: String,
    },
}

/// Returns the directory for packages: the given directory, else that of the image, else one in the user's cache.
pub fn place(named: Option<PathBuf>) -> PathBuf {
    let image = Path::new(IMAGE_DIR);
    named.or_else(|| image.is_dir().then(|| image.to_owned())).unwrap_or_else(|| cache(&|name| std::env::var_os(name)))
}

/// Returns the user's cache directory.
fn cache(env: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let given = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    base.unwrap_or_else(std::env::temp_dir).join("mainstay").join("libraries")
}

/// Returns the directory that contains the packages of a language. Its name is that of [`name`].
pub fn find(language: Language, place: &Path) -> Result<PathBuf, Error> {
    let found = place.join(locked(language)).join(name(language));
    if found.is_dir() { Ok(found) } else { Err(Error::NotFetched { place: place.to_owned() }) }
}

/// Returns the name of the packages' directory below [`SERVER_DIR`](super::SERVER_DIR).
pub fn name(language: Language) -> &'static str {
    match language {
        Language::NodeJs => "node_modules",
        Language::Python => "lib",
    }
}

/// Fetches the packages of a language unless the packages exist, and returns their directory. Uses the network.
pub fn fetch(language: Language, place: &Path) -> Result<PathBuf, Error> {
    if let Ok(found) = find(language, place) {
        return Ok(found);
    }
    let unwritable = |cause| Error::Write { path: place.to_owned(), cause };
    fs::create_dir_all(place).map_err(unwritable)?;
    let room = tempfile::Builder::new().prefix(".fetch-").tempdir_in(place).map_err(unwritable)?;
    for (path, contents) in locks(language) {
        fs::write(room.path().join(path), contents).map_err(unwritable)?;
    }
    match language {
        Language::NodeJs => {
            let quiet = ["--no-audit", "--no-fund", "--no-bin-links", "--loglevel=error"];
            run("npm", &[&["ci", "--omit=dev", "--ignore-scripts"][..], &quiet].concat(), room.path())?;
        }
        Language::Python => {
            let exact =
                ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-compile", "-r", "requirements.txt"];
            let install =
                ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--target", "lib"];
            run("python3", &[&install[..], &exact].concat(), room.path())?;
            run("python3", &COMPILE, &room.path().join("lib"))?;
        }
    }
    let target = place.join(locked(language));
    // Node.js finds the dependencies of packages only below a directory with that name, so the whole directory is
    // moved. Another process may already have moved its own directory there.
    match fs::rename(room.path(), &target) {
        Err(cause) if !target.is_dir() => Err(Error::Write { path: target, cause }),
        _ => find(language, place),
    }
}

/// Fetches the packages of all languages.
pub fn fetch_all(place: &Path) -> Result<Vec<PathBuf>, Error> {
    [Language::NodeJs, Language::Python].into_iter().map(|language| fetch(language, place)).collect()
}

fn run(program: &'static str, arguments: &[&str], directory: &Path) -> Result<(), Error> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    let output = command.output().map_err(|cause| Error::Run { program, cause })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    let begin = said.ceil_char_boundary(said.len().saturating_sub(COMPLAINT));
    Err(Error::Failed { program, said: mainstay_object::printable(&said[begin..]).into_owned() })
}

/// Returns the files that list the packages and their hashes.
fn locks(language: Language) -> impl Iterator<Item = (&'static str, &'static [u8])> {
    let (files, names): (_, &'static [&str]) = match language {
        Language::NodeJs => (files::NODEJS, &["package.json", "package-lock.json"]),
        Language::Python => (files::PYTHON, &["requirements.txt"]),
    };
    files.iter().filter(|file| names.contains(&file.path)).map(|file| (file.path, file.contents))
}

/// Returns the name of the directory for the current lock files.
fn locked(language: Language) -> String {
    let mut hash = Sha256::new();
    for (path, contents) in locks(language) {
        hash.update(path);
        hash.update((contents.len() as u64).to_be_bytes());
        hash.update(contents);
    }
    let language = match language {
        Language::NodeJs => "nodejs",
        Language::Python => "python",
    };
    format!("{language}-{}", &hex::encode(hash.finalize())[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_locked_by_a_hash() {
        let text = |name| locks_of(name);
        let lock: serde_json::Value = serde_json::from_slice(text("package-lock.json")).unwrap();
        let packages = lock["packages"].as_object().unwrap();
        assert!(packages.len() > 50);
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(package["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")), "{name}");
        }
        for line in std::str::from_utf8(text("requirements.txt")).unwrap().lines() {
            assert!(line.contains("==") && line.contains(" --hash=sha256:"), "{line}");
        }
    }

    fn locks_of(name: &str) -> &'static [u8] {
        let mut all = [Language::NodeJs, Language::Python].into_iter().flat_map(locks);
        all.find(|(path, _)| *path == name).unwrap().1
    }

    #[test]
    fn the_place_is_what_is_named_or_the_users_cache() {
        let cache = |pairs: &'static [(&str, &str)]| {
            let found = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            cache(&found).display().to_string()
        };
        assert_eq!(cache(&[("HOME", "/home/me")]), "/home/me/.cache/mainstay/libraries");
        assert_eq!(cache(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "/c")]), "/c/mainstay/libraries");
        assert_eq!(cache(&[("HOME", "/home/me"), ("XDG_CACHE_HOME", "c")]), "/home/me/.cache/mainstay/libraries");
        assert_eq!(place(Some("/named".into())), Path::new("/named"));
    }

    #[test]
    fn a_missing_library_is_reported_with_the_command_that_fetches_it() {
        let room = tempfile::tempdir().unwrap();
        let error = find(Language::NodeJs, room.path()).unwrap_err().to_string();
        assert!(
            error.contains("`mainstay runtimes fetch`") && error.contains(room.path().to_str().unwrap()),
            "{error}"
        );
        let there = room.path().join(locked(Language::NodeJs)).join("node_modules");
        fs::create_dir_all(&there).unwrap();
        assert_eq!(find(Language::NodeJs, room.path()).unwrap(), there);
        assert_eq!(fetch(Language::NodeJs, room.path()).unwrap(), there, "nothing is run for what is there");
    }
}
