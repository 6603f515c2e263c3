//! The object that a controller works on.

use std::sync::Arc;

use crate::history::Event;
use crate::stored::Key;

/// An object: its storage, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Storage, such as `deployments.apps`.
    pub storage: Arc<str>,
    /// Namespace and name.
    pub key: Key,
}

impl Subject {
    /// Creates a subject from its storage, namespace and name.
    pub fn new(storage: &str, namespace: &str, name: &str) -> Self {
        Self { storage: Arc::from(storage), key: Key::new(namespace, name) }
    }

    /// Returns the object of an event.
    pub fn of(event: &Event) -> Self {
        Self { storage: event.storage.clone(), key: event.key.clone() }
    }
}
