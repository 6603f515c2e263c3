//! `mainstay function run` with the Node.js and Python of this machine.

use mainstay_testkit::PATIENCE;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use devcluster::{Cluster, Options, Serving};
use mainstay_function::runtimes::libraries;
use serde_json::{Value, json};

use mainstay_testkit::{
    debuggers::{Adapter, Inspector, ports},
    libraries::place,
    world::World,
};

/// A Function that runs from a directory.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The output so far.
    seen: String,
    port: String,
}

impl Running {
    /// Creates a workspace and runs it on a free port.
    fn start(directory: &Path, runtime: &str, handler: &str, config: &str, more: &[&str]) -> Self {
        Self::start_with(directory, runtime, handler, config, more, &[])
    }

    /// Creates a workspace and runs it on a free port, with environment variables for the command.
    fn start_with(
        directory: &Path,
        runtime: &str,
        handler: &str,
        config: &str,
        more: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let path = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let init = ["function", "init", "--runtime", runtime, "-n", "team", "--dir", &path("")];
        assert!(
            mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay")).args(init).output().unwrap().status.success()
        );
        let name = if runtime.starts_with("node") { "handler.js" } else { "handler.py" };
        fs::write(path(name), handler).unwrap();
        let text = fs::read_to_string(path("config.yaml")).unwrap();
        fs::write(path("config.yaml"), text + config).unwrap();
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.args(["run", "function", "--filename", &path("config.yaml"), "--port", "0"]).args(more);
        command.env(libraries::VARIABLE, place()).env("NOT_FOR_FUNCTIONS", "1");
        // The path identifies the processes of this test by their command line.
        command.env("TMPDIR", directory.parent().unwrap()).envs(env.iter().copied());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, out, seen: String::new(), port: String::new() };
        running.listening();
        running
    }

    /// Returns the next line that contains a text.
    fn line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it has ended before it said {text:?}");
            self.seen.push_str(&line);
        }
        line
    }

    fn listening(&mut self) {
        let line = self.line("Listening on");
        let port = line.trim().rsplit(' ').next().unwrap();
        assert!(self.port.is_empty() || self.port == port, "it is found where it was: {} and {port}", self.port);
        port.clone_into(&mut self.port);
    }

    fn get(&self) -> String {
        Self::ask(&self.port)
    }

    fn ask(port: &str) -> String {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Interrupts the command as a terminal does, and checks for leftover processes.
    fn interrupt(mut self, room: &Path) {
        mainstay_testkit::isolated("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(processes_of(room), 0, "no process is left");
    }
}

/// Counts processes with this directory in their command line.
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
        // The process may have ended.
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
    running.line("- Saved; it restarts");
    running.listening();
    assert_eq!(running.get(), answer("two"));

    // A syntax error does not end the command.
    fs::write(directory.join("handler.js"), "module.exports = {").unwrap();
    running.line("- Saved; it restarts");
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
    running.line("- Saved; it restarts");
    running.listening();
    assert_eq!(running.get(), "Hello two");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing is written beside its files");
    running.interrupt(room.path());
}

/// Returns the VS Code configuration in the book.
fn launch(kind: &str) -> Value {
    let page = include_str!("../../docs/functions/from-a-directory.md");
    let json = page.split_once("```json").unwrap().1.split_once("```").unwrap().0;
    let launch: Value = serde_json::from_str(json).unwrap();
    launch["configurations"].as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap().clone()
}

fn address(place: &Value, host: &str) -> String {
    format!("{}:{}", place[host].as_str().unwrap(), place["port"])
}

#[test]
fn a_breakpoint_in_the_own_file_is_hit_by_nodejs() {
    let _ports = ports();
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let code = "module.exports = {\n  main: () => {\n    const name = 'Ada';\n    return `Hello ${name}`;\n  },\n};\n";
    let running = Running::start(&directory, "nodejs22", code, "", &["--debug"]);
    let mut debugger = Inspector::attach(&address(&launch("node"), "address"), room.path());
    let file = fs::canonicalize(directory.join("handler.js")).unwrap();
    let file = format!("file://{}", file.display());
    debugger.call("Debugger.enable", json!({}));
    let set = debugger.call("Debugger.setBreakpointByUrl", json!({"lineNumber": 3, "url": file}));
    assert_eq!(set["locations"][0]["lineNumber"], 3, "{set}");
    let port = running.port.clone();
    let called = std::thread::spawn(move || Running::ask(&port));
    let paused = debugger.event("Debugger.paused");
    let frame = &paused["callFrames"][0];
    assert_eq!(paused["hitBreakpoints"], json!([set["breakpointId"]]));
    let of = |location: &Value| (location["scriptId"].clone(), location["lineNumber"].clone());
    assert_eq!(of(&frame["location"]), of(&set["locations"][0]), "in the file of this URL");
    let on = json!({"callFrameId": frame["callFrameId"], "expression": "name"});
    assert_eq!(debugger.call("Debugger.evaluateOnCallFrame", on)["result"]["value"], "Ada");
    debugger.call("Debugger.resume", json!({}));
    assert_eq!(called.join().unwrap(), "Hello Ada");
    drop(debugger);
    running.interrupt(room.path());
}

#[test]
fn a_breakpoint_in_the_own_file_is_hit_by_python_and_again_when_it_is_saved() {
    let _ports = ports();
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let code = |name: &str| format!("def main(event, context):\n    name = '{name}'\n    return 'Hello ' + name\n");
    let mut running = Running::start(&directory, "python312", &code("Ada"), "", &["--debug"]);
    let configuration = launch("debugpy");
    for name in ["Ada", "Bob"] {
        let mut debugger = Adapter::connect(&address(&configuration["connect"], "host"));
        let capabilities = json!({"adapterID": "debugpy", "linesStartAt1": true, "pathFormat": "path"});
        debugger.call("initialize", capabilities);
        let attached = debugger.send("attach", configuration.clone());
        debugger.event("initialized");
        let file = fs::canonicalize(directory.join("handler.py")).unwrap();
        let wanted = json!({"source": {"path": file}, "breakpoints": [{"line": 3}]});
        let set = debugger.call("setBreakpoints", wanted);
        assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
        debugger.call("configurationDone", json!({}));
        debugger.answer(attached);
        let port = running.port.clone();
        let called = std::thread::spawn(move || Running::ask(&port));
        let stopped = debugger.event("stopped");
        assert_eq!(stopped["reason"], "breakpoint", "{stopped}");
        let stack = debugger.call("stackTrace", json!({"threadId": stopped["threadId"]}));
        let frame = &stack["stackFrames"][0];
        assert_eq!((&frame["source"]["path"], &frame["line"]), (&json!(file), &json!(3)));
        let seen = debugger.call("evaluate", json!({"expression": "name", "frameId": frame["id"]}));
        assert_eq!(seen["result"], format!("'{name}'"));
        debugger.call("continue", json!({"threadId": stopped["threadId"]}));
        assert_eq!(called.join().unwrap(), format!("Hello {name}"));
        if name == "Ada" {
            fs::write(directory.join("handler.py"), code("Bob")).unwrap();
            running.line("- Saved; it restarts");
            running.listening();
        }
    }
    running.interrupt(room.path());
}

#[test]
fn another_user_and_a_page_of_a_foreign_site_do_not_call_the_function() {
    let room = tempfile::tempdir().unwrap();
    let code = "module.exports = { main: () => 'secret' }\n";
    let running = Running::start(&room.path().join("shop"), "nodejs22", code, "", &[]);
    let url = format!("http://127.0.0.1:{}/", running.port);
    let ask = |command: &mut std::process::Command, more: &[&str]| {
        let output = command.args(["-s", "--noproxy", "*"]).args(more).arg(&url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let own = |more: &[&str]| ask(&mut mainstay_testkit::isolated("curl"), more);
    assert_eq!(own(&[]), "secret");
    assert!(own(&["-H", "Origin: https://evil.example", "-d", "x"]).contains("another site"));
    assert!(own(&["-H", "Host: evil.example"]).contains("DNS rebinding"));
    if rustix::process::geteuid().is_root() {
        let mut other = mainstay_testkit::isolated("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "curl"]);
        assert_eq!(ask(&mut other, &[]), "");
    }
    running.interrupt(room.path());
}

#[test]
fn daemons_end_with_the_command() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let code = "const { spawn } = require('child_process');\nconst wait = `sleep 1000; : ${__dirname}`;\nspawn('sh', ['-c', \
                wait], { detached: true, stdio: 'ignore' }).unref();\nspawn('sh', ['-c', `(setsid sh -c '${wait}' &)`], { \
                stdio: 'ignore' }).on('exit', () => console.log('both are begun'));\nmodule.exports = { main: () => 1 }\n";
    let mut running = Running::start(&directory, "nodejs22", code, "", &[]);
    if !running.seen.contains("both are begun") {
        running.line("both are begun");
    }
    // The command, the Function and its supervisor are three processes. The shell may have ended before its children
    // appear.
    let end = Instant::now() + PATIENCE;
    while processes_of(room.path()) <= 3 {
        assert!(Instant::now() < end, "{} processes", processes_of(room.path()));
        std::thread::sleep(Duration::from_millis(20));
    }
    running.interrupt(room.path());
}

/// A cluster with the Secret and the ConfigMap of [`ENV`], and its kubeconfig.
async fn cluster(kubeconfig: &Path) -> Serving {
    let server = Cluster::new(Options::default());
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    fs::write(kubeconfig, server.kubeconfig(serving.address(), None)).unwrap();
    let world = World::of(server);
    world.create("v1", "namespaces", "", json!({"metadata": {"name": "team"}}));
    let secret = json!({"metadata": {"name": "s", "namespace": "team"}, "stringData": {"k": "of the cluster"}});
    world.create("v1", "secrets", "team", secret);
    serving
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_come_from_a_cluster_that_is_named_and_from_no_other() {
    let room = tempfile::tempdir().unwrap();
    let directory = room.path().join("shop");
    let kubeconfig = room.path().join("kubeconfig");
    let _serving = cluster(&kubeconfig).await;
    let kubeconfig = kubeconfig.to_str().unwrap();
    let code = "module.exports = { main: () => `${process.env.GREETING} ${process.env.TOKEN}` }\n";
    let env = [("KUBECONFIG", kubeconfig)];
    let answer = |more: &[&str]| {
        let running = Running::start_with(&directory, "nodejs22", code, ENV, more, &env);
        let answer = running.get();
        running.interrupt(room.path());
        fs::remove_dir_all(&directory).unwrap();
        answer
    };
    tokio::task::block_in_place(|| {
        assert_eq!(answer(&[]), "Hello undefined", "no cluster is named");
        assert_eq!(answer(&["--kubeconfig", kubeconfig]), "Hello of the cluster");
        let contexts =
            mainstay_testkit::isolated("kubectl").args(["config", "current-context"]).envs(env).output().unwrap();
        let context = String::from_utf8(contexts.stdout).unwrap();
        assert_eq!(answer(&["--context", context.trim()]), "Hello of the cluster");
        let given = room.path().join("given");
        fs::write(&given, "TOKEN=of the file\n").unwrap();
        let both = ["--kubeconfig", kubeconfig, "--env-file", given.to_str().unwrap()];
        assert_eq!(answer(&both), "Hello of the file");
    });
}

#[test]
fn a_killed_command_leaves_no_process() {
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
