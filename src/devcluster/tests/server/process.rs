//! Child processes of tests, isolated from the user's configuration.
//!
//! Invariant: every child process of a test is created here.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
    sync::LazyLock,
};

/// The empty home directory of child processes, and the pipe that keeps it.
static HOME: LazyLock<(PathBuf, ChildStdin)> = LazyLock::new(|| {
    let home =
        tempfile::Builder::new().prefix("devcluster-tests-home-").tempdir().expect("a directory can be made").keep();
    // Statics are never dropped: a shell removes the directory when this process closes the pipe.
    let mut remover = Command::new("sh");
    remover.args(["-c", "read -r _; rm -rf \"$0\""]).arg(&home).process_group(0);
    let remover = remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let pipe = remover.expect("`sh` is needed").stdin.take().expect("its input is a pipe");
    (home, pipe)
});

/// Creates a command with a clean environment: search path, temporary directory, an empty home, the locale `C`, UTC.
pub(crate) fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(["PATH", "TMPDIR"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("LC_ALL", "C"), ("TZ", "UTC")]).env("HOME", &HOME.0);
    command
}
