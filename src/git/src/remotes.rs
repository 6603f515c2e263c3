//! The state of all remotes: one [`Source`] for the whole process, and the consumers of each remote.
//!
//! Invariant: a remote has one state and one mirror for all consumers. Both are removed with its last consumer.
//! Not here: the identity of a remote (`remote`), lookups (`lookup`) and fetches (`transfer`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use zeroize::Zeroizing;

use super::abbreviation::Resolutions;
use super::cloud::{CloudSettings, Clouds};
use super::connection::Connection;
use super::consumers::{Consumer, ConsumerKind, Consumers, Identity};
use super::error::Fault;
use super::fair_queue::Tenant;
use super::followed_artifact::Artifact;
use super::hosts::Hosts;
use super::in_vain::InVain;
use super::issued::{Issued, Wanted};
use super::judgements::Judgements;
use super::large_files::Locks;
use super::last_lookup::LastLookup;
use super::mirror::Mirror;
use super::permits::{Permits, TenantPermits};
use super::pinning::{PinRequest, SupersededPins};
use super::poll::Poll;
use super::pushes::Pushes;
use super::remote::Remote;
use super::snapshot::ReadPermits;
use super::storage::Storage;
use super::transport::{
    self, ClientPlace, GitWire, HttpClients, KeyPlace, LanePlace, Names, Negotiated, Ssh, SshWire, Wire,
};
use super::{Credentials, Deadlines, RemoteUrl, Secret, Sent, Settings, SharedHostKeys};
use mainstay_object::egress::Egress;

/// Maximum wait for the host keys that apply to all repositories.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of packs that are received concurrently. Each takes about 1 MiB of memory, or more if it has very
/// many objects.
const RECEIVING: usize = 16;
/// The user name for tokens of a GitHub App.
const APP_USER: &str = "x-access-token";

/// The state of all remotes, shared by all consumers. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
    /// The namespace on whose behalf this source works.
    pub(super) tenant: Tenant,
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    pub(super) permits: Permits,
    /// Permits for receiving packs.
    receiving: Permits,
    /// Permit for indexing or reading large objects, one at a time.
    large: Permits,
    /// Permit for long listings, one at a time.
    long: Permits,
    pub(super) names: Names,
    http: HttpClients,
    tokens: Issued<Zeroizing<String>>,
    clouds: Clouds,
    pub(super) ssh: Ssh,
    pub(super) hosts: Hosts,
    pub(super) storage: Storage,
    pub(super) remotes: Mutex<HashMap<Identity, Arc<State>>>,
    pub(super) consumers: Mutex<Consumers>,
    pub(super) pushes: Arc<Pushes>,
    /// Whether the remotes of all consumers are known.
    pub(super) consumers_known: watch::Sender<bool>,
    pub(super) lookups: AtomicU64,
    pub(super) fetches: AtomicU64,
}

/// Counters of requests to remotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reference lookups.
    pub lookups: u64,
    /// Fetches.
    pub fetches: u64,
    /// SSH private keys that were opened or found to be invalid.
    pub keys: u64,
    /// Logins over SSH.
    pub logins: u64,
}

/// The state of one remote.
#[derive(Default)]
pub(super) struct State {
    pub(super) poll: Mutex<Poll>,
    /// The last lookup, for display.
    pub(super) last_lookup: watch::Sender<Option<Arc<LastLookup>>>,
    /// Held during a lookup.
    pub(super) asking: tokio::sync::Mutex<()>,
    /// Resolutions of abbreviated ids.
    pub(super) resolutions: Mutex<Resolutions>,
    /// Failed fetches.
    pub(super) in_vain: Mutex<InVain>,
    /// Held while Git LFS files are fetched. A waiting fetch then finds the files in the mirror.
    pub(super) fetching_large_files: Locks,
    /// Held during a search in the history.
    pub(super) searching: tokio::sync::Mutex<()>,
    pub(super) negotiated: Mutex<Option<Negotiated>>,
    /// The artifact of an OCIRepository or a HelmChart, or why there is none; `None` before its first read.
    pub(super) artifact: watch::Sender<Option<Result<Artifact, String>>>,
    /// When the last lookup of the artifact began; `None` before the first one has ended.
    pub(super) artifact_lookup: watch::Sender<Option<Instant>>,
    /// Successful signature checks.
    pub(super) judgements: Mutex<Judgements>,
    /// The opened private key, or why it cannot be opened.
    key: KeyPlace,
    /// The SSH connections to the remote.
    lane: LanePlace,
    /// The HTTP client for the remote, if the shared client does not fit.
    client: ClientPlace,
    /// When an intact mirror was last fetched again, because the server's response did not match it.
    pub(super) renewed: Mutex<Option<Instant>>,
    /// Directory of the mirror, once known.
    pub(super) root: OnceLock<PathBuf>,
    /// Held while the mirror changes.
    pub(super) mirror: tokio::sync::Mutex<Option<Mirror>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("settings", &self.inner.settings)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Returns a source. It uses neither disk nor network yet.
    pub fn new(settings: Settings) -> Self {
        // libgit2's cache of up to 256 MiB is useless here, because objects are hardly ever read twice.
        git2::opts::enable_caching(false);
        let permits = Permits::new(settings.permits);
        let (receiving, large, long) = (Permits::new(RECEIVING), Permits::new(1), Permits::new(1));
        let (remotes, consumers) = (Mutex::default(), Mutex::default());
        let storage = Storage::new(settings.budget);
        let (lookups, fetches) = (AtomicU64::new(0), AtomicU64::new(0));
        let consumers_known = watch::Sender::new(false);
        let names = Names::new(settings.hosts.clone(), Arc::new(settings.egress.clone()));
        let http = HttpClients::new(settings.deadlines, names.clone(), settings.proxy);
        let ssh = Ssh::new(settings.deadlines, names.clone());
        let (tokens, clouds) = (Issued::default(), Clouds::default());
        let inner = Inner {
            settings,
            permits,
            receiving,
            large,
            long,
            names,
            http,
            tokens,
            clouds,
            ssh,
            hosts: Hosts::default(),
            storage,
            remotes,
            consumers,
            pushes: Arc::default(),
            consumers_known,
            lookups,
            fetches,
        };
        Self { inner: Arc::new(inner), tenant: Tenant::default() }
    }

    /// Replaces the host keys for all repositories. Receivers of [`Source::host_keys`] are woken if the keys differ.
    pub fn set_host_keys(&self, keys: SharedHostKeys) {
        if self.inner.ssh.set_host_keys(keys) {
            // Responses of hosts that are no longer trusted must not be used.
            self.expire_all();
        }
    }

    /// Returns a watch on the host keys for all repositories.
    pub fn host_keys(&self) -> watch::Receiver<SharedHostKeys> {
        self.inner.ssh.shared_host_keys().subscribe()
    }

    /// Returns the `known_hosts` lines that apply to a repository's host, from the keys for all repositories and the
    /// pinned one. Returns `None` if the built-in lines apply, or if the repository is not on an SSH server. Waits at
    /// most 10 s until the keys are known.
    ///
    /// # Errors
    /// The reason why the keys are not known.
    pub async fn host_keys_of(&self, url: &RemoteUrl, given: &Credentials) -> Result<Option<Vec<String>>, String> {
        let Some(address) = url.ssh() else { return Ok(None) };
        let mut keys = self.host_keys();
        // After a timeout, or without a sender, the keys stay unknown.
        let _ =
            tokio::time::timeout(LISTED_WITHIN, keys.wait_for(|keys| !matches!(keys, SharedHostKeys::Unknown(None))))
                .await;
        let keys = keys.borrow();
        let identity = if let Credentials::Key(identity) = given { Some(&**identity) } else { None };
        keys.lines_about(&address.known_hosts_name(), identity)
    }

    /// Returns fingerprint and type of the pinned host key, if no other key takes precedence over it.
    pub fn pin_in_force<'r>(&self, remote: &'r Remote) -> Option<&'r str> {
        let host = remote.url.known_hosts_name()?;
        let pin = remote.pinned_host_key()?;
        (!self.host_keys().borrow().know(&host)).then_some(pin)
    }

    /// Returns a watch on the superseded pins.
    pub fn superseded_pins(&self) -> watch::Receiver<SupersededPins> {
        self.inner.ssh.pins().superseded().subscribe()
    }

    /// Returns a receiver for the host keys to pin.
    pub fn host_keys_to_pin(&self) -> mpsc::Receiver<PinRequest> {
        self.inner.ssh.pins().subscribe()
    }

    /// Returns the same source for a namespace. Permits are shared fairly between namespaces.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), tenant: namespace.into() }
    }

    /// Returns the addresses that repositories of a namespace may connect to.
    pub fn egress(&self, namespace: &str) -> Egress {
        self.inner.settings.egress.of(namespace)
    }

    /// Returns the settings for identities of clouds.
    pub(super) fn cloud_settings(&self) -> &CloudSettings {
        &self.inner.settings.clouds
    }

    /// Returns the logins of identities of clouds.
    pub(super) fn clouds(&self) -> &Clouds {
        &self.inner.clouds
    }

    /// Returns a client with these settings.
    pub(super) fn http_of(&self, connection: &Connection) -> Result<transport::Http, Fault> {
        self.inner.http.alone(connection)
    }

    /// Returns permits for work of this namespace alone.
    pub(super) fn own(&self) -> TenantPermits {
        self.inner.permits.share(&self.tenant)
    }

    /// Returns permits for receiving packs.
    pub(super) fn receiving(&self) -> TenantPermits {
        self.inner.receiving.share(&self.tenant)
    }

    /// Returns the permit for large objects.
    pub(super) fn large(&self) -> TenantPermits {
        self.inner.large.share(&self.tenant)
    }

    /// Returns the permits for reading a snapshot.
    pub(super) fn read_permits(&self) -> ReadPermits {
        ReadPermits { threads: self.own(), large: self.large(), long: self.inner.long.share(&self.tenant) }
    }

    /// Returns permits for work for which all consumers of the remote wait.
    pub(super) fn shared(&self, remote: &Remote) -> TenantPermits {
        let consumers = self.inner.consumers.lock();
        self.inner.permits.share_of_all(&self.tenant, consumers.namespaces(&remote.identity()))
    }

    /// Returns the numbers of requests to remotes since the start.
    pub fn traffic(&self) -> Traffic {
        let (lookups, fetches) =
            (self.inner.lookups.load(Ordering::Relaxed), self.inner.fetches.load(Ordering::Relaxed));
        Traffic { lookups, fetches, keys: self.inner.ssh.opened(), logins: self.inner.ssh.logins() }
    }

    /// Sets or (`None`) removes the remote of a consumer. State and mirror of a remote without consumers are removed.
    ///
    /// When the process stops, a consumer keeps its mirror for the next process.
    pub fn set_remote(&self, consumer: &Consumer, remote: Option<&Remote>) {
        if let Some(Credentials::Key(identity)) = remote.map(|remote| &remote.credentials)
            && let Some(pinning) = identity.superseded()
        {
            self.inner.ssh.pins().superseded().send_if_modified(|all| all.add(pinning));
        }
        self.with_consumers(|consumers| {
            // The lock is held during the removal, so that the next consumer of the remote starts with an empty state.
            if let Some(unread) = consumers.set(consumer, remote.map(Remote::identity)) {
                consumers.leave(unread).iter().for_each(|unread| self.forget(unread));
            }
        });
        self.inner.pushes.set_remote(consumer, remote);
    }

    /// Returns the consumers that can be woken ahead of their interval.
    pub fn pushes(&self) -> &Arc<Pushes> {
        &self.inner.pushes
    }

    /// Registers a consumer that exists at the start and will set its remote.
    pub fn register(&self, consumer: &Consumer) {
        self.with_consumers(|consumers| consumers.register(consumer));
    }

    /// Records that all initial consumers of this kind are registered.
    pub fn all_registered(&self, kind: ConsumerKind) {
        self.with_consumers(|consumers| consumers.all_registered(kind));
    }

    /// Records that the consumer has set its remote, or cannot determine it. The consumer is no longer waited for.
    pub fn resolved(&self, consumer: &Consumer) {
        self.with_consumers(|consumers| consumers.resolved(consumer));
    }

    fn with_consumers(&self, change: impl FnOnce(&mut Consumers)) {
        let mut consumers = self.inner.consumers.lock();
        change(&mut consumers);
        if consumers.are_complete() {
            self.inner.consumers_known.send_if_modified(|known| !std::mem::replace(known, true));
        }
    }

    pub(super) fn forget(&self, remote: &Identity) {
        let state = self.inner.remotes.lock().remove(remote);
        // A running fetch holds the lock, so the mirror stays. The next process removes it as unused.
        let Some(state) = state else { return };
        if let Ok(mut mirror) = state.mirror.try_lock()
            && let Some(mirror) = mirror.take()
        {
            mirror.retire();
        }
    }

    pub(super) fn check(&self, remote: &Remote) -> Result<(), Fault> {
        if remote.url.local_path().is_some() && !self.inner.settings.allow_local {
            return Err(Fault::LocalForbidden);
        }
        Ok(())
    }

    pub(super) fn state(&self, remote: &Remote) -> Arc<State> {
        Arc::clone(self.inner.remotes.lock().entry(remote.identity()).or_default())
    }

    /// Returns the credentials to send: of a GitHub App its token, of an identity of a cloud its login.
    pub(super) async fn opened(&self, remote: &Remote, wire: &Wire<'_>) -> Result<Credentials, Fault> {
        let given = remote.credentials().clone();
        match (&given, wire) {
            (Credentials::App(app), Wire::Http(http, url)) => {
                let api = app.issuer(url)?;
                let asked = http.app_token(app, &api);
                let wanted = Wanted { key: app.digest(&api), ..Wanted::default() };
                let token = self.inner.tokens.get(wanted, asked).await?;
                let password = Secret::new(token.to_string());
                Ok(Credentials::Basic { username: APP_USER.to_owned(), password })
            }
            (Credentials::Cloud(identity), Wire::Http(_, url)) => {
                self.git_login(identity, url, &remote.connection).await
            }
            _ => Ok(given),
        }
    }

    /// Returns the error of a request, without any part of these credentials.
    pub(super) fn refused(&self, remote: &Remote, credentials: &Credentials, fault: Fault) -> Fault {
        let fault = match (remote.credentials(), remote.url.http(), fault) {
            (Credentials::App(app), Some(url), fault @ Fault::Denied { .. }) => {
                if let Ok(api) = app.issuer(url) {
                    self.inner.tokens.refused(app.digest(&api));
                }
                fault
            }
            (Credentials::Cloud(identity), Some(url), Fault::Denied { status, elsewhere, .. }) => {
                self.git_login_refused(identity, url);
                Fault::Denied { status, with: Sent::WithIdentity, elsewhere }
            }
            (_, _, fault) => fault,
        };
        transport::without_credentials(credentials, fault)
    }

    /// Returns the HTTP client for a remote. The remote's own scheme need not be HTTP.
    pub(super) fn http(&self, remote: &Remote) -> Result<Arc<transport::Http>, Fault> {
        let state = self.inner.remotes.lock().get(&remote.identity()).cloned().unwrap_or_default();
        let connection = self.connection(remote)?;
        self.inner.http.get(&connection, &state.client)
    }

    /// Returns the connection to a remote. Objects name no CAs for hosts of clouds.
    fn connection<'r>(&self, remote: &'r Remote) -> Result<Cow<'r, Connection>, Fault> {
        Ok(match remote.credentials {
            Credentials::Cloud(_) => Cow::Owned(self.cloud_settings().connection(&remote.connection)?),
            _ => Cow::Borrowed(&remote.connection),
        })
    }

    /// Returns the protocol client for a remote that is not local.
    pub(super) fn wire<'a>(&'a self, remote: &'a Remote) -> Result<Wire<'a>, Fault> {
        // If the remote was dropped in the meantime, key and client exist only for this conversation.
        let state = self.inner.remotes.lock().get(&remote.identity()).cloned().unwrap_or_default();
        if let Some(address) = remote.url.ssh() {
            let (client, connection) = (&self.inner.ssh, &remote.connection);
            let (key, lane) = (Arc::clone(&state.key), Arc::clone(&state.lane));
            return Ok(Wire::Ssh(SshWire { client, address, key, lane, connection }));
        }
        if let Some(address) = remote.url.git() {
            let Deadlines { connect, silence, .. } = self.inner.settings.deadlines;
            let (names, proxy) =
                (self.inner.names.within(remote.connection.egress), remote.connection.proxy.as_deref());
            return Ok(Wire::Git(GitWire { names, address, proxy, connect, silence }));
        }
        let url = remote.url.http().ok_or(Fault::LocalForbidden)?;
        let connection = self.connection(remote)?;
        Ok(Wire::Http(self.inner.http.get(&connection, &state.client)?, url))
    }
}
