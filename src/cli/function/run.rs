//! `mainstay function run`: the Function on the Node.js or Python of this machine, by the server that pods have.
//!
//! Invariant: the user's files are run where they are, so that a debugger finds them; nothing is written beside them.
//! Invariant: when the command ends, so has everything that it has started.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{EventKind, RecursiveMode, Watcher as _};
use tokio::{process::Command, sync::mpsc};
use tokio_util::sync::CancellationToken;

use super::{
    config::Config,
    environment,
    error::Error,
    process::Group,
    workspace::{Workspace, read_text},
};
use crate::{
    cli::{Exit, output, stop},
    object::printable,
    runtimes::{self, Language, Runtime, libraries},
};

/// Nothing was saved for so long before the Function starts again.
const QUIET: Duration = Duration::from_millis(100);
/// Where the debuggers of Node.js and of Python find it.
const INSPECTOR: &str = "127.0.0.1:9229";
const DEBUGPY: &str = "127.0.0.1:5678";
/// What of this machine the Function sees: the ways to programs.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// Files with these ends are watched.
const WATCHED: [&str; 7] = ["js", "mjs", "cjs", "json", "py", "txt", "yaml"];

/// Arguments of `function run`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Configuration of the Function
    #[arg(short, long, value_name = "FILE", default_value = "./config.yaml")]
    filename: PathBuf,
    /// Directory of the handler and the dependency file; by default source.sourcePath, or that of the configuration
    #[arg(short = 'd', long, value_name = "DIR")]
    source_dir: Option<PathBuf>,
    /// Port on 127.0.0.1; 0 is any that is free
    #[arg(short, long, default_value_t = 8080)]
    port: u16,
    /// Let a debugger attach: at 127.0.0.1:9229 (the inspector of Node.js) or 127.0.0.1:5678 (debugpy, which is fetched)
    #[arg(long)]
    debug: bool,
    /// File with a NAME=VALUE in each line: values of variables, those that are in ConfigMaps and Secrets of the cluster among
    /// them. They come before those of config.yaml
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, crate::cli::Error> {
    let stop = stop::on_signal()?;
    let room = tempfile::tempdir().map_err(|cause| Error::Write { path: std::env::temp_dir(), cause })?;
    let mut here = Here { arguments, room: room.path(), installed: None };
    let first = here.read()?;
    here.server(first.runtime).await?;
    let (changes, mut changed) = mpsc::unbounded_channel();
    let _watcher = watch(&first.directories, changes)?;
    let mut project = Some(first);
    loop {
        let mut group = match project.take() {
            Some(project) => here.start(&project, &stop).await?,
            None => None,
        };
        let is_changed = loop {
            tokio::select! {
                () = stop.cancelled() => break false,
                _ = changed.recv() => break true,
                ended = ended(&mut group) => {
                    output::note(&format!("! the Function has ended ({ended}); it starts again when a file is saved\n"));
                    group = None;
                }
            }
        };
        if let Some(mut group) = group {
            group.end().await;
        }
        if !is_changed {
            return Ok(Exit::Fine);
        }
        while tokio::time::timeout(QUIET, changed.recv()).await.is_ok() {}
        match here.read() {
            Ok(next) => {
                output::print("- Saved; it starts again\n")?;
                project = Some(next);
            }
            Err(error) => output::note(&format!("! {error}\n")),
        }
    }
}

/// How the Function has ended; never if there is none.
async fn ended(group: &mut Option<Group>) -> String {
    match group {
        None => std::future::pending().await,
        Some(group) => match group.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        },
    }
}

/// Sends whenever a file of these directories may have been saved, until it is dropped.
fn watch(directories: &[PathBuf], changes: mpsc::UnboundedSender<()>) -> Result<notify::RecommendedWatcher, Error> {
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|end| WATCHED.iter().any(|watched| end == *watched));
    let failed = |cause| Error::Watch { path: directories.first().cloned().unwrap_or_default(), cause };
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let matters = match &event {
            Ok(event) => !matches!(event.kind, EventKind::Access(_)) && event.paths.iter().any(is_ours),
            // It may hide any change.
            Err(_) => true,
        };
        if matters {
            // Nobody listens when the command ends.
            let _ = changes.send(());
        }
    })
    .map_err(failed)?;
    for directory in directories {
        watcher.watch(directory, RecursiveMode::NonRecursive).map_err(failed)?;
    }
    Ok(watcher)
}

/// What is run.
struct Project {
    config: Config,
    runtime: &'static Runtime,
    handler: PathBuf,
    /// Text of the dependency file.
    dependencies: String,
    variables: Vec<(String, String)>,
    missing: Vec<String>,
    /// Where changes are looked for.
    directories: Vec<PathBuf>,
}

/// The command's place on this machine.
struct Here<'a> {
    arguments: &'a Arguments,
    room: &'a Path,
    /// The dependencies that are installed.
    installed: Option<String>,
}

impl Here<'_> {
    fn read(&self) -> Result<Project, Error> {
        let path = &self.arguments.filename;
        let lines = |problems: Vec<super::document::Problem>| {
            problems.iter().map(|problem| format!("{}: {}", problem.mark, problem.what)).collect()
        };
        let text = read_text(path)?;
        // What names no namespace runs here as well.
        let config = Config::read(&text, None).or_else(|wrong| Config::read(&text, Some("default")).map_err(|_| wrong));
        let config = config.map_err(|wrong| Error::Config { path: path.clone(), problems: lines(wrong) })?;
        let supported = || Error::Runtime { given: config.runtime.clone(), supported: super::config::supported() };
        let runtime = config.runtime().ok_or_else(supported)?;
        let workspace = Workspace::of_file(path)?;
        let source = match &self.arguments.source_dir {
            Some(directory) => Workspace::at(directory)?,
            None => workspace.source(config.source.path())?,
        };
        let defaults = || [runtime.handler_file().to_owned(), runtime.dependency_file().to_owned()];
        let [handler, dependencies] = config.files().unwrap_or_else(defaults);
        // It says what is wrong with the file, before an interpreter does.
        source.read(&handler)?;
        let dependencies = source.read(&dependencies)?;
        let handler = source.root().join(handler);
        let given = match &self.arguments.env_file {
            None => BTreeMap::new(),
            Some(path) => environment::parse(&read_text(path)?)
                .map_err(|problems| Error::Config { path: path.clone(), problems: lines(problems) })?,
        };
        let (variables, missing) = environment::variables(&config, &given);
        let mut directories = vec![workspace.root().to_owned(), source.root().to_owned()];
        directories.extend(handler.parent().map(Path::to_owned));
        directories.sort();
        directories.dedup();
        Ok(Project { config, runtime, handler, dependencies, variables, missing, directories })
    }

    /// Puts the server of a runtime into our place.
    async fn server(&self, runtime: &'static Runtime) -> Result<(), crate::cli::Error> {
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

    /// Starts the Function; `None` if it cannot start before something is saved, or the command is to end.
    async fn start(&mut self, project: &Project, stop: &CancellationToken) -> Result<Option<Group>, crate::cli::Error> {
        if !project.missing.is_empty() {
            let all = project.missing.join(", ");
            output::note(&format!("! without a value here, which --env-file gives: {}\n", printable(&all)));
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
        match (self.arguments.debug, project.runtime.language) {
            (false, _) => {}
            (true, Language::NodeJs) => _ = command.arg(format!("--inspect={INSPECTOR}")),
            (true, Language::Python) => {
                _ = command.args(["-X", "frozen_modules=off", "-m", "debugpy", "--listen", DEBUGPY])
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
            .env("FUNC_PORT", self.arguments.port.to_string())
            .env("FUNC_DRAIN_DELAY", "0")
            .env("SERVICE_NAMESPACE", &project.config.namespace)
            .envs(project.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Installs what the dependency file names, if it is not what is installed; whether the Function can start.
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
        let mut command = match language {
            Language::NodeJs => {
                let mut npm = clean("npm");
                npm.args(["install", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]);
                npm
            }
            Language::Python => {
                let mut pip = clean("python3");
                pip.args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                    "--no-input",
                    "--target",
                    ".",
                ]);
                pip.args(["-r", project.runtime.dependency_file()]);
                if self.arguments.debug {
                    pip.arg("debugpy");
                }
                pip
            }
        };
        let is_debugger = self.arguments.debug && language == Language::Python;
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
                    output::note("! the dependencies could not be installed; it starts again when a file is saved\n");
                    return Ok(false);
                }
            }
        }
        self.installed = Some(wanted.clone());
        Ok(true)
    }
}

/// A program without the environment of this machine.
fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command
}

/// Whether a dependency file names nothing.
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
