//! Files in Git LFS: pointers as git-lfs writes them, and a server with fault injection. The server implements
//! <https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md>.

use std::{collections::HashMap, convert::Infallible};

use axum::{
    body::Body,
    http::{Response, header, request::Parts},
};
use bytes::Bytes;
use serde_json::{Value, json};

/// A file in Git LFS.
pub struct LargeFile {
    /// The content in the commit.
    pub pointer: String,
    /// SHA-256 of the content, which is the file's key on the server.
    pub oid: String,
}

impl LargeFile {
    pub fn of(content: impl AsRef<[u8]>) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let output = crate::isolated("git").args(["lfs", "pointer", "--file"]).arg(file.path()).output().unwrap();
        assert!(output.status.success(), "git-lfs is needed: apt-get install git-lfs");
        let pointer = String::from_utf8(output.stdout).unwrap();
        let oid = pointer.split("oid sha256:").nth(1).unwrap()[..64].to_owned();
        Self { pointer, oid }
    }
}

/// An injected fault of the server.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server responds to each batch with this value.
    Batch(Value),
    /// The server sends endless responses to batches.
    EndlessBatch,
    /// The server sends endless files.
    EndlessFile,
    /// The server does not respond to requests for files.
    StalledFile,
    /// The server responds to requests for files with this status and a string.
    FileStatus(u16),
    /// The server redirects requests for files to this URL.
    FileRedirect(String),
}

/// The files of the server. A download needs a header from the batch response.
#[derive(Default)]
pub struct Store {
    /// The files by their SHA-256.
    pub files: HashMap<String, Vec<u8>>,
    /// Numbers of batches and downloads.
    pub requests: (usize, usize),
    /// Base URL of downloads, if a different server has the files.
    pub elsewhere: Option<String>,
    pub fault: Option<Fault>,
}

const JSON: &str = "application/vnd.git-lfs+json";

impl Store {
    /// Returns the response to a request; `None` if the server never responds.
    pub fn answer(&mut self, head: &Parts, body: &[u8]) -> Option<Response<Body>> {
        let Some((repository, oid)) = head.uri.path().split_once("/info/lfs/objects/") else {
            return Some(reply(404, "text/plain", Vec::new()));
        };
        if oid == "batch" {
            self.requests.0 += 1;
            return Some(match self.fault.clone() {
                Some(Fault::Batch(answer)) => reply(200, JSON, serde_json::to_vec(&answer).unwrap()),
                Some(Fault::EndlessBatch) => endless(b"{\"objects\": [".to_vec()),
                _ => self.batch(head, repository, &serde_json::from_slice(body).unwrap()),
            });
        }
        if head.method == "PUT" {
            self.files.insert(oid.to_owned(), body.to_vec());
            return Some(reply(200, "text/plain", Vec::new()));
        }
        self.requests.1 += 1;
        let is_let_in = head.headers.get("x-lfs-key").is_some_and(|key| key == "42");
        Some(match (self.fault.clone(), self.files.get(oid).filter(|_| is_let_in)) {
            (Some(Fault::EndlessFile), _) => endless(Vec::new()),
            (Some(Fault::StalledFile), _) => return None,
            (Some(Fault::FileStatus(status)), _) => reply(status, "text/plain", b"canary".to_vec()),
            (Some(Fault::FileRedirect(to)), _) => {
                Response::builder().status(302).header(header::LOCATION, to).body(Body::empty()).unwrap()
            }
            (_, Some(content)) => reply(200, "application/octet-stream", content.clone()),
            (_, None) => reply(403, "text/plain", Vec::new()),
        })
    }

    fn batch(&self, head: &Parts, repository: &str, asked: &Value) -> Response<Body> {
        let operation = asked["operation"].as_str().unwrap();
        let host = head.headers[header::HOST].to_str().unwrap();
        let base = self.elsewhere.clone().unwrap_or_else(|| format!("http://{host}{repository}"));
        assert!(head.headers[header::ACCEPT].to_str().unwrap().starts_with(JSON));
        let object = |object: &Value| {
            let oid = object["oid"].as_str().unwrap();
            let mut action = json!({"href": format!("{base}/info/lfs/objects/{oid}"), "header": {"x-lfs-key": "42"}});
            if let Some(credentials) = head.headers.get(header::AUTHORIZATION).filter(|_| self.elsewhere.is_none()) {
                action["header"]["Authorization"] = json!(credentials.to_str().unwrap());
            }
            if operation == "upload" || self.files.contains_key(oid) {
                return json!({"oid": oid, "size": object["size"], "actions": {operation: action}});
            }
            json!({"oid": oid, "size": object["size"], "error": {"code": 404, "message": "canary"}})
        };
        let objects: Vec<_> = asked["objects"].as_array().unwrap().iter().map(object).collect();
        reply(200, JSON, serde_json::to_vec(&json!({"transfer": "basic", "objects": objects})).unwrap())
    }
}

fn reply(status: u16, kind: &str, body: Vec<u8>) -> Response<Body> {
    Response::builder().status(status).header(header::CONTENT_TYPE, kind).body(Body::from(body)).unwrap()
}

fn endless(beginning: Vec<u8>) -> Response<Body> {
    let blanks = futures::stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b' '; 4096])));
    let first = futures::stream::once(async { Ok(Bytes::from(beginning)) });
    let body = Body::from_stream(futures::StreamExt::chain(first, blanks));
    Response::builder().status(200).header(header::CONTENT_TYPE, JSON).body(body).unwrap()
}
