//! The conversation with a server of NATS that publishes one message: `INFO`, `CONNECT`, `PING`, `PUB`.
//!
//! The message is sent after the server has accepted the login. A server confirms that it has read a message by its
//! response to the `PING` after the message.
//!
//! Invariant: no text of the server is shown.
//!
//! Not here: the connection, which the agent opens. The library of NATS is not used, because it resolves hosts itself,
//! without the egress policy, and keeps any number of bytes of a server.

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::request::REPORTER;
use crate::target::Target;
use mainstay_object::Secret;

/// The port of an address that has none.
const PORT: u16 = 4222;

/// A message for a server of NATS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    host: String,
    port: u16,
    security: Security,
    /// The login as fields of `CONNECT`.
    login: Vec<(&'static str, Secret<String>)>,
    subject: String,
    payload: Vec<u8>,
}

/// Whether a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// It is not.
    Plain,
    /// It is encrypted by TLS, which begins after the greeting of the server.
    Tls,
}

/// A line of the server after its greeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The server has read everything before the last `PING`.
    Pong,
    /// The server checks the connection; the response is `PONG`.
    Ping,
    /// A line without meaning for this conversation.
    Other,
    /// The server refuses the login or the message, or is not one of NATS.
    Failed(Outcome),
}

/// The parts of a greeting that matter here.
#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    tls_required: bool,
    #[serde(default)]
    tls_available: bool,
    #[serde(default)]
    max_payload: Option<u64>,
}

impl Publication {
    pub(crate) fn new(target: &Target, event: &Value) -> Self {
        let url = target.address.expose();
        Self {
            host: target.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(PORT),
            security: if url.scheme() == "tls" { Security::Tls } else { Security::Plain },
            login: login(target),
            subject: target.channel.clone(),
            payload: event.to_string().into_bytes(),
        }
    }

    /// Returns the host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Reads the greeting of the server. Returns the security of the rest of the conversation, which is at least
    /// `wanted`.
    ///
    /// # Errors
    /// The server is not one of NATS, has no TLS, or does not accept messages of this length.
    pub fn greeted(&self, line: &[u8], wanted: Security) -> Result<Security, Outcome> {
        // A list would be read as the fields in their order.
        let info = line.strip_prefix(b"INFO ").filter(|info| info.starts_with(b"{"));
        let info = info.and_then(|info| serde_json::from_slice::<Info>(info).ok());
        let Some(info) = info else { return Err(not_nats()) };
        let longest = info.max_payload.unwrap_or(u64::MAX);
        if self.payload.len() as u64 > longest {
            let why = format!("the message is longer than the {longest} bytes that the server accepts");
            return Err(Outcome::Refused(why));
        }
        let wants_tls = [self.security, wanted].contains(&Security::Tls);
        match (wants_tls, info.tls_required || info.tls_available) {
            (true, false) => Err(retry("the server has no TLS, which a tls:// address and certificates require")),
            (true, true) => Ok(Security::Tls),
            (false, _) if info.tls_required => Ok(Security::Tls),
            (false, _) => Ok(Security::Plain),
        }
    }

    /// Returns the commands: the login, then the message. Each ends with a `PING`.
    pub fn commands(&self, security: Security) -> [Secret<Vec<u8>>; 2] {
        let mut connect = json!({
            "verbose": false, "pedantic": false, "tls_required": security == Security::Tls, "name": REPORTER,
            "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "protocol": 0,
        });
        for (field, value) in &self.login {
            connect[field] = json!(value.expose());
        }
        let login = format!("CONNECT {connect}\r\nPING\r\n").into_bytes();
        let mut message = format!("PUB {} {}\r\n", self.subject, self.payload.len()).into_bytes();
        message.extend_from_slice(&self.payload);
        message.extend_from_slice(b"\r\nPING\r\n");
        [Secret::new(login), Secret::new(message)]
    }
}

/// Returns the login in the address, or else that of the keys of the Secret.
fn login(target: &Target) -> Vec<(&'static str, Secret<String>)> {
    let url = target.address.expose();
    let decoded = |text: &str| Secret::new(percent_decode_str(text).decode_utf8_lossy().into_owned());
    match (url.username(), url.password(), &target.token, &target.password) {
        (token, None, ..) if !token.is_empty() => vec![("auth_token", decoded(token))],
        (user, Some(password), ..) => vec![("user", decoded(user)), ("pass", decoded(password))],
        (_, None, _, Some(password)) if !target.username.is_empty() => {
            vec![("user", Secret::new(target.username.clone())), ("pass", password.clone())]
        }
        (_, None, Some(token), _) => vec![("auth_token", token.clone())],
        _ => Vec::new(),
    }
}

impl Reply {
    /// Reads a line of the server.
    pub fn parse(line: &[u8]) -> Self {
        let Some(error) = line.strip_prefix(b"-ERR") else {
            return match line {
                b"PONG" => Self::Pong,
                b"PING" => Self::Ping,
                b"+OK" => Self::Other,
                line if line.starts_with(b"INFO ") => Self::Other,
                _ => Self::Failed(not_nats()),
            };
        };
        let error = String::from_utf8_lossy(error).to_ascii_lowercase();
        let says = |words: &str| error.contains(words);
        Self::Failed(if says("permissions violation") {
            retry("the user may not publish to the subject in spec.channel; correct the permissions at the server")
        } else if says("authorization") || says("authentication") {
            retry("the service refuses the credentials; correct the Secret")
        } else if says("maximum payload") {
            Outcome::Refused("the message is longer than the server accepts".to_owned())
        } else {
            retry("the server reports an error; its log says which")
        })
    }
}

fn retry(why: &str) -> Outcome {
    Outcome::Retry { why: why.to_owned(), after: None }
}

fn not_nats() -> Outcome {
    retry("the server does not speak the protocol of NATS; correct the address")
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use k8s_openapi::ByteString;

    use super::*;
    use crate::identity::Identity;

    const ADDRESS: &str = "nats://bus.example.com";

    fn publication(spec: Value, secret: &[(&str, &str)]) -> Publication {
        let data = secret.iter().map(|(key, value)| ((*key).to_owned(), ByteString((*value).into()))).collect();
        let mut whole = json!({"type": "nats", "channel": "mainstay.events"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let target = Target::new(&serde_json::from_value(whole).unwrap(), &Identity::default(), Some(&data)).unwrap();
        Publication::new(&target, &json!({"a": 1}))
    }

    fn text(part: &Secret<Vec<u8>>) -> Cow<'_, str> {
        String::from_utf8_lossy(part.expose())
    }

    #[test]
    fn the_login_comes_before_the_message_and_is_not_in_debug_output() {
        let check = |spec: Value, secret: &[(&str, &str)], expected: Value| {
            let publication = publication(spec, secret);
            let [login, message] = publication.commands(Security::Plain);
            let login = text(&login).into_owned();
            let connect = login.strip_prefix("CONNECT ").unwrap().strip_suffix("\r\nPING\r\n").unwrap();
            let mut connect: Value = serde_json::from_str(connect).unwrap();
            connect.as_object_mut().unwrap().retain(|field, _| ["user", "pass", "auth_token"].contains(&&**field));
            assert_eq!(connect, expected);
            assert_eq!(text(&message), "PUB mainstay.events 7\r\n{\"a\":1}\r\nPING\r\n");
            assert!(!format!("{publication:?} {message:?}").contains("hunter2"), "{publication:?}");
        };
        let address = || json!({"address": ADDRESS});
        let login = json!({"user": "me", "pass": "hunter2"});
        check(address(), &[], json!({}));
        check(address(), &[("username", "me")], json!({}));
        check(address(), &[("password", "hunter2")], json!({}));
        check(address(), &[("username", "me"), ("password", "hunter2")], login.clone());
        check(json!({"address": ADDRESS, "username": "me"}), &[("password", "hunter2")], login.clone());
        check(address(), &[("token", "hunter2")], json!({"auth_token": "hunter2"}));
        check(json!({}), &[("address", "nats://hunter2@bus")], json!({"auth_token": "hunter2"}));
        let both = [("address", "nats://me:hunter%32@bus"), ("username", "you"), ("password", "other")];
        check(json!({}), &both, login);
    }

    #[test]
    fn an_address_gives_host_port_and_tls() {
        let of = |address: &str| {
            let publication = publication(json!({"address": address}), &[]);
            (publication.host().to_owned(), publication.port(), publication.security)
        };
        assert_eq!(of(ADDRESS), ("bus.example.com".to_owned(), 4222, Security::Plain));
        assert_eq!(of("tls://[2001:db8::1]:80"), ("2001:db8::1".to_owned(), 80, Security::Tls));
    }

    #[test]
    fn a_greeting_decides_about_tls_and_refuses_long_messages() {
        let greeted = |address: &str, info: &str, wanted| {
            let outcome = publication(json!({"address": address}), &[]).greeted(info.as_bytes(), wanted);
            outcome.map_err(|outcome| format!("{outcome:?}"))
        };
        let (plain, tls) = (Security::Plain, Security::Tls);
        assert_eq!(greeted(ADDRESS, "INFO {\"max_payload\":7}", plain), Ok(plain));
        assert_eq!(greeted(ADDRESS, "INFO {\"tls_available\":true}", plain), Ok(plain));
        assert_eq!(greeted(ADDRESS, "INFO {\"tls_required\":true}", plain), Ok(tls));
        assert_eq!(greeted(ADDRESS, "INFO {\"tls_available\":true}", tls), Ok(tls));
        assert_eq!(greeted("tls://bus", "INFO {\"tls_required\":true}", plain), Ok(tls));
        // An attacker on the path could remove the offer, to read the login.
        assert!(greeted("tls://bus", "INFO {}", plain).unwrap_err().contains("the server has no TLS"));
        assert!(greeted(ADDRESS, "INFO {}", tls).unwrap_err().contains("the server has no TLS"));
        let long = greeted(ADDRESS, "INFO {\"max_payload\":6}", plain).unwrap_err();
        assert!(long.starts_with("Refused") && long.contains("6 bytes"), "{long}");
        for other in ["", "INFO", "INFO x", "SSH-2.0-OpenSSH", "INFO {\"max_payload\":-1}", "INFO []"] {
            let why = greeted(ADDRESS, other, plain).unwrap_err();
            assert!(why.contains("does not speak the protocol of NATS"), "{other}: {why}");
        }
    }

    #[test]
    fn replies_are_read_and_no_text_of_the_server_is_shown() {
        for (line, expected) in [("PONG", Reply::Pong), ("PING", Reply::Ping), ("+OK", Reply::Other)] {
            assert_eq!(Reply::parse(line.as_bytes()), expected);
        }
        assert_eq!(Reply::parse(b"INFO {}"), Reply::Other);
        for (line, expected) in [
            ("-ERR 'Authorization Violation'", "Retry the service refuses the credentials"),
            ("-ERR 'Authentication Timeout'", "Retry the service refuses the credentials"),
            ("-ERR 'Permissions Violation for Publish to \"canary\"'", "Retry the user may not publish"),
            ("-ERR 'Maximum Payload Violation'", "Refused the message is longer"),
            ("-ERR 'canary'", "Retry the server reports an error"),
            ("-ERR", "Retry the server reports an error"),
            ("HTTP/1.1 400 canary", "Retry the server does not speak"),
            ("MSG canary 1 0", "Retry the server does not speak"),
            ("", "Retry the server does not speak"),
        ] {
            let said = match Reply::parse(line.as_bytes()) {
                Reply::Failed(Outcome::Retry { why, .. }) => format!("Retry {why}"),
                Reply::Failed(Outcome::Refused(why)) => format!("Refused {why}"),
                other => format!("{other:?}"),
            };
            assert!(said.starts_with(expected) && !said.contains("canary"), "{line}: {said}");
        }
    }
}
