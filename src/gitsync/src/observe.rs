//! Reads the inputs of an attempt: the commit of the followed reference, its desired objects, and the live objects.
//!
//! Invariant: an object that is not known to exist is not read. It is applied as new; the server rejects that apply if
//! the object exists.
//!
//! Not here: the remote (`remote`), the lists of live objects (`live_objects`), and the inventory (`inventory`).

use std::collections::btree_map::Entry as Slot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::branch_reading::FetchedCommit;
use super::contents::Contents;
use super::contested::Keeper;
use super::former_owners;
use super::live_objects::{Seen, live};
use super::no_memory::{NoMemory, Request};
use super::outcome::Refused;
use super::placement::{self, Placing, Served};
use super::plan::{self, DesiredState, Live, Observed};
use super::prune;
use super::resolve::{Directory, ResolvedSync, SyncRequest};
use super::step::Step;
use mainstay_api::conditions::Reason;
use mainstay_api::names;
use mainstay_engine::managed::inventory::Inventory;
use mainstay_engine::managed::{Desired, Part};
use mainstay_engine::notification::Message;
use mainstay_git::{
    Alone, Ancestry, BaseDir, Commit, Entry, MissingDirectory, Reference, Remote, ResolvedRef, SkippedTrees, Snapshot,
    TreeId,
};
use mainstay_manifest::Problem;
use mainstay_object::failure::{Class, chain};
use mainstay_object::{Key, Object, Owner};

/// Maximum number of problems in one message.
const SHOWN_PROBLEMS: usize = 20;

impl Attempt<'_> {
    /// Returns the commit of the reference, with a verified signature if one is required.
    pub(super) async fn look_up(
        &mut self,
        resolved: &ResolvedSync,
        remote: &Remote,
        max_age: Duration,
    ) -> Result<ResolvedRef, Refused> {
        if self.state.branch.commit().is_none() {
            let seen = self.sync.status.as_ref().and_then(|status| status.attempted_commit.as_deref()?.parse().ok());
            if let Some(commit) = seen {
                self.source().hint(remote, &resolved.reference, commit);
            }
        }
        let found = self.source().lookup(remote, &resolved.reference, max_age).await?;
        if self.state.branch.see(&found, Instant::now()) {
            let message = Message::CommitSeen { subject: self.owner.clone(), commit: found.commit.to_string() };
            self.context.emit(self.owner, &message);
            self.state.unfinished.failed.clear();
        }
        self.source().verify(remote, &found).await?;
        Ok(found)
    }

    /// Returns the desired state of the commit: the cached one, or newly decoded.
    pub(super) async fn desired(
        &mut self,
        remote: &Remote,
        found: &ResolvedRef,
        resolved: &ResolvedSync,
        request: &SyncRequest,
    ) -> Result<DesiredState, Refused> {
        let (generation, base_dir) = (request.generation, &resolved.directory.base_dir);
        if let Some(desired) = self.state.compiled.of_request(request) {
            return Ok(desired.clone());
        }
        if let Some(refused) = self.is_without_memory(found.commit, request) {
            return Err(refused);
        }
        self.state.progress.begin(Step::Fetch(found.commit));
        // Dropped after the read, because an open mirror takes memory.
        let snapshot = self.source().fetch(remote, found).await?;
        self.emit_rewritten(remote, &snapshot, found).await;
        let tree_id = self.root(&snapshot, base_dir, request).await?;
        let above = ignore_files_above(&snapshot, base_dir).await?;
        let contents = |outside: Vec<Entry>, capabilities| {
            tree_id.map(|tree| Contents::new(tree, &[&*above, &outside].concat(), capabilities, request.values))
        };
        let tree = contents(self.read_outside(&snapshot).await?, request.capabilities);
        let submodules = (remote.submodules, snapshot.submodules_below(base_dir));
        if let Some(desired) = self.state.compiled.of_contents(request, tree, &submodules) {
            (desired.commit, desired.header) = (found.commit, Arc::clone(&snapshot.header));
            return Ok(desired.clone());
        }
        let (of, header) = ((tree, generation), Arc::clone(&snapshot.header));
        if let Some(refused) = self.still_without_memory(|known| known.request == of) {
            return Err(refused);
        }
        let objects = if tree.is_none() {
            Vec::new()
        } else {
            self.state.progress.begin(Step::Render(found.commit));
            self.decode(remote, (snapshot, found.commit), &resolved.directory, of).await?
        };
        // Only now, after rendering, are the files known that kustomizations and charts read.
        let capabilities = self.asked_capabilities().await?;
        let tree = contents(self.state.compiled.kustomizations.outside(), capabilities);
        let (commit, lfs, values, keys) = (found.commit, remote.lfs, request.values, request.keys);
        let desired =
            DesiredState { commit, header, tree, submodules, lfs, generation, capabilities, values, keys, objects };
        Ok(self.state.compiled.keep(desired).clone())
    }

    /// Returns the directory of the GitSync; `None` if it is missing and all objects may be deleted.
    async fn root(
        &self,
        snapshot: &Snapshot,
        base_dir: &BaseDir,
        request: &SyncRequest,
    ) -> Result<Option<TreeId>, Refused> {
        let tree = snapshot.tree(base_dir).await?;
        if tree.is_some() || request.allows_prune() {
            return Ok(tree);
        }
        let missing = snapshot.missing_directory(base_dir).await?;
        let managed = self.inventory().map_or(0, |inventory| inventory.0.len());
        let text = without_directory(&missing, managed, self.owner, &request.commit.to_string());
        Err(Refused::invalid(Reason::SourceInvalid, text))
    }

    /// Emits a message if a branch moved to a commit that does not descend from its previous one, as far as the mirror
    /// has the history.
    async fn emit_rewritten(&mut self, remote: &Remote, snapshot: &Snapshot, found: &ResolvedRef) {
        let earlier = self.sync.status.as_ref().and_then(|status| {
            let commit = status.attempted_commit.as_deref()?.parse().ok()?;
            Some(FetchedCommit { commit, reference: status.attempted_reference.clone()?, url: remote.url.clone() })
        });
        let reference = found.full_name().unwrap_or_default().to_owned();
        let now = FetchedCommit { commit: found.commit, reference, url: remote.url.clone() };
        let Some(before) = self.state.branch.fetch(now.clone()).or(earlier) else { return };
        let (old, Some(branch)) = (before.commit, now.branch_since(&before)) else { return };
        if let Ok(Ok(Ancestry::Other)) = snapshot.blocking(move |snapshot| snapshot.ancestry(old)).await {
            let message = Message::BranchRewritten {
                subject: self.owner.clone(),
                branch: branch.to_owned(),
                old: old.to_string(),
                new: found.commit.to_string(),
            };
            self.context.emit(self.owner, &message);
        }
    }

    /// Decodes the files of the snapshot and places their objects in the cluster.
    async fn decode(
        &mut self,
        remote: &Remote,
        (snapshot, commit): (Snapshot, Commit),
        directory: &Directory,
        request: Request,
    ) -> Result<Vec<Arc<Desired>>, Refused> {
        let (writer, owner) = (self.context.writer.clone(), self.owner.clone());
        let refused = Arc::new(AtomicUsize::new(0));
        let not_admitted = Arc::clone(&refused);
        let admit = Arc::new(move |bytes| {
            let is_admitted = writer.keep_in_memory(&owner, Part::Reading, bytes);
            if !is_admitted {
                not_admitted.store(bytes, Ordering::Relaxed);
            }
            is_admitted
        });
        let (form, decryption) = (self.state.inputs.form(), self.state.inputs.decryption());
        let limits = mainstay_manifest::Limits { admit, form, decryption, ..self.context.limits.clone() };
        let decoded = self.read(remote, snapshot, directory, limits).await;
        let Ok(decoded) = decoded else {
            self.context.writer.keep_in_memory(self.owner, Part::Reading, 0);
            return decoded.map(|_| Vec::new());
        };
        self.state.compiled.set_left_out(decoded.left_out.as_ref());
        if !decoded.problems.is_empty() {
            self.context.writer.keep_in_memory(self.owner, Part::Reading, 0);
            let readable = self.readable(&decoded.objects, directory);
            self.state.reading.set_readable(readable);
            return Err(self.refuse_files(&decoded.problems, refused.load(Ordering::Relaxed), (request, commit)));
        }
        self.state.reading.has_memory();
        // The memory was reserved during the read.
        let bytes = mainstay_manifest::memory(&decoded.objects) + self.state.compiled.bytes_as_read();
        self.context.writer.keep_in_memory(self.owner, Part::Objects, bytes);
        self.context.writer.keep_in_memory(self.owner, Part::Reading, 0);
        let mut served = Served::new();
        for object in &decoded.objects {
            let (api_version, kind) = (&object.api_version, &object.key.kind);
            if let Slot::Vacant(slot) = served.entry((Arc::clone(api_version), Arc::clone(kind))) {
                slot.insert(self.context.writer.cluster().kind(api_version, kind).await?);
            }
        }
        let placing = Placing {
            own_namespace: self.namespace(),
            target_namespace: &directory.target_namespace,
            label: self.label,
            reach: self.context.reach(self.sync),
            ignore: &directory.ignore,
        };
        let placed = placement::place(&decoded.objects, &served, &placing);
        placed.map_err(|unplaced| {
            let readable = self.readable(&decoded.objects, directory);
            self.state.reading.set_readable(readable);
            let refused = refused_for(&unplaced.problems);
            // No event reports that another client created the CRD of a kind, so the attempt is retried.
            let class = if unplaced.lacks_kinds_only { Class::NotReady } else { refused.class };
            Refused { class, ..refused }
        })
    }

    /// Returns why the files are refused. `bytes` is the memory that was not granted, or 0.
    fn refuse_files(&mut self, problems: &[Problem], bytes: usize, (request, commit): (Request, Commit)) -> Refused {
        match (problems, bytes) {
            ([only], bytes @ 1..) => {
                let message = self.wait_for_memory(bytes, &only.to_string());
                let values = self.state.inputs.digest();
                self.state.reading.lacks_memory(NoMemory { request, commit, values, bytes, message })
            }
            (problems, _) => {
                self.state.reading.has_memory();
                self.context.writer.end_memory_wait(self.owner);
                refused_for(problems)
            }
        }
    }

    /// Reads and renders the files of the snapshot.
    async fn read(
        &mut self,
        remote: &Remote,
        snapshot: Snapshot,
        directory: &Directory,
        limits: mainstay_manifest::Limits,
    ) -> Result<mainstay_manifest::Decoded, Refused> {
        let memory = Arc::clone(&self.context.memory);
        let (base_dir, bounds) = (directory.base_dir.clone(), limits.clone());
        let skipped = Arc::clone(&self.context.skipped);
        let list = move |snapshot: &Snapshot| {
            let (listing, _alone) = listing(snapshot, &base_dir, &skipped)?;
            mainstay_manifest::not_ignored(listing, base_dir.path(), &mut |entry| snapshot.read_alone(entry), &bounds)
        };
        let snapshot = self.source().fetch_large_files(remote, snapshot, list).await?;
        let (base_dir, skipped) = (directory.base_dir.clone(), Arc::clone(&self.context.skipped));
        let (decoding, bounds) = (base_dir.clone(), limits.clone());
        let mut decoded = snapshot
            .blocking(move |snapshot| {
                let (listing, _alone) = listing(snapshot, &decoding, &skipped)?;
                let read = &mut |entry: &Entry| snapshot.read_alone(entry);
                mainstay_manifest::decode(&listing, decoding.path(), read, &memory, &bounds)
            })
            .await??;
        self.build_kustomizations(&snapshot, directory, &limits, &mut decoded).await?;
        self.render_charts(&snapshot, directory, &limits, &mut decoded).await?;
        if decoded.problems.is_empty() {
            self.overlay(&snapshot, directory, &limits, &mut decoded).await?;
        }
        // From here on, no data is written to files or passed to a tool.
        self.decrypt(&snapshot, &limits, &mut decoded).await?;
        let is_substituted = self.substitute(&snapshot, &limits, &mut decoded).await?;
        let is_changed = is_substituted || directory.overlay.is_some();
        let is_plain = decoded.kustomizations.is_empty() && decoded.charts.is_empty() && !is_changed;
        if !is_plain && decoded.problems.is_empty() {
            let objects = decoded.objects.iter().map(|object| (&object.key, &**object));
            decoded.problems = mainstay_manifest::duplicates(objects);
        }
        let bytes = mainstay_manifest::memory(&decoded.objects);
        if let Some(last) = decoded.objects.last().filter(|_| decoded.problems.is_empty() && !(limits.admit)(bytes)) {
            decoded.problems.push(mainstay_manifest::too_many(&last.place.file, bytes));
        }
        Ok(decoded)
    }

    /// Returns the keys of the objects of a commit that has problems. Each object has two keys: with its namespace, and
    /// as if its kind were cluster-scoped. Objects that this GitSync may not touch are omitted, because it cannot claim
    /// them.
    fn readable(&self, objects: &[Arc<Object>], directory: &Directory) -> HashSet<Key> {
        let placed = |object: &Arc<Object>| {
            let namespace = object.key.namespace.clone().unwrap_or_else(|| Arc::from(&*directory.target_namespace));
            [object.key.in_namespace(Some(namespace)), object.key.in_namespace(None)]
        };
        objects.iter().flat_map(placed).filter(|key| self.reaches(key)).collect()
    }

    /// Restores the commit that the last agent applied, if a new agent cannot use the newest commit.
    pub(super) async fn keep_what_was_applied(&mut self, remote: &Remote, directory: &Directory) {
        let applied = self.sync.status.as_ref().and_then(|status| status.applied_commit.clone());
        let Some(commit) = applied.filter(|_| !self.state.commit.is_enforced()) else { return };
        if !self.state.inputs.are_known() {
            return;
        }
        // The commit was verified when it was applied. Keys that have expired or were removed since then do not
        // invalidate it.
        let remote = &remote.without_verification();
        let kept = async {
            let reference = Reference::parse(&commit)?;
            let found = self.source().lookup(remote, &reference, Duration::MAX).await?;
            let snapshot = self.source().fetch(remote, &found).await?;
            self.decode(remote, (snapshot, found.commit), directory, (None, None)).await
        };
        match kept.await {
            Ok(objects) => {
                self.state.commit.restore();
                self.context.writer.accept(self.owner, &objects, []);
            }
            Err(refused) => {
                // A temporary failure is retried with the next attempt.
                if refused.class == Class::Invalid {
                    self.state.commit.restore();
                }
                tracing::warn!(
                    sync = self.owner.resource().as_str(),
                    why = refused.message,
                    "the commit that was applied last cannot be read"
                );
            }
        }
    }

    /// Returns the cluster's state before a commit is applied.
    pub(super) async fn observe(
        &mut self,
        resolved: &ResolvedSync,
        desired: &DesiredState,
    ) -> Result<Observed, Refused> {
        self.state.unfinished.failed.forget_old(&desired.objects);
        let mut kept = self.context.writer.store().applied(self.owner);
        let mut inventory = self.inventory().map_or_else(Inventory::default, |inventory| Inventory::clone(&inventory));
        inventory.0.retain(|key, _| self.reaches(key));
        let mut waiting = self.state.unfinished.failed.waiting(Instant::now());
        let (offered, withdrawn) = self.wanted_again(&desired.objects);
        // An apply of such an object may have failed before it changed the version.
        kept.retain(|key| !withdrawn.contains(key));
        let unknown = desired
            .objects
            .iter()
            .filter(|d| !plan::is_unchanged(d, inventory.0.get(&d.key)))
            .filter(|d| !kept.contains(&d.key) && !waiting.contains(&d.key))
            .filter(|d| withdrawn.contains(&d.key) || !self.may_be_new(&d.key, &inventory))
            .collect::<Vec<_>>();
        let (live, unseen) = self.live(&unknown).await?;
        waiting.extend(unseen);
        let withdrawn = withdrawn.into_iter().chain(self.may_be_offered(&live, &inventory)).collect();
        let offers = self.offers_of_others(&live).await?;
        let terminating = self.state.removal.terminating();
        let contested = self.contested(resolved, &live).await?;
        Ok(Observed { inventory, kept, waiting, live, terminating, contested, offered, withdrawn, offers })
    }

    /// Whether an object is applied as new without a read, because it is not known to exist. If it exists, the server
    /// rejects the apply.
    fn may_be_new(&self, key: &Key, inventory: &Inventory) -> bool {
        let was_answered = inventory.0.get(key).is_some_and(|entry| entry.uid.is_some());
        let is_free =
            !was_answered && !self.state.inventory.is_rebuilt() && !self.state.unfinished.failed.needs_read(key);
        is_free && self.context.writer.desired(key).is_none()
    }

    /// Returns the state of objects that were applied as new but exist.
    pub(super) async fn observe_found(
        &mut self,
        resolved: &ResolvedSync,
        found: &[Arc<Desired>],
        before: &Observed,
    ) -> Result<Observed, Refused> {
        let (live, waiting) = self.live(&found.iter().collect::<Vec<_>>()).await?;
        let contested = self.contested(resolved, &live).await?;
        let mut inventory = Inventory::default();
        let known = found.iter().filter_map(|one| before.inventory.0.get_key_value(&one.key));
        inventory.0.extend(known.map(|(key, entry)| (key.clone(), entry.clone())));
        let withdrawn = self.may_be_offered(&live, &inventory).union(&before.withdrawn).cloned().collect();
        let (offered, offers) = (before.offered.clone(), self.offers_of_others(&live).await?);
        Ok(Observed { inventory, waiting, live, contested, offered, withdrawn, offers, ..Observed::default() })
    }

    /// Reads live objects. An object that may not be read counts as failed and is not applied.
    async fn live(&mut self, desired: &[&Arc<Desired>]) -> Result<(Seen, HashSet<Key>), Refused> {
        let (live, unseen) = live(self.acting()?.cluster(), desired, self.label).await?;
        let mut failed = HashSet::new();
        for (keys, error) in unseen {
            for key in keys {
                let (class, message, after) = (error.class(), chain(&error), error.retry_after());
                self.state.unfinished.failed.add(&key, class, Reason::ApplyFailed, message, after);
                failed.insert(key);
            }
        }
        Ok((live, failed))
    }
}

impl Attempt<'_> {
    /// Returns those of these objects that other GitOps tools manage, with the keepers.
    pub(super) async fn contested(
        &self,
        resolved: &ResolvedSync,
        live: &HashMap<Key, Live>,
    ) -> Result<HashMap<Key, Keeper>, Refused> {
        let suspects = live.iter().filter(|(_, live)| resolved.takes_over_known() && live.signs.any());
        let suspects = suspects.map(|(key, live)| (key, &live.signs)).collect::<Vec<_>>();
        // The agent's rules are about namespaces of its own cluster.
        let trusts = |namespace: &str| self.context.is_elsewhere() || !self.context.is_confined(namespace);
        Ok(former_owners::keepers(self.context.writer.cluster(), &suspects, trusts).await?)
    }
}

/// Returns the relevant files, and the ignore files above the directory.
fn listing(
    snapshot: &Snapshot,
    base_dir: &BaseDir,
    skipped: &SkippedTrees,
) -> Result<(Vec<Entry>, Alone), mainstay_git::Error> {
    let (mut listing, alone) = snapshot.listing_alone(base_dir, skipped)?;
    listing.extend(snapshot.above(base_dir, names::IGNORE_FILE)?);
    Ok((listing, alone))
}

/// Returns the message that a commit lacks the directory, with the fate of the objects that were applied from it.
fn without_directory(missing: &MissingDirectory, managed: usize, sync: &Owner, commit: &str) -> String {
    let kept = match managed {
        0 => return missing.to_string(),
        1 => "the object that came from it is kept".to_owned(),
        managed => format!("the {managed} objects that came from it are kept"),
    };
    let allow = prune::allow_prune(sync, commit);
    format!("{missing}; {kept}. Restore it, or delete the kept objects with: {allow}")
}

fn refused_for(problems: &[Problem]) -> Refused {
    let mut lines = problems.iter().take(SHOWN_PROBLEMS).map(ToString::to_string).collect::<Vec<_>>();
    if problems.len() > SHOWN_PROBLEMS {
        lines.push(format!("and {} more", problems.len() - SHOWN_PROBLEMS));
    }
    Refused::invalid(Reason::ManifestInvalid, lines.join("\n"))
}

/// Finds the ignore files in the directories above the directory of the GitSync.
async fn ignore_files_above(snapshot: &Snapshot, base_dir: &BaseDir) -> Result<Vec<Entry>, mainstay_git::Error> {
    let base_dir = base_dir.clone();
    snapshot.blocking(move |snapshot| snapshot.above(&base_dir, names::IGNORE_FILE)).await?
}
