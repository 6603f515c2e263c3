//! The object that a controller works on.

use std::sync::Arc;

use crate::history::Event;
use crate::stored::Key;

/// An object: its storage, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Its storage, such as `deployments.apps`.
    pub storage: Arc<str>,
    /// Its namespace and name.
    pub key: Key,
}

impl Subject {
    /// The object of this name in a storage.
    pub fn new(storage: &str, namespace: &str, name: &str) -> Self {
        Self { storage: Arc::from(storage), key: Key::new(namespace, name) }
    }

    /// The object that an event is about.
    pub fn of(event: &Event) -> Self {
        Self { storage: event.storage.clone(), key: event.key.clone() }
    }
}
