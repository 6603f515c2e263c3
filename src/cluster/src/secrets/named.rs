//! The Secrets that the objects of one kind name: Receivers, whose token lets whoever has it say that somebody pushed; and
//! Functions, for repositories of their own.
//!
//! Invariant: until all objects are listed, nobody is told that a Secret is none of them.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The Secrets that all objects of a kind name.
#[derive(Debug, Default)]
pub struct NamedSecrets {
    /// By namespace and name of the object.
    named: Mutex<HashMap<(String, String), String>>,
    listed: watch::Sender<bool>,
    changed: watch::Sender<u64>,
}

impl NamedSecrets {
    /// An object names this Secret of its namespace, or (`None`) none, or is gone.
    pub fn set(&self, namespace: &str, object: &str, secret: Option<&str>) {
        let key = (namespace.to_owned(), object.to_owned());
        let mut named = self.named.lock();
        let before = match secret {
            Some(secret) => named.insert(key, secret.to_owned()),
            None => named.remove(&key),
        };
        if before.as_deref() != secret {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// All objects that there are have been set.
    pub fn set_listed(&self) {
        if !self.listed.send_replace(true) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Whether all objects have been set.
    pub fn listed(&self) -> watch::Receiver<bool> {
        self.listed.subscribe()
    }

    /// The Secrets that the objects of a namespace name; `None` while that is not known.
    pub fn of(&self, namespace: &str) -> Option<Vec<String>> {
        if !*self.listed.borrow() {
            return None;
        }
        let named = self.named.lock();
        Some(named.iter().filter(|((of, _), _)| of == namespace).map(|(_, secret)| secret.clone()).collect())
    }

    /// Subscribes to changes.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_objects_name_is_known_once_all_are_listed() {
        let secrets = NamedSecrets::default();
        secrets.set("shop", "hook", Some("token"));
        assert_eq!(secrets.of("shop"), None);
        secrets.set_listed();
        assert_eq!((secrets.of("shop"), secrets.of("other")), (Some(vec!["token".to_owned()]), Some(vec![])));
        let mut changes = secrets.listen();
        secrets.set("shop", "hook", Some("token"));
        assert!(!changes.has_changed().unwrap(), "an update of something else");
        secrets.set("shop", "hook", Some("other"));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        secrets.set("shop", "hook", None);
        assert!(changes.has_changed().unwrap());
        assert_eq!(secrets.of("shop"), Some(vec![]));
    }
}
