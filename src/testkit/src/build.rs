//! Runs the containers of a build Job as local processes in temporary directories.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
};

use mainstay_api::build::{BuildFailure, BuildReport, FetchReport};
use mainstay_function::runtimes::libraries::VARIABLE;
use tempfile::TempDir;

use super::{
    git_server::GitServer,
    libraries,
    remote::{NAME, Remote},
};

/// A Job's volumes in a temporary directory.
pub struct Job {
    room: TempDir,
}

impl Job {
    pub fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        for name in ["workspace", "tmp", "package-registry", "sources", "git-credentials", "registry"] {
            fs::create_dir(room.path().join(name)).unwrap();
        }
        Self { room }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(name), content).unwrap();
        self
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn exists(&self, name: &str) -> bool {
        fs::symlink_metadata(self.path(name)).is_ok()
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = crate::isolated(program);
        command
            .env("HOME", self.path("tmp"))
            .env("MAINSTAY_PACKAGE_REGISTRY", self.path("package-registry"))
            .env("MAINSTAY_TERMINATION_LOG", self.path("message"))
            // These variables contain the CA of a proxy that intercepts TLS.
            .envs(
                ["NODE_EXTRA_CA_CERTS", "PIP_CERT"]
                    .into_iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .current_dir(self.room.path());
        command
    }

    /// Runs a container of the program. Returns its termination message and its output.
    pub async fn run(&self, step: &str, runtime: &str, arguments: &[String]) -> (String, Output) {
        self.run_with(step, runtime, arguments, &[]).await
    }

    /// Runs a container with these environment variables.
    pub async fn run_with(
        &self,
        step: &str,
        runtime: &str,
        arguments: &[String],
        variables: &[(&str, &str)],
    ) -> (String, Output) {
        let mut command = self.command(crate::program::executable().to_str().unwrap());
        command.env(VARIABLE, libraries::place()).envs(variables.iter().copied());
        command.args(["build", step, "--runtime", runtime, "--workspace"]).arg(self.path("workspace")).args(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (fs::read_to_string(self.path("message")).unwrap_or_default(), output)
    }

    /// Runs the container `fetch`, which must succeed.
    pub async fn fetch(&self, runtime: &str, arguments: &[String]) -> FetchReport {
        let (message, output) = self.run("fetch", runtime, arguments).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&message).unwrap()
    }

    /// Runs the container `push`, which must succeed.
    pub async fn push(&self, runtime: &str, arguments: &[String]) -> BuildReport {
        let (message, output) = self.run("push", runtime, arguments).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&message).unwrap()
    }

    /// Runs a container that must fail.
    pub async fn failure(&self, step: &str, runtime: &str, arguments: &[String]) -> BuildFailure {
        let (message, output) = self.run(step, runtime, arguments).await;
        assert_eq!(output.status.code(), Some(2));
        let failure: BuildFailure = serde_json::from_str(&message).unwrap_or_else(|error| panic!("{error}: {message}"));
        assert!(String::from_utf8_lossy(&output.stderr).contains(failure.message.lines().next().unwrap()));
        failure
    }

    pub async fn inline(&self, runtime: &str, source: &str, dependencies: &str, known: Option<&str>) -> FetchReport {
        self.put("sources/source", source).put("sources/dependencies", dependencies);
        self.fetch(runtime, &self.inline_arguments(known)).await
    }

    pub fn inline_arguments(&self, known: Option<&str>) -> Vec<String> {
        let mut arguments = vec!["--inline".to_owned(), self.path("sources").to_str().unwrap().to_owned()];
        arguments.extend(known.into_iter().flat_map(|known| ["--known-dependencies".to_owned(), known.to_owned()]));
        arguments
    }

    /// Runs the container `install`.
    pub async fn install(&self) -> Output {
        let mut command = self.command("sh");
        command.arg(self.path("workspace/install.sh"));
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    pub async fn install_well(&self) -> String {
        let output = self.install().await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        text
    }

    /// Lists all entries below a directory with their kinds, modes and contents.
    pub fn listing(&self, name: &str) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let root = self.path(name);
        let mut open = vec![root.clone()];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                let mode = metadata.permissions().mode() & 0o777;
                let what = if metadata.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else if metadata.is_dir() {
                    open.push(path.clone());
                    format!("{mode:o} directory")
                } else {
                    format!("{mode:o} {}", hex::encode(fs::read(&path).unwrap()))
                };
                found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), what);
            }
        }
        found
    }

    pub fn names(&self, name: &str) -> Vec<String> {
        self.listing(name).into_keys().collect()
    }
}

/// A Git repository with a server for it.
pub struct Origin {
    pub remote: Remote,
    pub server: GitServer,
}

impl Origin {
    pub async fn new(fill: impl FnOnce(&mut Remote)) -> Self {
        let mut remote = Remote::new();
        fill(&mut remote);
        remote.commit("first");
        let server = GitServer::start(remote.root()).await;
        Self { remote, server }
    }

    /// Returns the agent's arguments for the current state of the branch.
    pub fn resolved(&self, base_dir: &str) -> Vec<String> {
        let commit = self.remote.head();
        let object = format!("{commit}:{}", base_dir.trim_matches('/'));
        let output =
            crate::isolated("git").arg("-C").arg(self.remote.path()).args(["rev-parse", &object]).output().unwrap();
        let tree = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let tree = if output.status.success() { tree } else { "1".repeat(40) };
        let url = self.server.url(NAME);
        let arguments =
            ["--url", &url, "--commit", &commit, "--tree", &tree, "--reference", "main", "--base-dir", base_dir];
        arguments.map(str::to_owned).to_vec()
    }

    pub async fn refused(&self, base_dir: &str) -> BuildFailure {
        Job::new().failure("fetch", "nodejs22", &self.resolved(base_dir)).await
    }
}

/// Returns a wheel, as Python's own tools build it.
pub fn wheel(name: &str, requires: &str) -> Vec<u8> {
    let room = tempfile::tempdir().unwrap();
    let script = r#"
import sys, zipfile
name, requires = sys.argv[1:]
info = f"{name}-1.0.dist-info"
files = {
    f"{name}/__init__.py": f"word = '{name}'\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:word\n",
}
with zipfile.ZipFile("x.whl", "w") as archive:
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    for path, text in [*files.items(), (f"{info}/RECORD", record)]:
        archive.writestr(path, text)
"#;
    let made = crate::isolated("python3").args(["-c", script, name, requires]).current_dir(room.path()).status();
    assert!(made.expect("`python3` is installed (apt-get install python3 python3-pip)").success());
    fs::read(room.path().join("x.whl")).unwrap()
}
