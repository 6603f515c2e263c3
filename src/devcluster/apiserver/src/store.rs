//! All objects of the cluster under one resource version.
//!
//! Each storage is a persistent map ordered by namespace and name. A snapshot for a list or the start of a watch is a
//! pointer. Writes are compare-and-swap: the caller passes the version that its new state is based on. If that version
//! is stale, the caller computes the state again.
//!
//! Invariant: all kinds share one counter. A write increments it once and appends one event.
//! Invariant: an object is serialised once per version. Lists, gets and watches share those bytes.
//!
//! Not here: which writes are valid (`verbs`), and the clock: times are arguments.

pub use crate::stored::{Key, Owner, Stored, serialise};

use crate::history::{Event, Forgotten, History};
use parking_lot::Mutex;
use serde_json::Value;
use std::{
    collections::{HashMap, VecDeque},
    ops::Bound,
    sync::{Arc, Weak},
    time::Instant,
};
use tokio::sync::watch;

/// Maximum number of objects that stay parsed.
const PARSED: usize = 4096;

/// The objects of one storage at one moment.
pub type Objects = imbl::OrdMap<Key, Arc<Stored>>;

/// The objects of one storage, and the global resource version at that moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Global resource version.
    pub rv: u64,
    /// Objects, ordered by namespace and name.
    pub objects: Objects,
}

impl Snapshot {
    /// Returns the objects of one namespace or of all, optionally only those after a key.
    pub fn from<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let start = match after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(Key::new(namespace.unwrap_or_default(), "")),
        };
        self.objects
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|n| key.namespace() == n))
    }
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The object must not exist.
    Absent,
    /// The live object must have this resource version.
    Version(u64),
}

/// The precondition failed. Holds the live object, if there is one.
#[derive(Debug)]
pub struct Raced(pub Option<Arc<Stored>>);

/// The signal that wakes readers of a storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// Resource version of the last event.
    pub rv: u64,
    /// Increases when open watches must end.
    pub epoch: u64,
}

#[derive(Debug, Default)]
struct State {
    rv: u64,
    storages: HashMap<Arc<str>, Objects>,
    history: History,
    parsed: VecDeque<Weak<Stored>>,
    signals: HashMap<Arc<str>, watch::Sender<Signal>>,
}

/// The store of all objects.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    all: watch::Sender<Signal>,
}

impl Default for Store {
    fn default() -> Self {
        Self { state: Mutex::new(State { rv: 1, ..State::default() }), all: watch::Sender::default() }
    }
}

impl Store {
    /// Returns the live object.
    pub fn get(&self, storage: &str, key: &Key) -> Option<Arc<Stored>> {
        self.state.lock().storages.get(storage)?.get(key).cloned()
    }

    /// Returns the newest resource version.
    pub fn version(&self) -> u64 {
        self.state.lock().rv
    }

    /// Returns the current objects of a storage.
    pub fn snapshot(&self, storage: &str) -> Snapshot {
        let state = self.state.lock();
        Snapshot { rv: state.rv, objects: state.storages.get(storage).cloned().unwrap_or_default() }
    }

    /// Returns the objects of a storage at a resource version.
    pub fn snapshot_at(&self, storage: &str, rv: u64) -> Result<Snapshot, Forgotten> {
        let state = self.state.lock();
        let mut objects = state.storages.get(storage).cloned().unwrap_or_default();
        for event in state.history.back_to(storage, rv)? {
            match &event.old {
                Some(old) => objects.insert(event.key.clone(), old.clone()),
                None => objects.remove(&event.key),
            };
        }
        Ok(Snapshot { rv, objects })
    }

    /// Writes an object.
    ///
    /// Sets the resource version, `kind` and `apiVersion` of `value`. Fails with [`Raced`] if the precondition does not
    /// hold.
    pub fn put(
        &self,
        storage: &Arc<str>,
        (api_version, kind): (&str, &str),
        key: &Key,
        base: Base,
        value: Value,
        now: Instant,
    ) -> Result<Arc<Stored>, Raced> {
        let mut state = self.state.lock();
        let live = state.storages.get(storage).and_then(|objects| objects.get(key)).cloned();
        match (base, &live) {
            (Base::Absent, None) => {}
            (Base::Version(rv), Some(live)) if live.rv == rv => {}
            _ => return Err(Raced(live)),
        }
        let rv = state.rv + 1;
        let stored = Arc::new(Stored::new(api_version, kind, rv, value));
        state.rv = rv;
        state.storages.entry(storage.clone()).or_default().insert(key.clone(), stored.clone());
        state.parsed.push_back(Arc::downgrade(&stored));
        if state.parsed.len() > PARSED
            && let Some(old) = state.parsed.pop_front().and_then(|old| old.upgrade())
        {
            old.forget_value();
        }
        if let Some(live) = &live {
            live.retire();
        }
        let event = Event::new(rv, storage.clone(), key.clone(), live, Some(stored.clone()), now);
        self.publish(&mut state, event);
        Ok(stored)
    }

    /// Removes an object. Returns the resource version of the removal.
    pub fn remove(&self, storage: &Arc<str>, key: &Key, base: u64, now: Instant) -> Result<u64, Raced> {
        let mut state = self.state.lock();
        let live = state.storages.get(storage).and_then(|objects| objects.get(key)).cloned();
        let Some(live) = live.clone().filter(|live| live.rv == base) else { return Err(Raced(live)) };
        live.retire();
        let rv = state.rv + 1;
        state.rv = rv;
        if let Some(objects) = state.storages.get_mut(storage) {
            objects.remove(key);
        }
        let event = Event::new(rv, storage.clone(), key.clone(), Some(live), None, now);
        self.publish(&mut state, event);
        Ok(rv)
    }

    fn publish(&self, state: &mut State, event: Event) {
        let rv = event.rv;
        if let Some(signal) = state.signals.get(&event.storage) {
            signal.send_modify(|s| s.rv = rv);
        }
        state.history.push(Arc::new(event));
        self.all.send_modify(|s| s.rv = rv);
    }

    /// Returns at most `limit` events after a resource version, and the newest resource version at that moment.
    pub fn events_after(
        &self,
        storage: Option<&str>,
        rv: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Event>>, u64), Forgotten> {
        let state = self.state.lock();
        Ok((state.history.after(storage, rv, limit)?, state.rv))
    }

    /// Returns the oldest resource version that a new reader can start from.
    pub fn floor(&self) -> u64 {
        self.state.lock().history.floor()
    }

    /// Notifies when a storage changes.
    pub fn signal(&self, storage: &Arc<str>) -> watch::Receiver<Signal> {
        self.state.lock().signals.entry(storage.clone()).or_default().subscribe()
    }

    /// Notifies when any object changes.
    pub fn signal_all(&self) -> watch::Receiver<Signal> {
        self.all.subscribe()
    }

    /// Ends the open watches of one storage, or of all.
    pub fn end_watches(&self, storage: Option<&str>) {
        let state = self.state.lock();
        for (name, signal) in &state.signals {
            if storage.is_none_or(|s| s == &**name) {
                signal.send_modify(|s| s.epoch += 1);
            }
        }
    }

    /// Drops all events so far, like an etcd compaction. Returns the newest resource version.
    ///
    /// Increments the resource version, so that a new watch from the previous newest version fails, too. Open watches
    /// continue.
    pub fn compact(&self) -> u64 {
        let mut state = self.state.lock();
        state.rv += 1;
        let rv = state.rv;
        state.history.compact(rv);
        rv
    }

    /// Returns the number of objects in a storage.
    pub fn count(&self, storage: &str) -> usize {
        self.state.lock().storages.get(storage).map_or(0, imbl::OrdMap::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn put(store: &Store, name: &str, base: Base, data: &str) -> Result<Arc<Stored>, Raced> {
        let object = json!({"metadata": {"name": name}, "data": data});
        store.put(&"things".into(), ("v1", "Thing"), &Key::new("", name), base, object, Instant::now())
    }

    #[test]
    fn writes_only_on_the_version_they_are_based_on() {
        let store = Store::default();
        let first = put(&store, "a", Base::Absent, "1").unwrap();
        assert!(put(&store, "a", Base::Absent, "2").is_err());
        let second = put(&store, "a", Base::Version(first.rv), "2").unwrap();
        assert_eq!((second.rv, store.version()), (first.rv + 1, first.rv + 1));
        assert!(put(&store, "a", Base::Version(first.rv), "3").is_err());
        assert_eq!(
            second.json(),
            r#"{"kind":"Thing","apiVersion":"v1","data":"2","metadata":{"name":"a","resourceVersion":"3"}}"#
        );
    }

    #[test]
    fn past_snapshots_are_the_present_undone() {
        let store = Store::default();
        let a = put(&store, "a", Base::Absent, "1").unwrap();
        let then = store.version();
        put(&store, "b", Base::Absent, "1").unwrap();
        store.remove(&"things".into(), &Key::new("", "a"), a.rv, Instant::now()).unwrap();
        let past = store.snapshot_at("things", then).unwrap();
        assert_eq!(past.from(None, None).map(|(key, _)| key.name()).collect::<Vec<_>>(), ["a"]);
        let now = store.snapshot("things");
        assert_eq!(now.from(None, None).map(|(key, _)| key.name()).collect::<Vec<_>>(), ["b"]);
        store.compact();
        assert!(store.snapshot_at("things", then).is_err());
    }

    #[test]
    fn history_keeps_no_parsed_objects() {
        let store = Store::default();
        let first = put(&store, "a", Base::Absent, "1").unwrap();
        put(&store, "a", Base::Version(first.rv), "2").unwrap();
        assert_eq!(first.value()["data"], "1");
        assert!(!first.is_parsed());
    }
}
