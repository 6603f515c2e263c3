//! The renderer: a container beside the agent's container. The tools run in it with a separate memory limit and without
//! credentials.
//!
//! Both containers see the input files at the same paths. The agent sends requests over a Unix socket, with one run per
//! connection. A request is a line of JSON, and the response is a letter, a length and the output.
//!
//! Invariant: the agent reads at most a tool's maximum output from a response, so a compromised renderer cannot exhaust
//! the agent's memory.
//! Invariant: an unreachable renderer is not a problem of the commit. The renderer may be starting, or was killed
//! because a tool exhausted the memory. The commit is retried.
//!
//! Not here: the program and its limits (`program`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::program::{COMPLAINT, DEADLINE, OUTPUT, Program, Purpose, Run};

/// The directory of input files and the socket, both below the directory that agent and renderer share.
const FILES: &str = "files";
const SOCKET: &str = "socket/renderer";
/// Maximum time to wait for a renderer that is starting.
const STARTS: Duration = Duration::from_secs(10);
/// Interval between attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that the agent waits beyond a run's deadline, and maximum time to receive a request.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum size of a request, in bytes. Each kind in the cluster is an argument, and there may be thousands of kinds.
const REQUEST: u64 = 4 << 20;

/// A request to run a tool.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    tool: Purpose,
    root: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    /// The tool's standard input.
    input: Option<String>,
}

/// The client of the renderer in the agent.
#[derive(Clone, Debug)]
pub(super) struct Renderer {
    socket: PathBuf,
}

/// Returns the directory of input files. `shared` is the directory that the renderer and the agent share.
pub(super) fn files(shared: &Path) -> PathBuf {
    shared.join(FILES)
}

impl Renderer {
    pub(super) fn new(shared: &Path) -> Self {
        Self { socket: shared.join(SOCKET) }
    }

    pub(super) async fn run(
        &self,
        tool: Purpose,
        root: &Path,
        arguments: &[OsString],
        variables: &[(&str, &Path)],
        input: Option<&[u8]>,
    ) -> Run {
        let text = |word: &OsStr| word.to_str().map(str::to_owned).ok_or(io::ErrorKind::InvalidInput);
        let request = || {
            Ok::<_, io::ErrorKind>(Request {
                tool,
                root: root.to_owned(),
                arguments: arguments.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
                variables: variables
                    .iter()
                    .map(|(name, value)| Ok((name.to_string(), text(value.as_os_str())?)))
                    .collect::<Result<_, io::ErrorKind>>()?,
                input: input.map(|input| String::from_utf8_lossy(input).into_owned()),
            })
        };
        let asked = async { self.ask(&request()?).await };
        match timeout(STARTS + DEADLINE + GRACE, asked).await {
            Ok(Ok(run)) => run,
            Ok(Err(error)) => Run::Away(error),
            Err(_) => Run::Away(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn ask(&self, request: &Request) -> io::Result<Run> {
        let mut stream = self.connect().await?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let letter = stream.read_u8().await?;
        let length = stream.read_u64().await?;
        if length > if letter == b'B' { OUTPUT } else { COMPLAINT } {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::new();
        let read = (&mut stream).take(length).read_to_end(&mut bytes).await?;
        if (read as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match letter {
            b'B' => Ok(Run::Built(bytes)),
            b'F' => Ok(Run::Failed(text(&bytes))),
            b'E' => Ok(Run::Ended(text(&bytes))),
            b'M' => Ok(Run::Missing),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return Ok(stream),
                Err(_) if begun.elapsed() < STARTS => sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Serves requests, one run at a time, until `stop`. `shared` is the directory that the renderer and the agent share,
/// and `path` contains the tools.
///
/// # Errors
/// If the socket cannot be created, or no longer accepts connections.
pub async fn serve(shared: &Path, path: Option<&OsStr>, stop: &CancellationToken) -> io::Result<()> {
    let (socket, files) = (shared.join(SOCKET), files(shared));
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory)?;
    }
    // Removes the socket that a killed renderer left.
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    loop {
        let (stream, _) = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted?,
        };
        let answered = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            answered = answer(stream, &files, path.unwrap_or_default()) => answered,
        };
        if let Err(error) = answered {
            tracing::warn!(%error, "a request got no response");
        }
    }
}

async fn answer(stream: UnixStream, files: &Path, path: &OsStr) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    let mut bounded = (&mut stream).take(REQUEST);
    timeout(GRACE, bounded.read_until(b'\n', &mut line)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    let request: Request = serde_json::from_slice(&line)?;
    let run = if request.root.parent() != Some(files) || request.root.file_name().is_none() {
        return Err(io::ErrorKind::InvalidInput.into());
    } else if let Some(program) = Program::find(path, request.tool) {
        let arguments: Vec<OsString> = request.arguments.into_iter().map(OsString::from).collect();
        program.run(&request.root, &arguments, &request.variables, request.input.as_deref().map(str::as_bytes)).await
    } else {
        Run::Missing
    };
    let (letter, bytes) = match run {
        Run::Built(bytes) => (b'B', bytes),
        Run::Failed(words) => (b'F', words.into_bytes()),
        Run::Ended(why) => (b'E', why.into_bytes()),
        Run::Missing => (b'M', Vec::new()),
        Run::Away(error) => return Err(error),
    };
    stream.write_u8(letter).await?;
    stream.write_u64(bytes.len() as u64).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of a request to a renderer that responds with these bytes.
    async fn asked(answer: &'static [u8]) -> Run {
        let shared = tempfile::tempdir().unwrap();
        std::fs::create_dir(shared.path().join("socket")).unwrap();
        let listener = UnixListener::bind(shared.path().join(SOCKET)).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = BufReader::new(stream);
            stream.read_until(b'\n', &mut Vec::new()).await.unwrap();
            stream.write_all(answer).await.unwrap();
        });
        Renderer::new(shared.path()).run(Purpose::Helm, Path::new("/files/a"), &["--".into()], &[], None).await
    }

    #[tokio::test]
    async fn an_invalid_answer_is_no_problem_of_the_commit() {
        let length = |length: u64, begin: &'static [u8]| [begin, &length.to_be_bytes()].concat().leak();
        assert!(matches!(asked(b"").await, Run::Away(_)), "it was killed");
        assert!(matches!(asked(length(9, b"B")).await, Run::Away(_)), "in the middle");
        assert!(matches!(asked(length(OUTPUT + 1, b"B")).await, Run::Away(_)), "more than a tool may print");
        assert!(matches!(asked(length(COMPLAINT + 1, b"F")).await, Run::Away(_)));
        assert!(matches!(asked(length(0, b"X")).await, Run::Away(_)));
        assert!(matches!(asked(length(0, b"M")).await, Run::Missing));
        assert!(matches!(asked(b"B\0\0\0\0\0\0\0\x02ok").await, Run::Built(bytes) if bytes == b"ok"));
    }

    #[tokio::test]
    async fn a_tool_runs_in_a_directory_of_the_files_and_nowhere_else() {
        let (shared, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let script = "printf '#!/bin/sh\nread input\necho \"$PWD $* $TZ $input\"\n' > \"$1\" && chmod 755 \"$1\"";
        let mut writer = std::process::Command::new("/bin/sh");
        writer.args(["-c", script, "write"]).arg(tools.path().join("kustomize"));
        assert!(writer.status().unwrap().success());
        let root = files(shared.path()).join("one");
        std::fs::create_dir_all(&root).unwrap();
        let (directory, path) = (shared.path().to_owned(), tools.path().as_os_str().to_owned());
        let stop = CancellationToken::new();
        let ends = stop.clone();
        let serving = tokio::spawn(async move { serve(&directory, Some(&path), &ends).await });
        let renderer = Renderer::new(shared.path());
        let variables = [("TZ", Path::new("/x"))];
        let run = async |tool, root: &Path| renderer.run(tool, root, &["a b".into()], &variables, Some(b"{}\n")).await;
        let Run::Built(printed) = run(Purpose::Kustomize, &root).await else { panic!("it fails") };
        assert_eq!(String::from_utf8(printed).unwrap(), format!("{} build a b /x {{}}\n", root.display()));
        assert!(matches!(run(Purpose::Helm, &root).await, Run::Missing));
        for elsewhere in
            [shared.path().to_owned(), files(shared.path()), files(shared.path()).join(".."), root.join("a")]
        {
            assert!(matches!(run(Purpose::Kustomize, &elsewhere).await, Run::Away(_)), "{}", elsewhere.display());
        }
        stop.cancel();
        serving.await.unwrap().unwrap();
    }
}
