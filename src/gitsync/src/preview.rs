//! Previews a sync: runs the attempt of the agent up to its plan, then performs each step as a dry run.
//!
//! Invariant: nothing is written: no object, no status, no Event, no inventory. Every write is a dry run.
//! Invariant: all requests use the permissions of the user, never those of a ServiceAccount.
//!
//! Not here: dependencies of the GitSync, and the limits that flags of the agent set. Only the agent knows these.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::abroad::{Abroad, abroad, unfollowed};
use super::attempt::{Attempt, SyncState};
use super::chart_values::{self, ChartValues};
use super::contested::would_go;
use super::context::{Context, git_syncs};
use super::decryption::DecryptionSecret;
use super::inputs::{InputValues, Inputs};
use super::listing::{Listing, listing_in};
use super::outcome::Refused;
use super::placement::label;
use super::plan::{self, Expect, Live, Observed, Plan, Step, Why};
use super::previewed::{Fate, Previewed, between, changed};
use super::prune::{Deletion, Permission, kept};
use super::registry;
use super::remote::remote_of;
use super::resolve::{ResolvedSync, SyncRequest};
use super::rights::Rights;
use super::unread;
use super::values::Values;
use super::whereabouts::as_known_in;
use mainstay_api::git_sync::{AllowedBy, SubstituteSource};
use mainstay_api::{GitRepository, GitSync};
use mainstay_cluster::liveness::Liveness;
use mainstay_cluster::secrets::{Known, Purpose, RepositoryData, Secrets, ValueSources};
use mainstay_cluster::{Cluster, Error, Selection};
use mainstay_engine::apply::{DryRun, Writer};
use mainstay_engine::managed::installation::{self, Installation};
use mainstay_engine::managed::inventory::Inventory;
use mainstay_engine::managed::{Appliers, Desired, History, Policy};
use mainstay_git::{Reference, Remote, Repositories, Source};
use mainstay_manifest::Decryption;
use mainstay_manifest::render::{Helm, Kustomize, Words};
use mainstay_object::egress::Egress;
use mainstay_object::failure::chain;
use mainstay_object::{Key, Owner};

/// Maximum number of objects that are read or tried concurrently.
const AT_ONCE: usize = 16;

/// A preview of one GitSync.
pub struct Preview {
    context: Arc<Context>,
    sync: GitSync,
    owner: Owner,
    label: Arc<str>,
    resolved: ResolvedSync,
    state: SyncState,
    /// Live objects whose content must not be shown.
    applied: Confidential,
}

/// Live objects that contain values of Secrets, even if the revision inserts none into them.
#[derive(Clone, Debug, Default)]
struct Confidential {
    keys: HashSet<Key>,
    /// Whether these objects are unknown. Every object is then confidential.
    is_any: bool,
}

/// A commit, as far as it was read.
#[derive(Clone)]
pub struct Revision {
    /// The id of the commit.
    pub commit: String,
    /// Short name of the reference, or the commit id.
    pub reference: String,
    /// Problems that would make the agent refuse the commit.
    pub notes: Vec<String>,
    /// The commit id that a user must name to allow the deletions, if the revision is committed.
    allowed: String,
    objects: Vec<Arc<Desired>>,
    request: SyncRequest,
    branch: String,
}

impl Revision {
    /// Returns the revision as that of a work tree, whose commit id is unknown until it is committed.
    #[must_use]
    pub fn of_work_tree(self) -> Self {
        Self { allowed: "$(git rev-parse HEAD) # once it is committed".to_owned(), ..self }
    }
}

/// The changes of a revision.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// All objects: those of the revision in apply order, then removed objects.
    pub objects: Vec<Previewed>,
    /// Remarks about all objects together.
    pub notes: Vec<String>,
}

/// The reason why there is no preview, with the remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoPreview(String);

impl From<Refused> for NoPreview {
    fn from(refused: Refused) -> Self {
        Self(refused.message)
    }
}

impl From<Error> for NoPreview {
    fn from(error: Error) -> Self {
        Self(chain(&error))
    }
}

impl From<mainstay_git::Error> for NoPreview {
    fn from(error: mainstay_git::Error) -> Self {
        Self(chain(&error))
    }
}

impl Preview {
    /// Creates the preview of a GitSync and reads the values of its variables. `egress` are the addresses that the
    /// kubeconfig of a remote cluster may lead to.
    ///
    /// # Errors
    ///
    /// A field, or a source of values, is invalid.
    pub async fn of(
        cluster: Cluster,
        source: Source,
        renderers: (Kustomize, Helm),
        sync: GitSync,
        egress: Egress,
    ) -> Result<Self, NoPreview> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&sync.metadata.namespace), text(&sync.metadata.name));
        let owner = Owner::git_sync(&namespace, &name);
        let resolved = ResolvedSync::of(&sync)?;
        let known = ValueSources::read(&cluster, &namespace, &sync.spec.substitute_from).await;
        let variables = Values::of(&sync.spec, &known)?;
        let known = ValueSources::read(&cluster, &namespace, &chart_values::sources(&sync.spec)).await;
        let limits = mainstay_manifest::Limits::new(mainstay_git::thread_time);
        let values = InputValues::new(variables, ChartValues::of(&sync.spec, &known, &limits)?);
        let decryption = match &sync.spec.decryption {
            Some(by) => {
                let name = &by.secret_ref.name;
                DecryptionSecret::once(name, &Known::secret(&cluster, &namespace, name, Purpose::Decryption).await)?
            }
            None => Decryption::default(),
        };
        let liveness = Liveness::default();
        // Dry runs are not followed up.
        let writer = Writer::for_dry_runs(cluster, liveness.component("dry runs"));
        // The agent's namespace is unknown here. A GitSync that manages the agent is usually in the agent's namespace.
        writer.set_installation(Installation::in_namespace(&namespace));
        // The limits that the agent's flags set are unknown here.
        let rights = Rights { trusted: vec![namespace.clone()], ..Rights::default() };
        let context = Context::new(
            writer,
            source,
            Arc::new(Repositories::default()),
            Arc::new(Secrets::default()),
            rights,
            renderers,
            liveness.component("the preview"),
            |_| {},
            unfollowed,
        );
        let context = match abroad(&context, &sync, egress).await? {
            Some(other) => other,
            None => Arc::new(context),
        };
        let policy = Policy {
            drift: sync.spec.drift,
            additions: sync.spec.additions,
            suspended: false,
            confined: false,
            acts_as: None,
        };
        context.writer.set_policy(&owner, policy, History::default());
        context.writer.set_replaced_kinds(&owner, resolved.replaced_kinds.clone());
        context.enter(&owner, &namespace, &name);
        let sync = as_known_in(&sync, context.place.as_ref().map(|place| &*place.id)).into_owned();
        let state = SyncState { inputs: Inputs::known(values, decryption), ..SyncState::default() };
        let label = label(&namespace, &name);
        Ok(Self { context, owner, label, sync, resolved, state, applied: Confidential::default() })
    }

    /// Returns the renderers of kustomizations and charts on this machine, with programs on `path` and files in
    /// `scratch`.
    pub fn renderers(path: Option<&std::ffi::OsStr>, scratch: &Path) -> (Kustomize, Helm) {
        let kustomize = Kustomize::new(path, scratch.to_owned()).showing(Words::Full);
        let helm = Helm::beside(&kustomize, path);
        (kustomize, helm)
    }

    /// Returns the reference that the GitSync follows.
    pub fn followed(&self) -> &Reference {
        &self.resolved.reference
    }

    /// Returns the remote of the GitSync's repository with its Secrets, and the reason why the agent would not use it.
    ///
    /// # Errors
    ///
    /// The repository cannot be opened.
    pub async fn remote(&self, repository: &GitRepository) -> Result<(Remote, Option<String>), NoPreview> {
        let (cluster, namespace) = (&self.context.home, self.owner.resource().namespace());
        let known = RepositoryData::read(cluster, namespace, &repository.spec).await;
        let (remote, trusted) = remote_of(repository, &known, self.context.source.egress(namespace))?;
        let reads_by = unread::reads_by(&self.owner, &self.sync, Some(repository)).into();
        if !self.context.is_elsewhere() {
            self.context.registry.update(&self.owner, |row| row.reads_by = reads_by);
        }
        Ok((remote, trusted.err().map(|refused| refused.message)))
    }

    fn attempt(&mut self) -> Attempt<'_> {
        let Self { context, sync, owner, label, state, .. } = self;
        Attempt { context, owner, sync, label, has_succeeded: false, state }
    }

    /// Reads the commit of a reference as the agent would read it.
    ///
    /// # Errors
    ///
    /// The commit cannot be read, or it has problems. The error lists all problems.
    pub async fn read(&mut self, remote: &Remote, reference: &Reference) -> Result<Revision, NoPreview> {
        let resolved = self.resolved.clone();
        let attempt = &mut self.attempt();
        let source = attempt.source();
        let found = source.lookup(remote, reference, Duration::ZERO).await?;
        let signature = source.verify(remote, &found).await;
        let notes = signature.err().map(|error| format!("the agent would refuse this commit: {}", chain(&error)));
        let remote = &remote.without_verification();
        let mut request = resolved.request(found.commit, remote);
        attempt.state.inputs.add_to(&mut request);
        request.capabilities = attempt.asked_capabilities().await?;
        let desired = attempt.desired(remote, &found, &resolved, &request).await?;
        Ok(Revision {
            commit: found.commit.to_string(),
            allowed: found.commit.to_string(),
            reference: found.short().to_owned(),
            notes: notes.into_iter().collect(),
            objects: desired.objects,
            request,
            branch: registry::branch(&remote.url, &attempt.sync.spec.followed_reference(), found.full_name()),
        })
    }

    /// Reads the applied commit, if the repository has it, to find live objects with values of Secrets. Returns a
    /// remark about hidden objects, because the Secrets may have changed since the apply.
    pub async fn look_at_applied(&mut self, remote: &Remote, revision: &Revision) -> Option<String> {
        let applied = self.sync.status.as_ref().and_then(|status| status.applied_commit.clone());
        if applied.as_ref() == Some(&revision.commit) {
            return None;
        }
        let before = match applied.as_deref().map(Reference::parse) {
            Some(Ok(reference)) => self.read(remote, &reference).await.ok(),
            _ => None,
        };
        let Some(before) = before else {
            let of_chart = chart_values::sources(&self.sync.spec);
            let has_secrets = self.sync.spec.substitute_from.iter().chain(&of_chart).any(SubstituteSource::is_secret);
            self.applied.is_any = has_secrets || self.sync.spec.decryption.is_some();
            let words = if applied.is_none() {
                "values are masked: some come from Secrets or decryption, and without an applied commit it is unknown which"
            } else {
                "values are masked: some come from Secrets or decryption; the applied commit shows which, but is \
                 not in the repository (is it a shallow clone?)"
            };
            return self.applied.is_any.then(|| words.to_owned());
        };
        let confidential = before.objects.iter().filter(|desired| desired.object.is_confidential());
        self.applied.keys = confidential.map(|desired| desired.key.clone()).collect();
        None
    }

    /// Returns the changes between two revisions, without reading objects of the cluster.
    pub fn between(before: &Revision, after: &Revision) -> Changes {
        let of = |revision: &Revision| revision.objects.clone();
        let (before, after) = (of(before), of(after));
        Changes { objects: between(before.iter().map(|d| &**d), after.iter().map(|d| &**d)), notes: Vec::new() }
    }

    /// Returns the values of Secrets that variables and charts have, so that they can be hidden.
    pub fn secret_values(&self) -> Vec<String> {
        self.state.inputs.secret_values()
    }

    /// Returns the reasons why the agent does not apply a new commit now, as far as the GitSync shows them.
    pub fn held_back(&self) -> Vec<String> {
        let now = Timestamp::now();
        let until = |until: Option<Timestamp>| until.map(|until| format!(" until {until}")).unwrap_or_default();
        let suspended = self.sync.spec.suspended(now).map(|end| format!("it is suspended{}", until(end)));
        let freeze = self.resolved.windows.freeze(now);
        let frozen = freeze.map(|freeze| format!("new commits are held back by {}{}", freeze.by, until(freeze.until)));
        suspended.into_iter().chain(frozen).collect()
    }

    /// Returns the changes of a revision to the cluster.
    ///
    /// # Errors
    ///
    /// The cluster does not respond, or the inventory cannot be read. An object that the server rejects is shown with
    /// its error instead.
    pub async fn against_cluster(&mut self, revision: &Revision) -> Result<Changes, NoPreview> {
        let mut notes = Vec::new();
        let acting = self.attempt().acting()?;
        self.attempt().load_inventory().await?;
        if self.state.inventory.take_rebuilt() {
            notes.push("the inventory is missing or damaged: removed objects are found by their labels".to_owned());
        }
        acting.expect_autoscalers(&self.owner, &revision.objects);
        if revision.objects.iter().any(|desired| desired.is_scalable())
            && let Err(error) = acting.look_at_autoscalers().await
        {
            notes.push(format!("replica counts are compared without autoscalers: {}", chain(&error)));
        }
        let (seen, mut unseen) = look(acting.cluster(), &revision.objects).await;
        notes.extend(self.know_others(acting.cluster(), seen.values()).await);
        let (label, now) = (Arc::clone(&self.label), Timestamp::now());
        let live = seen.iter().map(|(key, live)| (key.clone(), Live::of(&metadata(live), &label, now))).collect();
        let resolved = self.resolved.clone();
        let contested = self.attempt().contested(&resolved, &live).await?;
        let observed = Observed { waiting: unseen.keys().cloned().collect(), live, contested, ..Observed::default() };
        let plan = self.plan(revision, observed);
        let mut objects = Vec::with_capacity(revision.objects.len());
        let is_seen = |desired: &&Arc<Desired>| !unseen.contains_key(&desired.key);
        // Unchanged objects that were deleted in the cluster would be recreated.
        let gone = plan.unchanged.iter().filter(is_seen);
        let gone =
            gone.map(|one| Step { desired: Arc::clone(one), expect: Expect::Absent, appliers: Appliers::default() });
        let steps = plan.stages.values().flatten().cloned().chain(gone).collect();
        objects.extend(self.dry_runs(&acting, steps, &seen).await);
        objects.extend(plan.paused.iter().map(|(desired, _)| {
            Previewed::of(desired, Fate::LeftAlone("it is paused (mainstay.dev/reconcile: disabled)".to_owned()))
        }));
        let by_key: HashMap<&Key, &Arc<Desired>> = revision.objects.iter().map(|one| (&one.key, one)).collect();
        objects.extend(
            plan.refused
                .iter()
                .filter_map(|refused| Some(Previewed::of(by_key.get(&refused.key)?, refused_as(&refused.why)))),
        );
        objects.extend(
            revision
                .objects
                .iter()
                .filter_map(|desired| Some(Previewed::of(desired, Fate::Failed(unseen.remove(&desired.key)?)))),
        );
        let has_failed = objects.iter().any(|one| matches!(one.fate, Fate::Failed(_)));
        let left = self.left(&acting, &plan, revision).await?;
        if has_failed && left.iter().any(|one| one.fate == Fate::Pruned) {
            notes.push("nothing is deleted before everything else is applied".to_owned());
        }
        objects.extend(left);
        for object in &mut objects {
            object.is_confidential |= self.applied.is_any || self.applied.keys.contains(&object.key);
        }
        notes.extend(plan.leaving.guard_text(&self.owner, &revision.allowed));
        Ok(Changes { objects, notes })
    }

    /// Plans the revision as the agent would.
    fn plan(&mut self, revision: &Revision, mut observed: Observed) -> Plan {
        let attempt = self.attempt();
        let mut inventory = attempt.inventory().map_or_else(Inventory::default, |one| Inventory::clone(&one));
        inventory.0.retain(|key, _| attempt.reaches(key));
        observed.inventory = inventory;
        let facts = plan::Facts {
            commit: &revision.commit,
            branch: &revision.branch,
            desired: &revision.objects,
            observed: &observed,
            prune: self.resolved.prune,
            allows_prune: revision.request.allows_prune(),
            former: &self.resolved.former(),
            left: &self.resolved.left(),
            takes_over_known: self.resolved.takes_over_known(),
        };
        self.context.registry.with(&self.owner, |view| plan::plan(view, &facts))
    }

    /// Performs each step as a dry run, in order.
    async fn dry_runs(&self, acting: &Writer, steps: Vec<Step>, seen: &HashMap<Key, Value>) -> Vec<Previewed> {
        let runs = steps.into_iter().map(async |step| {
            let desired = &step.desired;
            let live = seen.get(&desired.key);
            let outcome = acting.dry_run(&self.owner, &step, live).await;
            Previewed::of(desired, fate(&step, live, outcome))
        });
        stream::iter(runs).buffered(AT_ONCE).collect().await
    }

    /// Returns the previews of removed objects.
    async fn left(&self, acting: &Writer, plan: &Plan, revision: &Revision) -> Result<Vec<Previewed>, NoPreview> {
        let Some(inventory) = self.context.writer.store().inventory(&self.owner) else { return Ok(Vec::new()) };
        let version = |key: &Key| inventory.0.get(key).map(|entry| &*entry.version).unwrap_or_default();
        let pruned = plan.leaving.prune.iter().map(async |key| {
            let fate = self.pruned(acting, key, &inventory, revision).await;
            Some(Previewed::left(key, version(key), fate.unwrap_or_else(|error| Some(Fate::Failed(chain(&error))))?))
        });
        let mut all: Vec<Previewed> =
            stream::iter(pruned).buffered(AT_ONCE).filter_map(std::future::ready).collect().await;
        let (owner, commit) = (&self.owner, &revision.allowed);
        all.extend(
            plan.leaving
                .held
                .iter()
                .map(|(key, held)| Previewed::left(key, version(key), Fate::LeftAlone(held.text(owner, commit)))),
        );
        all.extend(plan.leaving.handed_over.iter().map(|key| {
            let words = "handover: it was removed from this GitSync, and another GitSync declares it";
            Previewed::left(key, version(key), Fate::LeftAlone(words.to_owned()))
        }));
        Ok(all)
    }

    /// Returns the fate of a removed object that no guard holds; `None` if it does not exist any more.
    async fn pruned(
        &self,
        acting: &Writer,
        key: &Key,
        inventory: &Inventory,
        revision: &Revision,
    ) -> Result<Option<Fate>, Error> {
        let Some(entry) = inventory.0.get(key) else { return Ok(None) };
        let Some(kind) = acting.listed_kind(key, entry).await? else { return Ok(None) };
        let meta = acting.cluster().get_metadata(&kind, key.namespace.as_deref(), &key.name).await?;
        let Some(meta) = meta else { return Ok(None) };
        let permission = if revision.request.allows_prune() { Permission::Allowed } else { Permission::Unasked };
        // Only the label shows here whether an object grants permissions to the agent.
        Ok(Some(match acting.may_delete(key, installation::Live::Metadata(&meta), &self.label, entry, permission) {
            Deletion::Allowed => Fate::Pruned,
            Deletion::UnderWay(_) => Fate::LeftAlone("it is being deleted already".to_owned()),
            Deletion::NotOurs => Fate::LeftAlone("it now has a different owner; Mainstay stops managing it".to_owned()),
            Deletion::Kept(why) => Fate::LeftAlone(kept(why, key, &self.owner, &revision.commit)),
        }))
    }

    /// Whether the objects of another GitSync are in the same cluster, by its spec and status.
    fn is_beside(&self, other: &GitSync) -> bool {
        match &self.context.place {
            None => other.spec.kube_config.is_none(),
            Some(place) => other.status.as_ref().and_then(|status| status.cluster.as_ref()) == Some(&place.id),
        }
    }

    /// Reads the managed objects of the GitSyncs whose labels occur on live objects. Returns a remark about GitSyncs
    /// that cannot be read.
    async fn know_others(&self, cluster: &Cluster, seen: impl Iterator<Item = &Value>) -> Option<String> {
        let now = Timestamp::now();
        let mut labels: HashSet<String> =
            seen.filter_map(|live| Live::of(&metadata(live), &self.label, now).label).collect();
        labels.remove(&*self.label);
        if labels.is_empty() {
            return None;
        }
        let mut list = self.context.home.list(&Arc::new(git_syncs()), Selection::default());
        while let Some(other) = list.next().await {
            let listed = async {
                let Ok(other) = serde_json::from_value::<GitSync>(other?) else { return Ok(None) };
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let (namespace, name) = (text(&other.metadata.namespace), text(&other.metadata.name));
                if !labels.contains(&*label(&namespace, &name)) || !self.is_beside(&other) {
                    return Ok(None);
                }
                let abroad = Abroad {
                    cluster: cluster.clone(),
                    home: self.context.place.as_ref().and_then(|place| place.home.clone()),
                };
                let Listing::Whole(listed) = listing_in(&abroad, &other).await? else { return Ok(None) };
                Ok::<_, Error>(Some((namespace, name, listed)))
            };
            match listed.await {
                Ok(None) => {}
                Ok(Some((namespace, name, listed))) => {
                    let owner = Owner::git_sync(&namespace, &name);
                    self.context.registry.enter(&owner, label(&namespace, &name), None);
                    let managed: Arc<HashSet<Key>> = Arc::new(listed.objects.into_keys().collect());
                    self.context.registry.update(&owner, |row| {
                        (row.managed, row.desired, row.tried) = (Some(Arc::clone(&managed)), Some(managed), true);
                    });
                }
                Err(error) => {
                    return Some(format!(
                        "it is unknown which of the objects other GitSyncs manage: {}",
                        chain(&error)
                    ));
                }
            }
        }
        None
    }
}

/// Reads the live objects. Also returns the objects that cannot be read, with the error.
async fn look(cluster: &Cluster, objects: &[Arc<Desired>]) -> (HashMap<Key, Value>, HashMap<Key, String>) {
    let looks = objects.iter().map(async |desired| {
        let found = cluster.get(&desired.kind, desired.key.namespace.as_deref(), &desired.key.name).await;
        (desired, found)
    });
    let (mut seen, mut unseen) = (HashMap::new(), HashMap::new());
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    while let Some((desired, found)) = looks.next().await {
        match found {
            Ok(Some(live)) => drop(seen.insert(desired.key.clone(), live)),
            Ok(None) => {}
            // The CRD of this kind is in the commit.
            Err(error) if error.is_not_found() => {}
            Err(error) => drop(unseen.insert(desired.key.clone(), error.about(&desired.object).cause_text())),
        }
    }
    (seen, unseen)
}

fn metadata(live: &Value) -> ObjectMeta {
    live.get("metadata").and_then(|metadata| serde_json::from_value(metadata.clone()).ok()).unwrap_or_default()
}

fn refused_as(why: &Why) -> Fate {
    match why {
        Why::Claimed(other) => Fate::Failed(format!("GitSync {other} manages it")),
        Why::AwaitsHandover(other) => Fate::Waits(format!("GitSync {other} has not released it yet")),
        Why::Offered => Fate::Waits("its handover to another GitSync is not withdrawn yet".to_owned()),
        Why::Terminating => Fate::Waits("it is being deleted; it is recreated when it is gone".to_owned()),
        Why::Controlled => Fate::Failed("a controller owns it".to_owned()),
        Why::Contested(keeper, removed) => Fate::Failed(format!("{}{}", keeper.text(), would_go(removed))),
    }
}

/// Returns the fate of an object by the dry run of its step.
fn fate(step: &Step, live: Option<&Value>, outcome: DryRun) -> Fate {
    let desired = &step.desired;
    match outcome {
        DryRun::Created => Fate::Created { after: desired.whole_body(), note: None },
        DryRun::CreatedLater(error) => {
            let what = if error.is_namespace_missing() { "namespace" } else { "kind" };
            let note = format!("its {what} does not exist yet, so it is not checked");
            Fate::Created { after: desired.whole_body(), note: Some(note) }
        }
        DryRun::Applied { before, after } => {
            let note = match &step.expect {
                Expect::Version { managed_fields, .. } | Expect::Offered { managed_fields, .. }
                    if step.appliers.would_remove(managed_fields, desired).is_some() =>
                {
                    Some(
                        "taken over from its previous field managers: their fields that are not in the manifest are removed",
                    )
                }
                Expect::Version { .. } | Expect::Offered { .. } => Some("it is not managed by this GitSync yet"),
                Expect::Ours | Expect::Absent | Expect::Withdrawn { .. } => None,
            };
            let [before, after] = [before, after].map(|state| desired.view(&state).into_owned());
            changed(&desired.kind, before, after, note.map(str::to_owned))
        }
        DryRun::Replaced(allowed_by) => {
            let by = match allowed_by {
                AllowedBy::Annotation => "its annotation mainstay.dev/replace",
                AllowedBy::Spec => "spec.replace",
            };
            let before = super::previewed::comparable(&desired.kind, live.cloned().unwrap_or_default());
            let note = format!("an immutable field differs; {by} allows the replacement of the object");
            Fate::Replaced { after: desired.body_in_place_of(&before), before, note }
        }
        DryRun::Immutable(error, why) => Fate::Failed(format!(
            "an immutable field differs; {}: {}",
            why.text(&desired.key),
            error.cause_at(&desired.object)
        )),
        DryRun::Failed(error) => Fate::Failed(error.cause_at(&desired.object)),
    }
}
