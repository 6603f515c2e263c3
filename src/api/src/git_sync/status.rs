//! The status of a GitSync.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decision::Decision;
use crate::schemas::{ConditionSchema, TimeSchema};

/// Observed state of a GitSync. Commits, conditions, failures, remaining drift and first reverts are written
/// immediately, changes of counters at most once per 5 s.
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
    /// The first 12 digits of `appliedCommit`, for the column COMMIT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_commit: Option<String>,
    /// The last 5 commits that were applied completely, newest first, with what each application changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<AppliedCommit>,
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
    /// The other cluster that the objects are in, by the uid of its namespace `kube-system`; absent if they are in this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
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
    /// Number of managed objects with remaining drift: they differ from the repository, or do not exist, and were not
    /// reverted.
    #[serde(default)]
    pub drifted_objects: i64,
    /// Those objects, with their differences and the reason; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifted: Vec<Drifted>,
    /// The last 10 reverts, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_reverts: Vec<Revert>,
    /// Number of objects that were replaced because of an immutable field.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaced: i64,
    /// The last 10 of them, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_replacements: Vec<Replacement>,
    /// The last 20 other decisions about objects, newest first, at most 10 about one object: pauses and their ends, reverts
    /// that wait because another client keeps changing the object, drift that was only reported or that an audit found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub last_decisions: Vec<Decision>,
    /// Objects that failed or are unhealthy, with the reason; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Objects that are paused, or kept by an annotation although they were removed from the repository; at most 20 of
    /// each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Pause>,
    /// Number of paused and kept objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub paused_objects: i64,
    /// Objects that this GitSync manages and needs for reading (its own GitSync, its GitRepository, the Secrets of
    /// that), while the repository cannot be read with them, or the GitSync is suspended. Their changes are not
    /// reverted until the repository is read and they match it.
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
    /// The planned commit, for the GitSyncs of other agents; absent without shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedPlan>,
    /// Conditions: Ready, Reconciling, Stalled, Suspended, Healthy, Contended, Drifted, Frozen if there are windows, and
    /// Prevented with `spec.prevent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// Maximum length of `status.shared.wanted`.
pub const WANTED_OBJECTS: usize = 50;
/// Maximum length of the names of these objects together, in bytes.
pub const WANTED_BYTES: usize = 4096;

/// The planned commit of a GitSync, as agents of other GitSyncs read it before they delete an object. All fields are
/// always written, because a merge patch keeps a missing one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedPlan {
    /// Last commit whose objects are known; empty if none is for the present spec.
    pub commit: String,
    /// Whether that commit was carried out without failures, even if removed objects are kept until other GitSyncs have
    /// planned it.
    #[serde(default)]
    pub carried_out: bool,
    /// Objects of that commit that are not applied yet, those of other GitSyncs first; at most 50, and fewer if their
    /// names are longer than 4096 bytes together.
    #[schemars(length(max = 50))]
    pub wanted: Vec<String>,
    /// Number of objects of that commit that are not applied yet.
    #[serde(default)]
    pub wanted_objects: i64,
}

/// Maximum length of `status.history`.
pub const HISTORY: usize = 5;
/// Maximum number of objects that an entry of the history names.
pub const NAMED_OBJECTS: usize = 10;
/// Maximum length of the names of these objects together, in bytes.
pub const NAMED_BYTES: usize = 640;

/// One complete application of a commit that changed a file of the GitSync or an object. A commit can have several, if
/// the spec or the cluster changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedCommit {
    /// The commit.
    pub commit: String,
    /// First line of its message, at most 72 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Name of its author, as the commit claims it, at most 72 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub author: String,
    /// Time at which the author made the commit, by the clock of the author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub authored_at: Option<Time>,
    /// Full name of the branch or tag; absent if `spec.reference` is a commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Time at which the last object was applied or deleted.
    #[schemars(with = "TimeSchema")]
    pub when: Time,
    /// Milliseconds from the lookup that found the commit to that time.
    #[serde(rename = "durationMs")]
    pub duration_ms: i64,
    /// Number of created objects.
    pub created: i64,
    /// Number of changed objects.
    pub changed: i64,
    /// Number of objects that were already as in the commit.
    pub unchanged: i64,
    /// Number of deleted objects that the commit had removed.
    pub pruned: i64,
    /// The first created, changed and pruned objects, in this order, each sorted by group, kind, namespace and name. At
    /// most 10, and fewer if their names are longer than 640 bytes together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub objects: Vec<ChangedObject>,
}

impl AppliedCommit {
    /// Returns the number of changed objects beside those that the entry names; 0 if it names none.
    pub fn not_named(&self) -> i64 {
        let changed = self.created.saturating_add(self.changed).saturating_add(self.pruned);
        let named = i64::try_from(self.objects.len()).unwrap_or(i64::MAX);
        if named == 0 { 0 } else { changed.saturating_sub(named).max(0) }
    }
}

/// An object that a commit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedObject {
    /// The object, such as `Deployment.apps shop/web`.
    #[schemars(length(max = 640))]
    pub object: String,
    /// Its change: `Created`, `Changed` or `Pruned`.
    pub change: ObjectChange,
}

/// The change of an object by a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ObjectChange {
    /// It was created.
    Created,
    /// It existed and was changed.
    Changed,
    /// It was deleted, because the commit had removed it.
    Pruned,
}

impl ObjectChange {
    /// Returns the change as a word in a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Pruned => "pruned",
        }
    }
}

/// Field path of the object itself.
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

/// One object that was replaced.
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

/// A managed object that differs from the repository and was not reverted.
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
    /// Why it was not reverted.
    pub reason: DriftReason,
    /// Time at which it will be reverted, or that will be tried again; absent if nothing will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub next_attempt: Option<Time>,
}

/// Why an object that differs from the repository was not reverted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DriftReason {
    /// `spec.drift` is `Report`.
    Report,
    /// It is paused.
    Paused,
    /// Another client keeps changing it, so its revert waits.
    Backoff,
    /// It could not be reverted.
    RevertFailed,
    /// The repository could not be read with it, so its repair is not reverted.
    Unread,
}

impl Drifted {
    /// Returns whether the object does not exist.
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

/// An object that is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// The object.
    pub object: String,
    /// Time at which the pause ends; absent if it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Problem of the time at which it was meant to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An object that is being deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminating {
    /// The object.
    pub object: String,
    /// The finalizers that it waits for; their controllers must remove them. Without any it waits for its grace period,
    /// or for its dependents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Time at which it was to be gone (its `deletionTimestamp`).
    #[schemars(with = "TimeSchema")]
    pub since: Time,
}

/// An object whose changes are not reverted, because the repository could not be read with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// The object.
    pub object: String,
    /// Time at which reading failed first.
    #[schemars(with = "TimeSchema")]
    pub since: Time,
}
