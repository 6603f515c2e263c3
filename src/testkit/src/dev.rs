//! `mainstay dev` as a process.

use crate::PATIENCE;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{limited_process, memory_limit::MemoryLimit};

/// A running `mainstay dev --output json` in its own directory.
pub struct Dev {
    child: Child,
    limit: Option<MemoryLimit>,
    lines: Receiver<String>,
    pub home: PathBuf,
    pub kubeconfig: String,
    /// Address of the embedded cluster's gateway.
    pub gateway: String,
    /// The command that opens the web page.
    pub page: String,
    /// Directory of the files of `mainstay dev`, if it is not the default directory.
    pub directory: Option<String>,
}

impl Drop for Dev {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Dev {
    pub fn start(home: &Path, arguments: &[&str]) -> Self {
        let mut child = crate::isolated(crate::program::executable())
            .args(["dev", "--output", "json"])
            .args(arguments)
            .env("HOME", home)
            .env(mainstay_function::runtimes::libraries::VARIABLE, super::libraries::place())
            .current_dir(home)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // The thread ends when the child exits, or when the receiver is dropped.
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut dev = Self {
            child,
            limit: None,
            lines,
            home: home.to_owned(),
            kubeconfig: String::new(),
            gateway: String::new(),
            page: String::new(),
            directory: None,
        };
        let started = dev.event("started");
        started["kubeconfig"].as_str().unwrap().clone_into(&mut dev.kubeconfig);
        started["gateway"].as_str().unwrap().clone_into(&mut dev.gateway);
        started["page"].as_str().unwrap().clone_into(&mut dev.page);
        dev.directory = started["directory"].as_str().map(str::to_owned);
        dev
    }

    /// Limits the memory of the process. Returns whether the kernel enforces the limit.
    pub fn limit_memory(&mut self, mib: u64) -> bool {
        self.limit = MemoryLimit::set(self.child.id(), mib);
        self.limit.is_some()
    }

    /// Returns the peak resident memory of the process in MiB, corrected to the size of the release program.
    pub fn peak_mib(&self) -> u64 {
        limited_process::peak_mib(self.child.id())
    }

    /// Returns the exit status, if the process has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Returns the next message of this type. Skips messages of other types.
    pub fn event(&self, event: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no `{event}`: {error}"));
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["event"] == event {
                return message;
            }
        }
    }

    /// Runs kubectl, which must succeed.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    /// Runs kubectl. Returns its standard output, or its standard error if it fails.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        let output = crate::isolated("kubectl")
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .output()
            .expect("kubectl is needed: https://kubernetes.io/docs/tasks/tools/");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            return Err(text(&output.stderr));
        }
        Ok(text(&output.stdout))
    }

    /// Runs another mainstay command against the cluster.
    pub fn mainstay(&self, arguments: &[&str]) -> Output {
        crate::isolated(crate::program::executable())
            .args(arguments)
            .args(["--kubeconfig", &self.kubeconfig])
            .env_clear()
            .output()
            .unwrap()
    }

    /// Sends Ctrl-C and returns the exit status.
    pub fn interrupt(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(crate::isolated("kill").args(["-INT", &id]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

/// Runs git in a directory with the identity of a user. The command must succeed.
pub fn git(directory: &Path, arguments: &[&str]) {
    let status = crate::isolated("git")
        .args(["-c", "user.name=A Person", "-c", "user.email=person@example.org"])
        .args(arguments)
        .current_dir(directory)
        .status()
        .expect("git is needed: https://git-scm.com/downloads");
    assert!(status.success(), "git {arguments:?}");
}

/// Copies a directory of files.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { fs::copy(&path, &target).map(drop).unwrap() }
    }
}

/// Waits until `holds` returns true.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        // Most conditions start a program, which would take the CPU from the awaited work.
        std::thread::sleep(Duration::from_millis(200));
    }
}
