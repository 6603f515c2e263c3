//! One attempt: observe the commit, decide what to do about it, perform that. The task reports how it ended.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::charts::RenderedCharts;
use super::contents::Contents;
use super::context::{Context, git_syncs};
use super::dependencies::Unmet;
use super::failures::Failures;
use super::kustomizations::BuiltKustomizations;
use super::no_memory::{NoMemory, Room};
use super::outcome::{Outcome, Refused};
use super::plan::{self, DesiredState};
use super::prune;
use super::registry::{self, CannotRead};
use super::resolve::{ResolvedSync, SyncRequest};
use super::tally::Tally;
use super::terminating::TerminatingObjects;
use super::unread::UnreadObjects;
use super::values::Values;
use super::windows::{self, Freeze};
use mainstay_api::GitSync;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_sync::{UNKNOWN, WindowOverride};
use mainstay_engine::notification::Message;
use mainstay_git::{Commit, Remote, RemoteUrl, Source};
use mainstay_manifest::{Decryption, Form};
use mainstay_object::failure::Class;
use mainstay_object::{Digest, Key, Object, Owner};

/// One attempt's view of its GitSync.
pub(super) struct Attempt<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) sync: &'a GitSync,
    pub(super) label: &'a Arc<str>,
    pub(super) state: &'a mut SyncState,
}

/// What a GitSync remembers from attempt to attempt.
#[derive(Default)]
pub(super) struct SyncState {
    /// Digests of the inventory's ConfigMaps as they are written.
    pub(super) written: BTreeMap<usize, Digest>,
    /// Digests of the files that their objects are in, as they are written.
    pub(super) files: BTreeMap<usize, Digest>,
    /// The inventory was put together from labels: nothing is pruned in this round.
    pub(super) rebuilt: bool,
    /// The desired state of the last commit that was decoded.
    pub(super) desired: Option<DesiredState>,
    /// What leaves out manifests of the commit that was decoded last, if it has no others.
    pub(super) left_out: Option<String>,
    /// Objects whose last apply or deletion failed.
    pub(super) failed: Failures,
    /// The last request that was carried out in full.
    pub(super) settled: Option<SyncRequest>,
    /// Objects that this commit changes and that are under break glass.
    pub(super) paused: HashSet<Key>,
    /// Something is awaited from another GitSync.
    pub(super) awaits_others: bool,
    /// Something that another GitSync lists still carries our label. No event comes when that one has put it right.
    pub(super) still_labelled: bool,
    /// The commit that was seen last, and when.
    pub(super) seen: Option<(Commit, Instant)>,
    /// The full name of the reference at which that was.
    pub(super) found_at: Option<String>,
    /// The commit that was read last, the full name of the reference at which it was, and where that was.
    pub(super) read: Option<(Commit, String, RemoteUrl)>,
    /// Commit and tree that are applied in full.
    pub(super) applied: Option<(Commit, Option<Contents>)>,
    /// What an earlier agent applied was looked for.
    pub(super) looked_back: bool,
    /// When the present outcome of applying began.
    pub(super) since: Option<(Commit, Timestamp)>,
    /// Since when not all objects are healthy.
    pub(super) unhealthy_since: Option<Timestamp>,
    /// The commit that this agent began to apply last. A window that closes meanwhile does not stop it.
    pub(super) begun: Option<Commit>,
    /// When this agent first held a commit back.
    pub(super) frozen_since: Option<Timestamp>,
    /// What the repository could not be read with, of what is managed here; `None` until the status was asked.
    pub(super) unread: Option<UnreadObjects>,
    /// Objects that left and are still being deleted; `None` until a round looked.
    pub(super) terminating: Option<TerminatingObjects>,
    /// Objects that are being deleted to be created anew.
    pub(super) replacing: TerminatingObjects,
    /// What was done so far for a commit that is not applied in full.
    pub(super) tally: Option<(Commit, Tally)>,
    /// The last request to run something again that was acted on.
    pub(super) rerun: Option<String>,
    /// The annotation that is to lift the guards, and what is wrong with it.
    pub(super) refused_permission: Option<(String, String)>,
    /// The commit that is being read; `None` as long as it is not known.
    pub(super) reading: Option<Commit>,
    /// What of a commit with problems could be read: each object, and where it would be if its kind is not namespaced.
    pub(super) readable: HashSet<Key>,
    /// What there was no memory for.
    pub(super) no_memory: Option<NoMemory>,
    /// Notified when there may be memory for that.
    pub(super) room: Room,
    /// The last commit that was applied although a window held it back.
    pub(super) window_override: Option<WindowOverride>,
    /// The kustomizations that were built last.
    pub(super) kustomizations: BuiltKustomizations,
    /// The charts that were rendered last.
    pub(super) charts: RenderedCharts,
    /// The values of variables; `None` if nothing is substituted.
    pub(super) values: Option<Arc<Values>>,
    /// What the values are now is not known: something that they come from is missing or wrong.
    pub(super) lacks_values: bool,
    /// What is done about what SOPS has encrypted.
    pub(super) decryption: Decryption,
    /// What the keys are now is not known: the Secret with them is missing or wrong.
    pub(super) lacks_keys: bool,
    /// Encrypted objects as they were read: what is kept is not read and verified again.
    pub(super) encrypted: Vec<Arc<Object>>,
    /// How kustomizations and charts were decoded: the form, and whether what is encrypted was kept to be decrypted.
    pub(super) decoded_as: (Form, bool),
    /// Objects with expressions as they stand in the repository: what is kept is not decoded again.
    pub(super) with_expressions: Vec<Arc<Object>>,
}

impl Attempt<'_> {
    pub(super) fn namespace(&self) -> &str {
        self.sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Git, on behalf of the GitSync's namespace.
    pub(super) fn source(&self) -> Source {
        self.context.source.for_namespace(self.namespace())
    }

    pub(super) fn name(&self) -> &str {
        self.sync.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether this GitSync may touch an object, whatever its inventory lists: whoever can write ConfigMaps can write
    /// an inventory.
    pub(super) fn reaches(&self, key: &Key) -> bool {
        self.context.reach(self.sync).covers(self.namespace(), key)
    }

    /// Looks up the reference and, if there is anything to do, does it. `None`: nothing was to do.
    pub(super) async fn sync(
        &mut self,
        resolved: &ResolvedSync,
        remote: &Remote,
        max_age: Duration,
    ) -> Result<Option<Outcome>, Refused> {
        let found = self.look_up(resolved, remote, max_age).await?;
        self.state.reading = Some(found.commit);
        let commit = found.commit;
        let mut request = resolved.request(commit, remote);
        request.capabilities = self.asked_capabilities().await?;
        request.values = self.state.values.as_ref().map(|values| values.digest);
        request.keys = self.state.decryption.key_id();
        self.check_permission(resolved, commit);
        if self.state.settled.as_ref() == Some(&request) {
            return Ok(None);
        }
        let freeze = resolved.windows.freeze(Timestamp::now()).filter(|_| !self.was_begun(commit));
        let is_overridden = resolved.overrides_window(commit);
        let unmet = self.unmet(commit).await?;
        if (freeze.is_some() && !is_overridden) || unmet.is_some() {
            self.keep_what_was_applied(remote, &resolved.directory).await;
        }
        let desired = match (self.desired(remote, &found, resolved, &request).await, unmet) {
            (Ok(desired), _) => desired,
            // What it waits for may be what it cannot be read without, such as definitions.
            (Err(refused), Some(on)) if matches!(refused.class, Class::Invalid | Class::NotReady) => {
                return Ok(Some(self.waits_unread(commit, on)));
            }
            (Err(refused), _) => return Err(refused),
        };
        // Only now is it known whether a chart asks.
        request.capabilities = desired.capabilities;
        // A commit that changes nothing in the directory waits for no window.
        if let Some(freeze) = freeze.filter(|_| !self.is_applied(&desired)) {
            if !is_overridden {
                return Ok(Some(self.frozen(commit, freeze)));
            }
            self.override_window(commit, freeze).await;
        }
        let branch = registry::branch(&remote.url, &self.sync.spec.followed_reference());
        // From now on what the commit wants counts for the other GitSyncs: one that this one waits for may wait for that.
        let keys = desired.objects.iter().map(|d| d.key.clone()).collect();
        self.context.registry.update(self.owner, |row| {
            row.branch = Some(branch.clone());
            row.desired = Some(Arc::new(keys));
            row.planned = Some(commit.to_string());
            row.suspended = false;
            row.cannot_read = None;
        });
        if !self.is_carried_out(&desired, &request)
            && let Some(on) = self.unmet(commit).await?
        {
            return Ok(Some(Outcome::Waiting { commit: commit.to_string(), on }));
        }
        self.require_account().await?;
        // No window that closes stops it any more.
        self.state.begun = Some(commit);
        let observed = self.observe(resolved, &desired).await?;
        let facts = plan::Facts {
            commit: &commit.to_string(),
            branch: &branch,
            desired: &desired.objects,
            observed: &observed,
            prune: resolved.prune,
            allows_prune: request.allows_prune(),
            former: &resolved.former(),
            left: &resolved.left(),
            takes_over_known: resolved.takes_over_known(),
        };
        let mut plan = self.context.registry.with(self.owner, |view| plan::plan(view, &facts));
        if plan.outranks {
            self.context.registry.notify_outranked();
        }
        let outcome = self.perform(resolved, &request, (&desired, &facts), &mut plan).await?;
        let is_clean = outcome.is_clean() && self.state.paused.is_empty() && !self.state.awaits_others;
        if is_clean && !std::mem::take(&mut self.state.rebuilt) {
            // What was carried out in full is not looked at again.
            self.state.settled = Some(request);
        }
        Ok(Some(outcome))
    }

    /// What the commit waits for of what `spec.dependsOn` names.
    async fn unmet(&self, commit: Commit) -> Result<Option<String>, Refused> {
        match self.context.dependencies.unmet(self.owner, &commit.to_string()).await {
            None => Ok(None),
            Some(Unmet::Waits(on)) => Ok(Some(on)),
            Some(Unmet::Ring(ring)) => {
                let why =
                    format!("spec.dependsOn leads back to this GitSync: {ring}; take one of these references away");
                Err(Refused::invalid(Reason::DependencyCycle, why))
            }
        }
    }

    /// A commit that waits, and cannot be read yet. Nobody else waits until it is.
    fn waits_unread(&self, commit: Commit, on: String) -> Outcome {
        let commit = commit.to_string();
        let cannot_read = CannotRead { commit: Some(commit.clone()), readable: Arc::new(self.state.readable.clone()) };
        self.context.registry.update(self.owner, |row| row.cannot_read = Some(cannot_read));
        Outcome::Waiting { commit, on }
    }

    /// Whether a commit brings nothing that was not carried out before, by this agent or by the last one.
    fn is_carried_out(&self, desired: &DesiredState, request: &SyncRequest) -> bool {
        let status = self.sync.status.as_ref();
        let is_same_spec = match &self.state.settled {
            Some(settled) => settled.generation == request.generation,
            None => status.is_some_and(|status| {
                let ready = conditions::status(&status.conditions, Type::Ready);
                let waited = ready.is_some_and(|ready| ready.reason == Reason::DependencyNotReady.as_str());
                status.observed_generation == request.generation && !waited && self.state.begun.is_none()
            }),
        };
        is_same_spec && self.is_applied(desired)
    }

    /// Refuses a permission that is none, aloud.
    fn check_permission(&mut self, resolved: &ResolvedSync, commit: Commit) {
        let refused = resolved.allow_prune.clone().and_then(|value| {
            let problem = prune::refused_permission(&value, self.owner, &commit.to_string())?;
            Some((value, problem))
        });
        let before = self.state.refused_permission.take();
        if let Some((value, problem)) = &refused
            && before.is_none_or(|(before, _)| before != *value)
        {
            let message = Message::AnnotationInvalid { subject: self.owner.clone(), problem: problem.clone() };
            self.context.emit(self.owner, &message);
        }
        self.state.refused_permission = refused;
    }

    /// Whether a commit was begun before a window could hold it back: then it is finished.
    fn was_begun(&self, commit: Commit) -> bool {
        self.state.begun == Some(commit) || windows::was_begun(self.sync.status.as_ref(), &commit.to_string())
    }

    fn frozen(&mut self, commit: Commit, freeze: Freeze) -> Outcome {
        let frozen_since = *self.state.frozen_since.get_or_insert_with(Timestamp::now);
        let since = self.state.since.map_or(frozen_since, |(_, since)| since);
        Outcome::Frozen { commit: commit.to_string(), freeze, since }
    }

    /// Records that a commit is applied although a window holds it back.
    async fn override_window(&mut self, commit: Commit, freeze: Freeze) {
        // What the agent holds in memory has no managers. Who asked is for the record only, so not knowing stops nothing.
        let live = self.context.home.get_metadata(&git_syncs(), Some(self.namespace()), self.name()).await;
        let live = live.ok().flatten();
        let (commit, window, when) = (commit.to_string(), freeze.by, Time(Timestamp::now()));
        let who = live.as_ref().map_or_else(|| UNKNOWN.to_owned(), windows::who_overrides);
        let claimed_user = live.and_then(|meta| windows::claimed_user(&meta, &commit));
        let message = Message::WindowOverridden {
            subject: self.owner.clone(),
            commit: commit.clone(),
            window: window.clone(),
            who: who.clone(),
            claimed_user: claimed_user.clone(),
        };
        self.context.emit(self.owner, &message);
        self.state.window_override = Some(WindowOverride { commit, window, who, claimed_user, when });
    }

    /// Whether what is applied is just that.
    pub(super) fn is_applied(&self, desired: &DesiredState) -> bool {
        let before = self.sync.status.as_ref().and_then(|status| status.applied_tree_id.clone());
        let applied = match self.state.applied {
            Some((_, tree)) => tree.map(|tree| tree.to_string()),
            None => before,
        };
        applied.is_some() && applied == desired.tree.map(|tree| tree.to_string())
    }
}
