//! The watches of Secrets and ConfigMaps, and their followers.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::future::select_all;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::purpose::{Purpose, Purposes};
use super::register::{Referrer, Register};
use super::state::{Affected, Holder, Known, State};
use crate::requests::{RequestReceiver, RequestSender, queue};
use crate::{Cluster, Kind, Scope, Selection, WatchEvent};

/// Maximum wait for the first state of a Secret.
const WITHIN: Duration = Duration::from_secs(10);

/// All followed Secrets and ConfigMaps, and the purposes of Secrets.
#[derive(Debug)]
pub struct Secrets {
    inner: Mutex<Inner>,
    begin: RequestSender<Begun, Begin>,
    inbox: Mutex<Option<RequestReceiver<Begun, Begin>>>,
    register: Arc<Register>,
}

/// A follower of a Secret or ConfigMap.
#[derive(Debug)]
pub struct Followed {
    namespace: String,
    name: String,
    known: watch::Receiver<Known>,
    taken: Known,
    /// The purpose for which the values are used; `None` for a ConfigMap.
    used_for: Option<Purpose>,
    register: Arc<Register>,
    #[expect(dead_code, reason = "the Secret is watched for as long as somebody holds it")]
    entry: Arc<Entry>,
}

#[derive(Debug, Default)]
struct Inner {
    everywhere: HashMap<String, Everywhere>,
    single: HashMap<Named, Weak<Entry>>,
}

/// An object with a separate watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    holder: Holder,
    namespace: String,
    name: String,
}

/// The state of a name that is watched in all namespaces. The watch begins with the first follower.
struct Everywhere {
    begun: bool,
    account: State,
    /// Followed Secrets by namespace.
    entries: HashMap<String, Weak<Entry>>,
}

impl Everywhere {
    fn of(name: &str) -> Self {
        Self { begun: false, account: State::of(Holder::Secret, name), entries: HashMap::new() }
    }
}

impl std::fmt::Debug for Everywhere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Everywhere").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// A Secret, with the state that is shared by its followers.
#[derive(Debug)]
struct Entry {
    known: watch::Sender<Known>,
    #[expect(dead_code, reason = "a watch of its own ends when the last follower is gone")]
    watch: Option<DropGuard>,
}

impl Entry {
    fn update(&self, known: Known) {
        self.known.send_if_modified(|old| {
            let differs_from = known.differs_from(old);
            *old = known;
            differs_from
        });
    }
}

/// The subject of a watch to start. A newer watch replaces a waiting one of the same object, whose followers are gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Begun {
    One(Named),
    Everywhere(String),
}

/// A watch to start.
#[derive(Debug)]
enum Begin {
    One { named: Named, entry: Weak<Entry>, stop: CancellationToken },
    Everywhere(String),
}

impl Default for Secrets {
    fn default() -> Self {
        let (begin, inbox) = queue();
        Self { inner: Mutex::default(), begin, inbox: Mutex::new(Some(inbox)), register: Arc::default() }
    }
}

impl Secrets {
    /// Replaces the Secrets that the operator configured for every namespace, with their purposes. Each registry
    /// Secret is watched in all namespaces once it has a follower.
    pub fn set_everywhere(&self, named: Vec<(String, Purpose)>) {
        let of_registries =
            |(_, purpose): &&(String, Purpose)| matches!(purpose, Purpose::ImageRegistry | Purpose::PackageRegistry);
        let mut inner = self.inner.lock();
        for (name, _) in named.iter().filter(of_registries) {
            inner.everywhere.entry(name.clone()).or_insert_with(|| Everywhere::of(name));
        }
        drop(inner);
        if self.register.set_everywhere(named) {
            self.wake_all();
        }
    }

    /// Replaces the references of an object to Secrets of its namespace, with their purposes.
    pub fn set_references(&self, namespace: &str, object: (Referrer, &str), references: Vec<(String, Purpose)>) {
        let differing = self.register.set(namespace, object, references);
        let mut awake = Vec::new();
        let inner = self.inner.lock();
        for name in differing {
            let entry = inner.everywhere.get(&name).and_then(|everywhere| everywhere.entries.get(namespace));
            awake.extend(entry.and_then(Weak::upgrade));
            for holder in [Holder::Secret, Holder::Digests] {
                let named = Named { holder, namespace: namespace.to_owned(), name: name.clone() };
                awake.extend(inner.single.get(&named).and_then(Weak::upgrade));
            }
        }
        drop(inner);
        wake(&awake);
    }

    /// Records that all objects of a kind were set, or that the cluster does not serve the kind.
    pub fn set_listed(&self, referrer: Referrer) {
        if self.register.set_listed(referrer) {
            self.wake_all();
        }
    }

    /// Records that the objects of a kind are not known any more, until [`set_listed`](Self::set_listed) is called again.
    /// Followers are not woken: a Secret in use stays in use until then.
    pub fn set_unlisted(&self, referrer: Referrer) {
        self.register.set_unlisted(referrer);
    }

    /// Returns the purposes of the Secrets of a namespace.
    ///
    /// # Errors
    /// A kind is not listed yet.
    pub fn purposes(&self, namespace: &str) -> Result<BTreeMap<String, Purposes>, Referrer> {
        match self.register.unlisted() {
            Some(referrer) => Err(referrer),
            None => Ok(self.register.all_of(namespace)),
        }
    }

    /// Subscribes to changes of the purposes in a namespace.
    pub fn purpose_changes(&self, namespace: &str) -> watch::Receiver<u64> {
        self.register.listen(namespace)
    }

    fn wake_all(&self) {
        let inner = self.inner.lock();
        let everywhere = inner.everywhere.values().flat_map(|everywhere| everywhere.entries.values());
        let awake: Vec<_> = inner.single.values().chain(everywhere).filter_map(Weak::upgrade).collect();
        drop(inner);
        wake(&awake);
    }

    /// Follows a Secret for this use, whether it exists or not.
    pub fn follow(&self, namespace: &str, name: &str, used_for: Purpose) -> Followed {
        let mut inner = self.inner.lock();
        let entry = match inner.everywhere.get_mut(name) {
            Some(everywhere) => self.follow_everywhere(everywhere, namespace, name),
            None => self.follow_one(&mut inner.single, Holder::Secret, namespace, name),
        };
        self.followed((namespace, name), entry, Some(used_for))
    }

    /// Follows changes of a Secret that a Function's code uses. The data contains digests instead of values.
    pub fn follow_digests(&self, namespace: &str, name: &str) -> Followed {
        let entry = self.follow_one(&mut self.inner.lock().single, Holder::Digests, namespace, name);
        self.followed((namespace, name), entry, Some(Purpose::Code))
    }

    /// Follows a ConfigMap, whether it exists or not.
    pub(crate) fn follow_config_map(&self, namespace: &str, name: &str) -> Followed {
        let entry = self.follow_one(&mut self.inner.lock().single, Holder::ConfigMap, namespace, name);
        self.followed((namespace, name), entry, None)
    }

    fn followed(&self, (namespace, name): (&str, &str), entry: Arc<Entry>, used_for: Option<Purpose>) -> Followed {
        Followed {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            known: entry.known.subscribe(),
            taken: Known::Nothing,
            used_for,
            register: Arc::clone(&self.register),
            entry,
        }
    }

    fn follow_everywhere(&self, everywhere: &mut Everywhere, namespace: &str, name: &str) -> Arc<Entry> {
        if !std::mem::replace(&mut everywhere.begun, true) {
            self.begin.send(Begun::Everywhere(name.to_owned()), Begin::Everywhere(name.to_owned()));
        }
        if let Some(entry) = everywhere.entries.get(namespace).and_then(Weak::upgrade) {
            return entry;
        }
        let known = watch::Sender::new(everywhere.account.known(namespace));
        let entry = Arc::new(Entry { known, watch: None });
        remember(&mut everywhere.entries, namespace.to_owned(), &entry);
        entry
    }

    fn follow_one(
        &self,
        single: &mut HashMap<Named, Weak<Entry>>,
        holder: Holder,
        namespace: &str,
        name: &str,
    ) -> Arc<Entry> {
        let named = Named { holder, namespace: namespace.to_owned(), name: name.to_owned() };
        if let Some(entry) = single.get(&named).and_then(Weak::upgrade) {
            return entry;
        }
        let stop = CancellationToken::new();
        let watch = Some(stop.clone().drop_guard());
        let entry = Arc::new(Entry { known: watch::Sender::new(Known::Nothing), watch });
        remember(single, named.clone(), &entry);
        self.begin.send(Begun::One(named.clone()), Begin::One { named, entry: Arc::downgrade(&entry), stop });
        entry
    }

    /// Runs the watches until `stop`.
    ///
    /// # Errors
    /// A watch panicked.
    pub async fn run(self: Arc<Self>, cluster: Cluster, stop: CancellationToken) -> Result<(), JoinError> {
        let inbox = self.inbox.lock().take();
        let Some(mut inbox) = inbox else { return Ok(()) };
        let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
        let config_maps = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(ended) = tasks.join_next() => ended?,
                begin = inbox.next() => match begin {
                    Begin::One { named, entry, stop } => {
                        let kind = if named.holder == Holder::ConfigMap { &config_maps } else { &kind };
                        let events = cluster.watch(kind, Selection::named(Some(&named.namespace), &named.name));
                        tasks.spawn(watch_one(events, named, entry, stop));
                    }
                    Begin::Everywhere(name) => {
                        let events = cluster.watch(&kind, Selection::named(None, &name));
                        tasks.spawn(Arc::clone(&self).watch_everywhere(events, name));
                    }
                },
            }
        }
    }

    async fn watch_everywhere(self: Arc<Self>, mut events: BoxStream<'static, WatchEvent>, name: String) {
        while let Some(event) = events.next().await {
            // The entries are dropped after the lock is released, because these may be the last references to them.
            let mut affected = Vec::new();
            let mut inner = self.inner.lock();
            let Some(Everywhere { account, entries, .. }) = inner.everywhere.get_mut(&name) else { return };
            match account.observe(event) {
                Affected::None => {}
                Affected::One(namespace) => {
                    affected.extend(entries.get(&namespace).and_then(Weak::upgrade).map(|entry| (entry, namespace)));
                }
                Affected::All => {
                    let all =
                        entries.iter().filter_map(|(namespace, entry)| Some((entry.upgrade()?, namespace.clone())));
                    affected.extend(all);
                }
            }
            for (entry, namespace) in &affected {
                entry.update(account.known(namespace));
            }
            drop(inner);
        }
    }
}

async fn watch_one(
    mut events: BoxStream<'static, WatchEvent>,
    Named { holder, namespace, name }: Named,
    entry: Weak<Entry>,
    stop: CancellationToken,
) {
    let mut account = State::of(holder, &name);
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        if account.observe(event) != Affected::None {
            let Some(entry) = entry.upgrade() else { return };
            entry.update(account.known(&namespace));
        }
    }
}

/// Wakes the followers. Must be called without the lock, because these may be the last references to the entries.
fn wake(entries: &[Arc<Entry>]) {
    for entry in entries {
        entry.known.send_modify(|_| {});
    }
}

/// Adds an entry. Before the map grows, entries without followers are dropped, so the cost is proportional to the
/// additions.
fn remember<K: Eq + Hash>(entries: &mut HashMap<K, Weak<Entry>>, key: K, entry: &Arc<Entry>) {
    if entries.len() == entries.capacity() {
        entries.retain(|_, entry| entry.strong_count() > 0);
    }
    entries.insert(key, Arc::downgrade(entry));
}

impl Followed {
    /// Returns the namespace and the name of the followed object.
    pub fn of(&self) -> (&str, &str) {
        (&self.namespace, &self.name)
    }

    /// Returns the current state. [`Followed::changed`] waits for the next one.
    pub fn take(&mut self) -> Known {
        let known = self.known.borrow_and_update().clone();
        self.taken = self.judged(known);
        self.taken.clone()
    }

    /// Withholds content whose use is excluded.
    fn judged(&self, known: Known) -> Known {
        let Some(used_for) = self.used_for else { return known };
        let purposes = self.register.purposes(&self.namespace, &self.name, used_for);
        known.for_use(used_for, purposes).named_by(|has| self.register.user(&self.namespace, &self.name, has))
    }

    /// Returns the state of the last `take`.
    pub fn taken(&self) -> &Known {
        &self.taken
    }

    /// Waits at most 10 s for the first state and returns it. [`Followed::changed`] waits for the next state.
    pub async fn known(&mut self) -> Known {
        let settled = async {
            // The sender lives as long as this follower.
            while !self.take().is_settled() && self.known.changed().await.is_ok() {}
        };
        let _ = tokio::time::timeout(WITHIN, settled).await;
        self.take()
    }

    /// Waits until the state differs from the one that was taken last. Cancel-safe: after each wake there is a result, or
    /// nothing has changed.
    pub async fn changed(&mut self) {
        // The sender lives as long as this follower.
        while self.known.changed().await.is_ok() {
            let known = self.known.borrow_and_update().clone();
            if self.is_different(known) {
                return;
            }
        }
    }

    /// Whether a state is a reason to take it. Content that is used or withheld stays so while a kind is not listed: the
    /// end of that list wakes the follower again.
    fn is_different(&self, known: Known) -> bool {
        let is_judged = match (&self.taken, &known) {
            (Known::Data(taken), Known::Data(now)) => taken == now,
            (Known::Withheld { .. }, Known::Data(_)) => true,
            _ => false,
        };
        if is_judged && self.is_unlisted() {
            return false;
        }
        self.judged(known).differs_from(&self.taken)
    }

    /// Whether a kind that may exclude this use is not listed.
    fn is_unlisted(&self) -> bool {
        let purposes = |used_for| self.register.purposes(&self.namespace, &self.name, used_for);
        self.used_for.is_some_and(|used_for| purposes(used_for).is_err())
    }

    /// Waits for a change of any of the followed objects. Waits forever if there are none.
    pub async fn any_changed(followed: impl Iterator<Item = &mut Self>) {
        let waits = followed.map(|one| Box::pin(one.changed())).collect::<Vec<_>>();
        if waits.is_empty() {
            return std::future::pending().await;
        }
        select_all(waits).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// The kinds that are listed again when an agent begins to lead.
    const LED: [Referrer; 4] =
        [Referrer::Receiver, Referrer::ImageRepository, Referrer::ImageUpdateAutomation, Referrer::Function];

    /// Returns Secrets whose referrers are all listed, and a follower of a Secret with its shared state.
    fn followed() -> (Secrets, Followed, Arc<Entry>) {
        let secrets = Secrets::default();
        for referrer in Referrer::ALL {
            secrets.set_listed(referrer);
        }
        let followed = secrets.follow("shop", "git", Purpose::Code);
        let named = Named { holder: Holder::Secret, namespace: "shop".to_owned(), name: "git".to_owned() };
        let entry = secrets.inner.lock().single.get(&named).and_then(Weak::upgrade).expect("it is followed");
        (secrets, followed, entry)
    }

    fn is_woken(followed: &mut Followed) -> bool {
        followed.changed().now_or_never().is_some()
    }

    fn data(kind: &str) -> Known {
        Known::Data(Arc::new(super::super::Contents { kind: kind.to_owned(), ..Default::default() }))
    }

    #[test]
    fn a_secret_in_use_stays_in_use_while_kinds_are_listed_again() {
        let (secrets, mut followed, entry) = followed();
        entry.update(data("a"));
        assert!(is_woken(&mut followed) && followed.take().data().is_some());
        for referrer in LED {
            secrets.set_unlisted(referrer);
        }
        for referrer in LED {
            secrets.set_listed(referrer);
            assert!(!is_woken(&mut followed), "{referrer:?}");
        }
        assert!(followed.taken().data().is_some());
    }

    #[test]
    fn a_follower_is_woken_once_if_the_last_listed_kind_excludes_the_use() {
        let (secrets, mut followed, entry) = followed();
        entry.update(data("a"));
        assert!(is_woken(&mut followed) && followed.take().data().is_some());
        for referrer in LED {
            secrets.set_unlisted(referrer);
        }
        secrets.set_references("shop", (Referrer::Receiver, "hook"), vec![("git".to_owned(), Purpose::Receiver)]);
        for referrer in &LED[..3] {
            secrets.set_listed(*referrer);
            assert!(!is_woken(&mut followed), "{referrer:?}");
        }
        secrets.set_listed(LED[3]);
        assert!(is_woken(&mut followed) && matches!(followed.take(), Known::Withheld { .. }));
        assert!(!is_woken(&mut followed));
    }

    #[test]
    fn changed_content_waits_for_the_list_of_a_kind() {
        let (secrets, mut followed, entry) = followed();
        entry.update(data("a"));
        assert!(is_woken(&mut followed) && followed.take().data().is_some());
        secrets.set_unlisted(Referrer::Receiver);
        entry.update(data("b"));
        assert!(is_woken(&mut followed) && followed.take().data().is_none());
        secrets.set_listed(Referrer::Receiver);
        assert!(is_woken(&mut followed));
        assert_eq!(followed.take().kind(), Some("b"));
    }
}
