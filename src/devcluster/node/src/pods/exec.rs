//! Commands in a running container: with its working directory and environment, for at most its lifetime.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::process::{Group, Input, Program, code, command};
use super::watchdog::Watchdog;
use devcluster_apiserver::kubelet::{Pipes, Process};

/// Programs of the running containers, by pod UID and container name.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<(String, String), Program>>);

/// Registration of a running container; ends when this is dropped.
pub(super) struct Listed {
    running: Arc<Running>,
    key: (String, String),
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.key);
    }
}

impl Running {
    /// Registers a running container.
    pub(super) fn list(self: &Arc<Self>, uid: &str, container: &str, program: &Program) -> Listed {
        let key = (uid.to_owned(), container.to_owned());
        self.0.lock().insert(key.clone(), program.clone());
        Listed { running: self.clone(), key }
    }

    fn get(&self, uid: &str, container: &str) -> Option<Program> {
        self.0.lock().get(&(uid.to_owned(), container.to_owned())).cloned()
    }
}

/// A running command. Dropping it kills the command.
pub(super) struct Command {
    group: Group,
    pipes: Option<Pipes>,
}

impl Process for Command {
    fn pipes(&mut self) -> Pipes {
        self.pipes.take().expect("the pipes of a command are taken once")
    }

    fn wait(&mut self) -> BoxFuture<'_, i64> {
        Box::pin(async { code(self.group.wait().await) })
    }
}

/// Starts a command in a container. `Err` is the reason why it could not start.
pub(super) fn start(
    running: &Running,
    watchdog: &Arc<Watchdog>,
    uid: &str,
    container: &str,
    words: &[String],
) -> Result<Command, String> {
    let program = running.get(uid, container).ok_or_else(|| format!("container not found (\"{container}\")"))?;
    let program = command(&json!({"command": words}), &program);
    match Group::start_with(watchdog, &program, Input::Piped) {
        Ok((group, stdin, stdout, stderr)) => {
            let stdin = stdin.map(|stdin| Box::pin(stdin) as _);
            let pipes = Pipes { stdin, stdout: Box::pin(stdout), stderr: Box::pin(stderr) };
            Ok(Command { group, pipes: Some(pipes) })
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("exec: {:?}: executable file not found in $PATH", program.name))
        }
        Err(error) => Err(format!("exec: {:?}: {error}", program.name)),
    }
}
