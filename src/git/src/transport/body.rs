//! The body of a server's response over HTTP, SSH or TCP, read in chunks or in packets.
//!
//! Invariant: reading fails at the limit of bytes, or when the idle timeout expires.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::git::GitStream;
use super::http_fault::network;
use super::packet::{self, Packet};
use super::ssh;
use crate::error::Fault;

/// A response that is being read.
#[derive(Debug)]
pub(crate) struct Body {
    flow: Stream,
    left: u64,
    limit: u64,
    silence: Duration,
    buffer: BytesMut,
}

/// The underlying stream.
#[derive(Debug)]
enum Stream {
    Http(reqwest::Response),
    Ssh(Box<ssh::Session>),
    Git(GitStream),
    /// Input of a fuzzer instead of that of a server.
    #[cfg(any(test, feature = "fuzz"))]
    Given(Option<Bytes>),
}

impl Body {
    pub(super) fn http(response: reqwest::Response, limit: u64, silence: Duration) -> Self {
        Self { flow: Stream::Http(response), left: limit, limit, silence, buffer: BytesMut::new() }
    }

    pub(super) fn ssh(session: ssh::Session, limit: u64, silence: Duration) -> Self {
        Self { flow: Stream::Ssh(Box::new(session)), left: limit, limit, silence, buffer: BytesMut::new() }
    }

    pub(super) fn git(stream: GitStream, limit: u64, silence: Duration) -> Self {
        Self { flow: Stream::Git(stream), left: limit, limit, silence, buffer: BytesMut::new() }
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn given(bytes: &[u8]) -> Self {
        let flow = Stream::Given(Some(Bytes::copy_from_slice(bytes)));
        Self { flow, left: 1 << 20, limit: 1 << 20, silence: Duration::from_secs(60), buffer: BytesMut::new() }
    }

    /// Returns whether requests can be sent on the same stream ([`Body::send`]).
    pub(super) fn is_duplex(&self) -> bool {
        matches!(self.flow, Stream::Ssh(_) | Stream::Git(_))
    }

    /// Sends a request whose response is read next.
    pub(super) async fn send(&mut self, request_body: Vec<u8>) -> Result<(), Fault> {
        let sent = async {
            match &mut self.flow {
                Stream::Http(_) => Err(Fault::Stopped),
                Stream::Ssh(session) => session.send(request_body).await,
                Stream::Git(stream) => stream.send(&request_body).await,
                #[cfg(any(test, feature = "fuzz"))]
                Stream::Given(_) => Err(Fault::Stopped),
            }
        };
        match tokio::time::timeout(self.silence, sent).await {
            Ok(sent) => sent,
            Err(_) => Err(Fault::Timeout { after: self.silence, what: "sending a request" }),
        }
    }

    /// Ends the stream.
    pub(super) fn finish(self) {
        match self.flow {
            Stream::Http(_) => {}
            Stream::Ssh(session) => session.finish(self.silence),
            Stream::Git(stream) => stream.finish(self.silence),
            #[cfg(any(test, feature = "fuzz"))]
            Stream::Given(_) => {}
        }
    }

    /// Returns the next packet; `None` at the end of the body.
    pub(super) async fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        loop {
            if let Some(packet) = packet::split(&mut self.buffer)? {
                return Ok(Some(packet));
            }
            match self.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Fault::Protocol { why: "the response ends in the middle of a packet" }),
            }
        }
    }

    /// Returns the next packet. The end of the body is an error.
    pub(super) async fn expected(&mut self) -> Result<Packet, Fault> {
        self.packet().await?.ok_or(Fault::Protocol { why: "the response ends too early" })
    }

    /// Returns all remaining bytes.
    pub(crate) async fn all(mut self) -> Result<Vec<u8>, Fault> {
        let mut all = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    /// Returns the next bytes; `None` at the end of the body.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let next = async {
            match &mut self.flow {
                Stream::Http(response) => response.chunk().await.map_err(|error| network(&error)),
                Stream::Ssh(session) => session.chunk().await,
                Stream::Git(stream) => stream.chunk().await,
                #[cfg(any(test, feature = "fuzz"))]
                Stream::Given(bytes) => Ok(bytes.take()),
            }
        };
        let chunk = match tokio::time::timeout(self.silence, next).await {
            Ok(chunk) => chunk?,
            Err(_) => return Err(Fault::Timeout { after: self.silence, what: "waiting for data" }),
        };
        let Some(bytes) = chunk else { return Ok(None) };
        let length = bytes.len() as u64;
        if length > self.left {
            return Err(Fault::TooLarge { what: "the server's response in bytes", limit: self.limit });
        }
        self.left -= length;
        Ok(Some(bytes))
    }
}
