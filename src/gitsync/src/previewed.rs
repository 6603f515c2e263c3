//! What a commit would do to each object, as a value: from what was found of it and what the server answered to a dry run.
//!
//! Invariant: two states of an object are equal here exactly if an apply changes nothing that anybody wrote: what the server
//! keeps for itself, and a status with a subresource of its own, do not count.
//!
//! Deliberately absent: how it is shown, and what of it must not be.

use serde_json::{Map, Value};

use mainstay_cluster::Kind;
use mainstay_engine::managed::Desired;
use mainstay_object::{Key, Place};

/// Fields of the metadata that the server keeps for itself.
const BOOKKEEPING: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// One object of a preview.
#[derive(Clone, Debug)]
pub struct Previewed {
    /// The object.
    pub key: Key,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Where the repository has it; `None` if it has not.
    pub place: Option<Place>,
    /// Whether nothing of its content may be shown.
    pub is_confidential: bool,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// It is as the commit wants it.
    Unchanged,
    /// It is not there, and is created.
    Created {
        /// What is applied.
        after: Value,
        /// Something worth saying of it.
        note: Option<String>,
    },
    /// It is changed.
    Changed {
        /// As it is.
        before: Value,
        /// As it becomes.
        after: Value,
        /// Something worth saying of it.
        note: Option<String>,
    },
    /// It cannot be changed so; it is deleted and created again, because this reason.
    Replaced {
        /// As it is.
        before: Value,
        /// What is applied.
        after: Value,
        /// Why that is allowed.
        note: String,
    },
    /// It left the repository and is deleted.
    Pruned,
    /// It waits for something before it becomes as the commit wants it.
    Waits(String),
    /// It is not touched, for a reason; that is no failure.
    LeftAlone(String),
    /// It is not applied, because that is refused, or cannot be found out.
    Failed(String),
}

impl Fate {
    /// Its word.
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

    /// What is said of it beside what changes.
    pub fn note(&self) -> Option<&str> {
        match self {
            Self::Unchanged | Self::Pruned => None,
            Self::Created { note, .. } | Self::Changed { note, .. } => note.as_deref(),
            Self::Replaced { note, .. } | Self::Waits(note) | Self::LeftAlone(note) | Self::Failed(note) => Some(note),
        }
    }

    /// What it is before and after, where both or one of them are known.
    pub fn states(&self) -> (Option<&Value>, Option<&Value>) {
        match self {
            Self::Created { after, .. } => (None, Some(after)),
            Self::Changed { before, after, .. } | Self::Replaced { before, after, .. } => (Some(before), Some(after)),
            _ => (None, None),
        }
    }

    /// Whether it is a difference.
    pub fn is_difference(&self) -> bool {
        !matches!(self, Self::Unchanged | Self::LeftAlone(_) | Self::Failed(_))
    }
}

impl Previewed {
    /// Of an object that a commit wants.
    pub(super) fn of(desired: &Desired, fate: Fate) -> Self {
        Self {
            key: desired.key.clone(),
            api_version: desired.kind.api_version(),
            place: Some(desired.object.place.clone()),
            is_confidential: desired.object.is_confidential(),
            fate,
        }
    }

    /// Of an object that left the repository.
    pub(super) fn left(key: &Key, version: &str, fate: Fate) -> Self {
        let api_version = if key.group.is_empty() { version.to_owned() } else { format!("{}/{version}", key.group) };
        Self { key: key.clone(), api_version, place: None, is_confidential: key.is("", "Secret"), fate }
    }
}

/// An object without what does not count.
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

/// What becomes of an object that is there, by what a dry run answered.
pub(super) fn changed(kind: &Kind, before: Value, after: Value, note: Option<String>) -> Fate {
    let (before, after) = (comparable(kind, before), comparable(kind, after));
    if before == after { Fate::Unchanged } else { Fate::Changed { before, after, note } }
}

/// What is different in two commits, object by object: those that the one before had alone, and all of the one after.
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
