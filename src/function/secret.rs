//! The Secrets that Functions need, each watched by its name: those of the registries in all namespaces at once, those
//! of Git repositories one by one for as long as a Function names them. A corrected password works at once.
//!
//! Invariant: however many Functions name a Secret, it is watched once.
//! Invariant: "it is not there" is never said of a Secret that could not be read.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Cluster, Kind, Scope, Selection, WatchEvent};
use crate::drift::Owner;

/// Longest wait for the first word about a Secret.
const WITHIN: Duration = Duration::from_secs(10);

pub use crate::registry::SecretData;

/// Namespace and name.
type Name = (String, String);

/// What is known of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing yet: it could not be read so far.
    Nothing,
    /// It is not there.
    Absent,
    /// What it holds.
    Data(Arc<SecretData>),
}

impl Known {
    /// What it holds.
    pub fn data(&self) -> Option<&SecretData> {
        match self {
            Self::Data(data) => Some(data),
            Self::Nothing | Self::Absent => None,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub struct Secrets {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
    follow: mpsc::UnboundedSender<(Name, CancellationToken)>,
    inbox: Mutex<Option<mpsc::UnboundedReceiver<(Name, CancellationToken)>>>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Secrets that are watched in all namespaces, and whether they were seen in full.
    everywhere: HashMap<String, bool>,
    data: HashMap<Name, Arc<SecretData>>,
    /// Single Secrets that are watched.
    single: HashMap<Name, Single>,
    wanted: HashMap<Owner, Name>,
}

#[derive(Debug)]
struct Single {
    known: bool,
    #[expect(dead_code, reason = "the watch ends when it is dropped")]
    watch: DropGuard,
}

impl Secrets {
    /// These names are to be watched in all namespaces.
    pub fn new(everywhere: impl IntoIterator<Item = String>) -> Self {
        let (follow, inbox) = mpsc::unbounded_channel();
        let everywhere = everywhere.into_iter().map(|name| (name, false)).collect();
        Self {
            inner: Mutex::new(Inner { everywhere, ..Inner::default() }),
            changed: watch::Sender::new(0),
            follow,
            inbox: Mutex::new(Some(inbox)),
        }
    }

    /// What is known of a Secret that is watched.
    pub fn get(&self, namespace: &str, name: &str) -> Known {
        let inner = self.lock();
        let key = (namespace.to_owned(), name.to_owned());
        match inner.data.get(&key) {
            Some(data) => Known::Data(Arc::clone(data)),
            None if inner.everywhere.get(name) == Some(&true) => Known::Absent,
            None if inner.single.get(&key).is_some_and(|single| single.known) => Known::Absent,
            None => Known::Nothing,
        }
    }

    /// From now on a Function needs this Secret besides those of the registries, and no other one.
    pub fn want(&self, owner: &Owner, secret: Option<Name>) {
        let mut inner = self.lock();
        if inner.wanted.get(owner) == secret.as_ref() {
            return;
        }
        match secret {
            None => inner.wanted.remove(owner),
            Some(name) => {
                if !inner.single.contains_key(&name) {
                    let stop = CancellationToken::new();
                    // The receiver is gone only when nothing is to be done any more.
                    let _ = self.follow.send((name.clone(), stop.clone()));
                    inner.single.insert(name.clone(), Single { known: false, watch: stop.drop_guard() });
                }
                inner.wanted.insert(Arc::clone(owner), name)
            }
        };
        let wanted = inner.wanted.values().cloned().collect::<HashSet<_>>();
        let Inner { single, data, everywhere, .. } = &mut *inner;
        single.retain(|name, _| {
            let kept = wanted.contains(name);
            if !kept && !everywhere.contains_key(&name.1) {
                data.remove(name);
            }
            kept
        });
    }

    /// Waits until something is known of a Secret, but not for ever.
    pub async fn known(&self, namespace: &str, name: &str) -> Known {
        let mut changed = self.changed.subscribe();
        let known = changed.wait_for(|_| self.get(namespace, name) != Known::Nothing);
        let _ = tokio::time::timeout(WITHIN, known).await;
        self.get(namespace, name)
    }

    /// Hears of every change.
    pub fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Follows the Secrets until `stop`.
    pub async fn run(self: Arc<Self>, cluster: Cluster, stop: CancellationToken) {
        let inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut inbox) = inbox else { return };
        let mut tasks = JoinSet::new();
        let everywhere = self.lock().everywhere.keys().cloned().collect::<Vec<_>>();
        for name in everywhere {
            let selection = Selection::named(None, &name);
            tasks.spawn(Arc::clone(&self).follow(cluster.clone(), selection, (String::new(), name), stop.clone()));
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some((name, over)) = inbox.recv() => {
                    let selection = Selection::named(Some(&name.0), &name.1);
                    tasks.spawn(Arc::clone(&self).follow(cluster.clone(), selection, name, over));
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn follow(self: Arc<Self>, cluster: Cluster, selection: Selection, name: Name, stop: CancellationToken) {
        let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
        let mut events = cluster.watch(&kind, selection);
        let mut present = HashSet::new();
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            let mut inner = self.lock();
            match event {
                WatchEvent::Begin => present.clear(),
                WatchEvent::Initial(live) => {
                    let Some(key) = name_of(&live) else { continue };
                    present.insert(key.clone());
                    inner.data.insert(key, Arc::new(data_of(&live)));
                }
                WatchEvent::Applied(live) => {
                    let Some(key) = name_of(&live) else { continue };
                    inner.data.insert(key, Arc::new(data_of(&live)));
                }
                WatchEvent::Deleted(live) => {
                    let Some(key) = name_of(&live) else { continue };
                    inner.data.remove(&key);
                }
                WatchEvent::Synced(_) => inner.is_known(&name, &present),
                WatchEvent::Trouble(_) => continue,
            }
            drop(inner);
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A watch has shown all that it selects; an empty namespace stands for all of them.
    fn is_known(&mut self, (namespace, name): &Name, present: &HashSet<Name>) {
        let is_selected = |key: &Name| key.1 == *name && (namespace.is_empty() || key.0 == *namespace);
        self.data.retain(|key, _| !is_selected(key) || present.contains(key));
        if namespace.is_empty() {
            self.everywhere.insert(name.clone(), true);
        } else if let Some(single) = self.single.get_mut(&(namespace.clone(), name.clone())) {
            single.known = true;
        }
    }
}

fn name_of(live: &Value) -> Option<Name> {
    let text = |path: &str| live.pointer(path).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}

fn data_of(live: &Value) -> SecretData {
    live.get("data").cloned().and_then(|data| serde_json::from_value(data).ok()).unwrap_or_default()
}
