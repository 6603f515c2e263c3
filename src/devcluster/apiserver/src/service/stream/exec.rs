//! `exec` and `attach`: connects the streams of a command or container to a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::channels::{self, Output};
use super::connection::Io;
use super::session::{self, Stream};
use super::simulated::{self, Step};
use super::upgrade::Upgrade;
use crate::kubelet::log::entries;
use crate::kubelet::{ContainerLog, Pipes, Process};
use crate::route::Query;
use crate::server::Server;
use crate::status::Status;
use crate::verbs::text;

/// Maximum number of queued chunks.
const QUEUE: usize = 16;
/// Maximum time for a client to open its streams.
const OPENING: Duration = Duration::from_secs(30);
/// Maximum wait for remaining output after a command has ended.
const DRAIN: Duration = Duration::from_secs(5);

/// The streams that a client requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Options {
    /// Parses the parameters. A terminal has no separate standard error.
    pub(super) fn parse(query: &Query) -> Self {
        let tty = query.flag("tty");
        let stderr = query.flag("stderr") && !tty;
        Self { stdin: query.flag("stdin"), stdout: query.flag("stdout"), stderr, tty }
    }
}

/// The operation on a container.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Runs a command.
    Run(Vec<String>),
    /// Attaches to the output of the container.
    Attach,
}

/// The streams of a command.
struct Streams {
    stdin: mpsc::Receiver<Bytes>,
    output: mpsc::Sender<Output>,
    options: Options,
}

/// Runs a command over a connection.
pub(super) async fn serve(
    server: Server,
    pod: Arc<Value>,
    container: String,
    command: Command,
    options: Options,
    upgrade: Upgrade,
    io: Io,
) {
    let ((stdin, input), (output, results)) = (mpsc::channel(QUEUE), mpsc::channel(QUEUE));
    let streams = Streams { stdin: input, output, options };
    let work = run(server, pod, container, command, streams, upgrade);
    let carried = async move {
        match upgrade {
            Upgrade::Spdy(_) => over_spdy(io, options, stdin, results).await,
            Upgrade::Channels(_) | Upgrade::Tunnel(_) => channels::carry(io, stdin, results).await,
        }
    };
    // The command ends when its client is gone, because its output channel closes.
    tokio::join!(work, carried);
}

/// Forwards the same streams over a SPDY connection.
async fn over_spdy(io: Io, options: Options, stdin: mpsc::Sender<Bytes>, mut results: mpsc::Receiver<Output>) {
    let (send, mut opened) = mpsc::channel(QUEUE);
    let carried = async {
        let mut streams = timeout(OPENING, expected(&mut opened, options)).await.unwrap_or_default();
        let error = streams.remove("error");
        let input = streams.remove("stdin");
        let forwarded = async move {
            let Some(mut input) = input else { return };
            while let Some(bytes) = input.input.recv().await
                && stdin.send(bytes).await.is_ok()
            {}
        };
        let notified = async {
            while let Some(output) = results.recv().await {
                let (name, bytes) = match &output {
                    Output::Stdout(bytes) => ("stdout", bytes.clone()),
                    Output::Stderr(bytes) => ("stderr", bytes.clone()),
                    Output::Status(status) => {
                        if let Some(error) = &error {
                            // The client may already be gone.
                            let _ = error.output.write(status.to_string().as_bytes()).await;
                        }
                        break;
                    }
                };
                if let Some(stream) = streams.get(name)
                    && stream.output.write(&bytes).await.is_err()
                {
                    break;
                }
            }
            for stream in streams.values().chain(&error) {
                stream.output.finish().await;
            }
            if let Some(error) = &error {
                error.output.close().await;
            }
        };
        tokio::join!(forwarded, notified);
    };
    tokio::select! {
        ended = session::run(io, send) => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        // The session ends when all data is written.
        () = async { carried.await; std::future::pending().await } => {}
    }
}

/// Returns the streams that a client opens, by type.
async fn expected(opened: &mut mpsc::Receiver<Stream>, options: Options) -> HashMap<String, Stream> {
    let wanted = [true, options.stdin, options.stdout, options.stderr, options.tty];
    let count = wanted.into_iter().filter(|wanted| *wanted).count();
    let mut streams = HashMap::new();
    while streams.len() < count
        && let Some(stream) = opened.recv().await
    {
        streams.insert(stream.header("streamtype").to_owned(), stream);
    }
    streams
}

async fn run(server: Server, pod: Arc<Value>, container: String, command: Command, streams: Streams, upgrade: Upgrade) {
    let output = streams.output.clone();
    let uid = text(&pod, "/metadata/uid").to_owned();
    let status = match (command, server.kubelet(&pod)) {
        (Command::Run(words), Some(kubelet)) => match kubelet.exec(&uid, &container, &words) {
            Ok(process) => of_process(process, streams).await,
            Err(why) => failed(&why, upgrade),
        },
        (Command::Attach, Some(kubelet)) => {
            if let Some(log) = kubelet.log(&uid, &container) {
                follow(log, streams).await;
            }
            success()
        }
        (Command::Run(words), None) => match simulated::plan(&words, text(&pod, "/metadata/name")) {
            Ok(steps) => of_steps(steps, streams).await,
            Err(why) => failed(&why, upgrade),
        },
        (Command::Attach, None) => of_steps(vec![Step::Copy], streams).await,
    };
    // The client may already be gone.
    let _ = output.send(Output::Status(status)).await;
}

/// Runs a process with its streams until it ends or its client is gone.
async fn of_process(mut process: Box<dyn Process>, streams: Streams) -> Value {
    let Streams { mut stdin, output, options } = streams;
    let Pipes { stdin: pipe, stdout, stderr } = process.pipes();
    let written = async move {
        let Some(mut pipe) = pipe.filter(|_| options.stdin) else { return };
        while let Some(bytes) = stdin.recv().await
            && pipe.write_all(&bytes).await.is_ok()
        {}
    };
    let merged = options.tty;
    let read = async {
        tokio::join!(
            // Polled in this order: a client that has all of stdout may not wait for earlier stderr.
            forward(stderr, &output, if merged { Output::Stdout } else { Output::Stderr }, options.stderr || merged),
            forward(stdout, &output, Output::Stdout, options.stdout)
        )
    };
    tokio::pin!(written, read);
    let mut all_read = false;
    let mut writing = true;
    let code = loop {
        tokio::select! {
            code = process.wait() => break code,
            _ = &mut read, if !all_read => all_read = true,
            () = &mut written, if writing => writing = false,
            () = output.closed() => return success(),
        }
    };
    if !all_read {
        // A process outside of the process group may hold the pipe; do not wait for it.
        let _ = timeout(DRAIN, read).await;
    }
    ended(code)
}

/// Forwards a pipe. Unwanted output is read, too, so that the process does not block.
async fn forward(
    mut pipe: impl AsyncRead + Unpin,
    output: &mpsc::Sender<Output>,
    what: impl Fn(Bytes) -> Output,
    wanted: bool,
) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        if wanted && output.send(what(Bytes::copy_from_slice(&buffer[..read]))).await.is_err() {
            return;
        }
    }
}

/// Forwards the output of a container from now on.
async fn follow(log: Arc<dyn ContainerLog>, streams: Streams) {
    let mut changes = log.changes();
    let Some((_, mut position)) = log.read(false) else { return };
    let mut open = true;
    while open {
        changes.borrow_and_update();
        let (stored, more) = log.more(&mut position);
        open = more;
        let written: Vec<u8> = entries(&stored).flat_map(|entry| entry.text()).collect();
        if !written.is_empty() && streams.output.send(Output::Stdout(written.into())).await.is_err() {
            return;
        }
        tokio::select! {
            changed = changes.changed(), if open => if changed.is_err() { return },
            () = streams.output.closed() => return,
            else => {}
        }
    }
}

/// Runs the steps of a simulated program.
async fn of_steps(steps: Vec<Step>, streams: Streams) -> Value {
    let Streams { mut stdin, output, options } = streams;
    for step in steps {
        match step {
            Step::Out(text) => {
                if options.stdout && output.send(Output::Stdout(text.into())).await.is_err() {
                    return success();
                }
            }
            Step::Error(text) => {
                let text = if options.tty { Output::Stdout(text.into()) } else { Output::Stderr(text.into()) };
                if (options.stderr || options.tty) && output.send(text).await.is_err() {
                    return success();
                }
            }
            Step::Copy => {
                while options.stdin
                    && let Some(bytes) = stdin.recv().await
                {
                    if options.stdout && output.send(Output::Stdout(bytes)).await.is_err() {
                        return success();
                    }
                }
            }
            Step::Wait(time) => {
                tokio::select! {
                    () = tokio::time::sleep(time) => {}
                    () = output.closed() => return success(),
                }
            }
            Step::End(code) => return ended(code),
        }
    }
    success()
}

/// Returns the status of a command that has ended.
fn ended(code: i64) -> Value {
    if code == 0 {
        return success();
    }
    json!({
        "metadata": {}, "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// Returns the status of a command that could not be started. On WebSockets, the server adds its own prefix to the
/// kubelet's.
fn failed(why: &str, upgrade: Upgrade) -> Value {
    let prefix = if matches!(upgrade, Upgrade::Spdy(_)) { "" } else { "Internal error occurred: " };
    let why = format!("{prefix}Internal error occurred: error executing command in container: {why}");
    Status::new(500, "InternalError", why).body()
}
