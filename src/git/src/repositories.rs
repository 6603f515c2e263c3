//! The GitRepositories of the cluster, as last seen by their watch.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::pinning::SupersededPins;
use super::pins::without_stale_pins;
use super::shared_host_keys::SharedHostKeys;
use mainstay_api::{GitRepository, GitRepositoryStatus};

/// Why they are unknown before the first list.
const NOT_LISTED: &str = "they have not been listed yet";

/// The GitRepositories of the cluster.
#[derive(Debug)]
pub struct Repositories {
    all: Mutex<HashMap<(String, String), Arc<GitRepository>>>,
    /// Those that are there and cannot be read, with the cause.
    unreadable: Mutex<HashMap<(String, String), String>>,
    changed: watch::Sender<u64>,
    /// Why they are unknown so far.
    unknown: Mutex<Option<String>>,
}

impl Default for Repositories {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            unreadable: Mutex::default(),
            changed: watch::Sender::default(),
            unknown: Mutex::new(Some(NOT_LISTED.to_owned())),
        }
    }
}

/// Whether whoever uses a GitRepository sees no change: what the status says besides pinned keys is for people.
fn means_the_same(old: &GitRepository, new: &GitRepository) -> bool {
    let pins =
        |one: &GitRepository| one.status.as_ref().map(|status| status.pinned_host_keys.clone()).unwrap_or_default();
    let metadata = |one: &GitRepository| (one.metadata.uid.clone(), one.metadata.annotations.clone());
    old.spec == new.spec && metadata(old) == metadata(new) && pins(old) == pins(new)
}

impl Repositories {
    /// The GitRepository with this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<GitRepository>> {
        let all = self.all.lock();
        all.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// The GitRepositories of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<GitRepository>> {
        let all = self.all.lock();
        all.iter().filter(|((of, _), _)| of == namespace).map(|(_, repository)| Arc::clone(repository)).collect()
    }

    /// Why a GitRepository that may exist is not known; `None` if there is none.
    pub fn problem(&self, namespace: &str, name: &str) -> Option<String> {
        let unreadable = self.unreadable.lock().get(&(namespace.to_owned(), name.to_owned())).cloned();
        unreadable.or_else(|| self.unknown())
    }

    /// One of a namespace that cannot be read.
    pub fn unreadable_in(&self, namespace: &str) -> Option<String> {
        let unreadable = self.unreadable.lock();
        unreadable.keys().filter(|(of, _)| of == namespace).map(|(_, name)| name.clone()).min()
    }

    /// A GitRepository is there, and cannot be read. What was known of it counts no longer. Whether that is new.
    pub fn set_unreadable(&self, namespace: &str, name: &str, why: String) -> bool {
        let known = self.unreadable.lock().insert((namespace.to_owned(), name.to_owned()), why.clone());
        self.all.lock().remove(&(namespace.to_owned(), name.to_owned()));
        self.changed.send_modify(|count| *count += 1);
        known != Some(why)
    }

    /// Sets or (`None`) removes a GitRepository.
    pub fn set(&self, namespace: &str, name: &str, repository: Option<GitRepository>) {
        let key = (namespace.to_owned(), name.to_owned());
        let was_readable = self.unreadable.lock().remove(&key).is_none();
        let mut all = self.all.lock();
        if let Some(repository) = repository {
            let new = Arc::new(repository);
            let old = all.insert(key, Arc::clone(&new));
            if was_readable && old.is_some_and(|old| means_the_same(&old, &new)) {
                return;
            }
        } else {
            all.remove(&key);
        }
        self.changed.send_modify(|count| *count += 1);
    }

    /// All that can be used.
    pub fn all(&self) -> Vec<Arc<GitRepository>> {
        self.all.lock().values().cloned().collect()
    }

    /// Those whose status says something of pinned host keys that is no longer true, and what it should be.
    ///
    /// `for_all` are the host keys that hold for all; `superseded` are those whose Secret has host keys itself.
    pub fn with_stale_pins(
        &self,
        for_all: &SharedHostKeys,
        superseded: &SupersededPins,
    ) -> Vec<(Arc<GitRepository>, GitRepositoryStatus)> {
        let with_status = |one: &&Arc<GitRepository>| one.status.is_some();
        let all: Vec<_> = self.all.lock().values().filter(with_status).cloned().collect();
        // Many may have one host.
        let mut known = HashMap::new();
        let stale = |one: Arc<GitRepository>| {
            let is_known = |host: &str| *known.entry(host.to_owned()).or_insert_with(|| for_all.know(host));
            let status = without_stale_pins(&one, superseded.contains(&one), is_known)?;
            Some((one, status))
        };
        all.into_iter().filter_map(stale).collect()
    }

    /// They have never been listed, for this reason.
    pub fn set_unknown(&self, why: String) {
        *self.unknown.lock() = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Why they are unknown; `None` if they are known.
    pub fn unknown(&self) -> Option<String> {
        self.unknown.lock().clone()
    }

    /// All that are there, whether they can be used or not.
    pub fn names(&self) -> Vec<(String, String)> {
        let known: Vec<_> = self.all.lock().keys().cloned().collect();
        known.into_iter().chain(self.unreadable.lock().keys().cloned()).collect()
    }

    /// All of them are known by now.
    pub fn set_known(&self) {
        *self.unknown.lock() = None;
        self.changed.send_modify(|count| *count += 1);
    }

    /// Subscribes to changes.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
