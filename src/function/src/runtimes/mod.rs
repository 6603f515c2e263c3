//! The table of language runtimes, and the servers that run user code.
//!
//! A row names a language and a version. The files of its server are embedded in this program. A build puts these files
//! below [`SERVER_DIR`] in the image, and the user's code and dependencies below [`CODE_DIR`].
//!
//! Invariant: the server's packages exist before a build begins ([`libraries`]), so no build downloads a framework.
//! Invariant: any change of the server's files or package locks changes [`Runtime::server_digest`], and so the images.
//!
//! The headers of `nodejs/server.js` and `python/server.py` document the interface for functions. Integration tests
//! check it.

mod files;
#[expect(clippy::disallowed_methods, reason = "it runs the package managers and looks at what they have fetched")]
pub mod libraries;

use sha2::{Digest, Sha256};

/// Directory of the runtime server in the image.
pub const SERVER_DIR: &str = "/kubeless_rt";
/// Directory of the user's code and dependencies in the image.
pub(crate) const CODE_DIR: &str = "/kubeless";
/// Environment variable with the path of a Unix socket. If set, the server listens there instead of on its port.
pub const SOCKET_ENV: &str = "FUNC_SOCKET";
/// Environment variable of the image with the path of [`CODE_DIR`].
pub const CODE_DIR_ENV: &str = "KUBELESS_INSTALL_VOLUME";
/// The default runtime, unless the settings specify a different one.
pub const DEFAULT: &str = "nodejs22";

/// The language of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// JavaScript on Node.js.
    NodeJs,
    /// Python, CPython.
    Python,
}

impl Language {
    /// Returns the display name of the language.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NodeJs => "Node.js",
            Self::Python => "Python",
        }
    }
}

/// One file of a runtime server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerFile {
    /// Path below [`SERVER_DIR`], with `/` between its parts.
    pub path: &'static str,
    /// The file's content.
    pub contents: &'static [u8],
}

/// One row of the table: a language version, with the name that manifests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The name in `spec.runtime`, for example `nodejs22` or `python312`.
    pub name: &'static str,
    /// The language.
    pub language: Language,
    /// The requested version, for example `22` or `3.12`.
    pub version: &'static str,
    /// The name of the maintained row that replaces this row, or this row's own name if its version is maintained.
    pub runs_as: &'static str,
}

const fn row(name: &'static str, language: Language, version: &'static str, runs_as: &'static str) -> Runtime {
    Runtime { name, language, version, runs_as }
}

/// Maintained upstream: Node.js 22 (until April 2027; 20 ended in April 2026), 24 and 26; Python 3.11 (until October
/// 2027), 3.12, 3.13 and 3.14 (3.10 ended in October 2026). Every other row runs as the oldest maintained row of its
/// language, which is the closest to the requested version.
const TABLE: &[Runtime] = &[
    row("nodejs10", Language::NodeJs, "10", "nodejs22"),
    row("nodejs12", Language::NodeJs, "12", "nodejs22"),
    row("nodejs14", Language::NodeJs, "14", "nodejs22"),
    row("nodejs16", Language::NodeJs, "16", "nodejs22"),
    row("nodejs18", Language::NodeJs, "18", "nodejs22"),
    row("nodejs20", Language::NodeJs, "20", "nodejs22"),
    row("nodejs22", Language::NodeJs, "22", "nodejs22"),
    row("nodejs24", Language::NodeJs, "24", "nodejs24"),
    row("nodejs26", Language::NodeJs, "26", "nodejs26"),
    row("python38", Language::Python, "3.8", "python311"),
    row("python39", Language::Python, "3.9", "python311"),
    row("python310", Language::Python, "3.10", "python311"),
    row("python311", Language::Python, "3.11", "python311"),
    row("python312", Language::Python, "3.12", "python312"),
    row("python313", Language::Python, "3.13", "python313"),
    row("python314", Language::Python, "3.14", "python314"),
];

/// Lines of `RUNTIME IMAGE`.
const BASE_IMAGES: &str = include_str!("base-images.txt");

/// Returns the row with this name.
pub fn find(name: &str) -> Option<&'static Runtime> {
    TABLE.iter().find(|runtime| runtime.name == name)
}

/// Returns all rows, the oldest first within each language.
pub fn all() -> &'static [Runtime] {
    TABLE
}

impl Runtime {
    /// Whether the version is no longer maintained upstream, so that this row runs as a different row.
    pub(crate) fn is_deprecated(&self) -> bool {
        self.name != self.runs_as
    }

    /// Returns the rows that can serve this row's Functions, best first: the row that it [runs as](Self::runs_as), and
    /// for a deprecated row also the newer rows of its language. An installation may lack an image of the oldest row.
    pub(crate) fn served_by(&self) -> impl Iterator<Item = &'static Self> + use<> {
        let (language, deprecated, first) = (self.language, self.is_deprecated(), self.runs_as);
        let maintained = TABLE.iter().filter(move |row| row.language == language && !row.is_deprecated());
        maintained.skip_while(move |row| row.name != first).take(if deprecated { usize::MAX } else { 1 })
    }

    /// Returns the default base image with its digest: that of the maintained row that this row [runs
    /// as](Self::runs_as), from Docker's official images.
    pub(crate) fn base_image(&self) -> &'static str {
        let lines = BASE_IMAGES.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(runtime, _)| *runtime == self.runs_as).map(|(_, image)| image).next().unwrap_or_default()
    }

    /// Returns the name of the file with the handler, below [`CODE_DIR`].
    pub fn handler_file(&self) -> &'static str {
        match self.language {
            Language::NodeJs => "handler.js",
            Language::Python => "handler.py",
        }
    }

    /// Returns the name of the file with the dependencies, below [`CODE_DIR`].
    pub fn dependency_file(&self) -> &'static str {
        match self.language {
            Language::NodeJs => "package.json",
            Language::Python => "requirements.txt",
        }
    }

    /// Returns the directory of the installed dependencies, below [`CODE_DIR`].
    pub(crate) fn dependency_dir(&self) -> &'static str {
        match self.language {
            Language::NodeJs => "node_modules",
            Language::Python => "lib/python",
        }
    }

    /// Returns the server's files, sorted by path.
    pub fn server_files(&self) -> &'static [ServerFile] {
        match self.language {
            Language::NodeJs => files::NODEJS,
            Language::Python => files::PYTHON,
        }
    }

    /// Returns the SHA-256 over the server's paths and contents, each preceded by its length, in hexadecimal digits.
    pub(crate) fn server_digest(&self) -> String {
        let mut hash = Sha256::new();
        for file in self.server_files() {
            for part in [file.path.as_bytes(), file.contents] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        hex::encode(hash.finalize())
    }

    /// Returns the command that starts the server in the image. The last word of the command is the server.
    ///
    /// Node.js stores request bodies outside of the V8 heap. V8's default settings let many megabytes of them
    /// accumulate between two collections.
    pub fn entrypoint(&self) -> &'static [&'static str] {
        match self.language {
            Language::NodeJs => &["node", "--max-semi-space-size=2", "/kubeless_rt/server.js"],
            Language::Python => &["python3", "/kubeless_rt/server.py"],
        }
    }

    /// Returns the minimum memory for the server and one or two packages, as a Kubernetes quantity. With less memory,
    /// the kernel kills the server.
    ///
    /// Measured with a hello-world function and 50 clients that send 64 KiB each: CPython 3.11 to 3.13 use 28 MiB (20
    /// idle; 36 with the package `requests`), Node.js 22 uses 81 MiB (64 idle). The 81 MiB include 33 MiB that are not
    /// reclaimable. In a cgroup, the kernel kills Python at 16 MiB (at 24 with `requests`) and Node.js at 24; at 32
    /// MiB, Node.js survives under constant reclaim. Each minimum is twice the last insufficient value.
    pub fn least_memory(&self) -> &'static str {
        match self.language {
            Language::NodeJs => "64Mi",
            Language::Python => "48Mi",
        }
    }

    /// Returns the environment variables of the pod that depend on the runtime, in the pod's order.
    ///
    /// The paths are literal, because the kubelet does not expand variables of the image, such as
    /// `$(KUBELESS_INSTALL_VOLUME)/…`. The servers also find both directories without these variables.
    pub fn pod_env(&self) -> Vec<(&'static str, String)> {
        let runtime = ("FUNC_RUNTIME", self.name.to_owned());
        let dependencies = format!("{CODE_DIR}/{}", self.dependency_dir());
        match self.language {
            Language::NodeJs => vec![("NODE_PATH", dependencies), runtime],
            Language::Python => vec![
                ("PYTHONPATH", format!("{dependencies}:{CODE_DIR}")),
                runtime,
                ("PYTHONUNBUFFERED", "TRUE".to_owned()),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_name_runs_on_a_maintained_row_of_its_language() {
        for runtime in all() {
            let on = find(runtime.runs_as).unwrap();
            assert!(!on.is_deprecated(), "{}", runtime.name);
            assert_eq!(on.language, runtime.language, "{}", runtime.name);
            let prefix = if runtime.language == Language::NodeJs { "nodejs" } else { "python" };
            assert_eq!(runtime.name, format!("{prefix}{}", runtime.version.replace('.', "")));
        }
        assert!(!find(DEFAULT).unwrap().is_deprecated());
        assert!(find("nodejs12").unwrap().is_deprecated());
        assert_eq!(find("nodejs11"), None);
    }

    #[test]
    fn an_ended_name_is_served_by_every_maintained_row_and_another_by_itself() {
        let served = |name| find(name).unwrap().served_by().map(|row| row.name).collect::<Vec<_>>();
        assert_eq!(served("nodejs12"), ["nodejs22", "nodejs24", "nodejs26"]);
        assert_eq!(served("nodejs22"), ["nodejs22"]);
        assert_eq!(served("python38"), ["python311", "python312", "python313", "python314"]);
        assert_eq!(served("python312"), ["python312"]);
    }

    #[test]
    fn every_maintained_row_has_one_base_image_of_its_version_by_digest() {
        let lines = BASE_IMAGES.lines().filter(|line| !line.starts_with('#'));
        let maintained = all().iter().filter(|row| !row.is_deprecated());
        assert!(lines.map(|line| line.split(' ').next().unwrap()).eq(maintained.map(|row| row.name)));
        for runtime in all() {
            let version = find(runtime.runs_as).unwrap().version;
            let name = if runtime.language == Language::NodeJs { "node" } else { "python" };
            let image = runtime.base_image();
            let digest = image.strip_prefix(&format!("docker.io/library/{name}:{version}-slim@sha256:")).unwrap();
            assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()), "{image}");
        }
    }

    #[test]
    fn every_file_of_a_server_is_embedded() {
        for (folder, files) in [("nodejs", files::NODEJS), ("python", files::PYTHON)] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runtimes").join(folder);
            let mut on_disk = BTreeSet::new();
            collect(&root, &root, &mut on_disk);
            let embedded: Vec<_> = files.iter().map(|file| file.path.to_owned()).collect();
            assert_eq!(embedded, on_disk.into_iter().collect::<Vec<_>>(), "embedded and sorted");
        }
    }

    fn collect(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name == "__pycache__") {
                continue; // Python's bytecode cache from test runs
            }
            if path.is_dir() {
                collect(root, &path, found);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }

    #[test]
    fn the_digest_covers_paths_and_contents() {
        let node = find("nodejs22").unwrap();
        assert_eq!(node.server_digest(), find("nodejs10").unwrap().server_digest(), "one server per language");
        assert_ne!(node.server_digest(), find("python313").unwrap().server_digest());
        assert_eq!(node.server_digest().len(), 64);
    }

    #[test]
    fn the_entrypoint_starts_an_embedded_file() {
        for runtime in all() {
            let file = runtime.entrypoint().last().unwrap().strip_prefix("/kubeless_rt/").unwrap();
            assert!(runtime.server_files().iter().any(|server| server.path == file), "{}", runtime.name);
        }
    }

    #[test]
    fn the_pod_gets_the_path_of_dependencies_and_the_requested_runtime() {
        let env = |name| -> Vec<_> {
            find(name).unwrap().pod_env().iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        assert_eq!(env("nodejs12"), ["NODE_PATH=/kubeless/node_modules", "FUNC_RUNTIME=nodejs12"]);
        assert_eq!(
            env("python39"),
            ["PYTHONPATH=/kubeless/lib/python:/kubeless", "FUNC_RUNTIME=python39", "PYTHONUNBUFFERED=TRUE"]
        );
    }
}
