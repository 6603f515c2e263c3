//! Requests and responses of a function in Node.js, compared with a plain Express application.

use mainstay_function::runtimes::{Language, libraries};
use serde::Deserialize;

use super::server::Server;
use mainstay_testkit::libraries::place;

const CASES: &str = include_str!("judges/express_cases.js");
const JUDGE: &str = include_str!("judges/express.js");
const HANDLER: &str = "const cases = require('./express_cases');
    exports.main = (event) => cases.run(event.extensions.request, event.extensions.response);";

/// Number of repeated requests after a difference.
const MORE_SECONDS: usize = 3;

/// The names that Express defines on requests and responses.
#[derive(Deserialize)]
struct Names {
    req: Vec<String>,
    res: Vec<String>,
}

#[derive(Deserialize)]
struct Asked {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[test]
fn every_name_of_express_does_what_it_does_in_express() {
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("digits.txt"), "0123456789").unwrap();
    std::fs::write(files.path().join(".hidden"), "secret").unwrap();
    let express = libraries::find(Language::NodeJs, place().as_ref()).unwrap().join("express");
    let env = [("FILES", files.path().to_str().unwrap()), ("EXPRESS", express.to_str().unwrap())];
    let judge = Server::judge("node", &[("express.js", JUDGE), ("express_cases.js", CASES)], &env);
    let function = Server::with("nodejs22", &[("handler.js", HANDLER), ("express_cases.js", CASES)], &env);
    let asked: Vec<Asked> = serde_json::from_str(&judge.get("/requests").body).unwrap();
    let names: Names = serde_json::from_str(&judge.get("/names").body).unwrap();
    assert!(names.req.len() > 30 && names.res.len() > 20, "what Express adds: {:?} {:?}", names.req, names.res);
    for (kind, names) in [("req", &names.req), ("res", &names.res)] {
        for name in names {
            let prefix = format!("/{kind}/{name}");
            let covers =
                |asked: &Asked| asked.path.split(['?']).next().unwrap_or("").split('/').take(3).eq(prefix.split('/'));
            assert!(asked.iter().any(covers), "no case for {kind}.{name}");
        }
    }
    let mut differ = Vec::new();
    for Asked { method, path, headers, body } in &asked {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let ask = || {
            [&function, &judge].map(|server| {
                let reply = server.ask(method, path, &headers, body.as_bytes());
                format!("{} {}", reply.header("content-length"), reply.full())
            })
        };
        let [mut ours, mut theirs] = ask();
        // A cookie's expiry contains the second, which may differ between the two servers.
        for _ in 0..MORE_SECONDS {
            if ours != theirs {
                [ours, theirs] = ask();
            }
        }
        if ours != theirs {
            differ.push(format!("{method} {path} {headers:?}\n  function: {ours}\n  Express:  {theirs}"));
        }
    }
    assert!(differ.is_empty(), "{} of {} answers differ:\n{}", differ.len(), asked.len(), differ.join("\n"));
}
