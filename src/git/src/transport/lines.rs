//! A connection to a server whose protocol has lines, and which speaks neither HTTP nor a protocol of Git.
//!
//! Invariant: hosts, proxies and certificates obey the same rules as for repositories.
//! Invariant: the server's bytes are limited for the whole connection.
//! Invariant: no byte after a line is read with it, so that no unencrypted byte counts as encrypted.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::dial::{self, Target};
use super::http::Http;
use super::http_fault::handshake;
use super::names;
use crate::Connection;
use crate::error::Fault;

/// Maximum bytes that are read from a server.
const MOST: usize = 64 << 10;
const TOO_MANY: Fault = Fault::TooLarge { what: "the number of bytes that the server sends", limit: MOST as u64 };

/// A stream, encrypted or not.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection.
pub struct LineConnection {
    stream: Box<dyn Stream>,
    host: String,
    /// Bytes that may still be read.
    left: usize,
}

impl std::fmt::Debug for LineConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineConnection").field("host", &self.host).finish_non_exhaustive()
    }
}

impl Http {
    /// Connects to a server, without encryption.
    pub(crate) async fn connect(&self, host: &str, port: u16) -> Result<LineConnection, Fault> {
        let to = Target { host, port, proxy: self.connection.proxy.as_deref() };
        let stream = dial::connect(&self.names, &to, self.deadlines.connect, &names::tenant()).await?;
        Ok(LineConnection::new(stream, host))
    }

    /// Encrypts a connection. The certificate must be valid for its host.
    pub(crate) async fn encrypt(&self, connection: LineConnection) -> Result<LineConnection, Fault> {
        let LineConnection { stream, host, left } = connection;
        let config = if let Some(config) = self.tls.get() {
            Arc::clone(config)
        } else {
            let made = Arc::new(tls_config(&self.connection)?);
            Arc::clone(self.tls.get_or_init(|| made))
        };
        let name = ServerName::try_from(host.clone())
            .map_err(|_| Fault::Tls { why: "the host is not a name that a certificate can have".to_owned() })?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| fault(&error))?;
        Ok(LineConnection { stream: Box::new(stream), host, left })
    }

    /// Returns whether the settings have certificates, so that only an encrypted connection is expected.
    pub(crate) fn has_certificates(&self) -> bool {
        self.connection.authorities.is_some() || self.connection.client.is_some()
    }
}

impl LineConnection {
    fn new(stream: TcpStream, host: &str) -> Self {
        Self { stream: Box::new(stream), host: host.to_owned(), left: MOST }
    }

    /// Returns the next line, without its end. Never waits for more than a line.
    ///
    /// # Errors
    /// The connection broke, or the server sent more than 64 KiB.
    pub async fn line(&mut self) -> Result<Vec<u8>, Fault> {
        let mut line = Vec::new();
        loop {
            self.left = self.left.checked_sub(1).ok_or(TOO_MANY)?;
            match self.stream.read_u8().await.map_err(|error| fault(&error))? {
                b'\n' => break,
                byte => line.push(byte),
            }
        }
        line.pop_if(|last| *last == b'\r');
        Ok(line)
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// The connection broke.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| fault(&error))
    }
}

/// Returns the error of a broken connection. A server may refuse a client certificate after the handshake.
fn fault(error: &io::Error) -> Fault {
    handshake(error).unwrap_or_else(|| match error.kind() {
        io::ErrorKind::UnexpectedEof => Fault::Network { what: "the server ended the connection".to_owned() },
        _ => Fault::Network { what: format!("the connection broke: {error}") },
    })
}

/// Returns the TLS settings of a connection.
fn tls_config(connection: &Connection) -> Result<ClientConfig, Fault> {
    let unusable = |error: rustls::Error| Fault::Tls { why: format!("certificates cannot be used: {error}") };
    let builder = ClientConfig::builder();
    let builder = match &connection.authorities {
        Some(authorities) => builder.with_root_certificates(authorities.store()?),
        None => builder.with_platform_verifier().map_err(unusable)?,
    };
    match &connection.client {
        Some(client) => {
            let (chain, key) = client.chain_and_key()?;
            builder.with_client_auth_cert(chain, key).map_err(unusable)
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a server that sends these bytes, and the last error.
    async fn lines(bytes: Vec<u8>) -> (Vec<String>, String) {
        let (here, mut there) = tokio::io::duplex(MOST * 2);
        there.write_all(&bytes).await.unwrap();
        drop(there);
        let mut connection = LineConnection { stream: Box::new(here), host: "bus".to_owned(), left: MOST };
        let mut lines = Vec::new();
        loop {
            match connection.line().await {
                Ok(line) => lines.push(String::from_utf8(line).unwrap()),
                Err(fault) => return (lines, fault.to_string()),
            }
        }
    }

    #[tokio::test]
    async fn lines_are_split_and_their_number_of_bytes_is_limited() {
        let (all, end) = lines(b"INFO {}\r\n\r\nPONG\nrest".to_vec()).await;
        assert_eq!(all, ["INFO {}", "", "PONG"]);
        assert!(end.contains("the server ended the connection"), "{end}");
        let (all, end) = lines(vec![b'x'; MOST + 1]).await;
        assert!(all.is_empty() && end.contains("larger than the limit of 65536"), "{end}");
        let (all, end) = lines(b"+OK\r\n".repeat(MOST)[..MOST + 9].to_vec()).await;
        assert_eq!((all.len(), end.contains("larger than the limit of 65536")), (MOST / 5, true), "{end}");
    }
}
