//! `GitSync` (`mainstay.dev/v1alpha1`): keeps the cluster in sync with a directory of a reference in a repository.

mod decision;
mod status;
mod substitute;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::decision::{DECISIONS, DECISIONS_OF_OBJECT, Decided, Decision};
pub use self::status::{
    AllowedBy, AppliedCommit, Change, ChangedObject, DriftReason, Drifted, Failure, Frozen, GitSyncStatus, HISTORY,
    NAMED_BYTES, NAMED_OBJECTS, ObjectChange, Pause, Replacement, Revert, SharedPlan, Terminating, UNKNOWN, Unread,
    WANTED_BYTES, WANTED_OBJECTS, WHOLE_OBJECT, WindowOverride,
};
pub use self::substitute::{SubstituteSource, SubstituteSourceKind, SubstituteStrategy, UndefinedVariables};

use super::Span;
use super::ignore::IgnoreRule;
use super::kube_config::KubeConfig;
use super::overlay::{CommonMetadata, Image, Patch};
use super::render::Render;
use super::schemas::TimeSchema;

/// Keeps the cluster on a directory of a Git repository: applies its manifests, prunes removed objects, reverts drift.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "mainstay.dev",
    version = "v1alpha1",
    kind = "GitSync",
    plural = "gitsyncs",
    shortname = "gs",
    namespaced,
    status = "GitSyncStatus",
    derive = "PartialEq",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(
        name = "Suspended",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Suspended\")].status"
    ),
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.shortCommit"),
    printcolumn(name = "Objects", type_ = "integer", json_path = ".status.objects"),
    printcolumn(name = "Reverted", type_ = "integer", json_path = ".status.reverted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Applied", type_ = "string", json_path = ".status.appliedCommit", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.gitRepository) != has(self.sourceRef)", "message": "name either gitRepository or sourceRef"}
]))]
pub struct GitSyncSpec {
    /// Name of a GitRepository in the same namespace. Exactly one of `gitRepository` and `sourceRef` is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub git_repository: String,
    /// An OCIRepository or a HelmChart in the same namespace, instead of a GitRepository. It chooses the version: `reference` and
    /// `semver` have no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<SourceRef>,
    /// Git reference to follow: a full ref name (`refs/…`), a commit id of 40 digits, a branch, a tag, or the first 7 or more
    /// digits of a commit id; tried in this order. With the prefix `semver:`, a range of versions, such as `semver:>=1.2 <2`:
    /// follows the tag with the highest version in the range.
    #[serde(default = "main")]
    pub reference: String,
    /// A range of versions, such as `>=1.2 <2`: follows the tag with the highest version in it, whatever `reference` says. The
    /// same as `reference: "semver:…"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 255))]
    pub semver: Option<String>,
    /// Directory of the repository to apply, with its subdirectories; `/` is the root.
    #[serde(default = "root")]
    pub base_dir: String,
    /// Time between two lookups of the reference in the remote repository, with a jitter of 10 %.
    #[serde(default = "one_minute")]
    pub interval: Span,
    /// Whether objects that were removed from the repository are deleted from the cluster.
    #[serde(default = "yes")]
    pub prune: bool,
    /// Reaction to a managed object that another client changes or deletes.
    #[serde(default)]
    pub drift: DriftPolicy,
    /// Whether, with `drift: Revert`, fields that people's tools (`kubectl`, k9s, Lens, Helm and their like) add to
    /// managed objects are removed. By default additions stay. Never removed: the annotation of `kubectl rollout
    /// restart`, replicas, finalizers, owner references, and ignored fields.
    #[serde(default)]
    pub additions: bool,
    /// Field managers whose fields Mainstay takes over when an object is first applied for this GitSync. Such fields
    /// that are not in its manifest are removed. Those of `kubectl` are always taken over. By default those of Flux,
    /// Argo CD and Helm are, too (`kustomize-controller`, `flux`, `helm-controller`, `argocd-controller`,
    /// `argocd-application-controller`, `helm`), once no Kustomization, Application, HelmRelease or release of Helm
    /// lists the object. An object that one of them lists is not applied, and Ready names it. With this field, only the
    /// named managers are taken over, even if another tool lists the object; with an empty list none are. Controllers,
    /// admission webhooks and autoscalers keep their fields, unless they are named. At most 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub take_over: Option<Vec<String>>,
    /// Whether the API server refuses hand edits of managed objects, by a ValidatingAdmissionPolicy that the agent
    /// creates and removes (Kubernetes 1.30 or newer). People may then not delete them, and may change only
    /// `mainstay.dev/…` annotations, subresources, and the annotation of `kubectl rollout restart`; ServiceAccounts may
    /// add to them, but change no field of the manifest. Exempt are the agent, `serviceAccountName`, the cluster's own
    /// controllers, dry runs, paused objects (`mainstay pause`), and everything while the GitSync is suspended. A
    /// GitSync that may not manage all objects prevents nothing outside of its namespaces, and one with `kubeConfig`
    /// prevents nothing.
    #[serde(default)]
    pub prevent: bool,
    /// Fields that are left to others: not applied, not compared and not reverted. A new object is created with the values of
    /// its manifest. At most 50, with 500 paths together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub ignore: Vec<IgnoreRule>,
    /// Namespace of namespaced objects whose manifest has none; by default the namespace of the GitSync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// Name of a ServiceAccount in the namespace of the GitSync. The objects of the repository are then read, applied,
    /// reverted and deleted with the permissions of that ServiceAccount, in every namespace where it has any, and with
    /// no others. By default the one that the agent's option `--default-service-account` names; without that, a GitSync
    /// in the agent's namespace may manage all objects, and any other the objects of its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// A remote cluster: the objects are applied, reverted and deleted there, with the permissions of these credentials
    /// (or, with `serviceAccountName`, of that ServiceAccount of the remote cluster, which they must be allowed to
    /// impersonate). The GitSync itself, its Secrets and its GitRepository stay in this cluster. After a change of this
    /// field, the objects stay in the former cluster without an owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// Kinds whose objects are replaced (deleted and recreated) when a commit changes an immutable field: `Kind.group`,
    /// such as `Job.batch` or `Deployment.apps`, or the `Kind` alone of the core group, such as `Service`. By default
    /// no object is deleted for that, and it is reported. Before a deletion, dry runs must prove that the update is
    /// refused for no other reason, and that a new object would be accepted. In a manifest, the annotation
    /// `mainstay.dev/replace: enabled` allows it for one object, and `disabled` forbids it. PersistentVolumeClaims and
    /// StatefulSets with volume claims need the annotation. Never replaced: Namespaces, CustomResourceDefinitions,
    /// PersistentVolumes, GitSyncs. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub replace: Vec<String>,
    /// How the directory is rendered. By default its files decide: a kustomization (`kustomization.yaml`), a Helm chart
    /// (`Chart.yaml`), or plain manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render: Option<Render>,
    /// Patches of the objects of the directory, applied in this order, after those of a kustomization in `baseDir`. At
    /// most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub patches: Vec<Patch>,
    /// Images in place of those in the manifests. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub images: Vec<Image>,
    /// Prefix of the names of all objects and of references to them; replaces that of a kustomization in `baseDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub name_prefix: Option<String>,
    /// Suffix of the names of all objects; replaces that of a kustomization in `baseDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub name_suffix: Option<String>,
    /// Namespace for all namespaced objects and for references to them; replaces the namespace in the manifests.
    /// `targetNamespace` applies only to objects without a namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub override_namespace: Option<String>,
    /// Directories of kustomize components, relative to `baseDir`, whose changes come after the others. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub components: Vec<String>,
    /// Labels and annotations of every object, in its metadata only; those in the manifests are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_metadata: Option<CommonMetadata>,
    /// Values of variables: `${name}` in manifests becomes the value of `name`, with the operators of Flux
    /// (`${name:=default}`); `$${` is a plain `${`. They take precedence over `substituteFrom`. The label or annotation
    /// `kustomize.toolkit.fluxcd.io/substitute: disabled` exempts an object. Names are letters, digits and `_`, and
    /// begin with no digit; at most 500.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 500))]
    pub substitute: BTreeMap<String, String>,
    /// ConfigMaps and Secrets of the same namespace with further values: each key of their `data` is a variable. Later ones
    /// take precedence. A change of one is applied immediately. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub substitute_from: Vec<SubstituteSource>,
    /// When variables are substituted.
    #[serde(default)]
    pub substitute_strategy: SubstituteStrategy,
    /// Handling of a variable without a value and without a default.
    #[serde(default)]
    pub substitute_undefined: UndefinedVariables,
    /// How values encrypted by SOPS are decrypted: in memory only, after all other changes but variables. Without this,
    /// encrypted files are reported as problems. An object with the label or annotation
    /// `kustomize.toolkit.fluxcd.io/decrypt: disabled` is not decrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// Whether the GitSync is Ready only if the applied objects are healthy.
    #[serde(default = "yes")]
    pub wait: bool,
    /// Health of the objects of a kind, by expressions in CEL; instead of the built-in rule for that kind. At most 50;
    /// all expressions of a GitSync together have at most 64 KiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub health_check_exprs: Vec<HealthCheckExpr>,
    /// GitSyncs that have to be ready before a commit is applied: Ready is True for their present spec and, if they
    /// follow the same reference of the same GitRepository, with the same commit. Until then, the previous commit stays
    /// enforced. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub depends_on: Vec<Dependency>,
    /// How long applied objects may take to become healthy; later, Ready is False. Also how long removed objects may take to
    /// be gone; later, an Event with the reason DeletionStuck names them.
    #[serde(default = "five_minutes")]
    pub timeout: Span,
    /// Whether to stop syncing: nothing is applied, pruned or reverted. Ready stays as it was, and the condition Suspended is
    /// True.
    #[serde(default)]
    pub suspend: bool,
    /// Stop syncing, as with `suspend`, until this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub suspend_until: Option<Time>,
    /// Time windows for new commits; by default they are applied at any time. Drift is reverted at any time. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub windows: Vec<Window>,
    /// Additional times at which the reference is looked up, as a cron expression of five fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Time zone of `schedule`, and of windows without one, such as `Europe/Berlin`; by default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// How encrypted files are decrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// The tool that encrypted them.
    pub provider: DecryptionProvider,
    /// The Secret with the private keys.
    pub secret_ref: DecryptionSecretRef,
}

/// The tool that encrypted files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DecryptionProvider {
    /// SOPS.
    #[serde(rename = "sops")]
    Sops,
}

/// The Secret with the private keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecryptionSecretRef {
    /// Secret in the same namespace: keys `*.agekey` (identities of age, one in a line) and `*.asc` (private keys of OpenPGP,
    /// armored and without a passphrase). A change of it takes effect immediately.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A GitSync on which another one depends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace; by default that of the GitSync that depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// An expression in CEL that says when it is ready, in place of everything but that it exists. Its variables are the two
    /// GitSyncs: `dep` is the one that is named here, `self` the one that depends on it; for instance
    /// `dep.metadata.labels['version'] == self.metadata.labels['version']`. It is asked when one of the two has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub ready_expr: Option<String>,
}

/// How to tell whether objects of a kind are healthy. The variables of the expressions are the top-level fields of an
/// object, such as `metadata` and `status`. First it has to be seen by its controller, where it says so
/// (`status.observedGeneration`); then `inProgress`, `failed` and `current` are asked, and the first that is true
/// decides. If none is, or one cannot be evaluated because a field is missing, the object is not healthy yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheckExpr {
    /// Group and version of the kind, such as `example.org/v1`; all versions of the group are meant.
    #[schemars(length(min = 1, max = 316))]
    pub api_version: String,
    /// The kind; without it, all kinds of the group that are not named themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kind: Option<String>,
    /// When an object is healthy, such as `status.phase == 'Running'`.
    #[schemars(length(min = 1, max = 4096))]
    pub current: String,
    /// When it is not healthy yet, whatever the others say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub in_progress: Option<String>,
    /// When it has failed, unless `inProgress` is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub failed: Option<String>,
}

/// A time window in which new commits are applied or held back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// `Allow` or `Deny`. If there are `Allow` windows, new commits are applied only in one of them. `Deny` takes precedence.
    pub kind: WindowKind,
    /// When the window begins: a cron expression of five fields.
    pub schedule: String,
    /// How long the window lasts, such as `8h`.
    pub duration: Span,
    /// Time zone of the window, such as `Europe/Berlin`; by default `spec.timeZone`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// Effect of a window while it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WindowKind {
    /// New commits may be applied.
    Allow,
    /// New commits are held back.
    Deny,
}

fn main() -> String {
    "main".into()
}
fn root() -> String {
    "/".into()
}
fn yes() -> bool {
    true
}
fn one_minute() -> Span {
    Span(Duration::from_secs(60))
}
fn five_minutes() -> Span {
    Span(Duration::from_secs(300))
}

/// Reaction to drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftPolicy {
    /// Revert the object to its manifest.
    #[default]
    Revert,
    /// Record the change in the status and keep it.
    Report,
    /// Do nothing.
    Ignore,
}

/// The source of a GitSync that is not a GitRepository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRef {
    /// The kind of the source.
    pub kind: SourceKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The kind of a source that is not a GitRepository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SourceKind {
    /// An artifact in an image registry.
    #[serde(rename = "OCIRepository")]
    OciRepository,
    /// A packed Helm chart in a chart repository or an image registry.
    HelmChart,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::OciRepository, Self::HelmChart];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
        }
    }
}

impl GitSyncSpec {
    /// Returns kind and name of the source.
    pub fn source(&self) -> (&'static str, &str) {
        match &self.source_ref {
            Some(source) => (source.kind.name(), &source.name),
            None => ("GitRepository", &self.git_repository),
        }
    }

    /// Returns the followed reference, in the format of `reference`.
    pub fn followed_reference(&self) -> Cow<'_, str> {
        if self.source_ref.is_some() {
            return Cow::Borrowed("HEAD");
        }
        self.semver.as_ref().map_or(Cow::Borrowed(&*self.reference), |range| Cow::Owned(format!("semver:{range}")))
    }

    /// Returns the end of the suspension at `now`: `Some(None)` if the suspension has no end, and `None` if the GitSync
    /// is not suspended.
    pub fn suspended(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let until = self.suspend_until.as_ref().map(|until| until.0).filter(|until| *until > now);
        (self.suspend || until.is_some()).then_some(if self.suspend { None } else { until })
    }
}
