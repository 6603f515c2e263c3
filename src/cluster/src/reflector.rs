//! Reflectors: a watch becomes a typed cache and a stream of changes.
//!
//! A [`Reflector`] lists a [`Selection`] of a kind, watches it from there, and stores a part of each object: the value
//! that its reader returns. It reports three things:
//!
//! - [`Change::Changed`]: an object is new, or its value differs. An equal value is no change.
//! - [`Change::Gone`]: a known object does not exist any more, whether its deletion was seen or missed.
//! - [`Change::Complete`]: a list is complete. From the first complete list on, an object that is not in the cache did
//!   not exist.
//!
//! ```no_run
//! # async fn example(cluster: &mainstay_cluster::Cluster) {
//! use mainstay_cluster::reflector::Change;
//! use mainstay_cluster::{Kind, Scope, Selection};
//!
//! let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster).into();
//! // Kept of a namespace: whether it is being deleted.
//! let mut reflector = cluster.reflect(&namespaces, Selection::default().metadata_only(), |live| {
//!     Ok(Some(live["metadata"]["deletionTimestamp"].is_string()))
//! });
//! loop {
//!     match reflector.next().await {
//!         Change::Changed { name, .. } => println!("{} is new or differs", name.1),
//!         Change::Gone { name, .. } => println!("{} is gone", name.1),
//!         Change::Complete { .. } => println!("{} namespaces", reflector.cache().iter().count()),
//!         Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => {}
//!     }
//! }
//! # }
//! ```
//!
//! # The watch
//! [`Cluster::watch`] reconnects, resumes at the last version, lists again after `410 Gone`, and backs off with
//! jitter. It never ends. A failed attempt is a [`Change::Failed`]: the cache keeps the last known state.
//!
//! # Which type to use
//! | type | for |
//! |---|---|
//! | [`Reflector`] | one watch |
//! | [`Cache`] | a watch among others, or a cache behind a lock: [`Cache::take`] needs no runtime |
//! | [`Reflector<()>`](Cluster::states) | every state that arrives; only names are kept |
//! | [`Shown`] | a consumer with a separate store |
//!
//! # Memory
//! A cache contains the name of each object, four bytes, and the `T` of its reader. The reader bounds the memory: it
//! returns `None` for an irrelevant object, and an error if the object exceeds a budget. A new list takes no additional
//! memory in a `Cache`. A [`Shown`] contains the keys of a list in progress.
//!
//! # Invariants
//! Invariant: only this module and the producers (`watch`, `scope`) match [`WatchEvent`].
//! Invariant: an incomplete list that began again does not remove objects.
//! Invariant: an object that cannot be parsed counts as existing. It is logged and reported, and its last value stays.
//!
//! # Why not `kube::runtime`
//! The `reflector` of version 5.0 lacks features that the agent needs:
//!
//! - It replaces the whole map at the end of a list and does not report removed objects. A consumer must compare two
//!   maps, which are both in memory at that time. The agent deletes, releases and revokes things when an object is
//!   gone.
//! - It keeps whole objects. `event_modify` can empty fields of a type, but the agent keeps a few bytes of a Service,
//!   and digests of a Secret.
//! - It reports an unchanged state after each list. `predicate_filter` drops such events, but its stream does not tell
//!   a deletion from a change.
//! - Its `watcher` fails on an object that cannot be parsed, or omits it without its name. See the module of
//!   [`Cluster::watch`].
//!
//! Not here: subscriptions to a shared cache, indexes, periodic resyncs, and the meaning of changes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use serde_json::Value;

use crate::connect::Cluster;
use crate::error::Error;
use crate::kind::Kind;
use crate::selection::Selection;
use crate::version::{is_older, number};
use crate::watch::WatchEvent;

/// Namespace and name of an object. The namespace of a cluster-wide object is empty.
pub type Name = (String, String);

/// Returns the [`Name`] of an object; `None` if it has none.
pub fn name_of(live: &Value) -> Option<Name> {
    let text = |path: &str| live.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text("/metadata/name");
    (!name.is_empty()).then(|| (text("/metadata/namespace"), name))
}

/// A change of a [`Cache`], or an event of its watch.
pub enum Change<T> {
    /// An object is new, or its value differs from `before`. The cache contains the new value.
    Changed {
        /// The object.
        name: Name,
        /// The object as the server sent it.
        live: Value,
        /// The previous value; `None` if the object is new.
        before: Option<T>,
    },
    /// An object does not exist any more, or has become irrelevant.
    Gone {
        /// The object.
        name: Name,
        /// The last value.
        before: T,
        /// The last state of the object; `None` if the watch missed its deletion.
        last: Option<Value>,
    },
    /// An object exists but cannot be parsed. Its last value stays.
    Unreadable {
        /// The object.
        name: Name,
        /// The object as far as it can be parsed: at least its metadata.
        live: Value,
        /// The reason, without values of the object.
        why: String,
    },
    /// A list is complete: an object that is not in the cache did not exist at this version.
    Complete {
        /// The resource version of the list, or "" if the server did not send one.
        version: String,
    },
    /// An attempt to list or watch failed. The reflector retries after a backoff.
    Failed(Error),
    /// The watch is open again after a failure, and no event was missed.
    Resumed,
}

/// Formats the names of objects but not their content, which may be a Secret.
impl<T> fmt::Debug for Change<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { name, .. } => write!(f, "Changed {}/{}", name.0, name.1),
            Self::Gone { name, .. } => write!(f, "Gone {}/{}", name.0, name.1),
            Self::Unreadable { name, why, .. } => write!(f, "Unreadable {}/{}: {why}", name.0, name.1),
            Self::Complete { version } => write!(f, "Complete {version}"),
            Self::Failed(error) => write!(f, "Failed: {error}"),
            Self::Resumed => f.write_str("Resumed"),
        }
    }
}

/// The values of the objects of a watch.
///
/// [`take`](Cache::take) receives the events of one watch in their order. A new list removes the objects that it
/// lacks.
pub struct Cache<T> {
    objects: HashMap<Name, Entry<T>>,
    /// The number of the current list.
    list: u32,
    is_complete: bool,
    /// Whether two values are equal.
    is_same: fn(&T, &T) -> bool,
    /// The value of an object that was not known before and cannot be parsed.
    unreadable: fn() -> Option<T>,
    /// The last logged message about an object that cannot be parsed, so that it is logged only once.
    logged: Option<(Name, String)>,
}

struct Entry<T> {
    kept: T,
    /// The number of the list that contained the object, or during which the object changed.
    list: u32,
}

impl<T: PartialEq> Default for Cache<T> {
    fn default() -> Self {
        Self::new(T::eq, || None)
    }
}

impl Cache<()> {
    /// A cache of names. Every event of an object counts as a change.
    pub(crate) fn of_names() -> Self {
        Self::new(|(), ()| false, || Some(()))
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (objects, is_complete) = (self.objects.len(), self.is_complete);
        f.debug_struct("Cache").field("objects", &objects).field("is_complete", &is_complete).finish_non_exhaustive()
    }
}

impl<T> Cache<T> {
    fn new(is_same: fn(&T, &T) -> bool, unreadable: fn() -> Option<T>) -> Self {
        Self { objects: HashMap::new(), list: 0, is_complete: false, is_same, unreadable, logged: None }
    }

    /// Applies an event to the cache. Returns the changes; the cache already contains them.
    ///
    /// `read` returns the value of an object, `None` if the object is irrelevant, or why it cannot be read.
    pub fn take(&mut self, event: WatchEvent, read: impl FnOnce(&Value) -> Result<Option<T>, String>) -> Changes<T> {
        let mut gone = Vec::new();
        let change = match event {
            WatchEvent::Begin => {
                self.list = self.list.wrapping_add(1);
                None
            }
            WatchEvent::Initial(live) | WatchEvent::Applied(live) => {
                name_of(&live).and_then(|name| match read(&live) {
                    Ok(Some(kept)) => self.put(name, live, kept),
                    Ok(None) => self.lose(name, live),
                    Err(why) => Some(self.keep(name, live, why)),
                })
            }
            WatchEvent::Unreadable(live, error) => name_of(&live).map(|name| self.keep(name, live, error.cause_text())),
            WatchEvent::Deleted(live) => name_of(&live).and_then(|name| self.lose(name, live)),
            WatchEvent::Synced(version) => {
                self.is_complete = true;
                gone = self.take_missing();
                Some(Change::Complete { version })
            }
            WatchEvent::Failed(error) => Some(Change::Failed(error)),
            WatchEvent::Resumed => Some(Change::Resumed),
            WatchEvent::WentBack => None,
        };
        gone.into_iter().chain(change)
    }

    fn put(&mut self, name: Name, live: Value, kept: T) -> Option<Change<T>> {
        let list = self.list;
        if let Some(known) = self.objects.get_mut(&name) {
            known.list = list;
            if (self.is_same)(&known.kept, &kept) {
                return None;
            }
            let before = Some(std::mem::replace(&mut known.kept, kept));
            return Some(Change::Changed { name, live, before });
        }
        self.objects.insert(name.clone(), Entry { kept, list });
        Some(Change::Changed { name, live, before: None })
    }

    fn lose(&mut self, name: Name, live: Value) -> Option<Change<T>> {
        let before = self.objects.remove(&name)?.kept;
        Some(Change::Gone { name, before, last: Some(live) })
    }

    fn keep(&mut self, name: Name, live: Value, why: String) -> Change<T> {
        if let Some(known) = self.objects.get_mut(&name) {
            known.list = self.list;
        } else if let Some(kept) = (self.unreadable)() {
            self.objects.insert(name.clone(), Entry { kept, list: self.list });
        }
        if self.logged.as_ref().is_none_or(|(of, text)| (of, text) != (&name, &why)) {
            let kind = live["kind"].as_str().unwrap_or("object");
            tracing::warn!(
                namespace = name.0,
                name = name.1,
                why,
                "this {kind} cannot be read and is skipped; its last readable version holds until the object is corrected"
            );
            self.logged = Some((name.clone(), why.clone()));
        }
        Change::Unreadable { name, live, why }
    }

    /// Removes the objects that the complete list lacks. Returns them sorted by name.
    fn take_missing(&mut self) -> Vec<Change<T>> {
        let missing = self.objects.extract_if(|_, known| known.list != self.list);
        let mut missing: Vec<(Name, T)> = missing.map(|(name, known)| (name, known.kept)).collect();
        missing.sort_by(|(a, _), (b, _)| a.cmp(b));
        missing.into_iter().map(|(name, before)| Change::Gone { name, before, last: None }).collect()
    }

    /// Stores the value of an object from the response to a write, before the watch shows it.
    pub fn insert(&mut self, name: Name, kept: T) {
        self.objects.insert(name, Entry { kept, list: self.list });
    }

    /// Removes an object after its deletion, before the watch shows it.
    pub fn remove(&mut self, name: &Name) -> Option<T> {
        self.objects.remove(name).map(|known| known.kept)
    }

    /// Removes all objects at the end of their watch.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.is_complete = false;
    }

    /// Whether a list was completed. From then on, an object that is not in the cache does not exist.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the value of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&(namespace.to_owned(), name.to_owned())).map(|known| &known.kept)
    }

    /// Returns all objects in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &T)> {
        self.objects.iter().map(|(name, known)| (name, &known.kept))
    }
}

/// The changes of one event.
pub type Changes<T> = std::iter::Chain<std::vec::IntoIter<Change<T>>, std::option::IntoIter<Change<T>>>;

type Read<T> = Box<dyn FnMut(&Value) -> Result<Option<T>, String> + Send>;

/// A watch and its [`Cache`].
pub struct Reflector<T> {
    events: BoxStream<'static, WatchEvent>,
    cache: Cache<T>,
    read: Read<T>,
    pending: VecDeque<Change<T>>,
}

impl Cluster {
    /// Reflects a selection of a kind until the reflector is dropped. `read` returns the value of an object, `None` if
    /// the object is irrelevant, or why it cannot be read. No request is sent before [`Reflector::next`] is polled.
    pub fn reflect<T: PartialEq>(
        &self,
        kind: &Arc<Kind>,
        selection: Selection,
        read: impl FnMut(&Value) -> Result<Option<T>, String> + Send + 'static,
    ) -> Reflector<T> {
        Reflector::new(self.watch(kind, selection), Cache::default(), Box::new(read))
    }

    /// Reflects the names of a selection of a kind. Every event of an object counts as a change.
    pub fn states(&self, kind: &Arc<Kind>, selection: Selection) -> Reflector<()> {
        Reflector::new(self.watch(kind, selection), Cache::of_names(), Box::new(|_| Ok(Some(()))))
    }
}

impl<T> Reflector<T> {
    fn new(events: BoxStream<'static, WatchEvent>, cache: Cache<T>, read: Read<T>) -> Self {
        Self { events, cache, read, pending: VecDeque::new() }
    }

    /// Waits for the next change. Cancel-safe.
    pub async fn next(&mut self) -> Change<T> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return change;
            }
            // A watch never ends.
            let Some(event) = self.events.next().await else { return std::future::pending().await };
            self.pending.extend(self.cache.take(event, &mut self.read));
        }
    }

    /// Returns a stream of all changes, which never ends.
    pub fn into_stream(self) -> BoxStream<'static, Change<T>>
    where
        T: Send + 'static,
    {
        stream::unfold(self, |mut reflector| async move { Some((reflector.next().await, reflector)) }).boxed()
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Cache<T> {
        &self.cache
    }
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// An event for a consumer that stores the objects itself.
pub enum Delta<K> {
    /// An object of the list in progress.
    Listed(K, Value),
    /// An object was added or changed.
    Changed(K, Value),
    /// An object exists but cannot be parsed, except for its metadata.
    Unreadable(K, Value, Error),
    /// An object was deleted. The value is its last state.
    Gone(K, Value),
    /// A list is complete. The consumer checks which of its objects the list [lacks](List::lacks).
    Complete(List<K>),
    /// An attempt failed. The watch retries after a backoff.
    Failed(Error),
    /// The watch is open again after a failure, and no event was missed.
    Resumed,
}

impl<K> Delta<K> {
    /// Maps the keys.
    pub fn map<L: Eq + Hash>(self, key: impl Fn(K) -> L) -> Delta<L> {
        match self {
            Self::Listed(of, live) => Delta::Listed(key(of), live),
            Self::Changed(of, live) => Delta::Changed(key(of), live),
            Self::Unreadable(of, live, error) => Delta::Unreadable(key(of), live, error),
            Self::Gone(of, live) => Delta::Gone(key(of), live),
            Self::Complete(List { shown, version, went_back }) => {
                Delta::Complete(List { shown: shown.into_iter().map(key).collect(), version, went_back })
            }
            Self::Failed(error) => Delta::Failed(error),
            Self::Resumed => Delta::Resumed,
        }
    }
}

/// A complete list.
#[derive(Debug)]
pub struct List<K> {
    shown: HashSet<K>,
    version: String,
    went_back: bool,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { shown: HashSet::new(), version: String::new(), went_back: false }
    }
}

/// A list of these objects without a version.
impl<K: Eq + Hash> FromIterator<K> for List<K> {
    fn from_iter<I: IntoIterator<Item = K>>(shown: I) -> Self {
        Self { shown: shown.into_iter().collect(), version: String::new(), went_back: false }
    }
}

impl<K: Eq + Hash> List<K> {
    /// Whether an object was missing at the list's version.
    pub fn lacks(&self, key: &K) -> bool {
        !self.shown.contains(key)
    }

    /// Returns the objects of the list.
    pub fn shown(&self) -> &HashSet<K> {
        &self.shown
    }

    /// Returns the resource version of the list, or "" if the server did not send one.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the list is older than a version that was [noted](Shown::note_version), or that the same watch showed,
    /// before the list began. A list is at least as new as its request, so the server was restored from a backup:
    /// versions from before the list are meaningless.
    pub fn went_back(&self) -> bool {
        self.went_back
    }
}

/// Follows the events of a watch for a consumer with a separate store.
///
/// Only the keys of a list in progress are stored, and one version.
///
/// Invariant: a version that was seen during a list does not count against this list, which may be older.
#[derive(Debug)]
pub struct Shown<K> {
    /// The keys of the list in progress.
    listed: Option<HashSet<K>>,
    /// The newest version of the last complete list, of the changes after it, and of other lists, if versions are
    /// numbers.
    newest: Option<u64>,
    /// Whether the watch has found that its next complete list is older than one of its versions.
    went_back: bool,
}

impl<K> Default for Shown<K> {
    fn default() -> Self {
        Self { listed: None, newest: None, went_back: false }
    }
}

impl<K: Clone + Eq + Hash> Shown<K> {
    /// Converts an event. Returns `None` for an event that concerns the next complete list, and for an object without a
    /// `key`.
    pub fn take(&mut self, event: WatchEvent, key: impl FnOnce(&Value) -> Option<K>) -> Option<Delta<K>> {
        self.take_noting(event, key, |key, _| Some(key.clone()))
    }

    /// Same as `take`, with a bound for unknown objects: `note` returns the key to record for a listed object, or
    /// `None` to record nothing. Its arguments are the key and the number of recorded keys.
    pub fn take_noting(
        &mut self,
        event: WatchEvent,
        key: impl FnOnce(&Value) -> Option<K>,
        note: impl FnOnce(&K, usize) -> Option<K>,
    ) -> Option<Delta<K>> {
        Some(match event {
            WatchEvent::Begin => {
                self.listed = Some(HashSet::new());
                return None;
            }
            WatchEvent::Initial(live) => {
                let key = key(&live)?;
                // Only lists emit this event.
                self.listed.get_or_insert_default();
                self.note_with(&key, note);
                Delta::Listed(key, live)
            }
            WatchEvent::Unreadable(live, error) => {
                let key = key(&live)?;
                self.note_with(&key, note);
                Delta::Unreadable(key, live, error)
            }
            WatchEvent::Applied(live) => {
                self.note_version_of(&live);
                Delta::Changed(key(&live)?, live)
            }
            WatchEvent::Deleted(live) => {
                self.note_version_of(&live);
                Delta::Gone(key(&live)?, live)
            }
            WatchEvent::Synced(version) => Delta::Complete(self.complete(version)),
            WatchEvent::Failed(error) => Delta::Failed(error),
            WatchEvent::Resumed => Delta::Resumed,
            WatchEvent::WentBack => {
                self.went_back = true;
                return None;
            }
        })
    }

    fn complete(&mut self, version: String) -> List<K> {
        let went_back = std::mem::take(&mut self.went_back) || is_older(&version, self.newest);
        self.newest = number(&version).or(self.newest);
        List { shown: self.listed.take().unwrap_or_default(), version, went_back }
    }

    /// Records a version that another list or a response of the same server has shown.
    pub fn note_version(&mut self, version: &str) {
        if self.listed.is_none() {
            self.newest = self.newest.max(number(version));
        }
    }

    fn note_version_of(&mut self, live: &Value) {
        let version = live.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        self.note_version(version.unwrap_or_default());
    }

    fn note_with(&mut self, key: &K, note: impl FnOnce(&K, usize) -> Option<K>) {
        if let Some(shown) = &mut self.listed {
            shown.extend(note(key, shown.len()));
        }
    }

    /// Records an object from the response to a write, because the list in progress may be older.
    pub fn note(&mut self, key: K) {
        if let Some(shown) = &mut self.listed {
            shown.insert(key);
        }
    }
}

#[cfg(test)]
mod tests;
