//! A call of a Function: the request of the form, and the response as a page shows it.
//!
//! Invariant: a call uses a method of the list and a path of the Service. No field selects a host or another Service.

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::Value;

use crate::filter::Query;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_cluster::{ServiceAnswer, ServicePath};
use mainstay_object::Key;

/// Maximum size of a response that is read, in bytes.
pub(crate) const LONGEST: usize = 128 << 10;
/// Maximum number of headers on the page.
const HEADERS: usize = 100;

/// The methods, each with the verb that the user needs for `services/proxy`.
pub(crate) static METHODS: [(Method, &str); 5] = [
    (Method::GET, "get"),
    (Method::POST, "create"),
    (Method::PUT, "update"),
    (Method::PATCH, "patch"),
    (Method::DELETE, "delete"),
];

/// The fields of the form, as the user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// A request of the form.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) method: Method,
    pub(crate) path: ServicePath,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl Written {
    /// Returns the empty form.
    pub(crate) fn new() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            content_type: "application/json".to_owned(),
            body: String::new(),
        }
    }

    pub(crate) fn of(form: &Query) -> Self {
        let text = |name: &str| form.get(name).to_owned();
        Self { method: text("method"), path: text("path"), content_type: text("type"), body: text("body") }
    }

    /// Parses the fields.
    ///
    /// # Errors
    /// Fails with the problem of the first invalid field.
    pub(crate) fn parse(&self) -> Result<Wanted, String> {
        let method = METHODS.iter().map(|(method, _)| method).find(|method| method.as_str() == self.method);
        let method = method.ok_or("This method is not in the list.")?.clone();
        let path = self.path.trim().parse::<ServicePath>().map_err(|why| format!("Path: {why}."))?;
        let has_body = method != Method::GET && !self.body.is_empty();
        let content_type = HeaderValue::from_str(self.content_type.trim());
        let content_type = content_type.map_err(|_| "Content type: it cannot be a header; write application/json.")?;
        let content_type = Some(content_type).filter(|text| has_body && !text.is_empty());
        let body = if has_body { Bytes::from(self.body.clone()) } else { Bytes::new() };
        Ok(Wanted { method, path, content_type, body })
    }
}

/// A response as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The body, or its size in bytes if it is not text.
    pub(crate) body: Result<String, usize>,
    pub(crate) is_cut: bool,
    /// The message of an error in the format of the API server's own errors.
    pub(crate) refusal: Option<String>,
}

/// Converts a response for a page.
pub(crate) fn shown(answer: &ServiceAnswer) -> Shown {
    let parsed: Option<Value> = serde_json::from_slice(&answer.body).ok().filter(|_| !answer.is_cut);
    let is_status = |value: &&Value| value["kind"] == "Status" && value["apiVersion"] == "v1" && answer.status >= 400;
    let refusal = parsed.as_ref().filter(is_status).and_then(|value| value["message"].as_str());
    let text = match &parsed {
        Some(value) => serde_json::to_string_pretty(value).ok(),
        // The body may be cut within a character.
        None if answer.is_cut => text_of(&answer.body[..whole(&answer.body)]),
        None => text_of(&answer.body),
    };
    let header = |(name, value): (&http::HeaderName, &HeaderValue)| {
        (name.to_string(), plain(&String::from_utf8_lossy(value.as_bytes()), MESSAGE))
    };
    Shown {
        status: answer.status,
        headers: answer.headers.iter().take(HEADERS).map(header).collect(),
        body: text.map(|text| plain(&text, 2 * LONGEST)).ok_or(answer.body.len()),
        is_cut: answer.is_cut,
        refusal: refusal.map(|text| plain(text, MESSAGE)),
    }
}

fn text_of(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).map(str::to_owned)
}

/// Returns the length of the bytes without a cut character at the end.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Returns the port of a Function's Service.
///
/// # Errors
/// Fails with the reason why the Function cannot be called through this Service.
pub(crate) fn port(function: &Value, service: &Value, key: &Key) -> Result<u16, String> {
    let uid = function.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let mut owners = service.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let is_own = !uid.is_empty() && owners.any(|owner| owner["uid"] == uid && owner["kind"] == "Function");
    let name = plain(&key.name, SHORT);
    if !is_own || service.pointer("/spec/type").is_some_and(|kind| kind == "ExternalName") {
        return Err(format!(
            "The Service {name} is not the one of this Function, so it is not called. A Function on Knative is called at \
             the URL of its Knative Service."
        ));
    }
    let port = service.pointer("/spec/ports/0/port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    port.ok_or_else(|| format!("The Service {name} has no port."))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::json;

    use super::*;

    fn parse(query: &str) -> Result<Wanted, String> {
        Written::of(&Query::parse(query.as_bytes())).parse()
    }

    #[test]
    fn a_call_has_a_method_of_the_list_and_a_path_below_its_service() {
        let wanted = parse("method=POST&path=/a%3Fb%3D1&type=text/plain&body=hello").unwrap();
        assert_eq!((wanted.path.to_string(), &wanted.body[..]), ("/a?b=1".to_owned(), &b"hello"[..]));
        assert_eq!(wanted.content_type.unwrap(), "text/plain");
        let get = parse("method=GET&path=/&type=text/plain&body=hello").unwrap();
        assert!(get.body.is_empty() && get.content_type.is_none());
        for query in [
            "method=CONNECT&path=/",
            "method=get&path=/",
            "path=/",
            "method=GET",
            "method=GET&path=http://evil.example/",
            "method=GET&path=/%2E%2E/secrets",
            "method=GET&path=/../../../secrets",
            "method=GET&path=/%252e%252e/secrets",
            "method=POST&path=/&type=a%0d%0aAuthorization:x&body=a",
        ] {
            assert!(parse(query).is_err(), "{query}");
        }
    }

    fn answer(status: u16, body: &[u8]) -> ServiceAnswer {
        ServiceAnswer { status, headers: HeaderMap::new(), body: Bytes::copy_from_slice(body), is_cut: false }
    }

    #[test]
    fn an_answer_is_shown_as_text_or_by_its_size() {
        assert_eq!(shown(&answer(200, b"{\"a\":1}")).body, Ok("{\n  \"a\": 1\n}".to_owned()));
        assert_eq!(shown(&answer(200, b"\x1b[31mred")).body, Ok("red".to_owned()));
        assert_eq!(shown(&answer(200, b"\xff\x00\x01")).body, Err(3));
        let cut = ServiceAnswer { is_cut: true, ..answer(200, "aö".as_bytes().split_last().unwrap().1) };
        assert_eq!(shown(&cut).body, Ok("a".to_owned()));
        let status = br#"{"kind":"Status","apiVersion":"v1","message":"services \"a\" is forbidden"}"#;
        assert_eq!(shown(&answer(403, status)).refusal.as_deref(), Some("services \"a\" is forbidden"));
        assert_eq!(shown(&answer(200, status)).refusal, None);
    }

    #[test]
    fn only_the_service_of_the_function_is_called() {
        let key = Key::new("serverless.kyma-project.io", "Function", Some("a"), "web");
        let function = json!({"metadata": {"uid": "u"}});
        let of = |owner: Value, spec: Value| {
            port(&function, &json!({"metadata": {"ownerReferences": [owner]}, "spec": spec}), &key)
        };
        let ports = json!({"ports": [{"port": 80}]});
        assert_eq!(of(json!({"kind": "Function", "uid": "u"}), ports.clone()), Ok(80));
        assert!(of(json!({"kind": "Function", "uid": "v"}), ports.clone()).is_err());
        assert!(of(json!({"kind": "Route", "uid": "u"}), ports.clone()).is_err());
        let external = json!({"type": "ExternalName", "externalName": "evil.example", "ports": [{"port": 80}]});
        assert!(of(json!({"kind": "Function", "uid": "u"}), external).is_err());
        assert!(of(json!({"kind": "Function", "uid": "u"}), json!({})).is_err());
        assert!(
            port(&json!({}), &json!({"metadata": {"ownerReferences": [{"kind": "Function"}]}, "spec": ports}), &key)
                .is_err()
        );
    }
}
