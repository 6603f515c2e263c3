//! Git over SSH: runs `git-upload-pack` on a channel, as `git` does.
//!
//! - `opening` opens private keys
//! - `handler` checks the host key
//! - `limited_stream` bounds the bytes from an unauthenticated server
//! - `connection` is an open connection
//! - `lane` pools connections
//! - `session` is a conversation
//!
//! Invariant: only the handshake is sent before the host key is accepted, and only a signature of the client key
//! before authentication succeeds.
//! Invariant: a connection to a host whose key must be pinned is closed before any request is sent. The next connection
//! uses the pinned key.
//! Invariant: every step up to the running command has a timeout: the TCP connection its own; handshake with
//! authentication, and the start of the command, the idle timeout each.
//! Invariant: if a pooled connection fails before any response, the command is retried once on a new connection.
//! Invariant: all requests from a server (channels, forwarding, agent) are refused.

mod accepted;
mod connection;
mod handler;
mod host_keys;
mod lane;
mod limited_stream;
mod opening;
mod session;

use std::sync::Arc;
use std::time::Duration;

use russh::client::{self, AuthResult, Handle};
use russh::keys::{HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{MethodKind, MethodSet};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use self::accepted::AcceptedKeys;
use self::connection::Connection;
use self::handler::{HostKeyChecker, Refusal};
use self::host_keys::{KeysForAll, Pins};
pub(crate) use self::lane::LanePlace;
use self::lane::{Lanes, SharedConnection};
use self::limited_stream::{LimitedStream, Received};
use self::opening::Keys;
pub(crate) use self::opening::{AT_ONCE, KeyPlace};
pub(super) use self::session::Session;
use super::body::Body;
use super::dial::{self, Target};
use super::names::{self, Names};
use crate::connection::digest;
use crate::error::Fault;
use crate::fair_queue::Tenant;
use crate::known_hosts::{HostKeys, shown};
use crate::shared_host_keys::Origin;
use crate::ssh_address::SshAddress;
use crate::ssh_fault::SshFault;
use crate::ssh_key::SshIdentity;
use crate::{Connection as ConnectionSettings, Credentials, Deadlines, RemoteUrl, SharedHostKeys};

const CLIENT: &str = concat!("SSH-2.0-mainstay_", env!("CARGO_PKG_VERSION"));

/// A client for all SSH remotes.
#[derive(Debug)]
pub(crate) struct Ssh {
    deadlines: Deadlines,
    names: Names,
    keys: Keys,
    shared: KeysForAll,
    pins: Pins,
    lanes: Lanes,
    accepted: AcceptedKeys,
}

/// The client for one remote.
#[derive(Debug)]
pub(crate) struct SshWire<'a> {
    pub(crate) client: &'a Ssh,
    pub(crate) address: &'a SshAddress,
    pub(crate) key: KeyPlace,
    pub(crate) lane: LanePlace,
    pub(crate) connection: &'a ConnectionSettings,
}

/// Maximum time to open a channel on a pooled connection, so that a dead connection is noticed soon.
const CHANNEL: Duration = Duration::from_secs(5);

/// Why a conversation did not begin.
enum NotBegun {
    /// The connection is unusable, or the server closed it before any response.
    Broken(Fault),
    /// The server does not allow another channel on this connection.
    Full,
    /// The server responded with a different error.
    Answered(Fault),
}

impl Ssh {
    pub(crate) fn new(deadlines: Deadlines, names: Names) -> Self {
        let lanes = Lanes::new(deadlines.idle);
        Self {
            deadlines,
            names,
            keys: Keys::new(),
            shared: KeysForAll::new(),
            pins: Pins::default(),
            lanes,
            accepted: AcceptedKeys::default(),
        }
    }

    /// Returns the host keys for all remotes.
    pub(crate) fn shared_host_keys(&self) -> &KeysForAll {
        &self.shared
    }

    /// Returns the channel for pin requests.
    pub(crate) fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Replaces the host keys for all remotes, and returns whether they differ. If they do, existing connections are
    /// closed.
    pub(crate) fn set_host_keys(&self, keys: SharedHostKeys) -> bool {
        let differ = self.shared.set(keys);
        if differ {
            self.lanes.close();
        }
        differ
    }

    /// Returns fingerprint and type of the last accepted key of a repository's host.
    pub(crate) fn accepted_key(&self, url: &RemoteUrl) -> Option<String> {
        self.accepted.of(&url.known_hosts_name()?)
    }

    /// Returns the number of successful logins since the start.
    pub(crate) fn logins(&self) -> u64 {
        self.lanes.logins()
    }

    /// Returns the number of private keys opened since the start.
    pub(crate) fn opened(&self) -> u64 {
        self.keys.opened()
    }
}

impl SshWire<'_> {
    /// Starts `git-upload-pack`. The server responds with its advertisement.
    pub(super) async fn open(&self, credentials: &Credentials, limit: u64) -> Result<Body, Fault> {
        self.start(credentials, &self.address.command(), limit).await
    }

    /// Starts `git-receive-pack`. The server responds with its advertisement.
    pub(in crate::transport) async fn open_for_push(
        &self,
        credentials: &Credentials,
        limit: u64,
    ) -> Result<Body, Fault> {
        self.start(credentials, &self.address.push_command(), limit).await
    }

    /// Returns the server's output about its LFS server.
    pub(crate) async fn lfs_server(&self, credentials: &Credentials, limit: u64) -> Result<Vec<u8>, Fault> {
        self.start(credentials, &self.address.lfs_command(), limit).await?.all().await
    }

    async fn start(&self, credentials: &Credentials, command: &str, limit: u64) -> Result<Body, Fault> {
        let Self { client, address, key, lane, .. } = self;
        let identity = match credentials {
            Credentials::Key(identity) => identity,
            Credentials::Anonymous => return Err(SshFault::NoKey.into()),
            Credentials::Basic { .. } | Credentials::Bearer(_) | Credentials::App(_) | Credentials::Cloud(_) => {
                return Err(SshFault::NotKey.into());
            }
        };
        let tenant = names::tenant();
        let key = client.keys.open(&tenant, identity, key).await?;
        let silence = client.deadlines.silence;
        let host_keys = client.shared.of(&address.known_hosts_name(), identity).await?;
        let lane = client.lanes.get(self.digest(identity, &host_keys.0), lane);
        let mut may_be_kept = true;
        // The loop ends, because each full connection lowers the expected number of slots, and zero slots are an error.
        loop {
            let kept = if may_be_kept { lane.kept() } else { None };
            let is_kept = kept.is_some();
            let connection = if let Some(kept) = kept {
                kept
            } else {
                let login = self.log_in(&tenant, identity, host_keys.clone(), Arc::clone(&key));
                lane.connect(Box::pin(login)).await?
            };
            let opened_within = if is_kept { CHANNEL.min(silence) } else { silence };
            match Box::pin(begin(&connection, command, silence, opened_within)).await {
                Ok(session) => {
                    connection.serve();
                    return Ok(Body::ssh(session, limit, silence));
                }
                Err(NotBegun::Answered(fault)) => return Err(fault),
                Err(NotBegun::Full) if lane.set_full(&connection) => {}
                Err(NotBegun::Full) if is_kept => {}
                Err(NotBegun::Full) => return Err(SshFault::NoCommand { text: String::new() }.into()),
                Err(NotBegun::Broken(fault)) => {
                    connection.spend();
                    if !is_kept {
                        return Err(fault);
                    }
                    // Other pooled connections may be broken in the same way.
                    may_be_kept = false;
                }
            }
        }
    }

    async fn log_in(
        &self,
        tenant: &Tenant,
        identity: &SshIdentity,
        host_keys: (HostKeys, Origin),
        key: Arc<PrivateKey>,
    ) -> Result<Connection, Fault> {
        let Self { client, address, connection, .. } = self;
        let to = Target { host: &address.host, port: address.port, proxy: connection.proxy.as_deref() };
        let Deadlines { connect: within, silence, .. } = client.deadlines;
        let names = client.names.within(connection.egress);
        let stream = dial::connect(&names, &to, within, tenant).await?;
        let connected =
            tokio::time::timeout(silence, connect(stream, address, host_keys, key, silence, client.accepted.clone()))
                .await;
        let connected =
            connected.unwrap_or_else(|_| Err(Fault::Timeout { after: silence, what: "connecting over SSH" }));
        match (connected, &identity.pinning) {
            (Err(Fault::Ssh(SshFault::HostKeyFirstUse { host, presented, key })), Some(pinning)) => {
                Err(client.pins.pin(pinning.first_use(&host, &key, &presented)).await.into())
            }
            (connected, _) => connected,
        }
    }

    /// Returns a digest of the connection parameters.
    fn digest(&self, identity: &SshIdentity, host_keys: &HostKeys) -> [u8; 32] {
        let Self { address, connection, .. } = self;
        let mut parts = vec![address.host.clone(), address.port.to_string(), address.user.clone()];
        parts.extend(identity.parts().into_iter().map(str::to_owned));
        parts.extend(connection.parts());
        parts.extend(host_keys.parts());
        digest(parts.iter().map(String::as_str))
    }
}

/// Starts the command on a connection, and waits for its first output.
async fn begin(
    connection: &Arc<SharedConnection>,
    command: &str,
    silence: Duration,
    opened_within: Duration,
) -> Result<Session, NotBegun> {
    let opened = tokio::time::timeout(opened_within, connection.connection.open_channel()).await;
    let channel = match opened {
        Ok(Ok(channel)) => channel,
        Ok(Err(russh::Error::ChannelOpenFailure(_))) => return Err(NotBegun::Full),
        Ok(Err(other)) => return Err(NotBegun::Broken(broken(other.into(), COMMAND))),
        Err(_) => return Err(NotBegun::Broken(Fault::Timeout { after: opened_within, what: "connecting over SSH" })),
    };
    let begun = async {
        let mut session = Session::start(Arc::clone(connection), channel, command).await?;
        session.wait_for_first().await?;
        Ok(session)
    };
    match tokio::time::timeout(silence, begun).await {
        Ok(Err(fault @ Fault::Network { .. })) => Err(NotBegun::Broken(fault)),
        Ok(begun) => begun.map_err(NotBegun::Answered),
        Err(_) => Err(NotBegun::Answered(Fault::Timeout { after: silence, what: "waiting for data" })),
    }
}

/// Authenticates over a stream.
async fn connect(
    stream: TcpStream,
    address: &SshAddress,
    (keys, origin): (HostKeys, Origin),
    key: Arc<PrivateKey>,
    silence: Duration,
    accepted: AcceptedKeys,
) -> Result<Connection, Fault> {
    let host = address.known_hosts_name();
    let config = client::Config {
        client_id: russh::SshId::Standard(CLIENT.into()),
        // Detects and closes a pooled connection whose peer has disappeared.
        keepalive_interval: Some(silence),
        keepalive_max: 1,
        preferred: russh::Preferred {
            key: keys.algorithms().into(),
            host_key_certificates: keys.certificate_algorithms().into(),
            ..russh::Preferred::default()
        },
        ..client::Config::default()
    };
    let scan = match address.port {
        22 => format!("ssh-keyscan {}", address.host),
        port => format!("ssh-keyscan -p {port} {}", address.host),
    };
    let stop = CancellationToken::new();
    let received = Received::default();
    let limited_stream = LimitedStream::new(stream, &stop, received.clone());
    let stop = stop.drop_guard();
    let hostname = address.host.clone();
    let checker = HostKeyChecker { host, keys, hostname, origin, scan, accepted };
    let connected = client::connect_stream(Arc::new(config), limited_stream, checker).await;
    let mut handle = connected.map_err(|refusal| received.fault().unwrap_or_else(|| broken(refusal, HANDSHAKE)))?;
    let authenticated = authenticate(&mut handle, address, key).await;
    authenticated.map_err(|fault| received.fault().unwrap_or(fault))?;
    received.set_authenticated();
    Ok(Connection::new(handle, stop))
}

const HANDSHAKE: &str = "during the key exchange";
const LOGIN: &str = "while authenticating";
const COMMAND: &str = "while starting the command";

async fn authenticate(
    handle: &mut Handle<HostKeyChecker>,
    address: &SshAddress,
    key: Arc<PrivateKey>,
) -> Result<(), Fault> {
    let hash = if key.algorithm().is_rsa() {
        let supported = handle.best_supported_rsa_hash().await.map_err(|error| broken(error.into(), LOGIN))?;
        // A server that does not list its algorithms supports SHA-256, as servers have done for ten years.
        Some(supported.unwrap_or(Some(HashAlg::Sha256)).ok_or(SshFault::OnlySha1)?)
    } else {
        None
    };
    let public = PublicKey::from(&*key);
    let key = PrivateKeyWithHashAlg::new(key, hash);
    let answer = handle.authenticate_publickey(&address.user, key).await;
    let answer = answer.map_err(|error| broken(error.into(), LOGIN))?;
    match answer {
        AuthResult::Success => return Ok(()),
        // A server that rejects a key lists at least the method that was tried.
        AuthResult::Failure { remaining_methods, partial_success: false } if remaining_methods.is_empty() => {
            return Err(broken(russh::Error::Disconnect.into(), LOGIN));
        }
        AuthResult::Failure { partial_success: true, remaining_methods } => {
            return Err(SshFault::NotEnough { key: shown(&public), methods: listed(&remaining_methods) }.into());
        }
        AuthResult::Failure { remaining_methods, .. } if !remaining_methods.contains(&MethodKind::PublicKey) => {
            let is_password =
                |method: &MethodKind| matches!(method, MethodKind::Password | MethodKind::KeyboardInteractive);
            let wanted = if remaining_methods.iter().all(is_password) {
                "a password".to_owned()
            } else {
                listed(&remaining_methods)
            };
            return Err(SshFault::TakesNoKey { wanted }.into());
        }
        AuthResult::Failure { .. } => {}
    }
    Err(SshFault::Refused { user: address.user.clone(), key: shown(&public) }.into())
}

/// Lists authentication methods, as the server names them.
fn listed(methods: &MethodSet) -> String {
    methods.iter().map(<&str>::from).collect::<Vec<_>>().join(", ")
}

fn network(what: String) -> Fault {
    Fault::Network { what }
}

/// Returns the error of a broken connection.
fn broken(refusal: Refusal, when: &'static str) -> Fault {
    use russh::Error;
    let error = match refusal {
        Refusal::Host(fault) => return fault.into(),
        Refusal::Ssh(error) => error,
    };
    match error {
        Error::NoCommonAlgo { kind, .. } => SshFault::NothingInCommon {
            what: match kind {
                russh::AlgorithmKind::Kex => "key exchange",
                russh::AlgorithmKind::Key => "host key",
                russh::AlgorithmKind::Cipher => "cipher",
                russh::AlgorithmKind::Compression => "compression",
                russh::AlgorithmKind::Mac => "MAC",
            },
        }
        .into(),
        Error::Version => Fault::Protocol { why: "it does not speak SSH 2" },
        Error::PacketSize(_) => Fault::Protocol { why: "it sends SSH packets that are too large" },
        Error::IO(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            network(format!("the connection broke {when}: {error}"))
        }
        Error::IO(_) | Error::Disconnect | Error::HUP | Error::SendError | Error::RecvError | Error::Join(_) => {
            network(format!("the server ended the connection {when}"))
        }
        Error::InactivityTimeout | Error::ConnectionTimeout | Error::KeepaliveTimeout => {
            network(format!("the server stopped responding {when}"))
        }
        _ => Fault::Protocol { why: "it violates the SSH protocol" },
    }
}
