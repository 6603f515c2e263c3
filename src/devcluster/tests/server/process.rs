//! Child processes of tests. They read nothing of the machine but its programs.
//!
//! Invariant: every child process of a test begins here.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{ChildStdin, Command, Stdio},
    sync::LazyLock,
};

/// The home of child processes, without configuration, and what keeps it.
static HOME: LazyLock<(PathBuf, ChildStdin)> = LazyLock::new(|| {
    let home =
        tempfile::Builder::new().prefix("devcluster-tests-home-").tempdir().expect("a directory can be made").keep();
    // Statics are never dropped: a shell removes the directory when the pipe from this process closes.
    let mut remover = Command::new("sh");
    remover.args(["-c", "read -r _; rm -rf \"$0\""]).arg(&home).process_group(0);
    let remover = remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let pipe = remover.expect("`sh` is needed").stdin.take().expect("its input is a pipe");
    (home, pipe)
});

/// A command in an environment of its own: the path of programs, the directory of temporary files, an empty home, the
/// locale `C`, UTC.
pub(crate) fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(["PATH", "TMPDIR"].iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("LC_ALL", "C"), ("TZ", "UTC")]).env("HOME", &HOME.0);
    command
}
