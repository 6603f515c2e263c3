//! A runtime server as a process, and a client that sends raw requests.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use mainstay_function::runtimes::{self, Language, libraries};
use parking_lot::{Condvar, Mutex};

use mainstay_testkit::{libraries::place, process::home};

/// Timeout of each step.
const DEADLINE: Duration = Duration::from_secs(60);
/// Maximum bytes of a process's output that are kept.
const MOST_LOG: usize = 4 << 20;

/// The output of the process, and a notification of changes.
#[derive(Default)]
struct Log {
    printed: Mutex<Printed>,
    grown: Condvar,
}

#[derive(Default)]
struct Printed {
    text: String,
    /// Number of its two streams that have ended.
    ended: usize,
}

/// A runtime server with one function.
pub(crate) struct Server {
    child: Child,
    log: Arc<Log>,
    pub(crate) port: u16,
    // Keeps the files while the process runs.
    _dir: tempfile::TempDir,
}

/// A parsed response.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    /// Returns the only value of a header, or an empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// Returns status and body, for short comparisons.
    pub(crate) fn short(&self) -> String {
        format!("{} {}", self.status, self.body)
    }

    /// Returns everything that a handler controls, without date and connection framing.
    pub(crate) fn full(&self) -> String {
        const OURS: [&str; 6] =
            ["date", "connection", "keep-alive", "content-length", "transfer-encoding", "access-control-allow-origin"];
        let mut headers: Vec<_> = self
            .headers
            .iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .filter(|(name, _)| !OURS.contains(&name.as_str()))
            .map(|(name, value)| format!("{name}: {value} | "))
            .collect();
        headers.sort();
        format!("{} | {}{}", self.status, headers.concat(), self.body)
    }
}

impl Server {
    /// Starts a function of the runtime and waits until it serves. `files` are those that a build puts below
    /// `/kubeless`.
    pub(crate) fn with(runtime: &str, files: &[(&str, &str)], env: &[(&str, &str)]) -> Self {
        Self::launch(runtime, files, env).listening()
    }

    /// Starts a reference program that serves HTTP and prints its address. The first of these files is the program.
    pub(crate) fn judge(program: &str, files: &[(&str, &str)], env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, contents) in files {
            write(dir.path(), path, contents.as_bytes());
        }
        let mut command = mainstay_testkit::isolated(program);
        command.arg(dir.path().join(files[0].0)).envs(env.iter().copied());
        Self::spawn(command, dir).unwrap_or_else(|error| panic!("{program}: {error}")).listening()
    }

    fn listening(self) -> Self {
        let mut server = self;
        let line = server.await_log("Listening on");
        let at = line.lines().find(|line| line.contains("Listening on")).unwrap();
        server.port = at.rsplit(' ').next().unwrap().parse().unwrap();
        server
    }

    /// Starts a function from a single file.
    pub(crate) fn start(runtime: &str, source: &str, env: &[(&str, &str)]) -> Self {
        Self::with(runtime, &[(runtimes::find(runtime).unwrap().handler_file(), source)], env)
    }

    /// Starts a function without waiting.
    pub(crate) fn launch(runtime: &str, files: &[(&str, &str)], env: &[(&str, &str)]) -> Self {
        let runtime = runtimes::find(runtime).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (server_dir, code_dir) = (dir.path().join("kubeless_rt"), dir.path().join("kubeless"));
        for file in runtime.server_files() {
            write(&server_dir, file.path, file.contents);
        }
        let packages = libraries::find(runtime.language, Path::new(place())).unwrap();
        std::os::unix::fs::symlink(packages, server_dir.join(libraries::name(runtime.language))).unwrap();
        for (path, contents) in files {
            write(&code_dir, path, contents.as_bytes());
        }
        let [program, flags @ .., script] = runtime.entrypoint() else { panic!("a program and a script") };
        let script = script.strip_prefix(runtimes::SERVER_DIR).unwrap().trim_start_matches('/');
        let mut command = mainstay_testkit::isolated(program);
        command
            .args(flags)
            .arg(server_dir.join(script))
            .current_dir(&code_dir)
            .env_clear()
            .envs(runtime.pod_env())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home())
            .env(runtimes::CODE_DIR_ENV, &code_dir)
            .env("FUNC_HOST", "127.0.0.1")
            .env("FUNC_PORT", "0")
            .env("FUNC_DRAIN_DELAY", "0")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(env.iter().copied());
        let hint = match runtime.language {
            Language::NodeJs => "apt-get install nodejs",
            Language::Python => "apt-get install python3",
        };
        Self::spawn(command, dir).unwrap_or_else(|error| panic!("{program}: {error}; install it with `{hint}`"))
    }

    fn spawn(mut command: Command, dir: tempfile::TempDir) -> std::io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let log = Arc::new(Log::default());
        follow(child.stdout.take().unwrap(), &log);
        follow(child.stderr.take().unwrap(), &log);
        Ok(Self { child, log, port: 0, _dir: dir })
    }

    /// Waits until the output contains `text`, and returns it.
    pub(crate) fn await_log(&self, text: &str) -> String {
        let printed = self.await_printed(|printed| printed.text.contains(text) || printed.ended == 2);
        assert!(printed.contains(text), "no {text:?} in the log:\n{printed}");
        printed
    }

    fn await_printed(&self, enough: impl Fn(&Printed) -> bool) -> String {
        let mut printed = self.log.printed.lock();
        self.log.grown.wait_while_for(&mut printed, |printed| !enough(printed), DEADLINE);
        printed.text.clone()
    }

    /// Returns the current output.
    pub(crate) fn log(&self) -> String {
        self.log.printed.lock().text.clone()
    }

    /// Waits until the process ends by itself, and returns the exit code.
    pub(crate) fn await_exit(&mut self) -> Option<i32> {
        let log = self.await_printed(|printed| printed.ended == 2);
        assert_eq!(self.log.printed.lock().ended, 2, "the process goes on:\n{log}");
        self.child.wait().unwrap().code()
    }

    /// Whether the process is running.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends SIGTERM, like a kubelet.
    pub(crate) fn terminate(&self) {
        let sent = mainstay_testkit::isolated("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Returns the resident memory of the process in bytes.
    pub(crate) fn resident(&self) -> u64 {
        self.memory("VmRSS")
    }

    /// Returns the kernel's value for the process's memory under this name, in bytes.
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = text.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends these bytes on a new connection, and returns everything until the server closes it.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The server may refuse before it has read everything.
        let _ = stream.write_all(bytes);
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Sends one request on a new connection.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let reply = self.raw(&request(method, path, headers, body));
        parse(&reply).unwrap_or_else(|| {
            let log = self.log();
            let end = log.len().saturating_sub(2000);
            let end = log.get(end..).unwrap_or_default();
            panic!("no answer to {method} {path} but {reply:?}; the end of the log:\n{end}")
        })
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, content_type: &str, body: &str) -> Reply {
        self.ask("POST", "/", &[("Content-Type", content_type)], body.as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the bytes of a request after which the server closes the connection.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text += "Host: fn.example.com\r\n";
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        text += &format!("Content-Length: {}\r\n", body.len());
    }
    [text.as_bytes(), b"\r\n", body].concat()
}

/// Parses the first response of a closed connection.
pub(crate) fn parse(text: &str) -> Option<Reply> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    let mut reply = Reply { status, headers, body: body.to_owned() };
    if reply.header("transfer-encoding") == "chunked" {
        reply.body = unchunked(body)?;
    }
    Some(reply)
}

fn unchunked(mut text: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (size, rest) = text.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(whole);
        }
        whole += rest.get(..size)?;
        text = rest.get(size + 2..)?;
    }
}

/// Reads one response from an open connection; `None` if the server closes it first.
pub(crate) fn read_one(stream: &mut TcpStream) -> Option<Reply> {
    let mut all = Vec::new();
    let mut byte = [0; 1];
    while !all.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        all.push(byte[0]);
    }
    let mut reply = parse(&String::from_utf8_lossy(&all))?;
    let mut body = vec![0; reply.header("content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    reply.body = String::from_utf8_lossy(&body).into_owned();
    Some(reply)
}

/// Reads one request as a server: head and body.
pub(crate) fn read_request(stream: &mut TcpStream) -> (String, String) {
    let mut all = Vec::new();
    let mut byte = [0; 1];
    while !all.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    let head = String::from_utf8(all).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn write(root: &Path, path: &str, contents: &[u8]) {
    let full = root.join(path);
    fs::create_dir_all(full.parent().unwrap()).unwrap();
    fs::write(full, contents).unwrap();
}

fn follow(pipe: impl Read + Send + 'static, log: &Arc<Log>) {
    let log = Arc::clone(log);
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            let mut printed = log.printed.lock();
            // A function may print endlessly. Tests need only the beginning and the end.
            if printed.text.len() > MOST_LOG {
                let half = printed.text.floor_char_boundary(MOST_LOG / 2);
                printed.text.replace_range(..half, "");
            }
            printed.text.push_str(&String::from_utf8_lossy(&line));
            log.grown.notify_all();
            line.clear();
        }
        log.printed.lock().ended += 1;
        log.grown.notify_all();
    });
}
