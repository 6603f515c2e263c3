//! Minimal clients of debuggers that can set a breakpoint: the inspector of Node.js and the debug adapter protocol.

use crate::PATIENCE;
use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::Instant,
};

use serde_json::{Value, json};

/// Locks the debuggers' ports, which all tests on this machine share.
pub fn ports() -> File {
    let path = std::env::temp_dir().join("mainstay-tests-debug-ports");
    // A file of another user cannot be written, but it can be opened and locked.
    let file = File::open(&path).or_else(|_| File::create(&path)).unwrap();
    file.lock().unwrap();
    file
}

/// Connects to an address, with retries until a server listens.
fn connect(address: &str) -> BufReader<TcpStream> {
    let end = Instant::now() + PATIENCE;
    let stream = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < end, "{address}: {error}"),
        }
        std::thread::yield_now();
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

/// Reads the head of a message as a string.
fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut text).unwrap() > 0, "it has ended: {text:?}");
    }
    text
}

fn length(head: &str) -> usize {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap();
    length.trim().parse().unwrap()
}

fn json_of(stream: &mut BufReader<TcpStream>, length: usize) -> Value {
    let mut text = vec![0; length];
    stream.read_exact(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// A debugger attached to Node.js.
pub struct Inspector {
    stream: BufReader<TcpStream>,
    last: u64,
}

impl Inspector {
    /// Attaches to the first program at an address. The program must be stopped at `place`.
    pub fn attach(address: &str, place: &Path) -> Self {
        let mut stream = connect(address);
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n");
        write!(stream.get_mut(), "{}\r\n", ask("/json/list")).unwrap();
        let length = length(&head(&mut stream));
        let offered = json_of(&mut stream, length);
        let (url, socket) = (offered[0]["url"].as_str().unwrap(), offered[0]["webSocketDebuggerUrl"].as_str().unwrap());
        assert!(url.contains(place.to_str().unwrap()), "it is this one: {offered}");
        let path = socket.split_once(address).unwrap().1;
        let mut stream = connect(address);
        let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n";
        write!(stream.get_mut(), "{}{upgrade}Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", ask(path)).unwrap();
        assert!(head(&mut stream).starts_with("HTTP/1.1 101 "));
        Self { stream, last: 0 }
    }

    /// Calls a method and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let text = json!({"id": self.last, "method": method, "params": params}).to_string();
        let length = u16::try_from(text.len()).unwrap();
        // One text frame with two bytes of length. A mask of zeros does not change the text.
        let mut frame = vec![0x81, 0xfe];
        frame.extend(length.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(text.bytes());
        self.stream.get_mut().write_all(&frame).unwrap();
        let last = self.last;
        let answer = self.until(|message| message["id"] == last);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Returns the next event with this name.
    pub fn event(&mut self, name: &str) -> Value {
        self.until(|message| message["method"] == name)["params"].take()
    }

    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut start = [0; 2];
            self.stream.read_exact(&mut start).unwrap();
            assert_eq!(start[0], 0x81, "one text frame");
            let more = match start[1] {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            let mut length = [0; 8];
            self.stream.read_exact(&mut length[8 - more..]).unwrap();
            let length = if more == 0 { u64::from(start[1]) } else { u64::from_be_bytes(length) };
            let message = json_of(&mut self.stream, usize::try_from(length).unwrap());
            if wanted(&message) {
                return message;
            }
        }
    }
}

/// A debugger attached to a debug adapter.
pub struct Adapter {
    stream: BufReader<TcpStream>,
    last: u64,
}

impl Adapter {
    pub fn connect(address: &str) -> Self {
        Self { stream: connect(address), last: 0 }
    }

    /// Sends a request and returns its number.
    pub fn send(&mut self, command: &str, arguments: Value) -> u64 {
        self.last += 1;
        let text = json!({"seq": self.last, "type": "request", "command": command, "arguments": arguments}).to_string();
        write!(self.stream.get_mut(), "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
        self.last
    }

    /// Returns the body of the response to a request.
    pub fn answer(&mut self, request: u64) -> Value {
        let mut answer = self.until(|message| message["type"] == "response" && message["request_seq"] == request);
        assert_eq!(answer["success"], true, "{answer}");
        answer["body"].take()
    }

    pub fn call(&mut self, command: &str, arguments: Value) -> Value {
        let request = self.send(command, arguments);
        self.answer(request)
    }

    /// Returns the next event with this name.
    pub fn event(&mut self, name: &str) -> Value {
        self.until(|message| message["type"] == "event" && message["event"] == name)["body"].take()
    }

    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let length = length(&head(&mut self.stream));
            let message = json_of(&mut self.stream, length);
            if wanted(&message) {
                return message;
            }
        }
    }
}
