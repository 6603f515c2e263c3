//! Looking up references, and what is known of the remotes: one [`Source`] for the whole process.
//!
//! Invariant: one question at a time is asked of a remote, and everyone who waits for it gets its answer.
//! Invariant: waiting for a server holds neither a thread nor a slot; a stuck remote delays its own repository only. (The
//! system's resolver holds a thread while it waits for nameservers: one of those that are kept for names.)

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::abbreviation::{Meanings, Tips};
use super::error::{Error, Fault};
use super::id::Commit;
use super::mirror::{Mirror, Open};
use super::poll::Poll;
use super::readers::{Identity, Reader, ReaderKind, Readers};
use super::reference::{Found, Reference, Refs, Wanted};
use super::slots::{Share, Slots};
use super::snapshot::Snapshot;
use super::transport::{self, Http, KeyPlace, Names, Negotiated, Ssh, Wire};
use super::turns::Party;
use super::{Credentials, RemoteUrl, Settings};

/// A repository and how to authenticate to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Where it is.
    pub url: RemoteUrl,
    /// How to authenticate. Credentials in the address are used when there are none here.
    pub credentials: Credentials,
}

impl Remote {
    pub(super) fn credentials(&self) -> &Credentials {
        match &self.credentials {
            Credentials::Anonymous => self.url.embedded(),
            given @ (Credentials::Basic { .. } | Credentials::Key(_)) => given,
        }
    }

    /// What makes two remotes one: address and credentials.
    pub(super) fn identity(&self) -> Identity {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        add(&self.url.to_string());
        match self.credentials() {
            Credentials::Anonymous => {}
            Credentials::Basic { username, password } => {
                add(username);
                add(password.expose());
            }
            Credentials::Key(identity) => identity.parts().into_iter().for_each(add),
        }
        digest.finalize().into()
    }
}

/// Everything that is known of the remotes, shared by all who use them. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
    /// On whose behalf it works.
    pub(super) party: Party,
}

pub(super) struct Inner {
    pub(super) settings: Settings,
    slots: Slots,
    names: Names,
    http: OnceLock<Http>,
    ssh: Ssh,
    pub(super) open: Open,
    pub(super) remotes: Mutex<HashMap<Identity, Arc<State>>>,
    pub(super) readers: Mutex<Readers>,
    /// Whether it is known what all of them read.
    pub(super) readers_known: watch::Sender<bool>,
    pub(super) lookups: AtomicU64,
    pub(super) fetches: AtomicU64,
}

/// How often remotes were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Questions about references.
    pub lookups: u64,
    /// Transfers of commits.
    pub fetches: u64,
    /// Private keys of SSH that were opened, or were found to be none.
    pub keys: u64,
}

/// What is known of one remote.
#[derive(Default)]
pub(super) struct State {
    poll: Mutex<Poll>,
    /// Held while the remote is asked for its references.
    asking: tokio::sync::Mutex<()>,
    /// What the beginnings of ids mean.
    pub(super) meanings: Mutex<Meanings>,
    /// The commit that was looked for last among the history of all branches, in vain, and where they were.
    pub(super) lacks: Mutex<Option<(Commit, Tips)>>,
    /// Held while a commit is looked for in the remote's history.
    pub(super) searching: tokio::sync::Mutex<()>,
    pub(super) negotiated: Mutex<Option<Negotiated>>,
    /// What came of opening its private key.
    key: KeyPlace,
    /// Held while the mirror changes.
    pub(super) mirror: tokio::sync::Mutex<Option<Mirror>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("settings", &self.inner.settings)
            .field("party", &self.party)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Touches neither disk nor network yet.
    pub fn new(settings: Settings) -> Self {
        let slots = Slots::new(settings.slots);
        let (http, open, remotes, readers) = (OnceLock::new(), Open::default(), Mutex::default(), Mutex::default());
        let (lookups, fetches) = (AtomicU64::new(0), AtomicU64::new(0));
        let readers_known = watch::Sender::new(false);
        let names = Names::new();
        let ssh = Ssh::new(settings.deadlines, names.clone());
        let inner =
            Inner { settings, slots, names, http, ssh, open, remotes, readers, readers_known, lookups, fetches };
        Self { inner: Arc::new(inner), party: Party::default() }
    }

    /// The same source on behalf of a namespace: however much one of them asks for, another one gets its turn.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), party: namespace.into() }
    }

    /// For work that only this namespace waits for.
    pub(super) fn own(&self) -> Share {
        self.inner.slots.share(&self.party)
    }

    /// For work on what is shared by all who read the remote: while it is done, all of them wait for it.
    pub(super) fn shared(&self, remote: &Remote) -> Share {
        let readers = lock(&self.inner.readers);
        self.inner.slots.share_of_all(&self.party, readers.namespaces(&remote.identity()))
    }

    /// How often remotes were asked since the start.
    pub fn traffic(&self) -> Traffic {
        let (lookups, fetches) =
            (self.inner.lookups.load(Ordering::Relaxed), self.inner.fetches.load(Ordering::Relaxed));
        Traffic { lookups, fetches, keys: self.inner.ssh.opened() }
    }

    /// What `reference` means at the remote now, or at most `max_age` ago; zero asks the remote in any case.
    ///
    /// All references that were asked of one remote lately are looked up by one question, and questions are never
    /// asked twice at the same time. A commit id means itself, without a question. The beginning of one is looked for in
    /// the remote's history, within the deadline of a fetch, and is known from then on.
    pub async fn lookup(&self, remote: &Remote, reference: &Reference, max_age: Duration) -> Result<Found, Error> {
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

    /// Tells what `reference` was found to mean before this process began, so that the beginning of an id need not be
    /// looked for again. What it does not fit is no matter.
    pub fn remind(&self, remote: &Remote, reference: &Reference, commit: Commit) {
        if let Some(beginning) = reference.abbreviation() {
            lock(&self.state(remote).meanings).reminded(&beginning, commit, Instant::now());
        }
    }

    /// The remote's default branch as a reference.
    pub async fn default_branch(&self, remote: &Remote) -> Result<Reference, Error> {
        let found = self.found(remote, &Reference::head(), Duration::from_secs(60)).await;
        let found = found.map_err(|cause| Error::LookupHead { url: remote.url.clone(), cause })?;
        Reference::parse(found.short())
    }

    async fn found(&self, remote: &Remote, reference: &Reference, max_age: Duration) -> Result<Found, Arc<Fault>> {
        self.check(remote)?;
        if reference.commit().is_some() {
            return Ok(reference.resolve(&Refs::default())?);
        }
        let state = self.state(remote);
        let asked = Instant::now();
        let answer = {
            let mut poll = lock(&state.poll);
            poll.want(reference, asked);
            poll.answer(reference, asked, max_age)
        };
        if let Some(answer) = answer {
            return answer;
        }
        let _asking = state.asking.lock().await;
        // Bound first: the guard must not be held across the question.
        let answer = lock(&state.poll).answer(reference, asked, max_age);
        if let Some(answer) = answer {
            return answer;
        }
        let began = Instant::now();
        self.inner.lookups.fetch_add(1, Ordering::Relaxed);
        let (covers, wanted) = lock(&state.poll).question();
        let deadline = self.inner.settings.deadlines.lookup;
        let outcome = match tokio::time::timeout(deadline, self.list_refs(&state, remote, &wanted)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "looking up references" }),
        };
        let mut poll = lock(&state.poll);
        poll.learned(began, covers, outcome.map_err(Arc::new));
        poll.answer(reference, asked, max_age).unwrap_or(Err(Arc::new(Fault::Stopped)))
    }

    pub(super) async fn list_refs(&self, state: &State, remote: &Remote, wanted: &Wanted) -> Result<Refs, Fault> {
        if let Some(path) = remote.url.local_path() {
            let (path, wanted) = (path.to_owned(), wanted.clone());
            return self.shared(remote).run(move || transport::local::list_refs(&path, &wanted)).await?;
        }
        let known = lock(&state.negotiated).clone();
        let limit = self.inner.settings.limits.advertisement_bytes;
        let wire = self.wire(remote)?;
        let asked = transport::list_refs(&wire, remote.credentials(), known.as_ref(), wanted, limit);
        let asked = transport::on_behalf_of(&self.party, asked).await;
        let (negotiated, refs) = match asked {
            Ok((negotiated, refs)) => (Some(negotiated), Ok(refs)),
            Err(fault) => (None, Err(transport::hushed(remote.credentials(), fault))),
        };
        *lock(&state.negotiated) = negotiated;
        refs
    }

    /// The commit that was found, with its files, from the mirror or brought there now.
    pub async fn fetch(&self, remote: &Remote, found: &Found) -> Result<Snapshot, Error> {
        let deadline = self.inner.settings.deadlines.fetch;
        let fetched = match tokio::time::timeout(deadline, self.snapshot(remote, found)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "fetching" }),
        };
        if let Err(Fault::MissingCommit) = fetched {
            lock(&self.state(remote).meanings).lost(found.commit);
        }
        fetched.map_err(|cause| Error::Fetch { url: remote.url.clone(), commit: found.commit, cause: Arc::new(cause) })
    }

    /// The reader reads this remote from now on, or (`None`) none. What is known of a remote that nobody reads any more
    /// is forgotten, and its mirror goes.
    ///
    /// A reader that ends with the process keeps its mirror, so that the next process finds it.
    pub fn reads(&self, reader: &Reader, remote: Option<&Remote>) {
        self.with_readers(|readers| {
            // Still held while it is forgotten: whoever comes next to read the remote begins anew.
            if let Some(unread) = readers.set(reader, remote.map(Remote::identity)) {
                self.forget(&unread);
            }
        });
    }

    /// The reader was there when we began, and will say what it reads.
    pub fn expect(&self, reader: &Reader) {
        self.with_readers(|readers| readers.expect(reader));
    }

    /// All readers of this kind that there were when we began have been named.
    pub fn expect_no_more(&self, kind: ReaderKind) {
        self.with_readers(|readers| readers.expect_no_more(kind));
    }

    /// The reader has said what it reads if it can tell at all: nobody waits for it.
    pub fn heard(&self, reader: &Reader) {
        self.with_readers(|readers| readers.heard(reader));
    }

    fn with_readers(&self, change: impl FnOnce(&mut Readers)) {
        let mut readers = lock(&self.inner.readers);
        change(&mut readers);
        if readers.are_known() {
            self.inner.readers_known.send_if_modified(|known| !std::mem::replace(known, true));
        }
    }

    fn forget(&self, remote: &Identity) {
        let state = lock(&self.inner.remotes).remove(remote);
        // A fetch that is running keeps the mirror; it goes with the next process that finds it unused.
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
        Arc::clone(lock(&self.inner.remotes).entry(remote.identity()).or_default())
    }

    /// The client for a remote that is not on this machine.
    pub(super) fn wire<'a>(&'a self, remote: &'a Remote) -> Result<Wire<'a>, Fault> {
        if let Some(address) = remote.url.ssh() {
            // A remote that was forgotten meanwhile keeps its key no longer than this conversation.
            let state = lock(&self.inner.remotes).get(&remote.identity()).map(|state| Arc::clone(&state.key));
            return Ok(Wire::Ssh(&self.inner.ssh, address, state.unwrap_or_default()));
        }
        Ok(Wire::Http(self.http()?, remote.url.http().ok_or(Fault::LocalForbidden)?))
    }

    fn http(&self) -> Result<&Http, Fault> {
        if let Some(http) = self.inner.http.get() {
            return Ok(http);
        }
        let http = Http::new(self.inner.settings.deadlines, self.inner.names.clone())?;
        Ok(self.inner.http.get_or_init(|| http))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
