//! The effect of a commit on each object, from its live state and the response to a dry run.
//!
//! Invariant: two states of an object count as equal exactly if an apply changes no field that a client wrote. Fields
//! that the server maintains, and the status of kinds with a status subresource, are ignored.
//!
//! Not here: the output, and hidden values.

use serde_json::{Map, Value};

use mainstay_cluster::Kind;
use mainstay_engine::managed::Desired;
use mainstay_object::{Key, Place};

/// Metadata fields that the server maintains.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// One object of a preview.
#[derive(Clone, Debug)]
pub struct Previewed {
    /// The object.
    pub key: Key,
    /// The `apiVersion` of the object.
    pub api_version: String,
    /// The location in the repository; `None` if the object was removed.
    pub place: Option<Place>,
    /// Whether its content must be hidden.
    pub is_confidential: bool,
    /// The effect on the object.
    pub fate: Fate,
}

/// The effect of a commit on an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// The live object matches the commit.
    Unchanged,
    /// The object does not exist and is created.
    Created {
        /// The applied object.
        after: Value,
        /// A remark.
        note: Option<String>,
    },
    /// The object is changed.
    Changed {
        /// The live state.
        before: Value,
        /// The new state.
        after: Value,
        /// A remark.
        note: Option<String>,
    },
    /// The change is not possible in place, so the object is replaced: deleted and recreated.
    Replaced {
        /// The live state.
        before: Value,
        /// The applied object.
        after: Value,
        /// The reason why this is allowed.
        note: String,
    },
    /// The object was removed from the repository and is deleted.
    Pruned,
    /// The change waits for this condition.
    Waits(String),
    /// The object is left alone for this reason. This is not a failure.
    LeftAlone(String),
    /// The apply is refused, or its result cannot be determined.
    Failed(String),
}

impl Fate {
    /// Returns the word for the output.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Created { .. } => "created",
            Self::Changed { .. } => "changed",
            Self::Replaced { .. } => "replaced",
            Self::Pruned => "deleted",
            Self::Waits(_) => "waiting",
            Self::LeftAlone(_) => "left alone",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the remark, besides the changes.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Unchanged | Self::Pruned => None,
            Self::Created { note, .. } | Self::Changed { note, .. } => note.as_deref(),
            Self::Replaced { note, .. } | Self::Waits(note) | Self::LeftAlone(note) | Self::Failed(note) => Some(note),
        }
    }

    /// Returns the states before and after the change, as far as they are known.
    pub fn states(&self) -> (Option<&Value>, Option<&Value>) {
        match self {
            Self::Created { after, .. } => (None, Some(after)),
            Self::Changed { before, after, .. } | Self::Replaced { before, after, .. } => (Some(before), Some(after)),
            _ => (None, None),
        }
    }

    /// Whether the cluster differs from the commit.
    pub fn is_difference(&self) -> bool {
        !matches!(self, Self::Unchanged | Self::LeftAlone(_) | Self::Failed(_))
    }
}

impl Previewed {
    /// Creates the preview of an object in the commit.
    pub(super) fn of(desired: &Desired, fate: Fate) -> Self {
        Self {
            key: desired.key.clone(),
            api_version: desired.kind.api_version(),
            place: Some(desired.object.place.clone()),
            is_confidential: desired.object.is_confidential(),
            fate,
        }
    }

    /// Creates the preview of a removed object.
    pub(super) fn left(key: &Key, version: &str, fate: Fate) -> Self {
        let api_version = if key.group.is_empty() { version.to_owned() } else { format!("{}/{version}", key.group) };
        Self { key: key.clone(), api_version, place: None, is_confidential: key.is("", "Secret"), fate }
    }
}

/// Removes the fields that a comparison ignores.
pub(super) fn comparable(kind: &Kind, mut object: Value) -> Value {
    let Some(root) = object.as_object_mut() else { return object };
    if kind.has_status {
        root.remove("status");
    }
    if let Some(metadata) = root.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in BOOKKEEPING {
            metadata.remove(field);
        }
        for field in ["labels", "annotations"] {
            if metadata.get(field).and_then(Value::as_object).is_some_and(Map::is_empty) {
                metadata.remove(field);
            }
        }
    }
    object
}

/// Compares the live object with the response to a dry run.
pub(super) fn changed(kind: &Kind, before: Value, after: Value, note: Option<String>) -> Fate {
    let (before, after) = (comparable(kind, before), comparable(kind, after));
    if before == after { Fate::Unchanged } else { Fate::Changed { before, after, note } }
}

/// Compares two commits. Returns the objects of the later commit, and those that only the earlier commit has.
pub(super) fn between<'d>(
    before: impl Iterator<Item = &'d Desired>,
    after: impl Iterator<Item = &'d Desired>,
) -> Vec<Previewed> {
    let mut earlier: std::collections::BTreeMap<&Key, &Desired> =
        before.map(|desired| (&desired.key, desired)).collect();
    let mut all: Vec<Previewed> = after
        .map(|desired| match earlier.remove(&desired.key) {
            None => Previewed::of(desired, Fate::Created { after: desired.body(), note: None }),
            Some(old) => {
                let fate = changed(&desired.kind, old.body(), desired.body(), None);
                let is_confidential = old.object.is_confidential() || desired.object.is_confidential();
                Previewed { is_confidential, ..Previewed::of(desired, fate) }
            }
        })
        .collect();
    all.extend(earlier.into_values().map(|old| Previewed { place: None, ..Previewed::of(old, Fate::Pruned) }));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_cluster::Scope;

    #[test]
    fn fields_that_the_server_manages_are_no_difference() {
        let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
        let of = |version: &str, text: &str| {
            json!({"metadata": {"name": "a", "resourceVersion": version, "generation": 1, "managedFields": [version],
                "annotations": {}}, "data": {"key": text}})
        };
        assert_eq!(changed(&kind, of("1", "x"), of("2", "x"), None), Fate::Unchanged);
        let Fate::Changed { before, after, .. } = changed(&kind, of("1", "x"), of("2", "y"), None) else {
            panic!("it is changed")
        };
        assert_eq!(before, json!({"metadata": {"name": "a"}, "data": {"key": "x"}}));
        assert_eq!(after["data"]["key"], "y");
    }
}
