//! Tests with the installed Node.js and Python.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;

use super::*;

/// Body of the Service's response.
const BODY: &str = "it is b";

/// A node with the Service `b` in two namespaces, bound to other ports than declared.
struct Room {
    directory: tempfile::TempDir,
    names: Names,
    port: u16,
}

impl Room {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("a \"room\" ").tempdir().unwrap();
        let names = Names::new(directory.path());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for namespace in ["shop", "other"] {
            names.set(namespace, "b", Ipv4Addr::LOCALHOST, &[(80, port), (443, 8443)]).unwrap();
        }
        // The thread ends with the process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(read @ 1..) => head.extend_from_slice(&buffer[..read]),
                        _ => break,
                    }
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let host = head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
                let body = format!("{BODY}, {}", host.unwrap_or_default());
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        Self { directory, names, port }
    }

    /// Returns the output of a program in a pod of the namespace `shop`; `more` is added to its environment.
    fn run(&self, program: &str, arguments: &[&str], more: &[(&str, &str)]) -> String {
        let mut env: BTreeMap<String, String> =
            more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.names.add_to(&mut env, "shop").unwrap();
        env.insert("PATH".to_owned(), std::env::var("PATH").unwrap());
        let output =
            Command::new(program).args(arguments).env_clear().envs(env).current_dir(&self.directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn node(&self, script: &str) -> String {
        let script =
            format!("const main = async () => {{ {script} }};\nmain().then((said) => console.log(String(said)));");
        self.run("node", &["-e", &script], &[])
    }

    fn python(&self, script: &str) -> String {
        self.run("python3", &["-c", script], &[])
    }
}

const HOSTS: [&str; 8] = [
    "b",
    "b.shop",
    "b.other",
    "B.Shop.svc",
    "b.shop.svc.cluster.local",
    "b.shop.svc.cluster.local.",
    "b.other.svc.cluster.local",
    "127.0.0.1",
];

/// Names that do not resolve.
const UNKNOWN: [&str; 5] =
    ["nobody.shop.svc.cluster.local", "b.nowhere.svc", "x.b.shop.svc.cluster.local", "b.svc", "../b.shop.svc"];

#[test]
fn nodejs_finds_services_and_their_ports() {
    let room = Room::new();
    for host in HOSTS {
        let expected = format!("{BODY}, {}", host.to_lowercase());
        let fetched = format!("return (await fetch('http://{host}/')).text()");
        assert_eq!(room.node(&fetched), expected, "fetch {host}");
        let got = format!(
            "return new Promise((done, failed) => require('http').get('http://{host}/', (answer) => {{ let all = ''; \
             answer.on('data', (data) => {{ all += data; }}).on('end', () => done(all)); }}).on('error', failed))"
        );
        assert_eq!(room.node(&got).to_lowercase(), expected, "http.get {host}");
    }
    let connected = "return new Promise((done, failed) => { const s = require('net').connect(80, 'b', () => { \
                     done(s.remotePort); s.destroy(); }).on('error', failed); })";
    assert_eq!(room.node(connected), room.port.to_string());
    let looked = "const dns = require('dns'); const { promisify } = require('util'); const one = await \
                  promisify(dns.lookup)('b'); const all = await dns.promises.lookup('b.other', { all: true }); return \
                  one.address + ' ' + JSON.stringify(all)";
    assert_eq!(room.node(looked), r#"127.0.0.1 [{"address":"127.0.0.1","family":4}]"#);
    // A named import is the same function, and a child process resolves the same names.
    let script = "import { lookup } from 'node:dns';\nimport { execFileSync } from 'node:child_process';\nlookup('b', \
                  (error, address) => console.log(address, execFileSync(process.execPath, ['-p', \
                  \"require('dns').lookup('b', (e, a) => console.log(a)), ''\"]).toString().trim()));\n";
    assert_eq!(room.run("node", &["--input-type=module", "-e", script], &[]), "127.0.0.1 127.0.0.1");
}

#[test]
fn python_finds_services_and_their_ports() {
    let room = Room::new();
    for host in HOSTS {
        let expected = format!("{BODY}, {}", host.to_lowercase());
        let fetched = format!(
            "import urllib.request\nprint(urllib.request.urlopen('http://{host}/', timeout=10).read().decode())"
        );
        assert_eq!(room.python(&fetched).to_lowercase(), expected, "urlopen {host}");
    }
    let port = room.port;
    let script = "import socket, asyncio\nsock = socket.socket()\nsock.connect(('b', 80))\nprint(sock.getpeername()[1])\n\
                  print(socket.getaddrinfo('b.other', '80', type=socket.SOCK_STREAM)[0][4])\n\
                  print(socket.gethostbyname('b'))\nasync def main():\n    reader, writer = await asyncio.open_connection('b', \
                  80)\n    print(writer.get_extra_info('peername')[1])\n    writer.close()\nasyncio.run(main())";
    assert_eq!(room.python(script), format!("{port}\n('127.0.0.1', {port})\n127.0.0.1\n{port}"));
    let child = "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'import socket; \
                 print(socket.gethostbyname(\"b\"))'], capture_output=True, text=True).stdout)";
    assert_eq!(room.python(child), "127.0.0.1");
}

#[test]
fn an_unknown_service_fails_as_a_resolver_does() {
    let room = Room::new();
    for host in UNKNOWN {
        let looked = format!(
            "return new Promise((done) => require('dns').lookup('{host}', (e) => done(`${{e.code}} ${{e.hostname}}`)))"
        );
        assert_eq!(room.node(&looked), format!("ENOTFOUND {host}"));
        let looked = format!(
            "import socket\ntry:\n    socket.getaddrinfo('{host}', 80)\nexcept socket.gaierror as error:\n    print(error)"
        );
        assert_eq!(room.python(&looked), "[Errno -2] Name or service not known", "{host}");
    }
    let fetched = "try { await fetch('http://nobody.shop.svc/') } catch (error) { return error.cause.code }";
    assert_eq!(room.node(fetched), "ENOTFOUND");
    room.names.remove("shop", "b", Ipv4Addr::LOCALHOST);
    let looked = "return new Promise((done) => require('dns').lookup('b.shop.svc', (e) => done(e.code)))";
    assert_eq!(room.node(looked), "ENOTFOUND", "a Service that is gone");
}

#[test]
fn names_that_are_no_service_are_resolved_unchanged() {
    let room = Room::new();
    room.names.set("shop", "localhost", Ipv4Addr::new(127, 9, 9, 9), &[]).unwrap();
    let looked = "return (await require('dns').promises.lookup('localhost', 4)).address";
    assert_eq!(room.node(looked), "127.0.0.1");
    assert_eq!(room.python("import socket\nprint(socket.gethostbyname('localhost'))"), "127.0.0.1");
    // The hook ignores invalid arguments, so the usual error remains.
    let wrong = "try { require('dns').lookup('b') } catch (error) { return error.code }";
    assert_eq!(room.node(wrong), "ERR_INVALID_ARG_TYPE");
    // A port that the Service does not declare is not changed.
    let other =
        "return new Promise((done) => require('net').connect(81, 'b').on('error', (error) => done(error.port)))";
    assert_eq!(room.node(other), "81");
}

#[test]
fn hooks_and_options_of_a_program_itself_stay() {
    let room = Room::new();
    let own = room.directory.path().join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sitecustomize.py"), "import builtins\nbuiltins.OWN = 'mine'\n").unwrap();
    let path = own.to_str().unwrap();
    let script = "import sys, socket\nprint(OWN, sys.modules['sitecustomize'].__file__ == sys.path[1] + '/sitecustomize.py', \
                  any('hooks' in place for place in sys.path), socket.gethostbyname('b'))";
    assert_eq!(room.run("python3", &["-c", script], &[("PYTHONPATH", path)]), "mine True False 127.0.0.1");
    let script = "require('dns').lookup('b', (e, a) => console.log(a, process.title))";
    assert_eq!(room.run("node", &["-e", script], &[("NODE_OPTIONS", "--title=mine")]), "127.0.0.1 mine");
}
