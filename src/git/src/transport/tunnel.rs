//! Connects to a server through a proxy: HTTP `CONNECT`, or SOCKS version 5 (RFC 1928, RFC 1929).
//!
//! Invariant: no byte after the proxy's response is read here, because the server may send first.
//! Invariant: user name and password are sent only to the proxy, and the proxy's messages are not shown.

use std::net::IpAddr;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::error::Fault;
use crate::proxy::{Proxy, ProxyKind, authority};

/// Maximum size of the response to `CONNECT`, in bytes.
const ANSWER_BYTES: usize = 8 << 10;

/// Asks the proxy on the stream to connect to the host.
pub(super) async fn open<S>(stream: &mut S, proxy: &Proxy, host: &str, port: u16) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match proxy.kind {
        ProxyKind::Http => connect(stream, proxy, host, port).await,
        ProxyKind::Socks5 => socks5(stream, proxy, host, port).await,
        ProxyKind::Https => {
            Err(failed("an https:// proxy is supported for HTTP only; use its http:// or socks5:// URL"))
        }
    }
}

async fn connect<S>(stream: &mut S, proxy: &Proxy, host: &str, port: u16) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let to = authority(host, port);
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
    if let Some(login) = &proxy.login {
        let login = BASE64_STANDARD.encode(format!("{}:{}", login.username.expose(), login.password.expose()));
        request.push_str(&format!("Proxy-Authorization: Basic {login}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|_| broken())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == ANSWER_BYTES {
            return Err(failed("it does not speak HTTP"));
        }
        answer.push(stream.read_u8().await.map_err(|_| broken())?);
    }
    match status(&answer).ok_or(failed("it does not speak HTTP"))? {
        200..=299 => Ok(()),
        // Some proxies send 401 for a rejected login.
        401 | 407 => Err(Fault::ProxyDenied),
        403 => Err(failed("it does not allow connections to this host and port (403)")),
        _ => Err(failed("it cannot connect to the host")),
    }
}

/// Parses the status of a response.
fn status(answer: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(answer.split(|byte| *byte == b'\r').next()?).ok()?;
    let (version, rest) = line.split_once(' ')?;
    version.strip_prefix("HTTP/1.")?;
    rest.get(..3)?.parse().ok()
}

async fn socks5<S>(stream: &mut S, proxy: &Proxy, host: &str, port: u16) -> Result<(), Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    const NOTHING: u8 = 0;
    const PASSWORD: u8 = 2;
    const NOT_SOCKS: &str = "it does not speak SOCKS version 5";
    let method = if proxy.login.is_some() { PASSWORD } else { NOTHING };
    let [version, chosen] = ask(stream, &[5, 1, method]).await?;
    match chosen {
        _ if version != 5 => return Err(failed(NOT_SOCKS)),
        0xff => return Err(Fault::ProxyDenied),
        _ if chosen != method => return Err(failed(NOT_SOCKS)),
        _ => {}
    }
    if let Some(login) = &proxy.login {
        let mut request = vec![1];
        push(&mut request, login.username.expose().as_bytes())?;
        push(&mut request, login.password.expose().as_bytes())?;
        let [_, refused] = ask(stream, &request).await?;
        if refused != 0 {
            return Err(Fault::ProxyDenied);
        }
    }
    let mut request = vec![5, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(1);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(4);
            request.extend(address.octets());
        }
        Err(_) => {
            request.push(3);
            push(&mut request, host.as_bytes())?;
        }
    }
    request.extend(port.to_be_bytes());
    let [version, outcome, _, kind] = ask(stream, &request).await?;
    match outcome {
        _ if version != 5 => return Err(failed(NOT_SOCKS)),
        0 => {}
        2 => return Err(failed("its rules do not allow connections to this host and port")),
        3 | 4 => return Err(failed("it cannot reach the host, or does not know its name")),
        5 => return Err(failed("the host refuses the connection")),
        _ => return Err(failed("it cannot connect to the host")),
    }
    // The address and the port of the proxy itself follow.
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await.map_err(|_| broken())?),
        _ => return Err(failed(NOT_SOCKS)),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await.map_err(|_| broken())?;
    Ok(())
}

/// Sends a request, and reads a response of this length.
async fn ask<const N: usize, S>(stream: &mut S, request: &[u8]) -> Result<[u8; N], Fault>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut answer = [0; N];
    stream.write_all(request).await.map_err(|_| broken())?;
    stream.read_exact(&mut answer).await.map_err(|_| broken())?;
    Ok(answer)
}

/// Appends the length of a string, then the string.
fn push(request: &mut Vec<u8>, text: &[u8]) -> Result<(), Fault> {
    let length =
        u8::try_from(text.len()).map_err(|_| failed("SOCKS proxies support host names of at most 255 bytes"))?;
    request.push(length);
    request.extend_from_slice(text);
    Ok(())
}

fn failed(why: &str) -> Fault {
    Fault::Proxy { why: why.to_owned() }
}

fn broken() -> Fault {
    failed("it ended the connection")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use crate::proxy::Login;

    fn proxy(kind: ProxyKind, login: Option<(&str, &str)>) -> Proxy {
        let login = login.map(|(username, password)| Login {
            username: Secret::new(username.to_owned()),
            password: Secret::new(password.to_owned()),
        });
        Proxy { kind, host: "proxy".to_owned(), port: 1, login }
    }

    /// Returns the requests to a proxy that sends this response, and the outcome.
    async fn asked(proxy: &Proxy, host: &str, answer: &[u8]) -> (Vec<u8>, String) {
        let (mut here, mut there) = tokio::io::duplex(64 << 10);
        there.write_all(answer).await.unwrap();
        there.write_all(b"SSH-2.0").await.unwrap();
        // The peer sends no more data, as on a closed connection.
        let (mut requests, mut words) = tokio::io::split(there);
        words.shutdown().await.unwrap();
        let outcome = match open(&mut here, proxy, host, 2222).await {
            Ok(()) => {
                let mut next = Vec::new();
                (&mut here).take(7).read_to_end(&mut next).await.unwrap();
                format!("then {}", String::from_utf8_lossy(&next))
            }
            Err(fault) => fault.to_string(),
        };
        drop(here);
        let mut request = Vec::new();
        requests.read_to_end(&mut request).await.unwrap();
        (request, outcome)
    }

    #[tokio::test]
    async fn asks_an_http_proxy_and_leaves_what_the_server_says_first() {
        let plain = proxy(ProxyKind::Http, None);
        let (request, outcome) = asked(&plain, "git.corp", b"HTTP/1.1 200 Connection established\r\n\r\n").await;
        assert_eq!(request, b"CONNECT git.corp:2222 HTTP/1.1\r\nHost: git.corp:2222\r\n\r\n");
        assert_eq!(outcome, "then SSH-2.0");
        let (request, outcome) =
            asked(&proxy(ProxyKind::Http, Some(("u", "p"))), "::1", b"HTTP/1.0 407 No\r\nA: b\r\n\r\n").await;
        assert!(request.starts_with(b"CONNECT [::1]:2222 ") && request.ends_with(b"Basic dTpw\r\n\r\n"));
        assert_eq!(outcome, Fault::ProxyDenied.to_string());
        let said = async |answer: &[u8]| asked(&plain, "h", answer).await.1;
        assert!(said(b"HTTP/1.1 403 Filtered\r\n\r\n").await.contains("does not allow"));
        assert!(said(b"HTTP/1.1 503 x\r\n\r\n").await.ends_with("it cannot connect to the host"));
        assert!(said(b"SSH-2.0\r\n\r\n").await.ends_with("it does not speak HTTP"));
        assert!(said(b"HTTP/1.1 \xff\r\n\r\n").await.ends_with("it does not speak HTTP"));
        assert!(said(&[b'x'; ANSWER_BYTES]).await.ends_with("it does not speak HTTP"));
    }

    proptest::proptest! {
        #[test]
        fn reads_any_answer_without_panic(answer: Vec<u8>, is_socks: bool) {
            let kind = if is_socks { ProxyKind::Socks5 } else { ProxyKind::Http };
            let answered = wait(asked(&proxy(kind, None), "h", &answer));
            proptest::prop_assert!(!answered.1.is_empty());
        }
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[tokio::test]
    async fn asks_a_socks_proxy_and_leaves_what_the_server_says_first() {
        let plain = proxy(ProxyKind::Socks5, None);
        let (request, outcome) = asked(&plain, "git.corp", b"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x09").await;
        assert_eq!(request, b"\x05\x01\x00\x05\x01\x00\x03\x08git.corp\x08\xae");
        assert_eq!(outcome, "then SSH-2.0");
        let with = proxy(ProxyKind::Socks5, Some(("u", "pw")));
        let (request, outcome) = asked(&with, "127.0.0.1", b"\x05\x02\x01\x00\x05\x00\x00\x03\x02ab\x00\x09").await;
        assert_eq!(request, b"\x05\x01\x02\x01\x01u\x02pw\x05\x01\x00\x01\x7f\x00\x00\x01\x08\xae");
        assert_eq!(outcome, "then SSH-2.0");
        let said = async |answer: &[u8]| asked(&with, "h", answer).await.1;
        assert_eq!(said(b"\x05\xff").await, Fault::ProxyDenied.to_string());
        assert_eq!(said(b"\x05\x02\x01\x01").await, Fault::ProxyDenied.to_string());
        assert!(said(b"\x05\x02\x01\x00\x05\x02\x00\x01").await.contains("its rules"));
        assert!(said(b"\x05\x00").await.contains("does not speak SOCKS"));
        assert!(said(b"HTTP/1.1 400 x").await.contains("does not speak SOCKS"));
    }
}
