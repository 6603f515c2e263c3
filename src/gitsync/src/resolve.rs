//! A GitSync as it is written becomes a [`ResolvedSync`]: read once, in types that cannot be wrong.
//!
//! Deliberately absent: what the repository holds; its documents are placed in the cluster by `placement`.

use std::sync::Arc;

use jiff::Timestamp;

use super::outcome::Refused;
use super::overlay_fields;
use super::ready_expr;
use super::windows::Windows;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::Dependency;
use mainstay_api::names::{ALLOW_PRUNE, MANAGER, OVERRIDE_WINDOW};
use mainstay_api::overlay::CommonMetadata;
use mainstay_api::render::Helm;
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_engine::managed::replacement::ReplacedKinds;
use mainstay_engine::managed::{Appliers, IgnoreRules};
use mainstay_git::{BaseDir, Commit, Reference, Remote};
use mainstay_manifest::render::Overlay;
use mainstay_manifest::sops::KeyId;
use mainstay_object::{Digest, Owner};

/// Longest name of a field manager, in bytes.
const LONGEST_MANAGER: usize = 128;

/// What a GitSync asks for.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSync {
    /// What it follows.
    pub(super) reference: Reference,
    /// Whose documents are applied.
    pub(super) directory: Directory,
    /// When new commits are applied, and when the remote is asked besides the interval.
    pub(super) windows: Windows,
    /// Whether objects that left are deleted.
    pub(super) prune: bool,
    /// Kinds whose objects may be deleted and created anew.
    pub(super) replaced_kinds: ReplacedKinds,
    /// How to tell whether objects are healthy.
    pub(super) health_rules: Arc<HealthRules>,
    /// The field managers that give way at adoption; by default known ones, where nobody keeps the object any more.
    take_over: Option<Arc<[String]>>,
    /// When the GitSync was created.
    created: Option<Timestamp>,
    /// `metadata.generation`.
    generation: Option<i64>,
    /// The commit with which everything that left may be deleted.
    pub(super) allow_prune: Option<String>,
    /// The commit that is applied although a window holds it back.
    override_window: Option<String>,
}

/// A directory of the repository, and where its documents go.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// Its path.
    pub(super) base_dir: BaseDir,
    /// Namespace for documents that name none.
    pub(super) target_namespace: String,
    /// How it is rendered, if it is said to be a chart.
    pub(super) helm: Option<Helm>,
    /// What is changed of what it is rendered to.
    pub(super) overlay: Option<Overlay>,
    /// Labels and annotations of all objects.
    pub(super) common_metadata: Option<CommonMetadata>,
    /// What is left to others of its objects.
    pub(super) ignore: IgnoreRules,
}

/// What a sync is asked for: equal requests have nothing new to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncRequest {
    pub(super) commit: Commit,
    pub(super) generation: Option<i64>,
    pub(super) allow_prune: Option<String>,
    /// Whether submodules are fetched.
    pub(super) submodules: bool,
    /// Whether files in Git LFS are fetched.
    pub(super) lfs: bool,
    /// What the cluster is, if a chart asks for that.
    pub(super) capabilities: Option<Digest>,
    /// The values of variables, if any are substituted.
    pub(super) values: Option<Digest>,
    /// The keys that decrypt it, if there are any.
    pub(super) keys: Option<KeyId>,
}

impl ResolvedSync {
    /// Reads a GitSync.
    ///
    /// # Errors
    /// The first field that cannot be read, and what is allowed in it.
    pub(super) fn of(sync: &GitSync) -> Result<Self, Refused> {
        let spec = &sync.spec;
        let invalid = |why| Refused::invalid(Reason::SpecInvalid, why);
        let annotation = |name: &str| sync.metadata.annotations.as_ref()?.get(name).cloned();
        // Before any of them is read: their length is bounded.
        if let Some(why) = ready_expr::wrong(spec) {
            return Err(invalid(why));
        }
        Ok(Self {
            reference: Reference::parse(&spec.followed_reference())?,
            directory: Directory::of(sync)?,
            windows: Windows::parse(spec).map_err(invalid)?,
            prune: spec.prune,
            replaced_kinds: ReplacedKinds::parse(&spec.replace).map_err(invalid)?,
            health_rules: Arc::new(HealthRules::parse(&spec.health_check_exprs).map_err(invalid)?),
            take_over: take_over(spec.take_over.as_deref()).map_err(invalid)?,
            created: sync.metadata.creation_timestamp.as_ref().map(|at| at.0),
            generation: sync.metadata.generation,
            allow_prune: annotation(ALLOW_PRUNE),
            override_window: annotation(OVERRIDE_WINDOW),
        })
    }

    /// Whether those that are known give way, where nobody keeps the object any more.
    pub(super) fn takes_over_known(&self) -> bool {
        self.take_over.is_none()
    }

    /// Whose fields become ours in an object that is adopted, besides those that are known.
    pub(super) fn former(&self) -> Appliers {
        Appliers::former(self.take_over.clone().unwrap_or_default())
    }

    /// Whose fields become ours in an object that an earlier version adopted, besides those that are known. What `kubectl` wrote
    /// after this GitSync was created is an addition.
    pub(super) fn left(&self) -> Appliers {
        Appliers::left(self.take_over.clone().unwrap_or_default(), self.created)
    }

    /// What is asked for with this commit of the remote.
    pub(super) fn request(&self, commit: Commit, remote: &Remote) -> SyncRequest {
        let (generation, allow_prune) = (self.generation, self.allow_prune.clone());
        SyncRequest {
            commit,
            generation,
            allow_prune,
            submodules: remote.submodules,
            lfs: remote.lfs,
            capabilities: None,
            values: None,
            keys: None,
        }
    }

    /// Whether somebody asked to apply this commit although a window holds it back.
    pub(super) fn overrides_window(&self, commit: Commit) -> bool {
        self.override_window.as_ref().is_some_and(|named| *named == commit.to_string())
    }
}

/// The field managers that a GitSync names.
fn take_over(named: Option<&[String]>) -> Result<Option<Arc<[String]>>, String> {
    let is_name =
        |name: &String| !name.trim().is_empty() && name.len() <= LONGEST_MANAGER && !name.starts_with(MANAGER);
    match named.unwrap_or_default().iter().position(|name| !is_name(name)) {
        Some(at) => Err(format!(
            "spec.takeOver[{at}] is no field manager of others; write one as metadata.managedFields has it, of at most \
             {LONGEST_MANAGER} bytes, such as kustomize-controller"
        )),
        None => Ok(named.map(Arc::from)),
    }
}

/// The GitSyncs on which one depends.
pub(super) fn depends_on(sync: &GitSync) -> Vec<Owner> {
    let own = sync.metadata.namespace.as_deref().unwrap_or_default();
    let named = sync.spec.depends_on.iter();
    named.map(|other| Owner::git_sync(other.namespace.as_deref().unwrap_or(own), &other.name)).collect()
}

/// Refuses a dependency of a GitSync that may see nothing but its own namespace.
///
/// # Errors
/// The first field that names another one.
pub(super) fn confine(sync: &GitSync) -> Result<(), Refused> {
    let own = sync.metadata.namespace.as_deref();
    let is_foreign = |other: &Dependency| other.namespace.is_some() && other.namespace.as_deref() != own;
    let Some(at) = sync.spec.depends_on.iter().position(is_foreign) else { return Ok(()) };
    let why = "a GitSync of this namespace depends on others of this namespace only; the agent's option --allow-namespace lifts that";
    Err(Refused::invalid(Reason::SpecInvalid, format!("spec.dependsOn[{at}].namespace: {why}")))
}

impl Directory {
    /// Reads it from a GitSync.
    pub(super) fn of(sync: &GitSync) -> Result<Self, Refused> {
        let base_dir = BaseDir::parse(&sync.spec.base_dir)?;
        let target = sync.spec.target_namespace.as_deref().or(sync.metadata.namespace.as_deref());
        let helm = sync.spec.render.as_ref().and_then(|render| render.helm.clone());
        let (overlay, common_metadata) = (Overlay::of(&sync.spec), sync.spec.common_metadata.clone());
        if let Some(why) = overlay_fields::wrong(&sync.spec) {
            return Err(Refused::invalid(Reason::SpecInvalid, why));
        }
        let ignore = IgnoreRules::parse(&sync.spec.ignore).map_err(|why| Refused::invalid(Reason::SpecInvalid, why))?;
        let target_namespace = target.unwrap_or_default().to_owned();
        Ok(Self { base_dir, target_namespace, helm, overlay, common_metadata, ignore })
    }
}

impl SyncRequest {
    /// Whether somebody allowed to delete whatever leaves with this commit.
    pub(super) fn allows_prune(&self) -> bool {
        self.allow_prune.as_deref() == Some(&self.commit.to_string())
    }
}
