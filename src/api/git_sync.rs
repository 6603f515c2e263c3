//! `GitSync` (`mainstay.dev/v1alpha1`): keep the cluster on one directory of one reference of a repository.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::Span;
use super::schemas::{ConditionSchema, TimeSchema};

/// Keeps what a directory of a Git repository holds in the cluster: applies it, prunes what left, reverts drift.
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
    /// What to follow, tried in this order: full ref name (`refs/…`), 40-hex commit, branch, tag, the first 7 or more
    /// digits of a commit's id. Or `semver:` and a range of versions, such as `semver:>=1.2 <2`: the tag with the highest
    /// version in it.
    #[serde(default = "main")]
    pub reference: String,
    /// Directory in the repository; `/` is its root.
    #[serde(default = "root")]
    pub base_dir: String,
    /// How often the remote ref is looked up, give or take 10 %.
    #[serde(default = "one_minute")]
    pub interval: Span,
    /// Delete objects that left the repository.
    #[serde(default = "yes")]
    pub prune: bool,
    /// What to do when a managed object is changed by someone else.
    #[serde(default)]
    pub drift: DriftPolicy,
    /// Namespace for namespaced objects that name none; by default the GitSync's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_namespace: Option<String>,
    /// Ready only when the applied objects are healthy.
    #[serde(default = "yes")]
    pub wait: bool,
    /// How long to wait for the applied objects to become healthy.
    #[serde(default = "five_minutes")]
    pub timeout: Span,
    /// Stop both loops: nothing is applied, nothing is reverted.
    #[serde(default)]
    pub suspend: bool,
    /// Stop both loops until this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub suspend_until: Option<Time>,
    /// When new commits may be applied; by default always. Hand edits are reverted at any time. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub windows: Vec<Window>,
    /// Times at which the remote ref is looked up besides `interval`, as a cron expression of five fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Time zone of `schedule` and of windows that name none, such as `Europe/Berlin`; by default UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

/// A time in which new commits may, or may not, be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// `Deny` wins over `Allow`. Where there is an `Allow`, new commits wait for one.
    pub kind: WindowKind,
    /// When it begins: a cron expression of five fields.
    pub schedule: String,
    /// How long it is active, such as `8h`.
    pub duration: Span,
    /// Time zone of `schedule`, such as `Europe/Berlin`; by default that of the spec.
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
    /// Put the object back.
    #[default]
    Revert,
    /// Record what was changed and leave it.
    Report,
    /// Do nothing.
    Ignore,
}

impl GitSyncSpec {
    /// Until when both loops are stopped at `now`: `Some(None)` if no end is set, `None` if they run.
    pub fn suspended(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let until = self.suspend_until.as_ref().map(|until| until.0).filter(|until| *until > now);
        (self.suspend || until.is_some()).then_some(if self.suspend { None } else { until })
    }
}

/// What is known of a GitSync. Written at most once per 5 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitSyncStatus {
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Commit that was last tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_commit: Option<String>,
    /// Full name of the reference at which that commit was found: of the branch or tag, or of the tag that was chosen from a
    /// range of versions. Absent if `spec.reference` is a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_reference: Option<String>,
    /// Commit that was last applied in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_commit: Option<String>,
    /// Git tree of `baseDir` that was last applied in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_tree_id: Option<String>,
    /// Last value of the annotation `mainstay.dev/requestedAt` that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_handled_request: Option<String>,
    /// Since when the repository has not answered; absent while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub unreachable_since: Option<Time>,
    /// Managed objects.
    #[serde(default)]
    pub objects: i64,
    /// Managed objects that are healthy.
    #[serde(default)]
    pub healthy: i64,
    /// Objects whose last apply or deletion failed.
    #[serde(default)]
    pub failed: i64,
    /// Reverts since the GitSync was created.
    #[serde(default)]
    pub reverted: i64,
    /// The last 10 reverts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_reverts: Vec<Revert>,
    /// Objects that failed or are not healthy, with the reason; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Objects that are held back from deletion, or under break glass; at most 20 of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pause>,
    /// Objects that left the repository and are held by a guard; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// The commit that waits for a window; absent while none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Frozen>,
    /// The last commit that was applied although a window held it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_override: Option<WindowOverride>,
    /// Ready, Reconciling, Stalled, Healthy, Contended, and Frozen where there are windows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// Field path that stands for the object itself.
pub const WHOLE_OBJECT: &str = "(object)";
/// Who made a change that left no name.
pub const UNKNOWN: &str = "unknown";

/// One revert: what was changed, by whom, when, and how long it lasted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revert {
    /// The object, such as `Deployment.apps shop/web`.
    pub object: String,
    /// The field paths that were put back; `(object)` when it had been deleted.
    pub fields: Vec<String>,
    /// What was found and what was restored, per field; never for Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// Field manager that made the change, or `unknown`.
    pub who: String,
    /// When the change was received.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
    /// Milliseconds from the receipt of the change to the answer of the restoring write.
    pub latency_ms: i64,
}

/// One field of a revert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Path of the field.
    pub field: String,
    /// What was found, as compact JSON; `absent` when the field was gone.
    pub found: String,
    /// What was restored, as compact JSON.
    pub restored: String,
}

/// One object that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// The object.
    pub object: String,
    /// CamelCase word for the kind of failure.
    pub reason: String,
    /// For people: what happened and what to do.
    pub message: String,
}

/// A commit that waits for a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Frozen {
    /// The commit.
    pub commit: String,
    /// What holds it back.
    pub by: String,
    /// When it is applied; absent if no such time is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub until: Option<Time>,
}

/// A commit that was applied although a window held it back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WindowOverride {
    /// The commit.
    pub commit: String,
    /// What held it back.
    pub window: String,
    /// Field manager that set the annotation, or `unknown`.
    pub who: String,
    /// The user who asked for it by the annotation's own account, as `mainstay sync` writes it. Nothing proves that: the API
    /// server's audit log knows who it was.
    #[serde(default)]
    pub claimed_user: Option<String>,
    /// When it was applied.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
}

/// One object under break glass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// The object.
    pub object: String,
    /// When the break glass ends by itself; absent when it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}
