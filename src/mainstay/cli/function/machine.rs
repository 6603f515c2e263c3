//! Runs a Function on this machine: the pods' server, the dependencies, and the process.
//!
//! Invariant: the user's files run in place, so that a debugger finds them. No file is written beside them.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::{error::Error, process::Group, project::Project};
use crate::cli::output;
use mainstay_function::runtimes::{self, Language, Runtime, libraries};
use mainstay_object::printable;

/// Addresses of the debuggers of Node.js and Python.
const INSPECTOR: &str = "127.0.0.1:9229";
const DEBUGPY: &str = "127.0.0.1:5678";
/// Environment variables of this machine that are passed on to the Function, so that it finds programs.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// A directory for the files of a running Function.
pub(super) struct Machine<'a> {
    room: &'a Path,
    port: u16,
    debug: bool,
    /// Content of the dependency file whose dependencies are installed.
    installed: Option<String>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(room: &'a Path, port: u16, debug: bool) -> Self {
        Self { room, port, debug, installed: None }
    }

    /// Returns the socket of the Function's server. Other users cannot access the socket's directory.
    pub(super) fn socket(&self) -> PathBuf {
        self.room.join("socket")
    }

    /// Installs the server of a runtime in the directory.
    pub(super) async fn server(&self, runtime: &'static Runtime) -> Result<(), crate::cli::Error> {
        let place = libraries::place(std::env::var_os(libraries::VARIABLE).map(PathBuf::from));
        let fetched = tokio::task::spawn_blocking(move || libraries::fetch(runtime.language, &place)).await;
        let packages = match fetched {
            Ok(fetched) => fetched.map_err(crate::cli::Error::Libraries)?,
            Err(_) => return Ok(()),
        };
        let server = self.room.join("server");
        for file in runtime.server_files() {
            let path = server.join(file.path);
            let parent = path.parent().unwrap_or(&server);
            let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, file.contents));
            written.map_err(|cause| Error::Write { path, cause })?;
        }
        let link = server.join(libraries::name(runtime.language));
        symlink(packages, &link).map_err(|cause| Error::Write { path: link, cause })?;
        Ok(())
    }

    /// Starts the Function; `None` if it cannot start until a file is saved, or if the command ends.
    pub(super) async fn start(
        &mut self,
        project: &Project,
        stop: &CancellationToken,
    ) -> Result<Option<Group>, crate::cli::Error> {
        if !project.missing.is_empty() {
            let all = project.missing.join(", ");
            output::note(&format!(
                "! variables without a value, which --env-file, --kubeconfig or --context can set: {}\n",
                printable(&all)
            ));
        }
        if !self.install(project, stop).await? {
            return Ok(None);
        }
        let name = printable(&project.config.name);
        output::print(&format!("- Running Function {name} as {} on this machine\n", project.runtime.name))?;
        let mut command = self.command(project);
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Ok(Some(Group::start(&mut command).map_err(|cause| Error::Run { program, cause })?))
    }

    fn command(&self, project: &Project) -> Command {
        let (script, words) = project.runtime.entrypoint().split_last().expect("an entrypoint ends with its script");
        let (program, flags) = words.split_first().expect("an entrypoint begins with its program");
        let script = script.strip_prefix(runtimes::SERVER_DIR).unwrap_or(script).trim_start_matches('/');
        let packages = self.room.join("packages");
        let folder = project.handler.parent().unwrap_or(self.room);
        let mut command = clean(program);
        command.args(flags);
        match (self.debug, project.runtime.language) {
            (false, _) => {}
            (true, Language::NodeJs) => _ = command.arg(format!("--inspect={INSPECTOR}")),
            (true, Language::Python) => {
                _ = command.args(["-X", "frozen_modules=off", "-m", "debugpy", "--listen", DEBUGPY]);
            }
        }
        command.arg(self.room.join("server").join(script)).current_dir(folder);
        command.envs(project.runtime.pod_env().into_iter().filter(|(name, _)| !name.ends_with("PATH")));
        match project.runtime.language {
            Language::NodeJs => command.env("NODE_PATH", packages.join("node_modules")),
            Language::Python => {
                let both = [packages.as_path(), folder].map(|path| path.to_string_lossy().into_owned());
                command.env("PYTHONPATH", both.join(":")).env("PYTHONDONTWRITEBYTECODE", "1")
            }
        };
        let stem = project.handler.file_stem().unwrap_or_default();
        command
            .env(runtimes::CODE_DIR_ENV, folder)
            .env("MOD_NAME", stem)
            .env("FUNC_HANDLER", "main")
            .env("FUNC_HOST", "127.0.0.1")
            .env("FUNC_PORT", self.port.to_string())
            .env(runtimes::SOCKET_ENV, self.socket())
            .env("FUNC_DRAIN_DELAY", "0")
            .env("SERVICE_NAMESPACE", &project.config.namespace)
            .envs(project.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Installs the dependencies unless they are already installed. Returns whether the Function can start.
    async fn install(&mut self, project: &Project, stop: &CancellationToken) -> Result<bool, Error> {
        let wanted = &project.dependencies;
        if self.installed.as_ref() == Some(wanted) {
            return Ok(true);
        }
        let packages = self.room.join("packages");
        let language = project.runtime.language;
        let file = packages.join(project.runtime.dependency_file());
        let prepared = match fs::remove_dir_all(&packages) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => fs::create_dir_all(&packages).and_then(|()| fs::write(&file, wanted)),
        };
        prepared.map_err(|cause| Error::Write { path: file.clone(), cause })?;
        let mut command = self.installer(project);
        let is_debugger = self.debug && language == Language::Python;
        if !is_debugger && asks_for_nothing(language, wanted) {
            self.installed = Some(wanted.clone());
            return Ok(true);
        }
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let failed = |cause| Error::Run { program: program.clone(), cause };
        let mut group = Group::start(command.current_dir(&packages)).map_err(failed)?;
        tokio::select! {
            () = stop.cancelled() => {
                group.end().await;
                return Ok(false);
            }
            ended = group.wait() => {
                if !ended.map_err(failed)?.success() {
                    output::note("! the dependencies could not be installed; it restarts when a file is saved\n");
                    return Ok(false);
                }
            }
        }
        self.installed = Some(wanted.clone());
        Ok(true)
    }

    /// Returns the command that installs the dependencies.
    fn installer(&self, project: &Project) -> Command {
        match project.runtime.language {
            Language::NodeJs => {
                let mut npm = clean("npm");
                npm.args(["install", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
                npm
            }
            Language::Python => {
                let mut pip = clean("python3");
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]);
                pip.args(["--target", ".", "-r", project.runtime.dependency_file()]);
                if self.debug {
                    pip.arg("debugpy");
                }
                pip
            }
        }
    }
}

/// Returns a program without this machine's environment.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Returns whether a dependency file lists no dependencies.
fn asks_for_nothing(language: Language, text: &str) -> bool {
    match language {
        Language::Python => text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')),
        Language::NodeJs if text.trim().is_empty() => true,
        Language::NodeJs => serde_json::from_str::<serde_json::Value>(text).is_ok_and(|package| {
            let kinds = ["dependencies", "optionalDependencies", "peerDependencies"];
            kinds.iter().all(|kind| package[kind].as_object().is_none_or(serde_json::Map::is_empty))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_package_manager_is_asked_for_nothing() {
        for text in ["", "{}", r#"{"name": "a", "dependencies": {}, "devDependencies": {"b": "1"}}"#] {
            assert!(asks_for_nothing(Language::NodeJs, text), "{text}");
        }
        for text in [r#"{"dependencies": {"a": "1"}}"#, "not JSON"] {
            assert!(!asks_for_nothing(Language::NodeJs, text), "{text}");
        }
        assert!(asks_for_nothing(Language::Python, "\n# requests\n"));
        assert!(!asks_for_nothing(Language::Python, "requests\n"));
    }
}
