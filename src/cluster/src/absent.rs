//! Namespaces to which the agent is limited but which do not exist.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The absent namespaces. The value shows whether a namespace exists again but the agent has no permissions in it.
#[derive(Default)]
pub(super) struct AbsentNamespaces(Mutex<BTreeMap<String, bool>>);

impl AbsentNamespaces {
    /// Records an absent namespace. Returns whether it is new.
    pub(super) fn insert(&self, namespace: &str) -> bool {
        self.0.lock().insert(namespace.to_owned(), false).is_none()
    }

    /// Records that a namespace exists again. Returns whether that is new; `None` if the namespace was not absent.
    pub(super) fn exists_again(&self, namespace: &str) -> Option<bool> {
        let mut absent = self.0.lock();
        let is_known = absent.get_mut(namespace)?;
        Some(!std::mem::replace(is_known, true))
    }

    pub(super) fn contains(&self, namespace: &str) -> bool {
        self.0.lock().contains_key(namespace)
    }

    /// Forgets a namespace. Returns whether it was absent.
    pub(super) fn remove(&self, namespace: &str) -> bool {
        self.0.lock().remove(namespace).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_namespace_is_new_once_each_time() {
        let absent = AbsentNamespaces::default();
        assert_eq!(absent.exists_again("a"), None, "it was never absent");
        assert_eq!([absent.insert("a"), absent.insert("a")], [true, false]);
        assert_eq!([absent.exists_again("a"), absent.exists_again("a")], [Some(true), Some(false)]);
        assert!(!absent.insert("a"), "it is deleted once more before it was read");
        assert_eq!(absent.exists_again("a"), Some(true));
        assert_eq!([absent.remove("a"), absent.remove("a"), absent.contains("a")], [true, false, false]);
    }
}
