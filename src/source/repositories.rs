//! The GitRepositories of the cluster, as they were last seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::api::GitRepository;

/// Why nothing is known of them before anything was heard.
const UNHEARD: &str = "they have not been listed yet";

/// The GitRepositories of the cluster.
#[derive(Debug)]
pub struct Repositories {
    all: Mutex<HashMap<(String, String), Arc<GitRepository>>>,
    changed: watch::Sender<u64>,
    /// Why nothing is known of them so far.
    unknown: Mutex<Option<String>>,
}

impl Default for Repositories {
    fn default() -> Self {
        Self { all: Mutex::default(), changed: watch::Sender::default(), unknown: Mutex::new(Some(UNHEARD.to_owned())) }
    }
}

impl Repositories {
    /// One of them.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<GitRepository>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// One of them is new, changed, or (`None`) gone.
    pub fn set(&self, namespace: &str, name: &str, repository: Option<GitRepository>) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        match repository {
            Some(repository) => all.insert(key, Arc::new(repository)),
            None => all.remove(&key),
        };
        self.changed.send_modify(|count| *count += 1);
    }

    /// They cannot be read, and were never read before, for this reason.
    pub fn set_unknown(&self, why: String) {
        *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Why it is not known which of them exist; `None` when it is.
    pub fn unknown(&self) -> Option<String> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// These are all that there are.
    pub fn replace(&self, present: Vec<(String, String)>) {
        *self.unknown.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|key, _| present.contains(key));
        self.changed.send_modify(|count| *count += 1);
    }

    /// Hears of every change.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
