//! Hostile requests of publishers, as raw bytes. No event from them is stored or delivered.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

const OWN: &str = "ce-specversion: 1.0\r\nce-id: evil\r\nce-source: s\r\nce-type: t\r\n";
const STRUCTURED: &str = "content-type: application/cloudevents+json\r\n";
const CHUNKED: &str = "transfer-encoding: chunked\r\n";

/// Returns the head of a request with these additional lines.
fn head(path: &str, lines: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: publisher\r\nconnection: close\r\n{lines}\r\n").into_bytes()
}

/// Returns a complete request.
fn request(path: &str, lines: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut all = head(path, &format!("{lines}content-length: {}\r\n", body.len()));
    all.extend_from_slice(body);
    all
}

fn binary(lines: &str) -> Vec<u8> {
    request("/publish", &format!("{OWN}{lines}"), "x")
}

/// Returns a structured event with these additional members.
fn structured(members: &str) -> Vec<u8> {
    let body = format!(r#"{{"specversion":"1.0","id":"evil","source":"s","type":"t"{members}}}"#);
    request("/publish", STRUCTURED, body)
}

/// Returns an event in Kyma's first format with this type and data.
fn first_format(of: &str, data: &str) -> Vec<u8> {
    let body = format!(
        r#"{{"event-type":"{of}","event-type-version":"v1","event-time":"2020-04-02T21:37:00Z","data":{data}}}"#
    );
    request("/mock/v1/events", "content-type: application/json\r\n", body)
}

fn bytes(before: &str, bytes: &[u8], after: &str) -> Vec<u8> {
    [before.as_bytes(), bytes, after.as_bytes()].concat()
}

/// Sends a request and reads the whole response.
async fn answer(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may refuse the request before it is sent completely.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "no end of the answer to {}", String::from_utf8_lossy(&request[..request.len().min(300)]));
    String::from_utf8(answer).unwrap()
}

impl Events {
    /// Starts a process that delivers every event to the sink.
    async fn with_a_trigger_for_everything() -> Self {
        let events = Self::running().await;
        let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink"}});
        events.create(KNATIVE, "Trigger", "triggers", "all", json!({"broker": "default", "subscriber": subscriber}));
        events.trigger_is_ready("all").await;
        events
    }

    /// Returns the amount of stored data.
    fn stored(&self) -> u64 {
        let Some(nats) = &self.nats else { return self.rows("recent") as u64 };
        nats.streams("mainstay_").iter().map(|state| state["last_seq"].as_u64().unwrap()).sum()
    }

    /// Checks that each request is refused with its status and words, and that no event is stored.
    async fn refuses(&self, all: Vec<(u16, &str, Vec<u8>)>) {
        let (mut before, mut wrong) = (self.stored(), Vec::new());
        for (status, words, request) in all {
            let answer = answer(self.address, &request).await;
            let said = answer.strip_prefix(&format!("HTTP/1.1 {status} ")).is_some_and(|rest| rest.contains(words));
            let sent = String::from_utf8_lossy(&request[..request.len().min(400)]).into_owned();
            if !said || answer.len() > 1000 {
                wrong.push(format!("--- wanted {status} {words}, got {answer:.300}\nto {sent}"));
            }
            let after = self.stored();
            if after != before {
                wrong.push(format!("--- it is stored: {sent}"));
                before = after;
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // The next valid event is accepted, and it is the only one that the subscriber receives.
        assert!((200..300).contains(&self.publish("good", "t", "data").await));
        self.seen(1).await;
        assert_eq!(self.sink.headers("ce-id"), ["good"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_break_http_or_its_limits_are_refused() {
    let events = Events::with_a_trigger_for_everything().await;
    let long = "x".repeat(70_000);
    let many = (0..100).map(|number| format!("x-{number}: 1\r\n")).collect::<Vec<_>>().concat();
    let endless = format!("{OWN}content-length: 10485760\r\n");
    let chunk = |text: &str| [head("/publish", &format!("{OWN}{CHUNKED}")), text.as_bytes().to_vec()].concat();
    let http = |line: &[u8]| {
        let before = format!("POST /publish HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{OWN}");
        bytes(&before, line, "\r\ncontent-length: 1\r\n\r\nx")
    };
    events
        .refuses(vec![
            (413, "at most 65536 bytes", request("/publish", OWN, &long)),
            (413, "at most 65536 bytes", [head("/publish", &endless), long.clone().into_bytes()].concat()),
            (413, "at most 65536 bytes", chunk(&format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()))),
            (413, "request_body_too_large", request("/mock/v1/events", "", &long)),
            (400, "the body could not be read", chunk("zz\r\nx\r\n0\r\n\r\n")),
            (400, "the body could not be read", chunk("ffffffffffffffffff\r\nx\r\n0\r\n\r\n")),
            (431, "", http(format!("ce-subject: {}", "x".repeat(20_000)).as_bytes())),
            (431, "", http(many.trim_end().as_bytes())),
            (400, "", http(b"ce subject: a")),
            (400, "", http(b"ce-subject: a\0b")),
            (400, "", http(b"ce-subject: a\rx-evil: 1")),
            (400, "", http(b"ce-subject: a\r\n x-evil: 1")),
            (400, "", http(b"content-length: 2")),
            (404, "", request("/publish?a=b", OWN, "x")),
            (404, "", request("/publish/../healthz", OWN, "x")),
            (405, "", b"PUT /publish HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_vec()),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_no_attributes_are_refused() {
    let events = Events::with_a_trigger_for_everything().await;
    let raw = |line: &[u8]| {
        let before = format!("POST /publish HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{OWN}");
        bytes(&before, line, "\r\ncontent-length: 1\r\n\r\nx")
    };
    let attributes = (0..55).map(|number| format!("ce-a{number}: 1\r\n")).collect::<Vec<_>>().concat();
    events
        .refuses(vec![
            (400, "ce-id is sent more than once", binary("ce-id: other\r\n")),
            (400, "ce-specversion is sent more than once", binary("CE-SpecVersion: 1.0\r\n")),
            (
                400,
                "content-type is sent more than once",
                binary("content-type: text/plain\r\ncontent-type: application/cloudevents+json\r\n"),
            ),
            (400, "subject: the value has control characters", binary("ce-subject: a%0D%0Ax-evil:%201\r\n")),
            (400, "subject: the value has control characters", binary("ce-subject: a%00\r\n")),
            (400, "subject: the value is not percent-encoded UTF-8", binary("ce-subject: %zz\r\n")),
            (400, "subject: the value is not percent-encoded UTF-8", binary("ce-subject: %ff\r\n")),
            (400, "subject: the value is not percent-encoded UTF-8", raw(b"ce-subject: \xff\xfe")),
            (
                400,
                "datacontenttype: the value has control characters",
                binary("ce-datacontenttype: a/b%0D%0Ax:%201\r\n"),
            ),
            (400, "datacontenttype: the value must be printable ASCII", binary("ce-datacontenttype: a/%C3%A9\r\n")),
            (400, "content-type: the value must be printable ASCII", raw(b"content-type: text/\xff")),
            (400, "traceparent: the value must be printable ASCII", binary("ce-traceparent: 00%C3%A9\r\n")),
            (400, "data: this name is reserved for the body; rename the attribute", binary("ce-data: other\r\n")),
            (400, "x-y: the name of an attribute", binary("ce-x-y: 1\r\n")),
            (
                400,
                "the attributes of the event are longer",
                binary(&format!("ce-subject: {}\r\n", "%C3%A9".repeat(2100))),
            ),
            (415, "content-encoding", binary("content-encoding: gzip\r\n")),
            (415, "application/cloudevents+xml", binary("content-type: application/cloudevents+xml\r\n")),
            (400, "batches", binary("content-type: application/cloudevents-batch+json\r\n")),
            (400, "unknown Message encoding", request("/publish", "content-type: text/plain\r\n", "x")),
            (400, "unknown Message encoding", request("/publish", "content-type: application/json\r\n", "{}")),
            (400, "unsupported cloudevents version", request("/publish", "ce-specversion: 0.3\r\nce-id: 1\r\n", "")),
            (400, "id: MUST be a non-empty string", request("/publish", "ce-specversion: 1.0\r\nce-id: \r\n", "")),
            (431, "", binary(&format!("{attributes}{attributes}"))),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_no_events_are_refused() {
    let events = Events::with_a_trigger_for_everything().await;
    let body = |body: &[u8]| request("/publish", STRUCTURED, body);
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let long = "x".repeat(60_000);
    let many = (0..8000).map(|number| format!(r#","a{number}":1"#)).collect::<Vec<_>>().concat();
    let twice = "is sent more than once";
    events
        .refuses(vec![
            (400, "not JSON", body(b"{")),
            (400, "not JSON", body(b"")),
            (400, "not JSON", body(b"[{\"specversion\":\"1.0\"}]")),
            (400, "not JSON", body(format!("\"{long}\"").as_bytes())),
            (400, "not JSON", body(b"{\"specversion\":\"1.0\",\"id\":\"\xff\"}")),
            (400, "not JSON", body(b"{\"specversion\":\"1.0\",\"id\":\"1\"} {}")),
            (400, "not JSON", body(&[b"{\"a\":".repeat(10_000), b"1".to_vec()].concat())),
            (400, "data is nested deeper than 128", structured(&format!(r#","data":{}"#, deep(30_000)))),
            (400, "a: the value of an attribute", structured(&format!(r#","a":{}"#, deep(30_000)))),
            (400, "a: the value of an attribute", structured(r#","a":"\ud800""#)),
            (400, twice, structured(r#","id":"other""#)),
            (400, twice, structured(r#","\u0069d":"other""#)),
            (400, twice, structured(r#","data":1,"data":2"#)),
            (400, twice, body(br#"{"ce-specversion":"1.0","ce-id":"1","id":"2","ce-source":"s","ce-type":"t"}"#)),
            (400, "data and data_base64 are both set", structured(r#","data":1,"data_base64":"eA==""#)),
            (400, "data_base64", structured(r#","data_base64":"%%""#)),
            (400, "data_base64", structured(r#","data_base64":1"#)),
            (400, "control characters", structured(r#","subject":"a\r\nx-evil: 1""#)),
            (400, "control characters", structured(r#","subject":"\u0000""#)),
            (400, "control characters", structured(r#","datacontenttype":"text/plain\r\nx-evil: 1","data":"x""#)),
            (400, "control characters", structured(r#","traceparent":"00\r\nx-evil: 1""#)),
            (400, "the name of an attribute", structured(r#","a\r\nx-evil: 1":"1""#)),
            (400, "the name of an attribute", structured(&format!(r#","{long}":1"#))),
            (400, "the attributes of the event are longer", structured(&format!(r#","subject":"{long}""#))),
            (400, "at most 64 attributes", structured(many[..60_000].rsplit_once(',').unwrap().0)),
            (400, "time: MUST be", structured(r#","time":"yesterday""#)),
            (400, "Bad payload syntax", request("/mock/v1/events", "", b"{\"event-type\":\"\xff\"}")),
            (400, "nested deeper than 128", first_format("t", &deep(30_000))),
            (400, "control characters", first_format(r"a\r\nx-evil: 1", "1")),
            (400, "the attributes of the event are longer", first_format(&long, "1")),
            (400, "duplicate field", first_format(r#"a","event-type":"b"#, "1")),
        ])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_gets_the_attributes_and_no_header_of_the_publisher() {
    let events = Events::with_a_trigger_for_everything().await;
    // Data is delivered unchanged, whatever its content type says.
    let lines = "content-type: application/json\r\nauthorization: Bearer secret\r\ncookie: a=b\r\nx-forwarded-for: 10.0.0.1\r\n\
                 x-evil: 1\r\nx-b3-traceid: abc\r\nce-subject: a%20b\r\n";
    let said = answer(events.address, &request("/publish", &format!("{OWN}{lines}"), r#"{"a": "#)).await;
    assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
    // Headers beside a structured body are not attributes.
    let body = r#"{"specversion":"1.0","id":"second","source":"s","type":"t","data":{}}"#;
    let lines = format!("{STRUCTURED}{OWN}ce-subject: smuggled\r\nx-evil: 1\r\n");
    let said = answer(events.address, &request("/publish", &lines, body)).await;
    assert!(said.starts_with("HTTP/1.1 204 "), "{said}");
    events.seen(2).await;
    let names = |id: &str| {
        let calls = events.sink.seen.calls.lock();
        let call = calls.iter().find(|call| call.headers["ce-id"] == id).unwrap();
        let mut names: Vec<_> = call.headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort();
        (names.join(" "), call.body.clone())
    };
    let common = |subject: &str, rest: &str| {
        format!(
            "accept ce-id ce-knativearrivaltime ce-source ce-specversion {subject}ce-type content-length content-type host user-agent{rest}"
        )
    };
    assert_eq!(names("evil"), (common("ce-subject ", " x-b3-traceid"), r#"{"a": "#.to_owned()));
    assert_eq!(names("second"), (common("", ""), "{}".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_never_end_exclude_no_client_and_cost_little() {
    const CLIENTS: usize = 200;
    let events = Events::with_a_trigger_for_everything().await;
    let (before, idle) = (events.stored(), events.peak());
    let mut lingering = Vec::new();
    for client in 0..CLIENTS {
        let mut stream = TcpStream::connect(events.address).await.unwrap();
        let begin = match client % 3 {
            0 => [head("/publish", &format!("{OWN}{CHUNKED}")), b"ea60\r\n".to_vec(), vec![b'x'; 60_000]].concat(),
            1 => [head("/publish", &format!("{OWN}content-length: 60001\r\n")), vec![b'x'; 60_000]].concat(),
            _ => [head("/mock/v1/events", CHUNKED), b"ea60\r\n".to_vec(), vec![b'['; 60_000]].concat(),
        };
        stream.write_all(&begin).await.unwrap();
        lingering.push(stream);
    }
    assert_eq!(events.stored(), before);
    for number in 0..20 {
        let status = timeout(PATIENCE, events.publish(&number.to_string(), "t", "data")).await.unwrap();
        assert!((200..300).contains(&status), "{status}");
    }
    events.seen(20).await;
    for mut stream in lingering {
        let mut answer = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("the body could not be read"), "{answer}");
    }
    let most = events.peak();
    // The clients sent 12 MB in total.
    assert!(most < idle + (40 << 10), "{idle}, then {most} KiB");
    let ids = events.sink.headers("ce-id");
    assert!(ids.len() == 20 && !ids.contains(&"evil".to_owned()), "{ids:?}");
}
