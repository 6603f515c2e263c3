//! Looks up references: resolves a reference from a recent response, or by a request to the remote.
//!
//! Invariant: a remote has at most one request at a time, and all waiting callers get its response.
//! Invariant: a newly found commit wakes all consumers that follow it in the same repository. Consumers with different
//! credentials look it up themselves.
//! Invariant: waiting for a server holds neither a thread nor a permit, so a stuck remote delays only its own
//! repository. (The system's resolver does hold a thread, from a pool for host names.)
//! Not here: whether a response is recent enough (`poll`), and the search for abbreviated ids (`search`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::consumers::Identity;
use super::error::{Error, Fault};
use super::hosts::Host;
use super::id::Commit;
use super::last_lookup::LastLookup;
use super::permits::Permit;
use super::ref_list::{RefNames, Refs};
use super::reference::{Reference, ResolvedRef};
use super::remote::Remote;
use super::remotes::{Source, State};
use super::transport;

/// Maximum time that a first lookup waits for its turn, enough for 15 000 lookups.
const MAX_DELAY: Duration = Duration::from_secs(300);

impl Source {
    /// Resolves `reference` at the remote, from a response that is at most `max_age` old. A `max_age` of zero always
    /// causes a request.
    ///
    /// One request covers all recently requested references of a remote; requests to a remote never overlap. A full
    /// commit id needs no request. An abbreviated commit id is searched in the remote's history, within the deadline of
    /// a fetch, and the result is cached.
    pub async fn lookup(
        &self,
        remote: &Remote,
        reference: &Reference,
        max_age: Duration,
    ) -> Result<ResolvedRef, Error> {
        let found = match (self.found(remote, reference, max_age).await, reference.abbreviation()) {
            (Err(fault), Some(beginning)) => match &*fault {
                Fault::MissingReference { default_branch, empty: false } => {
                    Box::pin(self.search(remote, &beginning, default_branch.clone())).await
                }
                _ => Err(fault),
            },
            (found, _) => found,
        };
        found.map_err(|cause| Error::Lookup { url: remote.url.clone(), reference: reference.clone(), cause })
    }

    /// Returns a watch on the last lookup of a remote, by any consumer.
    pub fn last_lookup(&self, remote: &Remote) -> watch::Receiver<Option<Arc<LastLookup>>> {
        self.state(remote).last_lookup.subscribe()
    }

    /// Returns whether a GitSync or a Function uses a remote.
    pub fn is_consumed(&self, remote: &Remote) -> bool {
        self.inner.consumers.lock().has(&remote.identity())
    }

    /// Returns a watch that becomes true once the remotes of all GitSyncs and Functions are known.
    pub fn consumers_known(&self) -> watch::Receiver<bool> {
        self.inner.consumers_known.subscribe()
    }

    /// Drops the state of a remote that has no consumer.
    pub fn release(&self, remote: &Remote) {
        let consumers = self.inner.consumers.lock();
        if !consumers.has(&remote.identity()) {
            self.forget(&remote.identity());
        }
    }

    /// Records that the remote changed at `at`. Later lookups use no response from before that time.
    pub fn expire(&self, remote: &Remote, at: Instant) {
        self.state(remote).poll.lock().expire(at);
    }

    /// Invalidates the responses of all remotes.
    pub(super) fn expire_all(&self) {
        let remotes: Vec<_> = self.inner.remotes.lock().values().cloned().collect();
        let now = Instant::now();
        for state in remotes {
            state.poll.lock().expire(now);
        }
    }

    /// Adds a resolution from an earlier process, so that an abbreviated id is not searched again. The resolution is
    /// ignored if the commit does not match the reference.
    pub fn hint(&self, remote: &Remote, reference: &Reference, commit: Commit) {
        if let Some(beginning) = reference.abbreviation() {
            self.state(remote).resolutions.lock().hint(&beginning, commit, Instant::now());
        }
    }

    /// Returns the remote's default branch as a reference.
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
            return Ok(Refs::default().resolve(reference)?);
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
        // The result is bound to a variable, because the guard must not be held during the request.
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
        // The future is boxed, because many callers wait here, and a pending future has the size of its largest state.
        let listing = Box::pin(self.list_refs(&state, remote, &wanted));
        let outcome = match tokio::time::timeout(deadline, listing).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "looking up the reference" }),
        };
        if let (Some(host), Err(Fault::Status { status, retry_after: Some(after) })) = (&host, &outcome) {
            host.set_quiet((remote.identity(), remote.account()), *status, *after, Instant::now());
        }
        let outcome = outcome.map_err(Arc::new);
        let head = outcome.as_ref().map_err(Arc::clone).and_then(|refs| Ok(refs.resolve(&Reference::head())?));
        let host_key = self.inner.ssh.accepted_key(&remote.url);
        state.last_lookup.send_replace(Some(Arc::new(LastLookup { began, head, host_key })));
        let (found, answer) = {
            let mut poll = state.poll.lock();
            let found = poll.record(began, covers, outcome);
            (found, poll.answer(reference, asked, max_age))
        };
        // A consumer whose own login fails keeps its backoff, even if the login of another consumer succeeds.
        let may_look = |other: &Identity| !self.has_failed(other);
        self.inner.pushes.found(remote, &found, began, Instant::now(), may_look);
        answer.unwrap_or(Err(Arc::new(Fault::Stopped)))
    }

    /// Returns whether the last lookup of a remote failed.
    fn has_failed(&self, remote: &Identity) -> bool {
        let state = self.inner.remotes.lock().get(remote).cloned();
        state.is_some_and(|state| state.poll.lock().has_failed())
    }

    /// Waits for the turn of a remote's first lookup.
    async fn first_lookup(&self, host: &Arc<Host>) {
        let (waiter, turn) = oneshot::channel();
        if host.wait(&self.tenant, waiter) {
            let host = Arc::clone(host);
            tokio::spawn(async move {
                while let Some(wait) = host.serve(Instant::now()) {
                    tokio::time::sleep(wait).await;
                }
            });
        }
        // The wait is bounded.
        let _ = tokio::time::timeout(MAX_DELAY, turn).await;
    }

    /// Waits until the remote may be looked up at the host.
    async fn admitted(&self, host: &Arc<Host>, remote: &Remote, state: &State) -> Result<Permit, Fault> {
        let identity = remote.identity();
        let is_new = state.poll.lock().is_new();
        if is_new {
            self.first_lookup(host).await;
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
        if remote.url.artifact().is_some() {
            return self.artifact_refs(remote, wanted).await;
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
}
