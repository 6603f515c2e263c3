//! A message of the agent with everything that a receiver needs to know.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

/// The field of the metadata with the number of a pull request, as in Flux.
pub(crate) const CHANGE_REQUEST: &str = "change_request";

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Normal operation.
    Info,
    /// A user may have to act.
    Error,
}

impl Severity {
    /// Returns the word of Flux's events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Error => "error",
        }
    }
}

/// The order in which notices are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// An operation failed or is held back.
    Failure,
    /// The state of a resource changed.
    State,
    /// Normal operation on one managed object.
    Routine,
}

/// The state of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// The commit is held back.
    Pending,
    /// The commit is applied.
    Success,
    /// The commit is not applied in full.
    Failure,
}

/// A message of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Kind of the resource, such as `GitSync`.
    pub kind: String,
    /// `apiVersion` of the resource.
    pub api_version: String,
    /// Namespace of the resource.
    pub namespace: String,
    /// Name of the resource.
    pub name: String,
    /// UID of the resource, if known.
    pub uid: Option<String>,
    /// The managed object that the message is about, if there is one.
    pub object: Option<String>,
    /// The severity.
    pub severity: Severity,
    /// The priority, which determines the order of sending.
    pub priority: Priority,
    /// The reason as one word.
    pub reason: String,
    /// The text.
    pub message: String,
    /// The time of the message.
    pub time: Timestamp,
    /// The commit and its state, if the message reports one.
    pub commit: Option<(String, CommitState)>,
    /// Facts such as `revision`, `who` and `fields`.
    pub details: BTreeMap<String, String>,
    /// Fields that annotations of the resource and the Alert add.
    pub metadata: BTreeMap<String, String>,
    /// The Alert that selected the message, as JSON, if the message sets a commit status. Messages share it.
    pub alert: Option<Arc<str>>,
    /// Messages with equal keys are repetitions.
    pub key: String,
}

impl Notice {
    /// Returns the resource as `gitsync/NAME.NAMESPACE`.
    pub(crate) fn subject(&self) -> String {
        format!("{}/{}.{}", self.kind.to_lowercase(), self.name, self.namespace)
    }

    /// Returns the topic, within which notices keep their order: the managed object, or the resource.
    pub(crate) fn topic(&self) -> String {
        let object = self.object.as_deref().unwrap_or_default();
        format!("{}/{}/{}/{object}", self.kind, self.namespace, self.name)
    }

    /// Returns details and metadata. A detail takes precedence, so that no Alert can replace the commit.
    pub(crate) fn fields(&self) -> BTreeMap<&str, &str> {
        let all = self.metadata.iter().chain(&self.details);
        all.map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    /// Returns details and metadata, the summary first.
    pub(crate) fn ordered(&self) -> Vec<(&str, &str)> {
        let fields = self.fields();
        let summary = fields.get("summary").map(|summary| ("summary", *summary));
        summary
            .into_iter()
            .chain(fields.iter().filter(|(name, _)| **name != "summary").map(|(n, v)| (*n, *v)))
            .collect()
    }

    /// Returns an id that is equal for equal messages at the same time.
    pub(crate) fn id(&self) -> String {
        id_of([&self.topic(), &self.key, &self.reason, &self.time.to_string()])
    }

    /// Returns an id of the resource, which is different for each Provider.
    pub(crate) fn resource_id(&self, provider: &str) -> String {
        id_of([provider, &self.kind, &self.namespace, &self.name])
    }

    /// Returns the number of the pull request as it was written, if there is one.
    pub(crate) fn change_request(&self) -> Option<&str> {
        self.metadata.get(CHANGE_REQUEST).map(String::as_str).filter(|number| !number.is_empty())
    }

    /// Returns the approximate memory of the notice, in bytes, without the Alert, which is shared.
    pub(crate) fn bytes(&self) -> usize {
        let texts =
            [&self.kind, &self.api_version, &self.namespace, &self.name, &self.reason, &self.message, &self.key];
        let maps = self.details.iter().chain(&self.metadata).map(|(name, value)| 64 + name.len() + value.len());
        let texts = texts.into_iter().chain(&self.object).map(String::len);
        size_of::<Self>() + texts.sum::<usize>() + maps.sum::<usize>()
    }
}

/// Returns a hexadecimal digest of these parts.
fn id_of(parts: [&str; 4]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex::encode(&digest.finalize()[..16])
}
