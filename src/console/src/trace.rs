//! The origin of an object: its GitSync, its file, the owners of its fields, and the agent's next action.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use mainstay_cluster::Cluster;
use mainstay_object::{Health, Key};
use serde_json::Value;

/// The origin of an object, and the agent's next action.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The owners between the object and the managed one, which is the last. Empty if the object itself is managed.
    pub owners: Vec<Key>,
    /// The GitSync that manages the last owner, or the object itself.
    pub manager: Option<Manager>,
    /// The owners of its fields. Empty for a child of a managed object.
    pub field_managers: Vec<FieldManager>,
    /// Its health by the rules of its GitSync, if the object itself is managed.
    pub health: Option<Health>,
    /// The agent's next action with its reason.
    pub next: String,
    /// The steps of the newest build and rollout of a Function.
    pub moments: Vec<(Timestamp, String)>,
    /// Notes about what could not be read.
    pub notes: Vec<String>,
}

/// The GitSync that manages an object.
#[derive(Clone, Debug)]
pub struct Manager {
    /// The GitSync.
    pub git_sync: Key,
    /// The repository without credentials, the reference, and the directory.
    pub repository: String,
    /// The last commit that was applied completely.
    pub commit: Option<String>,
    /// The file and the line in the repository, or why they are unknown.
    pub file: String,
    /// Time at which the agent last wrote the object.
    pub applied: Option<Timestamp>,
    /// The fields that the manifest sets; `None` for children and for objects that the agent did not apply.
    pub part: Option<ManifestPart>,
    /// The status of the GitSync.
    pub status: Value,
}

/// The fields of an object that its manifest sets.
#[derive(Clone, Debug)]
pub struct ManifestPart {
    /// With the values of the repository.
    pub wanted: Value,
    /// With the values of the live object.
    pub found: Value,
    /// Fields whose value of the repository is unknown.
    pub unknown: Vec<String>,
}

/// An owner of fields.
#[derive(Clone, Debug)]
pub struct FieldManager {
    /// Its name.
    pub name: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The subresource through which it wrote; empty for the object itself.
    pub subresource: String,
    /// Time of its last write.
    pub time: Option<Timestamp>,
    /// The first fields.
    pub fields: Vec<String>,
    /// Number of further fields.
    pub more: usize,
}

/// Reads the origin of an object with the rights of this connection, or says why that failed.
pub type TraceReader = Arc<dyn Fn(Cluster, Key) -> BoxFuture<'static, Result<Trace, String>> + Send + Sync>;
