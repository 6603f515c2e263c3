//! One attempt: observes the commit, plans, and performs the plan. The task reports the outcome.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::applied_commits::AppliedCommits;
use super::branch_reading::BranchReading;
use super::commit_state::CommitState;
use super::compiled::Compiled;
use super::context::{Context, git_syncs};
use super::dependencies::Unmet;
use super::inputs::Inputs;
use super::outcome::{Outcome, Refused};
use super::plan::{self, DesiredState};
use super::prune;
use super::reading::Reading;
use super::registry;
use super::removal::{RefusedPermission, Removal};
use super::requested::is_requested;
use super::resolve::{ResolvedSync, SyncRequest};
use super::step::Progress;
use super::unfinished::Unfinished;
use super::windows::{self, Freeze};
use super::written_inventory::WrittenInventory;
use mainstay_api::GitSync;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_sync::{UNKNOWN, WindowOverride};
use mainstay_engine::notification::Message;
use mainstay_git::{Commit, Remote, Source};
use mainstay_object::failure::Class;
use mainstay_object::{Key, Owner};

/// The inputs and the state of one attempt for a GitSync.
pub(super) struct Attempt<'a> {
    pub(super) context: &'a Context,
    pub(super) owner: &'a Owner,
    pub(super) sync: &'a GitSync,
    pub(super) label: &'a Arc<str>,
    /// Whether the last attempt had no failures.
    pub(super) has_succeeded: bool,
    pub(super) state: &'a mut SyncState,
}

/// The state that a GitSync keeps between attempts.
#[derive(Default)]
pub(super) struct SyncState {
    pub(super) inputs: Inputs,
    pub(super) branch: BranchReading,
    pub(super) reading: Reading,
    pub(super) compiled: Compiled,
    pub(super) commit: CommitState,
    pub(super) applied: AppliedCommits,
    pub(super) inventory: WrittenInventory,
    pub(super) removal: Removal,
    pub(super) unfinished: Unfinished,
    /// The step of the running attempt.
    pub(super) progress: Progress,
}

impl Attempt<'_> {
    pub(super) fn namespace(&self) -> &str {
        self.sync.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the Git source for the namespace of the GitSync.
    pub(super) fn source(&self) -> Source {
        self.context.source.for_namespace(self.namespace())
    }

    pub(super) fn name(&self) -> &str {
        self.sync.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether this GitSync may touch an object. Inventories are no proof, because every user who can write ConfigMaps
    /// can forge them.
    pub(super) fn reaches(&self, key: &Key) -> bool {
        self.context.reach(self.sync).covers(self.namespace(), key)
    }

    /// Looks up the reference and applies its commit if necessary. Returns `None` if there was no work.
    pub(super) async fn sync(
        &mut self,
        resolved: &ResolvedSync,
        remote: &Remote,
        max_age: Duration,
    ) -> Result<Option<Outcome>, Refused> {
        let found = self.look_up(resolved, remote, max_age).await?;
        self.state.reading.found(found.commit);
        let commit = found.commit;
        let mut request = resolved.request(commit, remote);
        request.capabilities = self.asked_capabilities().await?;
        self.state.inputs.add_to(&mut request);
        self.check_permission(resolved, commit);
        if self.state.commit.settled() == Some(&request) {
            return Ok(None);
        }
        let freeze = resolved.windows.freeze(Timestamp::now()).filter(|_| !self.was_begun(commit));
        let is_overridden = resolved.overrides_window(commit);
        let unmet = self.unmet(commit).await?;
        if (freeze.is_some() && !is_overridden) || unmet.is_some() {
            Box::pin(self.keep_what_was_applied(remote, &resolved.directory)).await;
        }
        // Large futures are on the heap, so that an attempt which waits for its turn is small.
        let desired = match (Box::pin(self.desired(remote, &found, resolved, &request)).await, unmet) {
            (Ok(desired), _) => desired,
            // The commit may be unreadable because its dependencies, such as CRDs, are not applied yet.
            (Err(refused), Some(on)) if matches!(refused.class, Class::Invalid | Class::NotReady) => {
                return Ok(Some(self.waits_unread(commit, on)));
            }
            (Err(refused), _) => return Err(refused),
        };
        // The charts are rendered, so it is known whether a chart reads the capabilities.
        request.capabilities = desired.capabilities;
        // A commit that changes no file in the directory does not wait for a window.
        if let Some(freeze) = freeze.filter(|_| !self.is_applied(&desired)) {
            if !is_overridden {
                return Ok(Some(self.frozen(commit, freeze)));
            }
            self.override_window(commit, freeze).await;
        }
        let branch = registry::branch(&remote.url, &self.sync.spec.followed_reference(), found.full_name());
        self.publish(&branch, &desired);
        if !self.is_carried_out(&desired, &request)
            && let Some(on) = self.unmet(commit).await?
        {
            return Ok(Some(Outcome::Waiting { commit: commit.to_string(), on }));
        }
        self.require_account().await?;
        // A window that closes from now on does not stop the commit.
        self.state.commit.begin(commit);
        let context = self.context;
        let turns = if is_requested(self.sync) { &context.carrying_out_requested } else { &context.carrying_out };
        turns.run(|| self.carry_out(resolved, request, &desired, &branch)).await.map(Some)
    }

    /// Publishes the desired objects before the plan, because another GitSync may wait for them while this GitSync
    /// waits for that other GitSync.
    fn publish(&mut self, branch: &str, desired: &DesiredState) {
        self.state.commit.plan_for(desired.generation);
        let keys = desired.objects.iter().map(|d| d.key.clone()).collect();
        let changed = self.changed_syncs(desired, Timestamp::now());
        self.context.registry.update(self.owner, |row| {
            row.changed_syncs = changed.update(std::mem::take(&mut row.changed_syncs));
            row.branch = Some(branch.to_owned());
            row.desired = Some(Arc::new(keys));
            row.planned = Some(desired.commit.to_string());
            row.suspended = false;
            row.cannot_read = None;
        });
    }

    /// Plans the commit and performs the plan.
    async fn carry_out(
        &mut self,
        resolved: &ResolvedSync,
        request: SyncRequest,
        desired: &DesiredState,
        branch: &str,
    ) -> Result<Outcome, Refused> {
        self.state.progress.trace_plan(desired.commit);
        self.settle_handovers(desired).await?;
        let observed = self.observe(resolved, desired).await?;
        let facts = plan::Facts {
            commit: &request.commit.to_string(),
            branch,
            desired: &desired.objects,
            observed: &observed,
            prune: resolved.prune,
            allows_prune: request.allows_prune(),
            former: &resolved.former(),
            left: &resolved.left(),
            takes_over_known: resolved.takes_over_known(),
        };
        // The rows of other agents must show the present sources, otherwise a GitSync of the same branch is not awaited.
        self.context.see_sources_of_other_agents();
        let mut plan = self.context.registry.with(self.owner, |view| plan::plan(view, &facts));
        if plan.outranks {
            self.context.registry.notify_outranked();
        }
        if plan.leaves_syncs {
            self.context.registry.notify();
        }
        let outcome = self.perform(resolved, &request, (desired, &facts), &mut plan).await?;
        self.state.applied.set_carried_out(outcome.has_no_failures().then_some(desired.commit));
        let is_clean = outcome.is_clean() && self.state.unfinished.waits_for_nothing();
        if is_clean && !self.state.inventory.take_rebuilt() {
            self.state.commit.settle(request);
        }
        Ok(outcome)
    }

    /// Returns the dependencies that the commit waits for.
    async fn unmet(&self, commit: Commit) -> Result<Option<String>, Refused> {
        match self.context.dependencies.unmet(self.owner, &commit.to_string()).await {
            None => Ok(None),
            Some(Unmet::Waits(on)) => Ok(Some(on)),
            Some(Unmet::Ring(ring)) => {
                let why = format!("spec.dependsOn forms a cycle: {ring}; remove one of these references");
                Err(Refused::invalid(Reason::DependencyCycle, why))
            }
        }
    }

    /// Reports a commit that waits and cannot be read yet. Until then, other GitSyncs do not wait for this GitSync.
    fn waits_unread(&self, commit: Commit, on: String) -> Outcome {
        let cannot_read = self.state.reading.cannot_read();
        self.context.registry.update(self.owner, |row| row.cannot_read = Some(cannot_read));
        Outcome::Waiting { commit: commit.to_string(), on }
    }

    /// Whether this agent or an earlier one already carried out the request.
    fn is_carried_out(&self, desired: &DesiredState, request: &SyncRequest) -> bool {
        let status = self.sync.status.as_ref();
        let is_same_spec = match self.state.commit.settled() {
            Some(settled) => settled.generation == request.generation,
            None => status.is_some_and(|status| {
                let ready = conditions::status(&status.conditions, Type::Ready);
                let waited = ready.is_some_and(|ready| ready.reason == Reason::DependencyNotReady.as_str());
                status.observed_generation == request.generation && !waited && !self.state.commit.has_begun()
            }),
        };
        is_same_spec && self.is_applied(desired)
    }

    /// Reports an `allow-prune` annotation that is invalid.
    fn check_permission(&mut self, resolved: &ResolvedSync, commit: Commit) {
        let refused = resolved.allow_prune.clone().and_then(|value| {
            let problem = prune::refused_permission(&value, self.owner, &commit.to_string())?;
            Some(RefusedPermission { value, problem })
        });
        if let Some(problem) = self.state.removal.refuse_permission(refused) {
            let message = Message::AnnotationInvalid { subject: self.owner.clone(), problem: problem.to_owned() };
            self.context.emit(self.owner, &message);
        }
    }

    /// Whether the commit was begun before a window held it back. Such a commit is finished.
    fn was_begun(&self, commit: Commit) -> bool {
        self.state.commit.was_begun(commit) || windows::was_begun(self.sync.status.as_ref(), &commit.to_string())
    }

    fn frozen(&mut self, commit: Commit, freeze: Freeze) -> Outcome {
        let since = self.state.commit.freeze(Timestamp::now());
        Outcome::Frozen { commit: commit.to_string(), freeze, since }
    }

    /// Records that a commit is applied in spite of a window.
    async fn override_window(&mut self, commit: Commit, freeze: Freeze) {
        // The cached object has no `managedFields`, so it is read. The user is only recorded; an error stops nothing.
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
        self.state.commit.override_window(WindowOverride { commit, window, who, claimed_user, when });
    }

    /// Whether exactly these contents are applied.
    pub(super) fn is_applied(&self, desired: &DesiredState) -> bool {
        let before = self.sync.status.as_ref().and_then(|status| status.applied_tree_id.clone());
        let applied = match self.state.applied.last() {
            Some((_, tree)) => tree.map(|tree| tree.to_string()),
            None => before,
        };
        applied.is_some() && applied == desired.tree.map(|tree| tree.to_string())
    }
}
