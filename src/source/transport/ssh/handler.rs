//! What is done about what an SSH server says beside the answers: its host key is judged, and its wishes are refused.

use russh::client::{ChannelOpenHandle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, client};

use crate::source::known_hosts::{HostKeys, Verdict, shown};
use crate::source::ssh_fault::SshFault;

/// Why a connection ended.
#[derive(Debug)]
pub(super) enum Refusal {
    /// We do not trust the host.
    Host(SshFault),
    /// The connection broke.
    Ssh(russh::Error),
}

impl From<russh::Error> for Refusal {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

/// Judges the host's key.
#[derive(Debug)]
pub(super) struct Checker {
    /// Host, with its port unless that is 22.
    pub(super) host: String,
    pub(super) keys: HostKeys,
    /// Where those are from.
    pub(super) whence: &'static str,
    /// How to get lines for `known_hosts`.
    pub(super) scan: String,
}

/// A method for each kind of channel that a server may want to open; dropping the handle refuses it.
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

impl Handler for Checker {
    type Error = Refusal;

    async fn check_server_key(&mut self, presented: &PublicKeyOrCertificate) -> Result<bool, Refusal> {
        let presented = presented.public_key();
        let (host, fingerprint) = (self.host.clone(), shown(&presented));
        Err(Refusal::Host(match self.keys.judge(&presented) {
            Verdict::Accepted => return Ok(true),
            Verdict::Unknown => SshFault::HostKeyUnknown { host, presented: fingerprint, scan: self.scan.clone() },
            Verdict::Changed => {
                let (known, whence) = (self.keys.shown(), self.whence);
                SshFault::HostKeyChanged { host, presented: fingerprint, known, whence }
            }
            Verdict::Revoked => SshFault::HostKeyRevoked { host, presented: fingerprint },
        }))
    }

    /// The connection ends without a line in the log: whoever asked says what became of it.
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
