//! Commands that run beside the program of a container: in its directory, with its environment, and no longer than it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Mutex;

use serde_json::json;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};

use super::process::{Group, Input, Program, code};
use super::{Node, lock, probes};
use crate::server::Server;

/// The programs of the containers that run, by the UID of the pod and the name of the container.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<(String, String), Program>>);

/// A container runs as long as this is kept.
pub(super) struct Listed {
    server: Server,
    key: (String, String),
}

/// Notes that a container runs.
pub(super) fn listed(server: &Server, uid: &str, container: &str, program: &Program) -> Listed {
    let key = (uid.to_owned(), container.to_owned());
    if let Some(node) = server.node() {
        lock(&node.running.0).insert(key.clone(), program.clone());
    }
    Listed { server: server.clone(), key }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(node) = self.server.node() {
            lock(&node.running.0).remove(&self.key);
        }
    }
}

impl Running {
    fn get(&self, uid: &str, container: &str) -> Option<Program> {
        lock(&self.0).get(&(uid.to_owned(), container.to_owned())).cloned()
    }
}

/// A command that runs; it is killed when this is dropped.
pub(crate) struct Process {
    group: Group,
    pipes: Option<Pipes>,
}

/// The standard input, output and error of a command.
pub(crate) type Pipes = (Option<ChildStdin>, ChildStdout, ChildStderr);

impl Process {
    /// Its streams; they can be had once.
    pub(crate) fn pipes(&mut self) -> Pipes {
        self.pipes.take().expect("the pipes of a command are taken once")
    }

    /// Waits for its end; its exit code.
    pub(crate) async fn wait(&mut self) -> i64 {
        code(self.group.wait().await)
    }
}

impl Node {
    /// Starts a command in a container; the reason why it could not be started as `Err`.
    pub(crate) fn exec(
        &self,
        server: &Server,
        uid: &str,
        container: &str,
        words: &[String],
    ) -> Result<Process, String> {
        let program =
            self.running.get(uid, container).ok_or_else(|| format!("container not found (\"{container}\")"))?;
        let program = probes::command(&json!({"command": words}), &program);
        match Group::start_with(server, &program, Input::Piped) {
            Ok((group, stdin, stdout, stderr)) => Ok(Process { group, pipes: Some((stdin, stdout, stderr)) }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(format!("exec: {:?}: executable file not found in $PATH", program.name))
            }
            Err(error) => Err(format!("exec: {:?}: {error}", program.name)),
        }
    }
}
