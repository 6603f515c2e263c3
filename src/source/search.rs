//! Looking for the commit whose id begins so: among the tips of branches and tags, which costs one question, then in the
//! history that leads to them, of which the commits alone are fetched where the server can leave out the files.
//!
//! Invariant: one search at a time is made of a remote, and everyone who waits for it has its answer.
//! Invariant: what was fetched for it goes with it: a history is no mirror.
//! Deliberately not here: what is known already (`abbreviation`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::abbreviation::{Abbreviation, Tips};
use super::error::Fault;
use super::id::{Commit, Id};
use super::objects::Objects;
use super::reference::{Found, Refs, Wanted};
use super::remote::{Remote, Source, State, lock};
use super::transport::{self, Asked, Files, History, Negotiated};

/// Tips whose history is looked through; branches come before tags.
const TIPS: usize = 10_000;

impl Source {
    /// The commit whose id begins so, at a remote that has no branch or tag of this name.
    pub(super) async fn search(
        &self,
        remote: &Remote,
        beginning: &Abbreviation,
        default_branch: Option<String>,
    ) -> Result<Found, Arc<Fault>> {
        let missing = Fault::MissingAbbreviated { default_branch };
        if let Some(path) = remote.url.local_path() {
            // It is at hand: nothing needs to be remembered.
            let (path, beginning) = (path.to_owned(), beginning.clone());
            let look = move || Objects::open(&transport::local::objects(&path)?)?.commit_of(&beginning);
            let found = self.shared(remote).run(look).await.map_err(Arc::new)??;
            return Ok(Found::pinned(found.ok_or(missing)?));
        }
        let state = self.state(remote);
        let known = || lock(&state.meanings).commit(beginning).map(Found::pinned);
        if let Some(found) = known() {
            return Ok(found);
        }
        let _searching = state.searching.lock().await;
        if let Some(found) = known() {
            return Ok(found);
        }
        let deadline = self.inner.settings.deadlines.fetch;
        let found = match tokio::time::timeout(deadline, self.look_for(&state, remote, beginning, missing)).await {
            Ok(found) => found?,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "looking for a commit in the history" })?,
        };
        lock(&state.meanings).found(beginning, found, Instant::now());
        Ok(Found::pinned(found))
    }

    async fn look_for(
        &self,
        state: &State,
        remote: &Remote,
        beginning: &Abbreviation,
        missing: Fault,
    ) -> Result<Commit, Arc<Fault>> {
        let until = Instant::now() + self.inner.settings.deadlines.fetch;
        self.inner.lookups.fetch_add(1, Ordering::Relaxed);
        let refs = self.list_refs(state, remote, &Wanted::tips()).await?;
        let ids: BTreeSet<_> = refs.0.values().map(|at| at.id).collect();
        let tips = Tips::of(&ids);
        if let Some(fault) = lock(&state.meanings).fault(beginning, tips, Instant::now()) {
            return Err(fault);
        }
        let found = match beginning.among(refs.0.values().map(|at| Commit(at.peeled.unwrap_or(at.id)))) {
            Ok(None) => self.look_in_history(state, remote, beginning, &refs, until).await,
            among_tips => among_tips,
        };
        let found = found.and_then(|found| found.ok_or(missing)).map_err(|fault| match fault {
            Fault::TooLarge { what, limit } => Fault::HistoryTooLarge { what, limit },
            other => other,
        });
        found.map_err(|fault| {
            let fault = Arc::new(fault);
            lock(&state.meanings).not_found(beginning, tips, &fault, Instant::now());
            fault
        })
    }

    async fn look_in_history(
        &self,
        state: &State,
        remote: &Remote,
        beginning: &Abbreviation,
        refs: &Refs,
        until: Instant,
    ) -> Result<Option<Commit>, Fault> {
        let mut seen = BTreeSet::new();
        let want: Vec<_> = refs.0.values().map(|at| at.id).filter(|id| seen.insert(*id)).take(TIPS).collect();
        let negotiated = lock(&state.negotiated).clone();
        let (Some(negotiated), false) = (negotiated, want.is_empty()) else { return Ok(None) };
        let files = if negotiated.leaves_files_out() { Files::Left } else { Files::Whole };
        let found = self.look_in_pack(state, remote, &negotiated, (&want, files), beginning, until).await;
        match found {
            // Some servers offer it and then have it not.
            Err(Fault::Refused { .. }) if files == Files::Left => {
                self.look_in_pack(state, remote, &negotiated, (&want, Files::Whole), beginning, until).await
            }
            other => other,
        }
    }

    /// Fetches the history into a generation that nobody adopts, and looks there.
    async fn look_in_pack(
        &self,
        state: &State,
        remote: &Remote,
        negotiated: &Negotiated,
        (want, files): (&[Id], Files),
        beginning: &Abbreviation,
        until: Instant,
    ) -> Result<Option<Commit>, Fault> {
        let generation = {
            let mut held = self.mirror(state, remote).await?;
            self.fresh(remote, held.as_mut().ok_or(Fault::Stopped)?).await?
        };
        let asked = Asked { want: want.to_vec(), have: Vec::new(), history: History::Whole, files };
        self.inner.fetches.fetch_add(1, Ordering::Relaxed);
        self.deliver(remote, negotiated, &asked, &generation, until).await?;
        let beginning = beginning.clone();
        self.shared(remote).run(move || generation.objects()?.commit_of(&beginning)).await?
    }
}
