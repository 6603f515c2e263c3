//! The program under test, beside a world.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::LazyLock,
};

use serde_json::Value;

use super::world::{NAMESPACE, World};

/// Returns the path of the program under test. Cargo sets the path for tests. Otherwise, the program is beside the
/// directory of the tests.
///
/// # Panics
///
/// Panics without a program: build it with `cargo build`.
pub fn executable() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let named = std::env::var_os("CARGO_BIN_EXE_mainstay").map(PathBuf::from);
        let path = named.unwrap_or_else(|| {
            let tests = std::env::current_exe().unwrap();
            tests.parent().and_then(Path::parent).unwrap().join("mainstay")
        });
        assert!(path.exists(), "{} is missing: run `cargo build`", path.display());
        path
    });
    &PATH
}

/// Access of the program to the cluster of a world, as the administrator. The server stops when this value is dropped.
pub struct Program {
    home: tempfile::TempDir,
    _serving: Option<devcluster::Serving>,
}

impl Program {
    pub async fn of(world: &World) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = home.path().join("config");
        if let Some(path) = std::env::var_os("MAINSTAY_TEST_KUBECONFIG") {
            fs::copy(path, config).unwrap();
            return Self { home, _serving: None };
        }
        let server = world.server.embedded();
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        fs::write(config, server.kubeconfig(serving.address(), None)).unwrap();
        Self { home, _serving: Some(serving) }
    }

    /// Marks the cluster as that of a `mainstay dev` which follows this repository.
    pub fn set_dev_run(&self, repository: &Path) {
        let config = self.home.path().join("config");
        let mut whole: Value = serde_yaml::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
        let run = serde_json::json!([{"name": "mainstay-dev", "extension": {"repository": repository}}]);
        for context in whole["contexts"].as_array_mut().unwrap() {
            context["context"]["extensions"] = run.clone();
        }
        fs::write(config, serde_yaml::to_string(&whole).unwrap()).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = crate::isolated(crate::program::executable());
        command.args(arguments).arg("--kubeconfig").arg(self.home.path().join("config")).env_clear();
        command
    }

    /// Returns exit code, standard output and standard error of a command.
    pub async fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        Self::output(self.command(arguments)).await
    }

    /// Runs a command that finds the programs of this machine, such as kubectl.
    pub async fn run_with_tools(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = self.command(arguments);
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        Self::output(command).await
    }

    async fn output(mut command: Command) -> (i32, String, String) {
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Returns the output of a command that runs on its own terminal with this number of columns.
    pub async fn run_on_terminal(&self, columns: usize, arguments: &[&str]) -> String {
        let plain = self.command(arguments);
        let quote = |part: &std::ffi::OsStr| format!("'{}'", part.to_str().unwrap());
        let line =
            std::iter::once(plain.get_program()).chain(plain.get_args()).map(quote).collect::<Vec<_>>().join(" ");
        let line = format!("stty cols {columns} && {line}");
        let mut command = crate::isolated("script");
        command.args(["-qec", &line, "/dev/null"]).env("SHELL", "/bin/sh").stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the JSON output of a command, which must succeed.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let (code, out, error) = self.run(&[arguments, &["-o", "json"]].concat()).await;
        assert_eq!(code, 0, "{out}{error}");
        serde_json::from_str(&out).unwrap()
    }

    /// Starts a command that runs until it is interrupted.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines: Some(lines) }
    }
}

/// A running command.
pub struct Running {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// Returns the next line that contains this string.
    pub async fn line(&mut self, text: &str) -> String {
        let (mut lines, text) = (self.lines.take().unwrap(), text.to_owned());
        let (lines, line) = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap() > 0 && !line.contains(&text) {
                line.clear();
            }
            (lines, line)
        })
        .await
        .unwrap();
        assert!(!line.is_empty(), "it has ended");
        self.lines = Some(lines);
        line
    }

    /// Sends Ctrl-C and returns the exit code.
    pub async fn interrupt(mut self) -> i32 {
        crate::isolated("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        let ended = tokio::task::spawn_blocking(move || self.child.wait().unwrap());
        ended.await.unwrap().code().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns exit code and output of a `mainstay` command, in the tests' namespace and as the administrator.
pub async fn mainstay(world: &World, arguments: &[&str]) -> (i32, String) {
    let (code, out, error) = Program::of(world).await.run(&[arguments, &["-n", NAMESPACE]].concat()).await;
    (code, out + &error)
}
