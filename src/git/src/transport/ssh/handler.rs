//! Handles requests from the server: checks its host key, and refuses everything else.

use jiff::Timestamp;
use russh::client::{ChannelOpenHandle, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, client};

use super::accepted::AcceptedKeys;
use crate::known_hosts::{self, HostKeyCheck, HostKeys, shown};
use crate::shared_host_keys::Origin;
use crate::ssh_fault::SshFault;

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
    /// Host, with its port unless it is 22.
    pub(super) host: String,
    pub(super) keys: HostKeys,
    /// Host without its port, as in certificates.
    pub(super) hostname: String,
    /// Origin of the known keys.
    pub(super) origin: Origin,
    /// A command that prints lines for `known_hosts`.
    pub(super) scan: String,
    /// Records accepted keys.
    pub(super) accepted: AcceptedKeys,
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
        let check = match presented {
            PublicKeyOrCertificate::Certificate(certificate) => {
                let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
                self.keys.judge_certificate(certificate, &self.hostname, now)
            }
            PublicKeyOrCertificate::PublicKey { key, .. } => self.keys.judge(key),
        };
        // The server has proved that it owns the key. A certificate without a known CA is not pinned.
        let key = match presented {
            PublicKeyOrCertificate::PublicKey { key, .. } => known_hosts::text(key),
            PublicKeyOrCertificate::Certificate(_) => None,
        };
        let (host, presented) = (self.host.clone(), shown(&presented.public_key()));
        Err(Refusal::Host(match check {
            HostKeyCheck::Accepted => {
                self.accepted.insert(&host, presented);
                return Ok(true);
            }
            HostKeyCheck::Unknown if self.origin == Origin::FirstUse && key.is_some() => {
                SshFault::HostKeyFirstUse { host, presented, key: key.unwrap_or_default() }
            }
            HostKeyCheck::Unknown => SshFault::HostKeyUnknown { host, presented, scan: self.scan.clone() },
            HostKeyCheck::Changed => {
                let (whence, place) = match &self.origin {
                    Origin::Pinned(pinning) => {
                        return Err(Refusal::Host(SshFault::PinnedHostKeyChanged {
                            host,
                            presented,
                            known: self.keys.shown(),
                            since: pinning.pin.as_ref().map(|pin| pin.since.clone()).unwrap_or_default(),
                            forget: pinning.forget(),
                        }));
                    }
                    Origin::Secret => ("from known_hosts of the Secret", "the Secret under known_hosts"),
                    Origin::ConfigMap => (
                        "from the ConfigMap mainstay-known-hosts",
                        "that ConfigMap, or into the Secret, under known_hosts",
                    ),
                    Origin::Published | Origin::FirstUse => {
                        ("published by its operator", "the Secret under known_hosts")
                    }
                };
                SshFault::HostKeyChanged { host, presented, known: self.keys.shown(), whence, place }
            }
            HostKeyCheck::Revoked => SshFault::HostKeyRevoked { host, presented },
            HostKeyCheck::BadCertificate(why) => SshFault::HostCertificate { host, presented, why },
        }))
    }

    /// The reason is not logged here, because the caller reports the error.
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
