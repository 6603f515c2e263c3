//! The GitRepositories of the cluster, from their watch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::RemoteUrl;
use super::consumers::ConsumerKind;
use super::pinning::SupersededPins;
use super::pins::without_stale_pins;
use super::shared_host_keys::SharedHostKeys;
use mainstay_api::git_sync::{SourceKind, SourceRef};
use mainstay_api::{GitRepository, GitRepositoryStatus};

/// Why the GitRepositories are unknown before the first list.
const NOT_LISTED: &str = "they have not been listed yet";

/// Addresses by the namespace and the name of their objects.
type Addresses = HashMap<(String, String), RemoteUrl>;

/// The GitRepositories of the cluster.
#[derive(Debug)]
pub struct Repositories {
    all: Mutex<HashMap<(String, String), Arc<GitRepository>>>,
    /// Unreadable objects, with the cause.
    unreadable: Mutex<HashMap<(String, String), String>>,
    /// The addresses of artifacts by the kind of their source, each with an owner string that makes it unique. A kind is
    /// missing before its first list.
    artifacts: Mutex<HashMap<SourceKind, Addresses>>,
    /// Namespace and name of each ImageRepository; `None` before the first list.
    images: Mutex<Option<HashSet<(String, String)>>>,
    changed: watch::Sender<u64>,
    /// Why the list is unknown; `None` once it is known.
    unknown: Mutex<Option<String>>,
}

impl Default for Repositories {
    fn default() -> Self {
        Self {
            all: Mutex::default(),
            unreadable: Mutex::default(),
            artifacts: Mutex::default(),
            images: Mutex::default(),
            changed: watch::Sender::default(),
            unknown: Mutex::new(Some(NOT_LISTED.to_owned())),
        }
    }
}

/// Returns whether a change does not affect consumers. In the status, only a change of pinned keys affects them.
fn means_the_same(old: &GitRepository, new: &GitRepository) -> bool {
    let pins =
        |one: &GitRepository| one.status.as_ref().map(|status| status.pinned_host_keys.clone()).unwrap_or_default();
    let metadata = |one: &GitRepository| (one.metadata.uid.clone(), one.metadata.annotations.clone());
    old.spec == new.spec && metadata(old) == metadata(new) && pins(old) == pins(new)
}

impl Repositories {
    /// Returns the GitRepository with this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<GitRepository>> {
        let all = self.all.lock();
        all.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Returns the address of the artifact of a source; `Ok(None)` if the source does not exist.
    ///
    /// # Errors
    /// The reason why the objects of this kind are unknown.
    pub fn artifact(&self, namespace: &str, source: &SourceRef) -> Result<Option<RemoteUrl>, &'static str> {
        let artifacts = self.artifacts.lock();
        let known = artifacts.get(&source.kind).ok_or(NOT_LISTED)?;
        Ok(known.get(&(namespace.to_owned(), source.name.clone())).cloned())
    }

    /// Returns those of the names that no source in the namespace has, in their order; `None` while the sources are
    /// unknown. An unreadable GitRepository exists.
    pub fn missing(&self, namespace: &str, names: &[String]) -> Option<Vec<String>> {
        let artifacts = self.artifacts.lock();
        let kinds: Vec<_> = SourceKind::ALL.iter().map(|kind| artifacts.get(kind)).collect::<Option<_>>()?;
        let (unknown, unreadable, all) = (self.unknown.lock(), self.unreadable.lock(), self.all.lock());
        if unknown.is_some() {
            return None;
        }
        let exists = |name: &&String| {
            let key = (namespace.to_owned(), (*name).clone());
            all.contains_key(&key)
                || unreadable.contains_key(&key)
                || kinds.iter().any(|addresses| addresses.contains_key(&key))
        };
        Some(names.iter().filter(|name| !exists(name)).cloned().collect())
    }

    /// Returns whether an object exists; `None` while the objects of its kind are unknown. Kinds that are no sources follow a
    /// GitRepository. An unreadable GitRepository exists.
    pub fn has(&self, kind: ConsumerKind, namespace: &str, name: &str) -> Option<bool> {
        let key = (namespace.to_owned(), name.to_owned());
        let has_artifact = |kind: SourceKind| Some(self.artifacts.lock().get(&kind)?.contains_key(&key));
        match kind {
            ConsumerKind::OciRepository => has_artifact(SourceKind::OciRepository),
            ConsumerKind::HelmChart => has_artifact(SourceKind::HelmChart),
            ConsumerKind::ImageRepository => Some(self.images.lock().as_ref()?.contains(&key)),
            ConsumerKind::GitSync
            | ConsumerKind::Function
            | ConsumerKind::GitRepository
            | ConsumerKind::ImageUpdateAutomation => {
                if self.unknown().is_some() {
                    return None;
                }
                let is_unreadable = self.unreadable.lock().contains_key(&key);
                Some(is_unreadable || self.all.lock().contains_key(&key))
            }
        }
    }

    /// Replaces the names of all ImageRepositories.
    pub fn set_images(&self, images: HashSet<(String, String)>) {
        let mut known = self.images.lock();
        if known.as_ref() != Some(&images) {
            *known = Some(images);
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Replaces the addresses of all artifacts of a kind.
    pub fn set_artifacts(&self, kind: SourceKind, artifacts: Addresses) {
        let mut known = self.artifacts.lock();
        if known.get(&kind) != Some(&artifacts) {
            known.insert(kind, artifacts);
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Returns the GitRepositories of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<GitRepository>> {
        let all = self.all.lock();
        all.iter().filter(|((of, _), _)| of == namespace).map(|(_, repository)| Arc::clone(repository)).collect()
    }

    /// Returns why a GitRepository that may exist is unknown; `None` if it does not exist.
    pub fn problem(&self, namespace: &str, name: &str) -> Option<String> {
        let unreadable = self.unreadable.lock().get(&(namespace.to_owned(), name.to_owned())).cloned();
        unreadable.or_else(|| self.unknown())
    }

    /// Returns the name of an unreadable GitRepository in a namespace.
    pub fn unreadable_in(&self, namespace: &str) -> Option<String> {
        let unreadable = self.unreadable.lock();
        unreadable.keys().filter(|(of, _)| of == namespace).map(|(_, name)| name.clone()).min()
    }

    /// Records that a GitRepository is unreadable, and drops its last content. Returns whether this is new.
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

    /// Returns all readable GitRepositories.
    pub fn all(&self) -> Vec<Arc<GitRepository>> {
        self.all.lock().values().cloned().collect()
    }

    /// Returns the GitRepositories with stale pins, each with its corrected status.
    ///
    /// `for_all` are the host keys for all repositories. `superseded` are the pins of GitRepositories whose Secret has
    /// host keys.
    pub fn with_stale_pins(
        &self,
        for_all: &SharedHostKeys,
        superseded: &SupersededPins,
    ) -> Vec<(Arc<GitRepository>, GitRepositoryStatus)> {
        let with_status = |one: &&Arc<GitRepository>| one.status.is_some();
        let all: Vec<_> = self.all.lock().values().filter(with_status).cloned().collect();
        // Results are cached by host, because many GitRepositories may have the same host.
        let mut known = HashMap::new();
        let stale = |one: Arc<GitRepository>| {
            let is_known = |host: &str| *known.entry(host.to_owned()).or_insert_with(|| for_all.know(host));
            let status = without_stale_pins(&one, superseded.contains(&one), is_known)?;
            Some((one, status))
        };
        all.into_iter().filter_map(stale).collect()
    }

    /// Records why the first list failed.
    pub fn set_unknown(&self, why: String) {
        *self.unknown.lock() = Some(why);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Returns why the list is unknown; `None` once it is known.
    pub fn unknown(&self) -> Option<String> {
        self.unknown.lock().clone()
    }

    /// Returns the names of all GitRepositories, readable or not.
    pub fn names(&self) -> Vec<(String, String)> {
        let known: Vec<_> = self.all.lock().keys().cloned().collect();
        known.into_iter().chain(self.unreadable.lock().keys().cloned()).collect()
    }

    /// Records that the list is complete.
    pub fn set_known(&self) {
        *self.unknown.lock() = None;
        self.changed.send_modify(|count| *count += 1);
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
    fn knows_whether_an_object_exists_once_its_kind_is_listed() {
        let repositories = Repositories::default();
        let kinds = [
            ConsumerKind::GitRepository,
            ConsumerKind::OciRepository,
            ConsumerKind::HelmChart,
            ConsumerKind::ImageRepository,
        ];
        let has = |name: &str| kinds.map(|kind| repositories.has(kind, "shop", name));
        assert_eq!(has("web"), [None; 4]);
        repositories.set_known();
        assert_eq!(has("web"), [Some(false), None, None, None]);
        repositories.set_unreadable("shop", "web", "spec.url".to_owned());
        for kind in SourceKind::ALL {
            repositories.set_artifacts(kind, Addresses::new());
        }
        repositories.set_images([("shop".to_owned(), "web".to_owned())].into());
        assert_eq!(has("web"), [Some(true), Some(false), Some(false), Some(true)]);
        assert_eq!(has("api"), [Some(false); 4]);
    }
}
