//! Child processes of tests. Child processes use only the programs of this machine: no user's home or configuration, no
//! locale, no time zone, no proxy, no kubeconfig.
//!
//! Invariant: every child process of a test starts here; `tests/tidy` checks that.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::LazyLock,
};

/// The home of child processes, and the pipe whose end removes it.
static HOME: LazyLock<(PathBuf, ChildStdin)> = LazyLock::new(|| {
    let home = tempfile::Builder::new().prefix("mainstay-tests-home-").tempdir().unwrap().keep();
    // Statics are not dropped, so a shell removes the directory when this process closes the pipe.
    let mut remover = Command::new("sh");
    remover.args(["-c", "read -r _; rm -rf \"$0\""]).arg(&home).process_group(0);
    let remover = remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let pipe = remover.expect("`sh` is needed").stdin.take().unwrap();
    (home, pipe)
});

/// Variables that are passed on.
const PASSED_ON: [&str; 2] = ["PATH", "TMPDIR"];

/// Disables the machine's Git configuration. Configuration of npm and pip stays, because it contains package mirrors
/// and CAs.
const NO_CONFIGURATION: [(&str, &str); 2] = [("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_ATTR_NOSYSTEM", "1")];

/// Returns a home directory without configuration. All child processes of this test process share it.
pub fn home() -> &'static Path {
    &HOME.0
}

/// Returns a command in an isolated environment: [`PASSED_ON`], an empty home, [`NO_CONFIGURATION`], the locale `C`,
/// UTC.
pub fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("LC_ALL", "C"), ("TZ", "UTC")]).env("HOME", home()).envs(NO_CONFIGURATION);
    command
}

/// Returns such a command for an async runtime.
pub fn isolated_async(program: impl AsRef<OsStr>) -> tokio::process::Command {
    isolated(program).into()
}

/// Returns a new RSA private key of 2048 bits in PEM format, as PKCS #1.
pub fn rsa_key() -> String {
    let made = isolated("openssl").args(["genrsa", "-traditional", "2048"]).output();
    String::from_utf8(made.expect("`openssl` is installed").stdout).unwrap()
}
