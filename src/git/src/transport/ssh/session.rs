//! A single run of a command on a server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{Channel, ChannelMsg};

use super::lane::SharedConnection;
use super::{COMMAND, broken, network};
use crate::error::Fault;
use crate::ssh_fault::SshFault;
use crate::transport::words::clean;

/// Maximum bytes of the command's standard error that are kept.
const WORDS: usize = 4 << 10;

/// Maximum bytes of the command's standard error.
const MOST_WORDS: usize = 1 << 20;

/// Maximum bytes after the last response.
const FAREWELL: usize = 64 << 10;

/// A running command.
pub(in crate::transport) struct Session {
    channel: Channel<Msg>,
    /// Keeps the connection open.
    connection: Arc<SharedConnection>,
    /// The first output.
    first: Option<Bytes>,
    /// The command's standard error.
    words: Vec<u8>,
    /// Bytes received on standard error.
    said: usize,
    status: Option<u32>,
    is_closed: bool,
    /// Whether the server has begun to respond.
    has_answered: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_closed", &self.is_closed).finish_non_exhaustive()
    }
}

/// A channel that was not closed properly may still be open at the server, so its connection is not used again.
impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_closed {
            self.connection.spend();
        }
    }
}

impl Session {
    /// Starts the command on a new channel.
    pub(super) async fn start(
        connection: Arc<SharedConnection>,
        channel: Channel<Msg>,
        command: &str,
    ) -> Result<Self, Fault> {
        let session = Self {
            channel,
            connection,
            first: None,
            words: Vec::new(),
            said: 0,
            status: None,
            is_closed: false,
            has_answered: false,
        };
        let refused = |error: russh::Error| broken(error.into(), COMMAND);
        // A server that does not accept the variable uses version 0.
        session.channel.set_env(false, "GIT_PROTOCOL", "version=2").await.map_err(refused)?;
        session.channel.exec(true, command).await.map_err(refused)?;
        Ok(session)
    }

    /// Waits for the first output. The server sends the advertisement without a request.
    pub(super) async fn wait_for_first(&mut self) -> Result<(), Fault> {
        self.first = self.chunk().await?;
        Ok(())
    }

    pub(in crate::transport) async fn send(&mut self, request_body: Vec<u8>) -> Result<(), Fault> {
        let sent = self.channel.data_bytes(request_body).await;
        sent.map_err(|_| network("the server ended the connection in the middle of a request".to_owned()))
    }

    /// Returns the next bytes of the command's output; `None` after it ended successfully.
    pub(in crate::transport) async fn chunk(&mut self) -> Result<Option<Bytes>, Fault> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            match self.channel.wait().await {
                Some(ChannelMsg::Data { data }) if !data.is_empty() => {
                    self.has_answered = true;
                    return Ok(Some(data));
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    self.said += data.len();
                    if self.said > MOST_WORDS {
                        return Err(Fault::Protocol { why: "it sends more than 1 MiB of error text over SSH" });
                    }
                    let room = WORDS - self.words.len();
                    self.words.extend_from_slice(&data[..data.len().min(room)]);
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => self.status = Some(exit_status),
                Some(ChannelMsg::Failure) => {
                    return Err(SshFault::NoCommand { text: clean(&self.words) }.into());
                }
                Some(ChannelMsg::Close) => self.is_closed = true,
                Some(_) => {}
                None if !self.is_closed => {
                    return Err(network("the server ended the connection in the middle of a response".to_owned()));
                }
                None if self.status == Some(0) => return Ok(None),
                None => return Err(self.complaint()),
            }
        }
    }

    /// Returns the error of a failed command.
    fn complaint(&self) -> Fault {
        let text = clean(&self.words);
        // If the server has listed references, the repository exists, even if an object is missing.
        if !self.has_answered && is_about_missing_repository(&text) {
            return SshFault::NoRepository { text }.into();
        }
        match self.status {
            Some(127) => SshFault::NoCommand { text }.into(),
            _ if text.is_empty() => Fault::Protocol { why: "git-upload-pack ended without a message" },
            _ => Fault::Refused { text },
        }
    }

    /// Ends the session as the protocol requires, in the background.
    pub(in crate::transport) fn finish(self: Box<Self>, within: Duration) {
        let ending = self.connection.ending();
        tokio::spawn(async move {
            // After a timeout, the connection is not used again.
            let _ = tokio::time::timeout(within, self.say_farewell()).await;
            drop(ending);
        });
    }

    async fn say_farewell(mut self: Box<Self>) {
        // If the connection is closed, the server needs no message.
        if self.channel.data_bytes(&b"0000"[..]).await.is_err() || self.channel.eof().await.is_err() {
            return;
        }
        let mut left = FAREWELL;
        while let Some(message) = self.channel.wait().await {
            let length = match message {
                ChannelMsg::Close => {
                    self.is_closed = true;
                    break;
                }
                ChannelMsg::Data { data } | ChannelMsg::ExtendedData { data, .. } => data.len(),
                _ => 0,
            };
            let Some(less) = left.checked_sub(length) else { break };
            left = less;
        }
    }
}

/// Returns whether the message says that the repository does not exist or is not visible.
fn is_about_missing_repository(text: &str) -> bool {
    let text = text.to_lowercase();
    let phrases = [
        "does not appear to be a git repository",
        "repository not found",
        "could not be found",
        "no such project",
        "no such repository",
        "project not found",
        "does not exist",
    ];
    phrases.iter().any(|phrase| text.contains(phrase))
}
