//! Looking up references and fetching commits: the acting part, one [`Source`] for the whole process.
//!
//! Invariant: one question at a time is asked of a remote, and everyone who waits for it gets its answer.
//! Invariant: waiting for a server holds neither a thread nor a slot; a stuck remote delays its own repository only.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::error::{Error, Fault};
use super::id::{Commit, Id};
use super::mirror::{Generation, Mirror, Open};
use super::objects::Objects;
use super::poll::Poll;
use super::readers::{Identity, Reader, Readers};
use super::reference::{Found, Reference, Refs, Wanted};
use super::slots::{Share, Slots};
use super::snapshot::Snapshot;
use super::transport::{self, Asked, History, Http, Negotiated};
use super::turns::Party;
use super::{Credentials, RemoteUrl, Settings};

/// Branches that are asked for together when a server does not give a commit by its id.
const BRANCHES: usize = 1000;

/// A repository and how to authenticate to it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Remote {
    /// Where it is.
    pub url: RemoteUrl,
    /// How to authenticate. Credentials in the address are used when there are none here.
    pub credentials: Credentials,
}

impl Remote {
    fn credentials(&self) -> &Credentials {
        match &self.credentials {
            Credentials::Anonymous => self.url.embedded(),
            given @ Credentials::Basic { .. } => given,
        }
    }

    /// What makes two remotes one: address and credentials.
    fn identity(&self) -> Identity {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        add(&self.url.to_string());
        if let Credentials::Basic { username, password } = self.credentials() {
            add(username);
            add(password.expose());
        }
        digest.finalize().into()
    }
}

/// Everything that is known of the remotes, shared by all who use them. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    inner: Arc<Inner>,
    /// On whose behalf it works.
    party: Party,
}

struct Inner {
    settings: Settings,
    slots: Slots,
    http: OnceLock<Http>,
    open: Open,
    remotes: Mutex<HashMap<Identity, Arc<State>>>,
    readers: Mutex<Readers>,
    lookups: AtomicU64,
    fetches: AtomicU64,
}

/// How often remotes were asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Questions about references.
    pub lookups: u64,
    /// Transfers of commits.
    pub fetches: u64,
}

/// What is known of one remote.
#[derive(Default)]
struct State {
    poll: Mutex<Poll>,
    /// Held while the remote is asked for its references.
    asking: tokio::sync::Mutex<()>,
    negotiated: Mutex<Option<Negotiated>>,
    /// Held while the mirror changes.
    mirror: tokio::sync::Mutex<Option<Mirror>>,
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
        let inner = Inner { settings, slots, http, open, remotes, readers, lookups, fetches };
        Self { inner: Arc::new(inner), party: Party::default() }
    }

    /// The same source on behalf of a namespace: however much one of them asks for, another one gets its turn.
    #[must_use]
    pub fn for_namespace(&self, namespace: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), party: namespace.into() }
    }

    /// For work that only this namespace waits for.
    fn own(&self) -> Share {
        self.inner.slots.share(&self.party)
    }

    /// For work on what is shared by all who read the remote: while it is done, all of them wait for it.
    fn shared(&self, remote: &Remote) -> Share {
        let readers = lock(&self.inner.readers);
        self.inner.slots.share_of_all(&self.party, readers.namespaces(&remote.identity()))
    }

    /// How often remotes were asked since the start.
    pub fn traffic(&self) -> Traffic {
        let (lookups, fetches) =
            (self.inner.lookups.load(Ordering::Relaxed), self.inner.fetches.load(Ordering::Relaxed));
        Traffic { lookups, fetches }
    }

    /// What `reference` means at the remote now, or at most `max_age` ago; zero asks the remote in any case.
    ///
    /// All references that were asked of one remote lately are looked up by one question, and questions are never
    /// asked twice at the same time. A commit id means itself, without a question.
    pub async fn lookup(&self, remote: &Remote, reference: &Reference, max_age: Duration) -> Result<Found, Error> {
        self.found(remote, reference, max_age).await.map_err(|cause| Error::Lookup {
            url: remote.url.clone(),
            reference: reference.clone(),
            cause,
        })
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

    async fn list_refs(&self, state: &State, remote: &Remote, wanted: &Wanted) -> Result<Refs, Fault> {
        if let Some(path) = remote.url.local_path() {
            let (path, wanted) = (path.to_owned(), wanted.clone());
            return self.shared(remote).run(move || transport::local::list_refs(&path, &wanted)).await?;
        }
        let url = remote.url.http().ok_or(Fault::LocalForbidden)?;
        let known = lock(&state.negotiated).clone();
        let limit = self.inner.settings.limits.advertisement_bytes;
        let asked = transport::list_refs(self.http()?, url, remote.credentials(), known.as_ref(), wanted, limit).await;
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
        fetched.map_err(|cause| Error::Fetch { url: remote.url.clone(), commit: found.commit, cause: Arc::new(cause) })
    }

    async fn snapshot(&self, remote: &Remote, found: &Found) -> Result<Snapshot, Fault> {
        self.check(remote)?;
        if let Some(path) = remote.url.local_path() {
            let path = path.to_owned();
            let opened =
                self.open(remote, None, found.commit, move || Objects::open(&transport::local::objects(&path)?));
            return opened.await?.ok_or(Fault::MissingCommit);
        }
        let until = Instant::now() + self.inner.settings.deadlines.fetch;
        let state = self.state(remote);
        let mut held = state.mirror.lock().await;
        if held.is_none() {
            let (directory, identity) = (self.inner.settings.directory.clone(), remote.identity());
            let open = self.inner.open.clone();
            *held = Some(self.shared(remote).run(move || Mirror::find(&directory, &identity, &open)).await??);
        }
        let mirror = held.as_mut().ok_or(Fault::Stopped)?;
        let mut usable = self.usable(remote, mirror.current()).await?;
        if let Some(generation) = usable.as_ref().filter(|generation| generation.holds(found.commit)) {
            match self.read_from(remote, generation, found.commit).await {
                Ok(Some(snapshot)) => return Ok(snapshot),
                Ok(None) | Err(Fault::Corrupt { .. }) => usable = None,
                Err(other) => return Err(other),
            }
        }
        self.inner.fetches.fetch_add(1, Ordering::Relaxed);
        if let Some(generation) = usable {
            match self.bring(&state, remote, found, &generation, until).await {
                // A pack that builds on damaged objects of ours looks damaged itself.
                Err(Fault::Pack { .. } | Fault::Corrupt { .. } | Fault::Incomplete) => {}
                other => return other,
            }
        }
        let next = mirror.next();
        let fresh = Arc::new(self.shared(remote).run(move || Generation::create(next)).await??);
        let snapshot = self.bring(&state, remote, found, &fresh, until).await?;
        self.check_size(remote, &fresh).await?;
        mirror.adopt(fresh);
        Ok(snapshot)
    }

    /// The generation, unless it is damaged or has grown too large.
    async fn usable(
        &self,
        remote: &Remote,
        generation: Option<Arc<Generation>>,
    ) -> Result<Option<Arc<Generation>>, Fault> {
        let Some(generation) = generation.filter(|generation| !generation.is_suspect()) else { return Ok(None) };
        let limits = self.inner.settings.limits;
        let measured = Arc::clone(&generation);
        let size = self.shared(remote).run(move || measured.size()).await?;
        let fits = size.is_ok_and(|(bytes, packs)| bytes <= limits.mirror_bytes && packs < limits.mirror_packs);
        Ok(fits.then_some(generation))
    }

    async fn check_size(&self, remote: &Remote, generation: &Arc<Generation>) -> Result<(), Fault> {
        let limit = self.inner.settings.limits.mirror_bytes;
        let measured = Arc::clone(generation);
        let (bytes, _) = self.shared(remote).run(move || measured.size()).await??;
        if bytes > limit { Err(Fault::TooLarge { what: "the mirror in bytes", limit }) } else { Ok(()) }
    }

    /// Fetches the commit into `generation`.
    async fn bring(
        &self,
        state: &State,
        remote: &Remote,
        found: &Found,
        generation: &Arc<Generation>,
        until: Instant,
    ) -> Result<Snapshot, Fault> {
        let missing = || if found.is_pinned() { Fault::MissingCommit } else { Fault::Incomplete };
        let history = match self.receive(state, remote, found, generation, until).await {
            Ok(history) => history,
            Err(fault) => {
                *lock(&state.negotiated) = None;
                return Err(fault);
            }
        };
        let snapshot = self.read_from(remote, generation, found.commit).await?.ok_or_else(missing)?;
        let (keeper, commit) = (Arc::clone(generation), found.commit);
        self.shared(remote).run(move || keeper.keep(commit, history)).await??;
        Ok(snapshot)
    }

    /// Asks for the commit, and for all branches when it can be had in no other way.
    async fn receive(
        &self,
        state: &State,
        remote: &Remote,
        found: &Found,
        generation: &Arc<Generation>,
        until: Instant,
    ) -> Result<History, Fault> {
        let known = lock(&state.negotiated).clone();
        let negotiated = match known {
            Some(negotiated) => negotiated,
            None => self.negotiate(state, remote).await?,
        };
        if !found.is_pinned() || negotiated.any_commit() {
            let asked = Asked { want: vec![found.tip], have: generation.told(), history: History::Left };
            match self.deliver(remote, &negotiated, &asked, generation, until).await {
                Err(Fault::Refused { .. }) if found.is_pinned() => {}
                other => return other.map(|shallow| history_of(found.commit, &shallow)),
            }
        }
        let wanted = Wanted::branches();
        let refs = self.list_refs(state, remote, &wanted).await?;
        let want: Vec<_> = refs.0.into_values().map(|at| at.id).take(BRANCHES).collect();
        if want.is_empty() {
            return Err(Fault::MissingCommit);
        }
        let asked = Asked { want, have: Vec::new(), history: History::Whole };
        self.deliver(remote, &negotiated, &asked, generation, until).await?;
        Ok(History::Whole)
    }

    async fn negotiate(&self, state: &State, remote: &Remote) -> Result<Negotiated, Fault> {
        self.list_refs(state, remote, &Wanted::new(["HEAD".to_owned()])).await?;
        lock(&state.negotiated).clone().ok_or(Fault::Stopped)
    }

    async fn deliver(
        &self,
        remote: &Remote,
        negotiated: &Negotiated,
        asked: &Asked,
        generation: &Arc<Generation>,
        until: Instant,
    ) -> Result<BTreeSet<Id>, Fault> {
        let limits = self.inner.settings.limits;
        let spooler = Arc::clone(generation);
        let file = self.shared(remote).run(move || spooler.spool()).await??;
        let credentials = remote.credentials();
        let delivered = transport::fetch_pack(self.http()?, negotiated, credentials, asked, &limits, file).await;
        let delivered = delivered.map_err(|fault| transport::hushed(credentials, fault))?;
        let indexer = Arc::clone(generation);
        self.shared(remote).run(move || indexer.index(delivered.file, until)).await??;
        Ok(delivered.shallow)
    }

    async fn read_from(
        &self,
        remote: &Remote,
        generation: &Arc<Generation>,
        commit: Commit,
    ) -> Result<Option<Snapshot>, Fault> {
        let opener = Arc::clone(generation);
        self.open(remote, Some(Arc::clone(generation)), commit, move || opener.objects()).await
    }

    async fn open(
        &self,
        remote: &Remote,
        generation: Option<Arc<Generation>>,
        commit: Commit,
        objects: impl FnOnce() -> Result<Objects, Fault> + Send + 'static,
    ) -> Result<Option<Snapshot>, Fault> {
        let (limits, own) = (self.inner.settings.limits, self.own());
        let opened = move || Snapshot::open(objects()?, commit, generation, limits, own);
        self.shared(remote).run(opened).await?
    }

    /// The reader reads this remote from now on, or (`None`) none. What is known of a remote that nobody reads any more
    /// is forgotten, and its mirror goes.
    ///
    /// A reader that ends with the process keeps its mirror, so that the next process finds it.
    pub fn reads(&self, reader: &Reader, remote: Option<&Remote>) {
        // Held until it is forgotten: whoever comes next to read the remote begins anew.
        let mut readers = lock(&self.inner.readers);
        if let Some(unread) = readers.set(reader, remote.map(Remote::identity)) {
            self.forget(&unread);
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

    fn check(&self, remote: &Remote) -> Result<(), Fault> {
        if remote.url.local_path().is_some() && !self.inner.settings.allow_local {
            return Err(Fault::LocalForbidden);
        }
        Ok(())
    }

    fn state(&self, remote: &Remote) -> Arc<State> {
        Arc::clone(lock(&self.inner.remotes).entry(remote.identity()).or_default())
    }

    fn http(&self) -> Result<&Http, Fault> {
        if let Some(http) = self.inner.http.get() {
            return Ok(http);
        }
        let http = Http::new(self.inner.settings.deadlines)?;
        Ok(self.inner.http.get_or_init(|| http))
    }
}

fn history_of(commit: Commit, shallow: &BTreeSet<Id>) -> History {
    if shallow.contains(&commit.0) { History::Left } else { History::Whole }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
