//! Searches a commit in the history of a remote, by its abbreviated id or as the ancestor of another commit. An
//! abbreviated id is first compared with the tips of branches and tags, which costs one request. If the server can omit
//! files, only the commits of the history are fetched.
//!
//! Invariant: a remote has at most one search at a time, and all waiting callers share its result.
//! Invariant: the fetched history is removed after the search and never used as a mirror.
//! Not here: the cache of results (`abbreviation`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::abbreviation::{Abbreviation, Tips};
use super::allowance::Allowance;
use super::error::{Error, Fault};
use super::expression::Expression;
use super::id::{Commit, Id};
use super::objects::Objects;
use super::ref_list::{RefNames, Refs};
use super::reference::{Reference, ResolvedRef};
use super::remote::Remote;
use super::remotes::{Source, State};
use super::transport::{self, Files, History, Negotiated, PackRequest};

/// Maximum number of tips whose history is searched. Branches precede tags.
const TIPS: usize = 10_000;

impl Source {
    /// Returns the commit with this abbreviated id. The remote must have no branch or tag with this name.
    pub(super) async fn search(
        &self,
        remote: &Remote,
        beginning: &Abbreviation,
        default_branch: Option<String>,
    ) -> Result<ResolvedRef, Arc<Fault>> {
        let missing = Fault::MissingAbbreviated { default_branch };
        if let Some(path) = remote.url.local_path() {
            // An id that a tip has is found without a search and need not be cached.
            let (path, beginning) = (path.to_owned(), beginning.clone());
            let look = move || Objects::open(&transport::local::objects(&path)?)?.commit_of(&beginning);
            let found = self.shared(remote).run(look).await.map_err(Arc::new)??;
            return Ok(ResolvedRef::pinned(found.ok_or(missing)?));
        }
        let state = self.state(remote);
        let known = || state.resolutions.lock().commit(beginning).map(ResolvedRef::pinned);
        if let Some(found) = known() {
            return Ok(found);
        }
        let _searching = state.searching.lock().await;
        if let Some(found) = known() {
            return Ok(found);
        }
        let deadline = self.inner.settings.deadlines.fetch;
        let found = match tokio::time::timeout(deadline, self.search_remote(&state, remote, beginning, missing)).await {
            Ok(found) => found?,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "searching the history for a commit" })?,
        };
        state.resolutions.lock().found(beginning, found, Instant::now());
        Ok(ResolvedRef::pinned(found))
    }

    async fn search_remote(
        &self,
        state: &State,
        remote: &Remote,
        beginning: &Abbreviation,
        missing: Fault,
    ) -> Result<Commit, Arc<Fault>> {
        let until = Instant::now() + self.inner.settings.deadlines.fetch;
        self.inner.lookups.fetch_add(1, Ordering::Relaxed);
        let refs = self.list_refs(state, remote, &RefNames::tips()).await?;
        let ids: BTreeSet<_> = refs.0.values().map(|at| at.id).collect();
        let tips = Tips::of(&ids);
        if let Some(fault) = state.resolutions.lock().fault(beginning, tips, Instant::now()) {
            return Err(fault);
        }
        let found = match beginning.among(refs.0.values().map(|at| Commit(at.peeled.unwrap_or(at.id)))) {
            Ok(None) => self.search_history(state, remote, beginning, &refs, until).await,
            among_tips => among_tips,
        };
        let found = found.and_then(|found| found.ok_or(missing)).map_err(|fault| match fault {
            Fault::TooLarge { what, limit } => Fault::HistoryTooLarge { what, limit },
            other => other,
        });
        found.map_err(|fault| {
            let fault = Arc::new(fault);
            state.resolutions.lock().not_found(beginning, tips, &fault, Instant::now());
            fault
        })
    }

    async fn search_history(
        &self,
        state: &State,
        remote: &Remote,
        beginning: &Abbreviation,
        refs: &Refs,
        until: Instant,
    ) -> Result<Option<Commit>, Fault> {
        let mut seen = BTreeSet::new();
        let want: Vec<_> = refs.0.values().map(|at| at.id).filter(|id| seen.insert(*id)).take(TIPS).collect();
        if want.is_empty() {
            return Ok(None);
        }
        let beginning = beginning.clone();
        let look = move |objects: &Objects| objects.commit_of(&beginning);
        self.in_history(state, remote, &want, until, look).await.map(Option::flatten)
    }

    /// Fetches the history of these commits, and calls `look` on it. Returns `None` if no request to the remote was
    /// made before.
    async fn in_history<T: Send + 'static>(
        &self,
        state: &State,
        remote: &Remote,
        want: &[Id],
        until: Instant,
        look: impl Fn(&Objects) -> Result<T, Fault> + Clone + Send + 'static,
    ) -> Result<Option<T>, Fault> {
        let negotiated = state.negotiated.lock().clone();
        let Some(negotiated) = negotiated else { return Ok(None) };
        let files = if negotiated.leaves_files_out() { Files::Left } else { Files::Whole };
        let found = self.in_pack(state, remote, &negotiated, (want, files), until, look.clone()).await;
        match found {
            // Some servers advertise the capability without supporting it.
            Err(Fault::Refused { .. }) if files == Files::Left => {
                self.in_pack(state, remote, &negotiated, (want, Files::Whole), until, look).await.map(Some)
            }
            other => other.map(Some),
        }
    }

    /// Fetches the history into a temporary generation, and calls `look` on it.
    async fn in_pack<T: Send + 'static>(
        &self,
        state: &State,
        remote: &Remote,
        negotiated: &Negotiated,
        (want, files): (&[Id], Files),
        until: Instant,
        look: impl Fn(&Objects) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        let generation = {
            let mut held = self.mirror(state, remote).await?;
            self.fresh(remote, held.as_mut().ok_or(Fault::Stopped)?).await?
        };
        let asked = PackRequest { want: want.to_vec(), have: Vec::new(), history: History::Whole, files };
        self.inner.fetches.fetch_add(1, Ordering::Relaxed);
        self.receive_pack(remote, negotiated, &asked, &generation, &Allowance::until(until)).await?;
        self.shared(remote).run(move || look(&generation.objects()?)).await?
    }

    /// Returns the reference to which an expression resolves. For an ancestor, this is a reference to a commit.
    ///
    /// # Errors
    /// The remote cannot be read, or its history does not reach back that far.
    pub async fn resolve(&self, remote: &Remote, expression: &Expression) -> Result<Reference, Error> {
        if expression.steps.is_empty() {
            return Ok(expression.reference.clone());
        }
        let found = self.lookup(remote, &expression.reference, Duration::ZERO).await?;
        let ancestor = self.ancestor(remote, found.commit, expression).await;
        ancestor.map(Reference::of_commit).map_err(|cause| Error::Lookup {
            url: remote.url.clone(),
            reference: expression.reference.clone(),
            cause: Arc::new(cause),
        })
    }

    async fn ancestor(&self, remote: &Remote, of: Commit, expression: &Expression) -> Result<Commit, Fault> {
        let expression = expression.clone();
        let look = move |objects: &Objects| expression.ancestor(of, |commit| objects.parents(commit));
        if let Some(path) = remote.url.local_path() {
            let path = path.to_owned();
            return self.shared(remote).run(move || look(&Objects::open(&transport::local::objects(&path)?)?)).await?;
        }
        let deadline = self.inner.settings.deadlines.fetch;
        let until = Instant::now() + deadline;
        let state = self.state(remote);
        let _searching = state.searching.lock().await;
        let asked = async {
            // The capabilities of the server are unknown before the first request.
            self.list_refs(&state, remote, &RefNames::new(["HEAD".to_owned()])).await?;
            self.in_history(&state, remote, &[of.0], until, look).await?.ok_or(Fault::Stopped)
        };
        tokio::time::timeout(deadline, asked)
            .await
            .unwrap_or(Err(Fault::Timeout { after: deadline, what: "reading the history" }))
    }
}
