//! Negotiation of the protocol between client and server.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header as names};
use http_body_util::{BodyExt as _, Empty};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::connection::header;
use crate::body::Body;
use crate::status::Status;

/// A subprotocol and its transport.
type Known = (&'static str, Upgrade);

/// Subprotocols of `exec` and `attach`. The first one that the client offers is used.
pub(super) const EXEC: &[Known] = &[
    ("v5.channel.k8s.io", Upgrade::Channels("v5.channel.k8s.io")),
    ("v4.channel.k8s.io", Upgrade::Channels("v4.channel.k8s.io")),
    ("v4.channel.k8s.io", Upgrade::Spdy("v4.channel.k8s.io")),
];
/// Subprotocols of `portforward`.
pub(super) const FORWARD: &[Known] = &[
    ("SPDY/3.1+portforward.k8s.io", Upgrade::Tunnel("SPDY/3.1+portforward.k8s.io")),
    ("portforward.k8s.io", Upgrade::Spdy("portforward.k8s.io")),
];

/// Header with the subprotocols of SPDY.
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";
/// Name of SPDY in `Upgrade`.
const SPDY: &str = "SPDY/3.1";

/// The transport of a connection's streams, with the name of the subprotocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    /// WebSocket messages, each with its channel number.
    Channels(&'static str),
    /// SPDY inside WebSocket messages.
    Tunnel(&'static str),
    /// SPDY.
    Spdy(&'static str),
}

impl Upgrade {
    /// Selects a protocol that the client offers.
    pub(super) fn of(headers: &HeaderMap, known: &[Known]) -> Result<Self, Status> {
        let wants = header(headers, "upgrade").to_ascii_lowercase();
        let connection = header(headers, "connection").to_ascii_lowercase();
        if !connection.split(',').any(|word| word.trim() == "upgrade") {
            return Err(required());
        }
        let offered = |name: &str| -> Vec<String> {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect()
        };
        let (spdy, offered) = match wants.as_str() {
            "websocket" => (false, offered("sec-websocket-protocol")),
            "spdy/3.1" => (true, offered(STREAM_PROTOCOL)),
            _ => return Err(required()),
        };
        let fits = |(name, upgrade): &&Known, word: &str| *name == word && matches!(upgrade, Self::Spdy(_)) == spdy;
        let found = offered.iter().find_map(|word| known.iter().find(|entry| fits(entry, word)));
        if let Some((_, upgrade)) = found {
            let key = header(headers, "sec-websocket-key");
            let version = header(headers, "sec-websocket-version");
            if !spdy && (key.is_empty() || version != "13") {
                return Err(Status::bad_request("the request is no WebSocket handshake"));
            }
            return Ok(*upgrade);
        }
        let spoken: Vec<&str> = known.iter().filter(|k| fits(k, k.0)).map(|(name, _)| *name).collect();
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports {offered:?}, server accepts {spoken:?}"
        );
        Err(Status::new(403, "Forbidden", message))
    }

    /// Returns the response that switches protocols.
    pub(super) fn answer(self, headers: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(Empty::new().boxed_unsync());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let answer = response.headers_mut();
        answer.insert(names::CONNECTION, HeaderValue::from_static("Upgrade"));
        match self {
            Self::Spdy(protocol) => {
                answer.insert(names::UPGRADE, HeaderValue::from_static(SPDY));
                answer.insert(STREAM_PROTOCOL, HeaderValue::from_static(protocol));
            }
            Self::Channels(protocol) | Self::Tunnel(protocol) => {
                answer.insert(names::UPGRADE, HeaderValue::from_static("websocket"));
                answer.insert(names::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
                let accept = derive_accept_key(header(headers, "sec-websocket-key").as_bytes());
                let accept = HeaderValue::from_str(&accept).expect("base64 fits into a header");
                answer.insert(names::SEC_WEBSOCKET_ACCEPT, accept);
            }
        }
        response
    }
}

/// Returns the error for a request without an upgrade, or from a client in this process.
pub(super) fn required() -> Status {
    Status::bad_request("Upgrade request required")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(known: &[Known], headers: &[(&'static str, &'static str)], expected: Result<Upgrade, u16>) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        assert_eq!(Upgrade::of(&map, known).map_err(|status| status.code), expected, "{headers:?}");
    }

    #[test]
    fn takes_the_first_protocol_that_both_know() {
        let socket = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "x"),
            ("sec-websocket-version", "13"),
        ];
        let with = |protocol| [&socket[..], &[("sec-websocket-protocol", protocol)]].concat();
        check(EXEC, &with("v9, v5.channel.k8s.io"), Ok(Upgrade::Channels("v5.channel.k8s.io")));
        check(EXEC, &with("v4.channel.k8s.io"), Ok(Upgrade::Channels("v4.channel.k8s.io")));
        check(EXEC, &with("portforward.k8s.io"), Err(403));
        check(EXEC, &socket, Err(403));
        let tunnel = "SPDY/3.1+portforward.k8s.io";
        check(FORWARD, &with(tunnel), Ok(Upgrade::Tunnel(tunnel)));
        check(FORWARD, &[("connection", "upgrade"), ("upgrade", "websocket")], Err(403));
        let spdy = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        let with = |protocol| [&spdy[..], &[("x-stream-protocol-version", protocol)]].concat();
        check(EXEC, &with("v4.channel.k8s.io"), Ok(Upgrade::Spdy("v4.channel.k8s.io")));
        check(EXEC, &with("v5.channel.k8s.io"), Err(403));
        check(EXEC, &[("upgrade", "SPDY/3.1")], Err(400));
        check(EXEC, &[], Err(400));
    }
}
