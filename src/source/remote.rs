//! The lookup of references, and the state of all remotes: one [`Source`] for the whole process.
//!
//! Invariant: one question at a time is asked of a remote, and everyone who waits for it gets its answer.
//! Invariant: waiting for a server holds neither a thread nor a permit; a stuck remote delays its own repository only. (The
//! system's resolver holds a thread while it waits for nameservers: one of those that are kept for names.)

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::abbreviation::{Resolutions, Tips};
use super::connection::digest;
use super::consumers::{Consumer, ConsumerKind, Consumers, Identity};
use super::error::{Error, Fault};
use super::fair_queue::Tenant;
use super::hosts::{Host, Hosts};
use super::id::Commit;
use super::judgements::Judgements;
use super::mirror::{Mirror, OpenGenerations};
use super::permits::{Permit, Permits, TenantPermits};
use super::poll::Poll;
use super::reference::{RefNames, Reference, Refs, ResolvedRef};
use super::snapshot::Snapshot;
use super::transport::{
    self, AppTokens, ClientPlace, GitWire, HttpClients, KeyPlace, LanePlace, Names, Negotiated, Ssh, SshWire, Wire,
};
use super::{Connection, Credentials, Deadlines, RemoteUrl, Settings, SharedHostKeys, Verification};

/// How long the host keys that hold for all repositories are waited for.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
/// The user name beside the token of a GitHub App.
const APP_USER: &str = "x-access-token";

/// A repository and how to authenticate to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Its address.
    pub url: RemoteUrl,
    /// How to authenticate. If this is empty, the credentials in the address are used.
    pub credentials: Credentials,
    /// What the connection is made with.
    pub connection: Connection,
    /// What its commits must be signed by; `None` if they need not be. The mirror is the same for all.
    pub verification: Option<Arc<Verification>>,
}

impl Remote {
    /// A remote whose connection is made with nothing special.
    pub fn new(url: RemoteUrl, credentials: Credentials) -> Self {
        Self { url, credentials, connection: Connection::default(), verification: None }
    }

    /// The same remote for whoever wants what was verified, and applied, before.
    #[must_use]
    pub fn without_verification(&self) -> Self {
        Self { verification: None, ..self.clone() }
    }

    pub(super) fn credentials(&self) -> &Credentials {
        match &self.credentials {
            Credentials::Anonymous => self.url.embedded(),
            given
            @ (Credentials::Basic { .. } | Credentials::Bearer(_) | Credentials::App(_) | Credentials::Key(_)) => given,
        }
    }

    /// The parts that distinguish credentials.
    fn credential_parts(&self) -> Vec<&str> {
        match self.credentials() {
            Credentials::Anonymous => Vec::new(),
            Credentials::Basic { username, password } => vec![username, password.expose()],
            Credentials::Bearer(token) => vec!["bearer", token.expose()],
            Credentials::App(app) => app.parts().into_iter().collect(),
            Credentials::Key(identity) => identity.parts().into_iter().collect(),
        }
    }

    /// What distinguishes credentials, without anything of them.
    fn account(&self) -> [u8; 32] {
        digest(self.credential_parts().into_iter())
    }

    /// The identity of the remote: address, credentials and connection.
    pub(super) fn identity(&self) -> Identity {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        add(&self.url.to_string());
        self.credential_parts().into_iter().for_each(&mut add);
        // A remote without anything special has the identity, and so the mirror, that it has always had.
        if self.connection != Connection::default() {
            add("connection");
            self.connection.parts().iter().for_each(|part| add(part));
        }
        digest.finalize().into()
    }
}

/// The state of all remotes, shared by all consumers. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
    /// On whose behalf it works.
    pub(super) tenant: Tenant,
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    permits: Permits,
    names: Names,
    http: HttpClients,
    tokens: AppTokens,
    ssh: Ssh,
    hosts: Hosts,
    pub(super) open: OpenGenerations,
    pub(super) remotes: Mutex<HashMap<Identity, Arc<State>>>,
    pub(super) consumers: Mutex<Consumers>,
    /// Whether the remotes of all consumers are known.
    pub(super) consumers_known: watch::Sender<bool>,
    pub(super) lookups: AtomicU64,
    pub(super) fetches: AtomicU64,
}

/// Numbers of requests to remotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Reference lookups.
    pub lookups: u64,
    /// Fetches.
    pub fetches: u64,
    /// Private keys of SSH that were opened, or were found to be none.
    pub keys: u64,
    /// Logins over SSH.
    pub logins: u64,
}

/// The state of one remote.
#[derive(Default)]
pub(super) struct State {
    poll: Mutex<Poll>,
    /// Locked during a lookup.
    asking: tokio::sync::Mutex<()>,
    /// Resolutions of abbreviated ids.
    pub(super) resolutions: Mutex<Resolutions>,
    /// The commit that was last searched in vain in the history of all branches, and where those were.
    pub(super) lacks: Mutex<Option<(Commit, Tips)>>,
    /// Locked during a search in the history.
    pub(super) searching: tokio::sync::Mutex<()>,
    pub(super) negotiated: Mutex<Option<Negotiated>>,
    /// What was found to be signed.
    pub(super) judgements: Mutex<Judgements>,
    /// What came of opening its private key.
    key: KeyPlace,
    /// Its connections over SSH.
    lane: LanePlace,
    /// Its HTTP client, if the usual one does not do.
    client: ClientPlace,
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
    /// Uses neither disk nor network yet.
    pub fn new(settings: Settings) -> Self {
        let permits = Permits::new(settings.permits);
        let (open, remotes, consumers) = (OpenGenerations::default(), Mutex::default(), Mutex::default());
        let (lookups, fetches) = (AtomicU64::new(0), AtomicU64::new(0));
        let consumers_known = watch::Sender::new(false);
        let names = Names::new(settings.hosts.clone());
        let http = HttpClients::new(settings.deadlines, names.clone());
        let ssh = Ssh::new(settings.deadlines, names.clone());
        let tokens = AppTokens::default();
        let inner = Inner {
            settings,
            permits,
            names,
            http,
            tokens,
            ssh,
            hosts: Hosts::default(),
            open,
            remotes,
            consumers,
            consumers_known,
            lookups,
            fetches,
        };
        Self { inner: Arc::new(inner), tenant: Tenant::default() }
    }

    /// Replaces the host keys that hold for all repositories; whoever waits for [`Source::host_keys`] is woken if they are
    /// others.
    pub fn set_host_keys(&self, keys: SharedHostKeys) {
        self.inner.ssh.set_host_keys(keys);
    }

    /// The host keys that hold for all repositories, to wait for others.
    pub fn host_keys(&self) -> watch::Receiver<SharedHostKeys> {
        self.inner.ssh.shared_host_keys().subscribe()
    }

    /// The lines about the host of a repository that hold for all repositories; `None` if the program's own hold, or if the
    /// repository is not on an SSH server. Waits for at most 10 s until they are known.
    ///
    /// # Errors
    /// Why they are not known.
    pub async fn host_keys_of(&self, url: &RemoteUrl) -> Result<Option<Vec<String>>, String> {
        let Some(address) = url.ssh() else { return Ok(None) };
        let mut keys = self.host_keys();
        // Elapsed, and a sender that is gone, leave what is known: nothing.
        let _ =
            tokio::time::timeout(LISTED_WITHIN, keys.wait_for(|keys| !matches!(keys, SharedHostKeys::Unknown(None))))
                .await;
        let keys = keys.borrow();
        keys.lines_about(&address.known_hosts_name())
    }

    /// The same source for a namespace: permits are shared fairly between namespaces.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), tenant: namespace.into() }
    }

    /// Permits for work that only this namespace waits for.
    pub(super) fn own(&self) -> TenantPermits {
        self.inner.permits.share(&self.tenant)
    }

    /// Permits for work that all consumers of the remote wait for.
    pub(super) fn shared(&self, remote: &Remote) -> TenantPermits {
        let consumers = self.inner.consumers.lock();
        self.inner.permits.share_of_all(&self.tenant, consumers.namespaces(&remote.identity()))
    }

    /// Numbers of requests to remotes since the start.
    pub fn traffic(&self) -> Traffic {
        let (lookups, fetches) =
            (self.inner.lookups.load(Ordering::Relaxed), self.inner.fetches.load(Ordering::Relaxed));
        Traffic { lookups, fetches, keys: self.inner.ssh.opened(), logins: self.inner.ssh.logins() }
    }

    /// Resolves `reference` at the remote, by an answer that is at most `max_age` old; zero always asks the remote.
    ///
    /// One request looks up all references of a remote that were requested lately, and no two lookups of a remote run
    /// at the same time. A full commit id needs no request. An abbreviated one is searched in the remote's history
    /// within the deadline of a fetch, and cached.
    pub async fn lookup(
        &self,
        remote: &Remote,
        reference: &Reference,
        max_age: Duration,
    ) -> Result<ResolvedRef, Error> {
        let found = match (self.found(remote, reference, max_age).await, reference.abbreviation()) {
            (Err(fault), Some(beginning)) => match &*fault {
                Fault::MissingReference { default_branch, empty: false } => {
                    self.search(remote, &beginning, default_branch.clone()).await
                }
                _ => Err(fault),
            },
            (found, _) => found,
        };
        found.map_err(|cause| Error::Lookup { url: remote.url.clone(), reference: reference.clone(), cause })
    }

    /// The remote has changed at `at`, as somebody says: later lookups are served by no answer from before.
    pub fn expire(&self, remote: &Remote, at: Instant) {
        self.state(remote).poll.lock().expire(at);
    }

    /// Passes on what `reference` resolved to in an earlier process, so that an abbreviated id is not searched again.
    /// Ignored if the commit does not match the reference.
    pub fn hint(&self, remote: &Remote, reference: &Reference, commit: Commit) {
        if let Some(beginning) = reference.abbreviation() {
            self.state(remote).resolutions.lock().hint(&beginning, commit, Instant::now());
        }
    }

    /// The remote's default branch as a reference.
    pub async fn default_branch(&self, remote: &Remote) -> Result<Reference, Error> {
        let found = self.found(remote, &Reference::head(), Duration::from_secs(60)).await;
        let found = found.map_err(|cause| Error::LookupHead { url: remote.url.clone(), cause })?;
        Reference::parse(found.short())
    }

    async fn found(
        &self,
        remote: &Remote,
        reference: &Reference,
        max_age: Duration,
    ) -> Result<ResolvedRef, Arc<Fault>> {
        self.check(remote)?;
        if reference.commit().is_some() {
            return Ok(reference.resolve(&Refs::default())?);
        }
        let state = self.state(remote);
        let asked = Instant::now();
        let answer = {
            let mut poll = state.poll.lock();
            poll.add(reference, asked);
            poll.answer(reference, asked, max_age)
        };
        if let Some(answer) = answer {
            return answer;
        }
        let _asking = state.asking.lock().await;
        // Bound to a variable because the guard must not be held during the request.
        let answer = state.poll.lock().answer(reference, asked, max_age);
        if let Some(answer) = answer {
            return answer;
        }
        let host = self.inner.hosts.get(&remote.url, &remote.connection, Instant::now());
        let _permit = match &host {
            Some(host) => Some(self.admitted(host, remote, &state).await?),
            None => None,
        };
        let began = Instant::now();
        self.inner.lookups.fetch_add(1, Ordering::Relaxed);
        let (covers, wanted) = state.poll.lock().request();
        let deadline = self.inner.settings.deadlines.lookup;
        let outcome = match tokio::time::timeout(deadline, self.list_refs(&state, remote, &wanted)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "looking up the reference" }),
        };
        if let (Some(host), Err(Fault::Status { status, retry_after: Some(after) })) = (&host, &outcome) {
            host.set_quiet((remote.identity(), remote.account()), *status, *after, Instant::now());
        }
        let mut poll = state.poll.lock();
        poll.record(began, covers, outcome.map_err(Arc::new));
        poll.answer(reference, asked, max_age).unwrap_or(Err(Arc::new(Fault::Stopped)))
    }

    /// Waits until the host may be asked about the remote.
    async fn admitted(&self, host: &Host, remote: &Remote, state: &State) -> Result<Permit, Fault> {
        let identity = remote.identity();
        let is_new = state.poll.lock().is_new();
        if is_new {
            tokio::time::sleep(host.delay(Instant::now())).await;
        }
        let tenants = self.inner.consumers.lock().namespaces(&identity).map(str::to_owned).collect::<Vec<_>>();
        let permits = host.permits.share_of_all(&self.tenant, tenants.iter().map(String::as_str));
        let permit = permits.acquire().await?;
        match host.quiet(&(identity, remote.account()), Instant::now()) {
            Some((status, left)) => Err(Fault::Status { status, retry_after: Some(left) }),
            None => Ok(permit),
        }
    }

    pub(super) async fn list_refs(&self, state: &State, remote: &Remote, wanted: &RefNames) -> Result<Refs, Fault> {
        if let Some(path) = remote.url.local_path() {
            let (path, wanted) = (path.to_owned(), wanted.clone());
            return self.shared(remote).run(move || transport::local::list_refs(&path, &wanted)).await?;
        }
        let known = state.negotiated.lock().clone();
        let limit = self.inner.settings.limits.advertisement_bytes;
        let wire = self.wire(remote)?;
        let asked = async {
            let credentials = self.opened(remote, &wire).await?;
            let asked = transport::list_refs(&wire, &credentials, known.as_ref(), wanted, limit).await;
            asked.map_err(|fault| self.refused(remote, &credentials, fault))
        };
        let asked = transport::on_behalf_of(&self.tenant, asked).await;
        let (negotiated, refs) = match asked {
            Ok((negotiated, refs)) => (Some(negotiated), Ok(refs)),
            Err(fault) => (None, Err(fault)),
        };
        *state.negotiated.lock() = negotiated;
        refs
    }

    /// A snapshot of the commit that was found, from the mirror or fetched now. If the remote asks for signatures, it is
    /// verified.
    pub async fn fetch(&self, remote: &Remote, found: &ResolvedRef) -> Result<Snapshot, Error> {
        let deadline = self.inner.settings.deadlines.fetch;
        let fetched = match tokio::time::timeout(deadline, self.snapshot(remote, found)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "fetching" }),
        };
        if let Err(Fault::MissingCommit) = fetched {
            self.state(remote).resolutions.lock().lost(found.commit);
        }
        let snapshot = fetched.map_err(|cause| {
            let cause = Arc::new(cause);
            Error::Fetch { url: remote.url.clone(), commit: found.commit, cause }
        })?;
        self.judge(remote, found, &snapshot).await?;
        Ok(snapshot)
    }

    /// Sets or (`None`) removes the remote of a consumer. The state and the mirror of a remote without consumers are
    /// removed.
    ///
    /// A consumer that ends with the process keeps its mirror for the next process.
    pub fn set_remote(&self, consumer: &Consumer, remote: Option<&Remote>) {
        self.with_consumers(|consumers| {
            // Still locked while it is removed: the next consumer of the remote starts with an empty state.
            if let Some(unread) = consumers.set(consumer, remote.map(Remote::identity)) {
                self.forget(&unread);
            }
        });
    }

    /// Registers a consumer that exists at the start and will set its remote.
    pub fn register(&self, consumer: &Consumer) {
        self.with_consumers(|consumers| consumers.register(consumer));
    }

    /// All consumers of this kind that exist at the start are registered.
    pub fn all_registered(&self, kind: ConsumerKind) {
        self.with_consumers(|consumers| consumers.all_registered(kind));
    }

    /// The consumer has set its remote, or cannot determine it: nothing waits for it any more.
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

    fn forget(&self, remote: &Identity) {
        let state = self.inner.remotes.lock().remove(remote);
        // A running fetch keeps the mirror; the next process that finds it unused removes it.
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

    /// The credentials that are sent: for a GitHub App its token.
    pub(super) async fn opened(&self, remote: &Remote, wire: &Wire<'_>) -> Result<Credentials, Fault> {
        let given = remote.credentials().clone();
        match (&given, wire) {
            (Credentials::App(app), Wire::Http(http, url)) => {
                let url = app.token_url(url).ok_or(Fault::Stopped)?;
                let password = self.inner.tokens.get(app.digest(&url), http.app_token(app, url)).await?;
                Ok(Credentials::Basic { username: APP_USER.to_owned(), password })
            }
            _ => Ok(given),
        }
    }

    /// The fault of a conversation with these credentials, without anything of them.
    pub(super) fn refused(&self, remote: &Remote, credentials: &Credentials, fault: Fault) -> Fault {
        if let (Credentials::App(app), Fault::Denied { .. }) = (remote.credentials(), &fault)
            && let Some(url) = remote.url.http().and_then(|url| app.token_url(url))
        {
            self.inner.tokens.refused(app.digest(&url));
        }
        transport::without_credentials(credentials, fault)
    }

    /// The client for a remote that is not local.
    pub(super) fn wire<'a>(&'a self, remote: &'a Remote) -> Result<Wire<'a>, Fault> {
        // A remote that was forgotten meanwhile keeps its key and its client no longer than this conversation.
        let state = self.inner.remotes.lock().get(&remote.identity()).cloned().unwrap_or_default();
        if let Some(address) = remote.url.ssh() {
            let (client, connection) = (&self.inner.ssh, &remote.connection);
            let (key, lane) = (Arc::clone(&state.key), Arc::clone(&state.lane));
            return Ok(Wire::Ssh(SshWire { client, address, key, lane, connection }));
        }
        if let Some(address) = remote.url.git() {
            let Deadlines { connect, silence, .. } = self.inner.settings.deadlines;
            let (names, proxy) = (&self.inner.names, remote.connection.proxy.as_deref());
            return Ok(Wire::Git(GitWire { names, address, proxy, connect, silence }));
        }
        let url = remote.url.http().ok_or(Fault::LocalForbidden)?;
        Ok(Wire::Http(self.inner.http.get(&remote.connection, &state.client)?, url))
    }
}
