//! The consumers of each remote. A remote's data is kept while it has a consumer.
//!
//! Invariant: [`Consumers::set`] returns a remote when it has lost its last consumer.
//! Invariant: the consumers are complete once all kinds are listed, and each consumer has set its remote or failed to
//! determine it.
//! Not here: removing the data.

use std::collections::{HashMap, HashSet};

/// The identity of a remote: a digest of its address and credentials.
pub(super) type Identity = [u8; 32];

/// A GitSync, Function, GitRepository or OCIRepository that reads a remote, one at a time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Consumer {
    /// Kind of the consumer. A GitSync and a Function with the same name are two consumers.
    pub kind: ConsumerKind,
    /// Namespace of the consumer.
    pub namespace: String,
    /// Name of the consumer.
    pub name: String,
}

impl Consumer {
    /// Returns a consumer of this kind.
    pub fn new(kind: ConsumerKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// The kind of a [`Consumer`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConsumerKind {
    /// A GitSync.
    GitSync,
    /// A Function.
    Function,
    /// A GitRepository whose status is kept up to date. Such a consumer has no mirror, so it is not one of the
    /// [`Consumers`].
    GitRepository,
    /// An OCIRepository. It keeps the mirror that contains its artifact.
    OciRepository,
    /// A HelmChart. It keeps the mirror with its chart.
    HelmChart,
    /// An ImageRepository. It has no mirror, so it is not one of the [`Consumers`].
    ImageRepository,
    /// An ImageUpdateAutomation. It reads the branch that it updates.
    ImageUpdateAutomation,
}

impl ConsumerKind {
    const ALL: [Self; 2] = [Self::GitSync, Self::Function];

    /// Returns whether an object of this kind looks up an artifact.
    pub(super) fn has_artifact(self) -> bool {
        matches!(self, Self::OciRepository | Self::HelmChart)
    }

    /// Returns whether deliveries wake this kind.
    pub(super) fn is_delivered_to(self) -> bool {
        self != Self::GitRepository
    }

    /// Returns whether pushes wake this kind. The status of a GitRepository follows the kinds that pushes wake.
    pub(super) fn is_pushed_to(self) -> bool {
        Self::ALL.contains(&self)
    }
}

/// Maximum number of submodule remotes per remote.
const SUBMODULES: usize = 256;

/// The consumers of a remote, by namespace. If tenants are compared, thousands of consumers in one namespace count as
/// one.
type ByNamespace = HashMap<String, HashSet<(ConsumerKind, String)>>;

/// All consumers.
#[derive(Debug, Default)]
pub(super) struct Consumers {
    reads: HashMap<Consumer, Identity>,
    remotes: HashMap<Identity, ByNamespace>,
    /// The remotes of submodules, most recently used last, by the remote of the outermost repository.
    submodules: HashMap<Identity, Vec<Identity>>,
    /// Consumers whose remote is not known yet.
    unheard: HashSet<Consumer>,
    /// Kinds whose initial consumers are all registered.
    named: HashSet<ConsumerKind>,
}

impl Consumers {
    /// Registers a consumer whose remote is awaited. A consumer that appears after its kind was listed is not awaited.
    pub(super) fn register(&mut self, consumer: &Consumer) {
        if !self.named.contains(&consumer.kind) && !self.reads.contains_key(consumer) {
            self.unheard.insert(consumer.clone());
        }
    }

    /// Records that all initial consumers of this kind are registered.
    pub(super) fn all_registered(&mut self, kind: ConsumerKind) {
        self.named.insert(kind);
    }

    /// Records that the consumer has set its remote, or cannot determine it.
    pub(super) fn resolved(&mut self, consumer: &Consumer) {
        self.unheard.remove(consumer);
    }

    /// Returns whether the remotes of all consumers are known.
    pub(super) fn are_complete(&self) -> bool {
        self.unheard.is_empty() && ConsumerKind::ALL.iter().all(|kind| self.named.contains(kind))
    }

    /// Returns whether a remote has a consumer.
    pub(super) fn has(&self, remote: &Identity) -> bool {
        self.remotes.contains_key(remote)
    }

    /// Returns every remote that has a consumer.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &Identity> {
        self.remotes.keys()
    }

    /// Sets or (`None`) removes the remote of a consumer. Returns the old remote if this was its last consumer.
    pub(super) fn set(&mut self, consumer: &Consumer, remote: Option<Identity>) -> Option<Identity> {
        self.resolved(consumer);
        let old = self.reads.get(consumer).copied();
        if old == remote {
            return None;
        }
        match remote {
            Some(remote) => {
                self.reads.insert(consumer.clone(), remote);
                let of_remote = self.remotes.entry(remote).or_default();
                let of_namespace = of_remote.entry(consumer.namespace.clone()).or_default();
                of_namespace.insert((consumer.kind, consumer.name.clone()));
            }
            None => {
                self.reads.remove(consumer);
            }
        }
        let namespaces = self.remotes.get_mut(&old?)?;
        let of_namespace = namespaces.get_mut(&consumer.namespace)?;
        of_namespace.remove(&(consumer.kind, consumer.name.clone()));
        if of_namespace.is_empty() {
            namespaces.remove(&consumer.namespace);
        }
        if !namespaces.is_empty() {
            return None;
        }
        self.remotes.remove(&old?);
        old
    }

    /// Records a submodule of a remote's commit. Returns the remote of the submodule that is evicted in its favour.
    pub(super) fn add_submodule(&mut self, parent: Identity, submodule: Identity) -> Option<Identity> {
        // The submodules of a remote without a consumer would never be removed.
        if !self.remotes.contains_key(&parent) {
            return None;
        }
        let known = self.submodules.entry(parent).or_default();
        known.retain(|other| *other != submodule);
        known.push(submodule);
        let oldest = (known.len() > SUBMODULES).then(|| known.remove(0))?;
        (!self.is_used(&oldest)).then_some(oldest)
    }

    /// Returns the remotes of the submodules of a remote.
    pub(super) fn submodules(&self, parent: &Identity) -> &[Identity] {
        self.submodules.get(parent).map_or(&[], Vec::as_slice)
    }

    /// Removes the submodules of a remote that has lost its last consumer. Returns the remotes that neither a consumer
    /// nor a submodule uses any more.
    pub(super) fn leave(&mut self, remote: Identity) -> Vec<Identity> {
        let mut left = self.submodules.remove(&remote).unwrap_or_default();
        left.push(remote);
        left.retain(|remote| !self.is_used(remote));
        left
    }

    /// Returns whether a remote has a consumer or is a submodule's remote.
    fn is_used(&self, remote: &Identity) -> bool {
        self.remotes.contains_key(remote) || self.submodules.values().any(|known| known.contains(remote))
    }

    /// Returns the namespaces with consumers of a remote, each once.
    pub(super) fn namespaces(&self, remote: &Identity) -> impl Iterator<Item = &str> {
        self.remotes.get(remote).into_iter().flat_map(|namespaces| namespaces.keys()).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(kind: ConsumerKind) -> Consumer {
        Consumer::new(kind, "shop", "web")
    }

    #[test]
    fn a_namespace_is_named_once_until_its_last_consumer_leaves() {
        let mut consumers = Consumers::default();
        let of = |namespace: &str, number: usize| Consumer::new(ConsumerKind::GitSync, namespace, &number.to_string());
        let namespaces = |consumers: &Consumers| {
            let mut all: Vec<_> = consumers.namespaces(&[1; 32]).map(str::to_owned).collect();
            all.sort();
            all.join(" ")
        };
        for number in 0..3 {
            consumers.set(&of("shop", number), Some([1; 32]));
        }
        consumers.set(&of("mail", 0), Some([1; 32]));
        assert_eq!(namespaces(&consumers), "mail shop");
        assert_eq!(consumers.set(&of("mail", 0), Some([2; 32])), None);
        assert_eq!(namespaces(&consumers), "shop");
        for (number, last) in [(0, None), (1, None), (2, Some([1; 32]))] {
            assert_eq!(consumers.set(&of("shop", number), None), last, "{number}");
        }
        assert_eq!(namespaces(&consumers), "");
    }

    #[test]
    fn is_complete_when_all_kinds_are_listed_and_each_consumer_has_resolved() {
        let (sync, function) = (consumer(ConsumerKind::GitSync), consumer(ConsumerKind::Function));
        let mut consumers = Consumers::default();
        consumers.register(&sync);
        consumers.register(&function);
        consumers.set(&sync, Some([1; 32]));
        consumers.register(&sync);
        consumers.resolved(&function);
        assert!(!consumers.are_complete(), "there may be more of them");
        consumers.all_registered(ConsumerKind::GitSync);
        assert!(!consumers.are_complete(), "there may be more Functions");
        let late = Consumer::new(ConsumerKind::Function, "shop", "late");
        consumers.register(&late);
        consumers.all_registered(ConsumerKind::Function);
        assert!(!consumers.are_complete(), "one has not resolved");
        consumers.set(&late, None);
        assert!(consumers.are_complete());
        consumers.register(&Consumer::new(ConsumerKind::GitSync, "shop", "new"));
        assert!(consumers.are_complete(), "later consumers had no mirror before");
    }

    #[test]
    fn a_remote_is_kept_until_its_last_consumer_of_any_kind_is_gone() {
        let (sync, function) = (consumer(ConsumerKind::GitSync), consumer(ConsumerKind::Function));
        let (one, two) = ([1; 32], [2; 32]);
        let mut consumers = Consumers::default();
        assert_eq!(consumers.set(&sync, Some(one)), None);
        assert_eq!(consumers.set(&function, Some(one)), None);
        assert_eq!(consumers.set(&function, Some(one)), None, "nothing new");
        assert_eq!(consumers.set(&sync, None), None, "the Function still uses it");
        assert_eq!(consumers.set(&sync, None), None, "it is gone already");
        assert_eq!(consumers.set(&function, Some(two)), Some(one));
        assert_eq!(consumers.namespaces(&two).collect::<Vec<_>>(), ["shop"]);
        assert_eq!(consumers.set(&function, None), Some(two));
        assert!(
            consumers.reads.is_empty() && consumers.remotes.is_empty(),
            "nothing is kept of consumers that are gone"
        );
    }
    #[test]
    fn submodules_are_kept_for_the_consumers_of_their_repository() {
        let (sync, function) = (consumer(ConsumerKind::GitSync), consumer(ConsumerKind::Function));
        let (app, lib, other) = ([1; 32], [2; 32], [3; 32]);
        let mut consumers = Consumers::default();
        assert_eq!(consumers.add_submodule(app, lib), None);
        assert!(consumers.submodules.is_empty(), "nobody uses the repository");
        consumers.set(&sync, Some(app));
        consumers.add_submodule(app, lib);
        consumers.add_submodule(app, other);
        consumers.set(&function, Some(lib));
        assert_eq!(consumers.set(&function, None), Some(lib));
        assert!(consumers.leave(lib).is_empty(), "it is a submodule of the other one");
        assert_eq!(consumers.set(&function, Some(other)), None);
        assert_eq!(consumers.set(&sync, None), Some(app));
        assert_eq!(consumers.leave(app), [lib, app], "the third one has its own consumer");
        assert!(consumers.submodules.is_empty());
    }

    #[test]
    fn a_repository_keeps_only_so_many_submodules() {
        let (sync, app) = (consumer(ConsumerKind::GitSync), [255; 32]);
        let mut consumers = Consumers::default();
        consumers.set(&sync, Some(app));
        let submodule = |number: usize| {
            let mut identity = [0; 32];
            identity[..8].copy_from_slice(&number.to_be_bytes());
            identity
        };
        for number in 0..SUBMODULES {
            assert_eq!(consumers.add_submodule(app, submodule(number)), None);
        }
        assert_eq!(consumers.add_submodule(app, submodule(0)), None, "it was used last now");
        assert_eq!(consumers.add_submodule(app, submodule(SUBMODULES)), Some(submodule(1)));
        assert_eq!(consumers.submodules(&app).len(), SUBMODULES);
    }
}
