//! Fetches commits into mirrors, and opens them there.
//!
//! Invariant: a mirror changes only under its lock. A commit in the mirror costs no request.
//! Invariant: a damaged or too large mirror is replaced, never repaired. If a remote sends damaged data, it is not
//! fetched again completely for each attempt.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use tokio::sync::MutexGuard;

use super::abbreviation::Tips;
use super::allowance::Allowance;
use super::error::{Error, Fault};
use super::fair_queue::Tenant;
use super::id::{Commit, Id};
use super::in_vain::ASK_AFTER;
use super::mirror::{Generation, Mirror};
use super::objects::Objects;
use super::ref_list::RefNames;
use super::reference::ResolvedRef;
use super::remote::Remote;
use super::remotes::{Source, State};
use super::snapshot::Snapshot;
use super::spool::PackSpool;
use super::transport::{self, Files, History, Negotiated, PackRequest};

/// Memory in bytes above which a pack is indexed alone.
const LARGE: u64 = 4 << 20;
/// Maximum number of branches to request together if a server does not send a commit by its id.
const BRANCHES: usize = 1000;

/// A commit in the mirror.
enum Held {
    Complete(Snapshot),
    /// The mirror is usable, but lacks the commit.
    Lacking(Arc<Generation>),
    Damaged,
}

impl Source {
    /// Returns a snapshot of the resolved commit, from the mirror or after a fetch. The commit is verified if the
    /// remote requires signatures.
    pub async fn fetch(&self, remote: &Remote, found: &ResolvedRef) -> Result<Snapshot, Error> {
        let deadline = self.inner.settings.deadlines.fetch;
        let until = Instant::now() + deadline;
        let allowance = Allowance::until(until);
        let fetched = match tokio::time::timeout_at(until.into(), self.snapshot(remote, found, &allowance)).await {
            Ok(fetched) => fetched,
            Err(_) => Err(Fault::Timeout { after: deadline, what: "fetching" }.into()),
        };
        if fetched.as_ref().is_err_and(|fault| matches!(**fault, Fault::MissingCommit)) {
            self.state(remote).resolutions.lock().lost(found.commit);
        }
        let snapshot =
            fetched.map_err(|cause| Error::Fetch { url: remote.url.clone(), commit: found.commit, cause })?;
        self.judge(remote, found, &snapshot).await?;
        if !remote.submodules {
            return Ok(snapshot);
        }
        // All submodules together have the limits of one repository, and this deadline.
        let allowance = Allowance::of_submodules(until, &self.inner.settings.limits);
        let fetched = tokio::time::timeout_at(until.into(), self.with_submodules(remote, snapshot, &allowance)).await;
        fetched.unwrap_or_else(|_| {
            let cause = Arc::new(Fault::Timeout { after: deadline, what: "fetching the submodules" });
            Err(Error::Fetch { url: remote.url.clone(), commit: found.commit, cause })
        })
    }

    /// Returns a snapshot of the commit, from the mirror or after a fetch.
    ///
    /// The future of the fetch is boxed, because many callers wait here, and a pending future has the size of its
    /// largest state.
    pub(super) async fn snapshot(
        &self,
        remote: &Remote,
        found: &ResolvedRef,
        allowance: &Allowance,
    ) -> Result<Snapshot, Arc<Fault>> {
        self.check(remote)?;
        if let Some(path) = remote.url.local_path() {
            return self.local_snapshot(remote, path, found.commit).await;
        }
        let state = self.state(remote);
        let mut held = self.mirror(&state, remote).await?;
        let mirror = held.as_mut().ok_or(Fault::Stopped)?;
        let usable = match self.usable(remote, mirror.current()).await? {
            Some(generation) => match self.read_held(remote, found, generation).await? {
                Held::Complete(snapshot) => return Ok(snapshot),
                Held::Lacking(generation) => Some(generation),
                Held::Damaged => None,
            },
            None => None,
        };
        if usable.is_none()
            && let Some(fault) = state.in_vain.lock().fault(found.tip, Instant::now())
        {
            return Err(fault);
        }
        if remote.url.artifact().is_some() {
            let why = "the agent no longer has this version of the artifact".to_owned();
            return Err(Fault::NoArtifact { why }.into());
        }
        let failed = |fault| state.in_vain.lock().add_failure(found.tip, fault, Instant::now());
        self.inner.fetches.fetch_add(1, Ordering::Relaxed);
        let mut kept = None;
        if let Some(generation) = usable {
            match Box::pin(self.fetch_into(&state, remote, found, &generation, allowance)).await {
                // A thin pack appears to be damaged if the base objects in the mirror are damaged.
                Err(fault @ (Fault::Pack { .. } | Fault::Corrupt { .. } | Fault::Incomplete)) => {
                    kept = self.renew(&state, remote, generation, fault).await?;
                }
                other => return other.map_err(Arc::new),
            }
        }
        // Removing a damaged or too large generation makes space for the next one.
        if let Some(old) = mirror.take_unread() {
            self.shared(remote).run(move || drop(old)).await?;
        }
        let fresh = self.fresh(remote, mirror).await?;
        let fetching = Box::pin(self.fetch_into(&state, remote, found, &fresh, allowance));
        let snapshot = fetching.await.map_err(failed)?;
        self.check_size(remote, &fresh).await.map_err(failed)?;
        mirror.adopt(fresh);
        drop(kept);
        Ok(snapshot)
    }

    async fn local_snapshot(&self, remote: &Remote, path: &Path, commit: Commit) -> Result<Snapshot, Arc<Fault>> {
        let (path, limits, permits) = (path.to_owned(), self.inner.settings.limits, self.read_permits());
        let objects = move || Objects::open(&transport::local::objects(&path)?);
        let open = move || Snapshot::open(objects()?, commit, None, limits, permits);
        let opened = self.shared(remote).run(open).await?;
        opened?.ok_or_else(|| Fault::MissingCommit.into())
    }

    /// Reads a commit from the mirror, if the mirror contains it.
    async fn read_held(
        &self,
        remote: &Remote,
        found: &ResolvedRef,
        generation: Arc<Generation>,
    ) -> Result<Held, Arc<Fault>> {
        if !generation.holds(found.commit) {
            return Ok(Held::Lacking(generation));
        }
        match self.read_from(remote, &generation, found.commit).await {
            Ok(Some(snapshot)) if self.has_tag(remote, found, &snapshot).await? => Ok(Held::Complete(snapshot)),
            // The commit was fetched for a different reference, so the tag object may still be missing.
            Ok(Some(_)) => Ok(Held::Lacking(generation)),
            // The commit was complete when it was recorded, so the mirror is damaged.
            Ok(None) => {
                generation.mark_damaged();
                report_damage(remote, &format!("commit {} is gone", found.commit));
                Ok(Held::Damaged)
            }
            Err(Fault::Corrupt { what }) => {
                let looker = Arc::clone(&generation);
                let fault = self.shared(remote).run(move || looker.attribute(what)).await?;
                // A lack of file descriptors or memory does not mean that the disk is damaged.
                if !generation.is_damaged() {
                    return Err(fault.into());
                }
                report_damage(remote, &format!("commit {} cannot be parsed", found.commit));
                Ok(Held::Damaged)
            }
            Err(other) => Err(other.into()),
        }
    }

    /// Handles a pack that does not match the mirror. An intact mirror is kept. All data may be requested from the
    /// remote again, unless that was tried recently.
    async fn renew(
        &self,
        state: &State,
        remote: &Remote,
        generation: Arc<Generation>,
        fault: Fault,
    ) -> Result<Option<Arc<Generation>>, Fault> {
        let looker = Arc::clone(&generation);
        if !self.shared(remote).run(move || looker.is_intact()).await? {
            generation.mark_damaged();
            report_damage(remote, "the base of the fetch cannot be read");
            return Ok(None);
        }
        let (now, mut renewed) = (Instant::now(), state.renewed.lock());
        if renewed.is_some_and(|at| now.duration_since(at) < ASK_AFTER) {
            return Err(fault);
        }
        *renewed = Some(now);
        Ok(Some(generation))
    }

    /// Returns whether the snapshot has the remote's tag object, if it is needed.
    async fn has_tag(&self, remote: &Remote, found: &ResolvedRef, snapshot: &Snapshot) -> Result<bool, Fault> {
        if !Self::needs_tag(remote, found) {
            return Ok(true);
        }
        let (snapshot, tip) = (snapshot.clone(), found.tip);
        self.shared(remote).run(move || snapshot.raw_tag(tip).is_ok()).await
    }

    /// Locks the remote's mirror, and opens it at the first use.
    pub(super) async fn mirror<'s>(
        &self,
        state: &'s State,
        remote: &Remote,
    ) -> Result<MutexGuard<'s, Option<Mirror>>, Fault> {
        let mut held = state.mirror.lock().await;
        if held.is_none() {
            let (directory, identity) = (self.inner.settings.directory.clone(), remote.identity());
            let storage = self.inner.storage.clone();
            let found = self.shared(remote).run(move || Mirror::find(&directory, &identity, &storage)).await??;
            state.root.get_or_init(|| found.root().to_owned());
            if let Some(damage) = held.insert(found).take_damage() {
                report_damage(remote, &damage);
            }
        }
        Ok(held)
    }

    /// Returns an empty generation. It is removed with its last user unless the mirror adopts it.
    pub(super) async fn fresh(&self, remote: &Remote, mirror: &mut Mirror) -> Result<Arc<Generation>, Fault> {
        let next = mirror.next();
        Ok(Arc::new(self.shared(remote).run(move || Generation::create(next)).await??))
    }

    /// Returns the generation; `None` if it is damaged or too large.
    pub(super) async fn usable(
        &self,
        remote: &Remote,
        generation: Option<Arc<Generation>>,
    ) -> Result<Option<Arc<Generation>>, Fault> {
        let Some(generation) = generation.filter(|generation| !generation.is_damaged()) else { return Ok(None) };
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

    /// Fetches the commit into `generation` by its id, or together with all branches if the server does not send
    /// commits by id.
    async fn fetch_into(
        &self,
        state: &State,
        remote: &Remote,
        found: &ResolvedRef,
        generation: &Arc<Generation>,
        allowance: &Allowance,
    ) -> Result<Snapshot, Fault> {
        let received = async {
            let known = state.negotiated.lock().clone();
            let negotiated = match known {
                Some(negotiated) => negotiated,
                None => self.negotiate(state, remote).await?,
            };
            if !found.is_pinned() || negotiated.any_commit() {
                let (want, have) = (vec![found.tip], generation.haves());
                let asked = PackRequest { want, have, history: History::Left, files: Files::Whole };
                match self.receive_pack(remote, &negotiated, &asked, generation, allowance).await {
                    Err(Fault::Refused { .. }) if found.is_pinned() => {}
                    other => return other.map(|shallow| history_of(found.commit, &shallow)),
                }
            }
            self.receive_branches(state, remote, found.commit, &negotiated, (generation, allowance)).await
        };
        let received = received.await.inspect_err(|_| *state.negotiated.lock() = None);
        let history = received?;
        let missing = || if found.is_pinned() { Fault::MissingCommit } else { Fault::Incomplete };
        let snapshot = self.read_from(remote, generation, found.commit).await?.ok_or_else(missing)?;
        let (keeper, commit) = (Arc::clone(generation), found.commit);
        self.shared(remote).run(move || keeper.add_commit(commit, history)).await??;
        Ok(snapshot)
    }

    /// Receives all branches, for a commit in their history.
    async fn receive_branches(
        &self,
        state: &State,
        remote: &Remote,
        commit: Commit,
        negotiated: &Negotiated,
        (generation, allowance): (&Arc<Generation>, &Allowance),
    ) -> Result<History, Fault> {
        let refs = self.list_refs(state, remote, &RefNames::branches()).await?;
        let ids: BTreeSet<_> = refs.0.values().map(|at| at.id).collect();
        let tips = Tips::of(&ids);
        // The same tips have the same history, so a commit that was missing is not searched again.
        if ids.is_empty() || state.in_vain.lock().lacks(commit, tips) {
            return Err(Fault::MissingCommit);
        }
        let want = refs.0.into_values().map(|at| at.id).take(BRANCHES).collect();
        let asked = PackRequest { want, have: Vec::new(), history: History::Whole, files: Files::Whole };
        self.receive_pack(remote, negotiated, &asked, generation, allowance).await?;
        let looker = Arc::clone(generation);
        if self.shared(remote).run(move || looker.objects()?.commit(commit)).await??.is_none() {
            state.in_vain.lock().add_missing(commit, tips);
            return Err(Fault::MissingCommit);
        }
        Ok(History::Whole)
    }

    async fn negotiate(&self, state: &State, remote: &Remote) -> Result<Negotiated, Fault> {
        self.list_refs(state, remote, &RefNames::new(["HEAD".to_owned()])).await?;
        state.negotiated.lock().clone().ok_or(Fault::Stopped)
    }

    /// Receives a pack into `generation`.
    pub(super) async fn receive_pack(
        &self,
        remote: &Remote,
        negotiated: &Negotiated,
        asked: &PackRequest,
        generation: &Arc<Generation>,
        allowance: &Allowance,
    ) -> Result<BTreeSet<Id>, Fault> {
        let limits = self.inner.settings.limits;
        let _receiving = self.receiving().acquire().await?;
        let (room, until) = (allowance.space(self.room(generation.path())), allowance.until);
        let into = PackSpool::new(generation.path(), limits.object_bytes, room);
        let wire = self.wire(remote)?;
        let delivered = async {
            let credentials = self.opened(remote, &wire).await?;
            let delivered = transport::fetch_pack(&wire, negotiated, &credentials, asked, &limits, into).await;
            delivered.map_err(|fault| self.refused(remote, &credentials, fault))
        };
        let delivered = transport::on_behalf_of(&self.tenant, delivered).await?;
        let (indexer, large) = (Arc::clone(generation), self.large());
        let index = move || {
            let is_large = indexer.working_bytes(delivered.pack.weight())? > LARGE;
            // This permit is requested only by a thread that already has one of the other permits. The reverse order
            // could cause a deadlock.
            let _alone = if is_large { large.acquire_here()? } else { None };
            indexer.index(delivered.pack, until)
        };
        self.shared(remote).run(index).await??;
        Ok(delivered.shallow)
    }

    /// Returns a snapshot of the commit in `generation`; `None` if the commit is missing.
    async fn read_from(
        &self,
        remote: &Remote,
        generation: &Arc<Generation>,
        commit: Commit,
    ) -> Result<Option<Snapshot>, Fault> {
        let (limits, tenant) = (self.inner.settings.limits, Tenant::clone(&self.tenant));
        let permits = self.read_permits();
        let generation = Arc::clone(generation);
        let opened = move || {
            generation.set_used(SystemTime::now(), &tenant);
            Snapshot::open(generation.objects()?, commit, Some(generation), limits, permits)
        };
        self.shared(remote).run(opened).await?
    }
}

fn report_damage(remote: &Remote, what: &str) {
    tracing::warn!(url = %remote.url, what, "the Git mirror was damaged on the disk; it is fetched again");
}

fn history_of(commit: Commit, shallow: &BTreeSet<Id>) -> History {
    if shallow.contains(&commit.0) { History::Left } else { History::Whole }
}
