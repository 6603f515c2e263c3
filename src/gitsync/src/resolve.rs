//! Resolves a GitSync into a [`ResolvedSync`], whose types allow only valid values.
//!
//! Not here: the content of the repository, whose documents `placement` places in the cluster.

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

/// Maximum length of the name of a field manager, in bytes.
const LONGEST_MANAGER: usize = 128;

/// A valid GitSync.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSync {
    /// The followed reference.
    pub(super) reference: Reference,
    /// The directory whose documents are applied.
    pub(super) directory: Directory,
    /// The windows for new commits, and the schedule of additional lookups.
    pub(super) windows: Windows,
    /// Whether removed objects are deleted.
    pub(super) prune: bool,
    /// Kinds whose objects may be replaced.
    pub(super) replaced_kinds: ReplacedKinds,
    /// The rules for the health of objects.
    pub(super) health_rules: Arc<HealthRules>,
    /// Field managers whose fields are taken over at adoption. `None` means the known ones, if no tool manages the
    /// object any more.
    take_over: Option<Arc<[String]>>,
    /// When the GitSync was created.
    created: Option<Timestamp>,
    /// `metadata.generation`.
    generation: Option<i64>,
    /// The commit for which all removed objects may be deleted.
    pub(super) allow_prune: Option<String>,
    /// The commit that is applied in spite of a window.
    override_window: Option<String>,
}

/// A directory of the repository, and the namespace and metadata of its objects.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    /// The path of the directory.
    pub(super) base_dir: BaseDir,
    /// Namespace for objects without a namespace.
    pub(super) target_namespace: String,
    /// The chart settings, if the spec has them.
    pub(super) helm: Option<Helm>,
    /// The overlay fields of the spec, which change the rendered objects.
    pub(super) overlay: Option<Overlay>,
    /// Labels and annotations of all objects.
    pub(super) common_metadata: Option<CommonMetadata>,
    /// The fields that Mainstay leaves to other field managers.
    pub(super) ignore: IgnoreRules,
}

/// The inputs of a sync. Equal requests have equal results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyncRequest {
    pub(super) commit: Commit,
    pub(super) generation: Option<i64>,
    pub(super) allow_prune: Option<String>,
    /// Whether submodules are fetched.
    pub(super) submodules: bool,
    /// Whether Git LFS files are fetched.
    pub(super) lfs: bool,
    /// The capabilities of the cluster, if a chart reads them.
    pub(super) capabilities: Option<Digest>,
    /// The values of variables, if any are substituted.
    pub(super) values: Option<Digest>,
    /// The decryption keys, if there are any.
    pub(super) keys: Option<KeyId>,
}

impl ResolvedSync {
    /// Resolves a GitSync.
    ///
    /// # Errors
    ///
    /// The first invalid field, with its allowed values.
    pub(super) fn of(sync: &GitSync) -> Result<Self, Refused> {
        let spec = &sync.spec;
        let invalid = |why| Refused::invalid(Reason::SpecInvalid, why);
        let annotation = |name: &str| sync.metadata.annotations.as_ref()?.get(name).cloned();
        // Checked before parsing, because it limits the length of expressions.
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

    /// Whether fields of known field managers are taken over if no tool manages the object.
    pub(super) fn takes_over_known(&self) -> bool {
        self.take_over.is_none()
    }

    /// Returns the field managers whose fields are taken over at adoption, in addition to known ones.
    pub(super) fn former(&self) -> Appliers {
        Appliers::former(self.take_over.clone().unwrap_or_default())
    }

    /// Returns the field managers whose fields are taken over in an object that an earlier version adopted, in addition
    /// to known ones. Fields that `kubectl` wrote after this GitSync was created count as additions.
    pub(super) fn left(&self) -> Appliers {
        Appliers::left(self.take_over.clone().unwrap_or_default(), self.created)
    }

    /// Returns the request for a commit of the remote.
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

    /// Whether a user asked to apply this commit in spite of a window.
    pub(super) fn overrides_window(&self, commit: Commit) -> bool {
        self.override_window.as_ref().is_some_and(|named| *named == commit.to_string())
    }
}

/// Returns the invalid fields of a GitSync, with their allowed values, if the agent refuses it.
pub fn git_sync_problems(sync: &GitSync) -> Vec<String> {
    let refused = ResolvedSync::of(sync).err();
    refused.iter().flat_map(|refused| refused.message.lines()).map(str::to_owned).collect()
}

/// Checks the field managers in the spec.
fn take_over(named: Option<&[String]>) -> Result<Option<Arc<[String]>>, String> {
    let is_name =
        |name: &String| !name.trim().is_empty() && name.len() <= LONGEST_MANAGER && !name.starts_with(MANAGER);
    match named.unwrap_or_default().iter().position(|name| !is_name(name)) {
        Some(at) => Err(format!(
            "spec.takeOver[{at}] must be a field manager of another client, as in metadata.managedFields, with at \
             most {LONGEST_MANAGER} bytes, such as kustomize-controller"
        )),
        None => Ok(named.map(Arc::from)),
    }
}

/// Returns the dependencies of a GitSync.
pub(super) fn depends_on(sync: &GitSync) -> Vec<Owner> {
    let own = sync.metadata.namespace.as_deref().unwrap_or_default();
    let named = sync.spec.depends_on.iter();
    named.map(|other| Owner::git_sync(other.namespace.as_deref().unwrap_or(own), &other.name)).collect()
}

/// Rejects dependencies on other namespaces for a confined GitSync.
///
/// # Errors
///
/// The first such field.
pub(super) fn confine(sync: &GitSync) -> Result<(), Refused> {
    let own = sync.metadata.namespace.as_deref();
    let is_foreign = |other: &Dependency| other.namespace.is_some() && other.namespace.as_deref() != own;
    let Some(at) = sync.spec.depends_on.iter().position(is_foreign) else { return Ok(()) };
    let why = "a GitSync of this namespace depends on others of this namespace only; the agent's option --allow-namespace lifts that";
    Err(Refused::invalid(Reason::SpecInvalid, format!("spec.dependsOn[{at}].namespace: {why}")))
}

impl Directory {
    /// Resolves the directory of a GitSync.
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
    /// Whether a user allowed all deletions of this commit.
    pub(super) fn allows_prune(&self) -> bool {
        self.allow_prune.as_deref() == Some(&self.commit.to_string())
    }
}
