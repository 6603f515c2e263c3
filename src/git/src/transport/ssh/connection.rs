//! An open connection.

use std::fmt;

use russh::Channel;
use russh::client::{Handle, Msg};
use tokio_util::sync::DropGuard;

use super::handler::HostKeyChecker;

/// An authenticated connection, which is closed when it is dropped.
pub(super) struct Connection {
    handle: Handle<HostKeyChecker>,
    #[expect(dead_code, reason = "it ends the stream when it is dropped, whatever the connection is doing")]
    stop: DropGuard,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn new(handle: Handle<HostKeyChecker>, stop: DropGuard) -> Self {
        Self { handle, stop }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Opens a channel for one command.
    pub(super) async fn open_channel(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }
}
