//! The Git protocol over TCP to `git daemon`, which neither encrypts nor authenticates.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::dial::{self, Target};
use super::names::{self, Names};
use super::packet;
use crate::error::Fault;
use crate::git_address::GitAddress;
use crate::proxy::Proxy;

/// Bytes per read.
const PIECE: usize = 64 << 10;

/// The client for one remote.
#[derive(Debug)]
pub(crate) struct GitWire<'a> {
    pub(crate) names: Names,
    pub(crate) address: &'a GitAddress,
    pub(crate) proxy: Option<&'a Proxy>,
    /// Deadline of the connection.
    pub(crate) connect: Duration,
    /// Idle timeout.
    pub(crate) silence: Duration,
}

/// A connection after the request for a repository was sent.
#[derive(Debug)]
pub(super) struct GitStream(TcpStream);

impl GitWire<'_> {
    /// Requests the repository. The server responds with its advertisement.
    pub(super) async fn open(&self) -> Result<GitStream, Fault> {
        let Self { ref names, address, proxy, connect, silence } = *self;
        let to = Target { host: &address.host, port: address.port, proxy };
        let stream = dial::connect(names, &to, connect, &names::tenant()).await?;
        let mut request = Vec::new();
        let (path, host) = (&address.path, address.authority());
        // A server that does not know the last parameter uses version 0.
        packet::write(&mut request, &format!("git-upload-pack {path}\0host={host}\0\0version=2\0"));
        let mut stream = GitStream(stream);
        match tokio::time::timeout(silence, stream.send(&request)).await {
            Ok(sent) => sent.map(|()| stream),
            Err(_) => Err(Fault::Timeout { after: silence, what: "sending a request" }),
        }
    }
}

impl GitStream {
    pub(super) async fn send(&mut self, request: &[u8]) -> Result<(), Fault> {
        self.0.write_all(request).await.map_err(|error| broken(&error))
    }

    /// Returns the next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let mut piece = BytesMut::with_capacity(PIECE);
        let length = self.0.read_buf(&mut piece).await.map_err(|error| broken(&error))?;
        Ok((length > 0).then(|| piece.freeze()))
    }

    /// Ends the conversation as the protocol requires, in the background.
    pub(super) fn finish(mut self, within: Duration) {
        tokio::spawn(tokio::time::timeout(within, async move {
            // If the connection is closed, the server needs no message.
            let _ = self.0.write_all(b"0000").await;
        }));
    }
}

fn broken(error: &std::io::Error) -> Fault {
    Fault::Network { what: format!("the connection broke: {error}") }
}
