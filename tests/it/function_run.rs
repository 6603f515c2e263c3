//! `mainstay function run`: the Node.js and the Python of this machine.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use mainstay::runtimes::libraries;

use crate::support::libraries::place;

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A Function that runs in a directory.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    port: String,
}

impl Running {
    /// Makes a workspace and runs it on any free port.
    fn start(directory: &Path, runtime: &str, handler: &str, config: &str, more: &[&str]) -> Self {
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let init = ["function", "init", "--runtime", runtime, "-n", "team", "--dir", &path("")];
        assert!(Command::new(env!("CARGO_BIN_EXE_mainstay")).args(init).output().unwrap().status.success());
        let name = if runtime.starts_with("node") { "handler.js" } else { "handler.py" };
        fs::write(path(name), handler).unwrap();
        let text = fs::read_to_string(path("config.yaml")).unwrap();
        fs::write(path("config.yaml"), text + config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        command.args(["run", "function", "--filename", &path("config.yaml"), "--port", "0"]).args(more);
        command.env(libraries::VARIABLE, place()).env("NOT_FOR_FUNCTIONS", "1");
        // What a directory of ours is called is in the command line of every process that is begun for it.
        command.env("TMPDIR", directory.parent().unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, out, port: String::new() };
        running.listening();
        running
    }

    /// The next line with a text.
    fn line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it has ended before it said {text:?}");
        }
        line
    }

    fn listening(&mut self) {
        let line = self.line("Listening on");
        line.trim().rsplit(' ').next().unwrap().clone_into(&mut self.port);
    }

    fn get(&self) -> String {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Ends it as a terminal does, and looks for what is left.
    fn interrupt(mut self, room: &Path) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(processes_of(room), 0, "no process is left");
    }
}

/// How many processes have this directory in their command line.
fn processes_of(room: &Path) -> usize {
    let room = room.to_str().unwrap();
    let found = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(room)
    });
    found.count()
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ENV: &str = "env:\n    - name: GREETING\n      value: Hello\n    - name: TOKEN\n      valueFrom:\n          secretKeyRef:\n              \
                   name: s\n              key: k\n";

#[test]
fn a_node_function_runs_with_its_environment_and_again_when_it_is_saved() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let handler = |word: &str| {
        format!(
            "module.exports = {{ main: () => [process.env.GREETING, process.env.TOKEN, process.env.NOT_FOR_FUNCTIONS, \
             process.env.FUNC_RUNTIME, process.env.SERVICE_NAMESPACE, __filename, '{word}'].join(' ') }}\n"
        )
    };
    let secrets = room.path().join("secrets");
    fs::write(&secrets, "TOKEN=from the file\n").unwrap();
    let more = ["--env-file", secrets.to_str().unwrap()];
    let mut running = Running::start(&directory, "nodejs22", &handler("one"), ENV, &more);
    let place = fs::canonicalize(directory.join("handler.js")).unwrap();
    let answer = |word: &str| format!("Hello from the file  nodejs22 team {} {word}", place.display());
    assert_eq!(running.get(), answer("one"), "where its file is, so that a debugger finds it");

    fs::write(directory.join("handler.js"), handler("two")).unwrap();
    running.line("- Saved; it starts again");
    running.listening();
    assert_eq!(running.get(), answer("two"));

    // A slip of the pen ends nothing.
    fs::write(directory.join("handler.js"), "module.exports = {").unwrap();
    running.line("- Saved; it starts again");
    fs::write(directory.join("handler.js"), handler("three")).unwrap();
    running.listening();
    assert_eq!(running.get(), answer("three"));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing is written beside its files");
    running.interrupt(room.path());
}

#[test]
fn a_python_function_runs_and_again_when_it_is_saved() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let handler =
        |word: &str| format!("import os\ndef main(event, context):\n    return os.environ['GREETING'] + ' {word}'\n");
    let mut running = Running::start(&directory, "python312", &handler("one"), ENV, &[]);
    assert_eq!(running.get(), "Hello one");
    fs::write(directory.join("handler.py"), handler("two")).unwrap();
    running.line("- Saved; it starts again");
    running.listening();
    assert_eq!(running.get(), "Hello two");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing is written beside its files");
    running.interrupt(room.path());
}

#[test]
fn a_debugger_finds_a_node_function() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let running = Running::start(&directory, "nodejs22", "module.exports = { main: () => 1 }\n", "", &["--debug"]);
    let end = Instant::now() + PATIENCE;
    let mut stream = loop {
        match TcpStream::connect("127.0.0.1:9229") {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /json/list HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    // It keeps the connection.
    let mut text = String::new();
    let ours = room.path().to_str().unwrap();
    while !text.contains("webSocketDebuggerUrl") || !text.contains("server.js") {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(text.contains(ours), "it is this one: {text}");
    drop(stream);
    running.interrupt(room.path());
}

#[test]
fn nothing_is_left_of_a_command_that_is_killed() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let mut running = Running::start(&directory, "nodejs22", "module.exports = { main: () => 1 }\n", "", &[]);
    assert!(processes_of(room.path()) > 1);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let end = Instant::now() + PATIENCE;
    while processes_of(room.path()) > 0 {
        assert!(Instant::now() < end, "the Function goes on");
        std::thread::yield_now();
    }
}
