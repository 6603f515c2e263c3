//! What a server answers, in pieces or in packets, however it comes.
//!
//! Invariant: an answer ends at its limit of bytes, or when it is silent for too long.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::packet::{self, Packet};
use super::{http, ssh};
use crate::source::error::Fault;

/// An answer that is being read.
#[derive(Debug)]
pub(super) struct Body {
    flow: Flow,
    left: u64,
    limit: u64,
    silence: Duration,
    buffer: BytesMut,
}

/// Where it comes from.
#[derive(Debug)]
enum Flow {
    Http(reqwest::Response),
    Ssh(Box<ssh::Session>),
}

impl Body {
    pub(super) fn http(response: reqwest::Response, limit: u64, silence: Duration) -> Self {
        Self { flow: Flow::Http(response), left: limit, limit, silence, buffer: BytesMut::new() }
    }

    pub(super) fn ssh(session: ssh::Session, limit: u64, silence: Duration) -> Self {
        Self { flow: Flow::Ssh(Box::new(session)), left: limit, limit, silence, buffer: BytesMut::new() }
    }

    /// Whether it is one side of a conversation, in which questions can be asked ([`Body::send`]).
    pub(super) fn is_conversation(&self) -> bool {
        matches!(self.flow, Flow::Ssh(_))
    }

    /// Asks a question whose answer is read next.
    pub(super) async fn send(&mut self, question: Vec<u8>) -> Result<(), Fault> {
        let Flow::Ssh(session) = &mut self.flow else { return Err(Fault::Stopped) };
        match tokio::time::timeout(self.silence, session.send(question)).await {
            Ok(sent) => sent,
            Err(_) => Err(Fault::Timeout { after: self.silence, what: "sending a question" }),
        }
    }

    /// Says goodbye: nothing more is read.
    pub(super) fn finish(self) {
        if let Flow::Ssh(session) = self.flow {
            session.finish(self.silence);
        }
    }

    /// The next packet; `None` at the end of the body.
    pub(super) async fn packet(&mut self) -> Result<Option<Packet>, Fault> {
        loop {
            if let Some(packet) = packet::split(&mut self.buffer)? {
                return Ok(Some(packet));
            }
            match self.chunk().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(Fault::Protocol { why: "the answer ends in the middle of a packet" }),
            }
        }
    }

    /// The next packet, which there has to be.
    pub(super) async fn expected(&mut self) -> Result<Packet, Fault> {
        self.packet().await?.ok_or(Fault::Protocol { why: "the answer ends too early" })
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        let next = async {
            match &mut self.flow {
                Flow::Http(response) => response.chunk().await.map_err(|error| http::network(&error)),
                Flow::Ssh(session) => session.chunk().await,
            }
        };
        let chunk = match tokio::time::timeout(self.silence, next).await {
            Ok(chunk) => chunk?,
            Err(_) => return Err(Fault::Timeout { after: self.silence, what: "not a byte came" }),
        };
        let Some(bytes) = chunk else { return Ok(None) };
        let length = bytes.len() as u64;
        if length > self.left {
            return Err(Fault::TooLarge { what: "the server's answer in bytes", limit: self.limit });
        }
        self.left -= length;
        Ok(Some(bytes))
    }
}
