//! The origin of an object: its GitSync, its file, the owners of its fields, and the agent's decisions.

use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use mainstay_cluster::Cluster;
use mainstay_object::{Health, Key};
use serde_json::Value;

/// The origin of an object, and the agent's next action.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The owners from the object up to the managed object, which is the last of them. Empty if the object itself is
    /// managed.
    pub owners: Vec<Key>,
    /// The GitSync that manages the last owner, or the object itself.
    pub manager: Option<Manager>,
    /// The field managers of the object. Empty for a child of a managed object.
    pub field_managers: Vec<FieldManager>,
    /// The object's health by the rules of its GitSync, if the object itself is managed.
    pub health: Option<Health>,
    /// The agent's next action with its reason.
    pub next: String,
    /// The agent's last decisions about the managed object, with their causes, newest first.
    pub decisions: Vec<(Timestamp, String)>,
    /// The steps of the newest build and rollout of a Function.
    pub moments: Vec<(Timestamp, String)>,
    /// Notes about data that could not be read.
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
    /// The path of the file if no tool built the object from it, and if the object is not behind another one in the file.
    pub path: Option<String>,
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
    /// The fields with the values in the repository.
    pub wanted: Value,
    /// The fields with the values in the live object.
    pub found: Value,
    /// Fields whose value in the repository is unknown.
    pub unknown: Vec<String>,
}

/// A field manager of an object.
#[derive(Clone, Debug)]
pub struct FieldManager {
    /// The field manager's name.
    pub name: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// The subresource through which the field manager wrote; empty for the object itself.
    pub subresource: String,
    /// Time of the field manager's last write.
    pub time: Option<Timestamp>,
    /// The first fields that it owns.
    pub fields: Vec<String>,
    /// Number of further fields.
    pub more: usize,
}

/// Reads the origin of an object with the permissions of this connection, or returns why that failed.
pub type TraceReader = Arc<dyn Fn(Cluster, Key) -> BoxFuture<'static, Result<Trace, String>> + Send + Sync>;
