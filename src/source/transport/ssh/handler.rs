//! Handles server requests outside of the answers: the host key is checked, everything else is refused.

use russh::client::{ChannelOpenHandle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, client};

use crate::source::known_hosts::{HostKeyCheck, HostKeys, shown};
use crate::source::ssh_fault::SshFault;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The host key is not trusted.
    Host(SshFault),
    /// The connection broke.
    Ssh(russh::Error),
}

impl From<russh::Error> for Refusal {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

/// Checks the host key.
#[derive(Debug)]
pub(super) struct HostKeyChecker {
    /// Host, with its port unless that is 22.
    pub(super) host: String,
    pub(super) keys: HostKeys,
    /// Where the known keys come from.
    pub(super) whence: &'static str,
    /// A command that prints lines for `known_hosts`.
    pub(super) scan: String,
}

/// Refuses one kind of channel that a server may try to open, by dropping the handle.
macro_rules! refuse {
    ($($name:ident($($argument:ty),*);)*) => {
        $(async fn $name(
            &mut self,
            _: Channel<Msg>,
            $(_: $argument,)*
            _: ChannelOpenHandle,
            _: &mut Session,
        ) -> Result<(), Refusal> {
            Ok(())
        })*
    };
}

impl Handler for HostKeyChecker {
    type Error = Refusal;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, Refusal> {
        let presented = presented.public_key();
        let (host, fingerprint) = (self.host.clone(), shown(&presented));
        Err(Refusal::Host(match self.keys.judge(&presented) {
            HostKeyCheck::Accepted => return Ok(true),
            HostKeyCheck::Unknown => SshFault::HostKeyUnknown { host, presented: fingerprint, scan: self.scan.clone() },
            HostKeyCheck::Changed => {
                let (known, whence) = (self.keys.shown(), self.whence);
                SshFault::HostKeyChanged { host, presented: fingerprint, known, whence }
            }
            HostKeyCheck::Revoked => SshFault::HostKeyRevoked { host, presented: fingerprint },
        }))
    }

    /// Not logged here: the caller reports the error.
    async fn disconnected(&mut self, reason: client::DisconnectReason<Refusal>) -> Result<(), Refusal> {
        match reason {
            client::DisconnectReason::ReceivedDisconnect(_) => Ok(()),
            client::DisconnectReason::Error(error) => Err(error),
        }
    }

    refuse! {
        server_channel_open_forwarded_tcpip(&str, u32, &str, u32);
        server_channel_open_forwarded_streamlocal(&str);
        server_channel_open_agent_forward();
        server_channel_open_session();
        server_channel_open_direct_tcpip(&str, u32, &str, u32);
        server_channel_open_direct_streamlocal(&str);
        server_channel_open_x11(&str, u32);
    }
}
