//! `GitSync` (`mainstay.dev/v1alpha1`): keep the cluster on one directory of one reference of a repository.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::Span;
use super::ignore::IgnoreRule;
use super::overlay::{CommonMetadata, Image, Patch};
use super::render::Render;
use super::schemas::{ConditionSchema, TimeSchema};

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
    printcolumn(name = "Status", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message"),
    printcolumn(name = "Commit", type_ = "string", json_path = ".status.appliedCommit"),
    printcolumn(name = "Objects", type_ = "integer", json_path = ".status.objects"),
    printcolumn(name = "Reverted", type_ = "integer", json_path = ".status.reverted"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncSpec {
    /// Name of a GitRepository in the same namespace.
    pub git_repository: String,
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
    /// What to do when another client changes or deletes a managed object.
    #[serde(default)]
    pub drift: DriftPolicy,
    /// Whether, with `drift: Revert`, fields that people's tools (`kubectl`, k9s, Lens, Helm and their like) add to managed objects
    /// are taken back. By default additions stay. Never taken back: what `kubectl rollout restart` sets, replicas, finalizers,
    /// owner references, and what is ignored.
    #[serde(default)]
    pub additions: bool,
    /// Fields that are left to others: not applied, not compared and not reverted. A new object is created with the values of
    /// its manifest. At most 50, with 500 paths together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub ignore: Vec<IgnoreRule>,
    /// Namespace of namespaced objects whose manifest has none; by default the namespace of the GitSync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// Name of a ServiceAccount in the namespace of the GitSync. The objects of the repository are then read, applied, put back and
    /// deleted with the rights of that ServiceAccount, in every namespace where it has any, and with no others. By default the one
    /// that the agent's option `--default-service-account` names; without that, a GitSync in the agent's namespace may touch
    /// everything, and any other the objects of its own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,
    /// Kinds whose objects are deleted and created anew when a commit changes a field that cannot be changed: `Kind.group`, such
    /// as `Job.batch` or `Deployment.apps`, or the `Kind` alone of the core group, such as `Service`. By default nothing is
    /// deleted for that, and the object is reported. Before an object is deleted, dry runs have to prove that its update is
    /// refused for no other reason, and that a new one would be accepted. In a manifest, the annotation
    /// `mainstay.dev/replace: enabled` allows it for one object, and `disabled` forbids it. PersistentVolumeClaims and
    /// StatefulSets with volume claims need the annotation. Never replaced: Namespaces, CustomResourceDefinitions,
    /// PersistentVolumes, GitSyncs. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub replace: Vec<String>,
    /// How the directory is rendered. By default every directory is what its files make it: a kustomization
    /// (`kustomization.yaml`), a Helm chart (`Chart.yaml`), or plain manifests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub render: Option<Render>,
    /// Patches of what the directory holds, applied in this order, after those of a kustomization in `baseDir`. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub patches: Vec<Patch>,
    /// Images in place of those in the manifests. At most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub images: Vec<Image>,
    /// What the names of all objects begin with, and the references to them; in place of the one of a kustomization in
    /// `baseDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub name_prefix: Option<String>,
    /// What the names of all objects end with, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub name_suffix: Option<String>,
    /// Namespace of all namespaced objects, whatever their manifests say, and of the references to them. (`targetNamespace` is
    /// for those that name none.)
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
    /// Values of variables: `${name}` in manifests becomes the value of `name`, with the operators of Flux (`${name:=default}`);
    /// `$${` is a plain `${`. They take precedence over `substituteFrom`. Nothing is substituted in an object with the label or
    /// annotation `kustomize.toolkit.fluxcd.io/substitute: disabled`. Names are letters, digits and `_`, and begin with no digit;
    /// at most 500.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 500))]
    pub substitute: BTreeMap<String, String>,
    /// ConfigMaps and Secrets of the same namespace with further values: each key of their `data` is a variable. Later ones
    /// take precedence. A change of one is applied at once. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub substitute_from: Vec<SubstituteSource>,
    /// When variables are substituted.
    #[serde(default)]
    pub substitute_strategy: SubstituteStrategy,
    /// What to do about a variable without a value, where the expression has no default either.
    #[serde(default)]
    pub substitute_undefined: UndefinedVariables,
    /// How what SOPS has encrypted is decrypted: in memory only, after everything else has changed it but variables. Without this,
    /// encrypted files are reported as problems. An object with the label or annotation
    /// `kustomize.toolkit.fluxcd.io/decrypt: disabled` is left as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decryption: Option<Decryption>,
    /// Whether the GitSync is Ready only if the applied objects are healthy.
    #[serde(default = "yes")]
    pub wait: bool,
    /// How to tell whether objects of a kind are healthy, by expressions in CEL; in place of what the agent knows of that
    /// kind. At most 50; all expressions of a GitSync together have at most 64 KiB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub health_check_exprs: Vec<HealthCheckExpr>,
    /// GitSyncs that have to be ready before a commit is applied: Ready is True for their present spec and, if they follow the
    /// same reference of the same GitRepository, with the same commit. What was applied before stays enforced meanwhile. At
    /// most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub depends_on: Vec<Dependency>,
    /// How long applied objects may take to become healthy; later, Ready is False. Also how long removed objects may take to
    /// be gone; later, an Event with the reason DeletionStuck names them.
    #[serde(default = "five_minutes")]
    pub timeout: Span,
    /// Whether to stop syncing: nothing is applied, pruned or reverted.
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

/// A ConfigMap or Secret with values of variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubstituteSource {
    /// `ConfigMap` or `Secret`. What a Secret is substituted into is treated like a Secret: none of its values is shown.
    pub kind: SubstituteSourceKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it may be missing: then it has no values.
    #[serde(default)]
    pub optional: bool,
}

/// The kind of a source of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteSourceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// When variables are substituted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteStrategy {
    /// If there is at least one value.
    #[default]
    WithVariables,
    /// In any case.
    Always,
}

/// What to do about a variable without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UndefinedVariables {
    /// Refuse the commit, and name the variable.
    #[default]
    Refuse,
    /// Put nothing in its place.
    Empty,
}

/// How encrypted files are decrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decryption {
    /// What has encrypted them.
    pub provider: DecryptionProvider,
    /// The Secret with the private keys.
    pub secret_ref: DecryptionSecretRef,
}

/// What has encrypted files.
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
    /// armored and without a passphrase). A change of it takes effect at once.
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
/// (`status.observedGeneration`); then `inProgress`, `failed` and `current` are asked, and the first that is true decides. If
/// none is, or one has no answer because a field is missing, the object is not healthy yet.
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

/// What a window does while it is active.
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

/// What to do about drift.
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

impl GitSyncSpec {
    /// What is followed, in the form of `reference`.
    pub fn followed_reference(&self) -> Cow<'_, str> {
        self.semver.as_ref().map_or(Cow::Borrowed(&*self.reference), |range| Cow::Owned(format!("semver:{range}")))
    }

    /// Until when the GitSync is suspended at `now`: `Some(None)` without an end, `None` if it is not.
    pub fn suspended(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let until = self.suspend_until.as_ref().map(|until| until.0).filter(|until| *until > now);
        (self.suspend || until.is_some()).then_some(if self.suspend { None } else { until })
    }
}

/// Observed state of a GitSync. Commits, conditions, failures, remaining drift and first reverts are written at once, changes
/// of counters at most once per 5 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncStatus {
    /// `metadata.generation` that this status is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Last commit that the agent has tried to apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_commit: Option<String>,
    /// Full name of the branch or tag of that commit; for a range of versions, the chosen tag. Absent if `spec.reference` is a
    /// commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_reference: Option<String>,
    /// Last commit that was applied completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_commit: Option<String>,
    /// Git tree id of `baseDir` in that commit; `+` and a digest follow if something outside of it counts:
    /// `.mainstayignore` files above it, what kustomizations and charts read elsewhere, what a chart asks of the cluster, or
    /// the values of variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_tree_id: Option<String>,
    /// Value of the annotation `mainstay.dev/requestedAt` of the last performed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_request: Option<String>,
    /// Value of the annotation `mainstay.dev/rerun` of the last performed request to run a Job or Pod again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_rerun: Option<String>,
    /// Since when the repository cannot be reached; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub unreachable_since: Option<Time>,
    /// Number of managed objects.
    #[serde(default)]
    pub objects: i64,
    /// Number of managed objects that are healthy.
    #[serde(default)]
    pub healthy: i64,
    /// Number of objects whose last apply or deletion failed.
    #[serde(default)]
    pub failed: i64,
    /// Number of reverts since the GitSync was created.
    #[serde(default)]
    pub reverted: i64,
    /// Number of managed objects with remaining drift: they differ from the repository, or do not exist, and were not put
    /// back.
    #[serde(default)]
    pub drifted_objects: i64,
    /// Those objects, with what differs and why it was not put back; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifted: Vec<Drifted>,
    /// The last 10 reverts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_reverts: Vec<Revert>,
    /// Number of objects that were deleted to be created anew, because of a field that cannot be changed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaced: i64,
    /// The last 10 of them, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_replacements: Vec<Replacement>,
    /// Objects that failed or are unhealthy, with the reason; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Objects that are paused by break glass, or kept by an annotation although they were removed from the repository; at most
    /// 20 of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pause>,
    /// Number of paused and kept objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused_objects: i64,
    /// What this GitSync reads by and manages itself (its own GitSync, its GitRepository, the Secrets of that), because with it
    /// the repository could not be read, or is not read because the GitSync is suspended: changes of these objects are not
    /// reverted, until the repository is read while they are as it wants them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
    /// Objects that were removed from the repository, but are not deleted because of a prune guard; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Number of objects that are held like that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_objects: i64,
    /// Objects that were removed from the repository and are still being deleted; at most 20. They hold no commit up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub terminating: Vec<Terminating>,
    /// Number of objects that are still being deleted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub terminating_objects: i64,
    /// The commit that waits for a window; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Frozen>,
    /// The last commit that was applied outside of the windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_override: Option<WindowOverride>,
    /// Conditions: Ready, Reconciling, Stalled, Healthy, Contended, Drifted and, if there are windows, Frozen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// Field path that stands for the object itself.
pub const WHOLE_OBJECT: &str = "(object)";
/// Author of a change whose field manager is unknown.
pub const UNKNOWN: &str = "unknown";

/// One revert: the object, the changed fields, their author and the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revert {
    /// The object, such as `Deployment.apps shop/web`.
    pub object: String,
    /// Paths of the reverted fields; `(object)` if the object had been deleted.
    pub fields: Vec<String>,
    /// Found and restored value of each field; empty for Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Field manager that made the change, or `unknown`.
    pub who: String,
    /// Time at which the agent received the change.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
    /// Milliseconds from the receipt of the change to the response to the reverting write.
    pub latency_ms: i64,
}

/// One object that was deleted to be created anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replacement {
    /// The object, such as `Job.batch shop/migrate`.
    pub object: String,
    /// Paths of the fields that cannot be changed, at most 10, as the API server names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// UID of the object that was deleted.
    pub uid: String,
    /// Who allowed it.
    pub allowed_by: AllowedBy,
    /// Time of the deletion.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
}

/// Who allowed that an object is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllowedBy {
    /// The annotation `mainstay.dev/replace: enabled` in its manifest.
    Annotation,
    /// `spec.replace`.
    Spec,
}

/// One field of a revert, or of remaining drift.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// Value that was found, as compact JSON; `absent` if the field had been removed.
    pub found: String,
    /// Value that was restored, or would be, as compact JSON.
    pub restored: String,
}

/// A managed object that differs from the repository and was not put back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Drifted {
    /// The object, such as `Deployment.apps shop/web`.
    pub object: String,
    /// Paths of the fields that differ, at most 10; `(object)` if the object does not exist; empty if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Found value of each field, and the one of the repository, the first of them; empty for Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Field manager that made the change, or `unknown`.
    pub who: String,
    /// Time at which the agent first saw that the object differs.
    #[schemars(with = "TimeSchema")]
    pub since: Time,
    /// Why it was not put back.
    pub reason: DriftReason,
    /// Time at which it will be put back, or that will be tried again; absent if nothing will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub next_attempt: Option<Time>,
}

/// Why an object that differs from the repository was not put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftReason {
    /// `spec.drift` is `Report`.
    Report,
    /// It is paused (break glass).
    Paused,
    /// Another client keeps changing it, so its revert waits.
    Backoff,
    /// It could not be put back.
    RevertFailed,
    /// With it the repository could not be read: whoever repairs it is not reverted.
    Unread,
}

impl Drifted {
    /// Whether the object does not exist.
    pub fn is_absent(&self) -> bool {
        self.fields == [WHOLE_OBJECT]
    }
}

/// An object that failed or is unhealthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The object.
    pub object: String,
    /// Kind of failure, in CamelCase.
    pub reason: String,
    /// The failure, and what to do about it.
    pub message: String,
}

/// A commit that waits for a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frozen {
    /// The commit.
    pub commit: String,
    /// The window that holds it back.
    pub by: String,
    /// Time at which it will be applied; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub until: Option<Time>,
}

/// A commit that was applied outside of the windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowOverride {
    /// The commit.
    pub commit: String,
    /// The window that held it back.
    pub window: String,
    /// Field manager that set the annotation, or `unknown`.
    pub who: String,
    /// The user who asked for it by the annotation's own account, as `mainstay sync` writes it. Nothing proves that: the API
    /// server's audit log knows who it was.
    #[serde(default)]
    pub claimed_user: Option<String>,
    /// Time at which it was applied.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
}

/// An object that is paused by break glass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// The object.
    pub object: String,
    /// Time at which the break glass ends; absent if it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What is wrong with the time at which it was meant to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An object that is being deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminating {
    /// The object.
    pub object: String,
    /// The finalizers that it waits for: whoever set them has to take them off. Without any it waits for its grace period, or
    /// for what it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Time at which it was to be gone (its `deletionTimestamp`).
    #[schemars(with = "TimeSchema")]
    pub since: Time,
}

/// An object whose changes are not reverted, because with it the repository could not be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// The object.
    pub object: String,
    /// Time at which reading failed first.
    #[schemars(with = "TimeSchema")]
    pub since: Time,
}
