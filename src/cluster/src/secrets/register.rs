//! The register of purposes: all Secrets that objects reference, with their purposes.
//!
//! Invariant: until all objects of a kind are listed, every Secret may have the purposes that this kind assigns.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::purpose::{Purpose, Purposes, by_name};

/// A kind of objects that reference Secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Referrer {
    /// GitRepositories.
    GitRepository,
    /// GitSyncs.
    GitSync,
    /// Receivers.
    Receiver,
    /// Providers.
    Provider,
    /// OCIRepositories.
    OciRepository,
    /// HelmCharts.
    HelmChart,
    /// ImageRepositories.
    ImageRepository,
    /// ImageUpdateAutomations.
    ImageUpdateAutomation,
    /// Functions.
    Function,
}

impl Referrer {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::GitRepository,
        Self::GitSync,
        Self::Receiver,
        Self::Provider,
        Self::OciRepository,
        Self::HelmChart,
        Self::ImageRepository,
        Self::ImageUpdateAutomation,
        Self::Function,
    ];

    /// The kind for messages.
    pub(super) const fn singular(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepository",
            Self::GitSync => "GitSync",
            Self::Receiver => "Receiver",
            Self::Provider => "Provider",
            Self::OciRepository => "OCIRepository",
            Self::HelmChart => "HelmChart",
            Self::ImageRepository => "ImageRepository",
            Self::ImageUpdateAutomation => "ImageUpdateAutomation",
            Self::Function => "Function",
        }
    }

    /// The plural of the kind for messages.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::GitRepository => "GitRepositories",
            Self::GitSync => "GitSyncs",
            Self::Receiver => "Receivers",
            Self::Provider => "Providers",
            Self::OciRepository => "OCIRepositories",
            Self::HelmChart => "HelmCharts",
            Self::ImageRepository => "ImageRepositories",
            Self::ImageUpdateAutomation => "ImageUpdateAutomations",
            Self::Function => "Functions",
        }
    }
}

/// A kind and the name of an object in a namespace.
type Object = (Referrer, String);

/// The purposes of all Secrets.
#[derive(Debug, Default)]
pub(super) struct Register(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Secrets that the operator configured, in every namespace.
    everywhere: BTreeMap<String, Purposes>,
    namespaces: HashMap<String, Namespace>,
    listed: BTreeSet<Referrer>,
}

#[derive(Debug, Default)]
struct Namespace {
    objects: BTreeMap<Object, Vec<(String, Purpose)>>,
    /// Number of references, by Secret and purpose.
    secrets: BTreeMap<String, BTreeMap<Purpose, usize>>,
    changed: watch::Sender<u64>,
}

impl Namespace {
    fn count(&mut self, (secret, purpose): &(String, Purpose), by: isize) {
        let purposes = self.secrets.entry(secret.clone()).or_default();
        let count = purposes.entry(*purpose).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            purposes.remove(purpose);
        }
        if purposes.is_empty() {
            self.secrets.remove(secret);
        }
    }

    fn is_unused(&self) -> bool {
        self.objects.is_empty() && self.changed.receiver_count() == 0
    }
}

impl Inner {
    fn wake_all(&self) {
        self.namespaces.values().for_each(|namespace| namespace.changed.send_modify(|count| *count += 1));
    }
}

impl Register {
    /// Replaces the Secrets that the operator configured for every namespace. Returns whether they changed.
    pub(super) fn set_everywhere(&self, named: impl IntoIterator<Item = (String, Purpose)>) -> bool {
        let mut everywhere: BTreeMap<String, Purposes> = BTreeMap::new();
        for (secret, purpose) in named {
            everywhere.entry(secret).or_default().insert(purpose);
        }
        let mut inner = self.0.lock();
        let is_new = inner.everywhere != everywhere;
        if is_new {
            inner.everywhere = everywhere;
            inner.wake_all();
        }
        is_new
    }

    /// Replaces the references of an object. Returns the Secrets whose purposes may have changed.
    pub(super) fn set(
        &self,
        namespace: &str,
        (referrer, object): (Referrer, &str),
        mut named: Vec<(String, Purpose)>,
    ) -> Vec<String> {
        // An object may name a Secret in two fields for one purpose. It counts once.
        named.sort();
        named.dedup();
        let mut inner = self.0.lock();
        if named.is_empty() && !inner.namespaces.contains_key(namespace) {
            return Vec::new();
        }
        let of = inner.namespaces.entry(namespace.to_owned()).or_default();
        let key = (referrer, object.to_owned());
        let before = if named.is_empty() { of.objects.remove(&key) } else { of.objects.insert(key, named.clone()) };
        let before = before.unwrap_or_default();
        let mut differing = BTreeSet::new();
        for gone in before.iter().filter(|one| !named.contains(one)) {
            of.count(gone, -1);
            differing.insert(gone.0.clone());
        }
        for new in named.iter().filter(|one| !before.contains(one)) {
            of.count(new, 1);
            differing.insert(new.0.clone());
        }
        if !differing.is_empty() {
            of.changed.send_modify(|count| *count += 1);
        }
        if of.is_unused() {
            inner.namespaces.remove(namespace);
        }
        differing.into_iter().collect()
    }

    /// Records that all objects of a kind were set. Returns whether that is new.
    pub(super) fn set_listed(&self, referrer: Referrer) -> bool {
        let mut inner = self.0.lock();
        let is_new = inner.listed.insert(referrer);
        if is_new {
            inner.wake_all();
        }
        is_new
    }

    /// Records that the objects of a kind are not known any more.
    pub(super) fn set_unlisted(&self, referrer: Referrer) {
        self.0.lock().listed.remove(&referrer);
    }

    /// Subscribes to changes in a namespace.
    pub(super) fn listen(&self, namespace: &str) -> watch::Receiver<u64> {
        self.0.lock().namespaces.entry(namespace.to_owned()).or_default().changed.subscribe()
    }

    /// Returns a kind whose objects are not listed yet, if there is one.
    pub(super) fn unlisted(&self) -> Option<Referrer> {
        let inner = self.0.lock();
        Referrer::ALL.into_iter().find(|referrer| !inner.listed.contains(referrer))
    }

    /// Returns the purposes of a Secret.
    ///
    /// # Errors
    /// A kind that may exclude this use is not listed yet.
    pub(super) fn purposes(&self, namespace: &str, secret: &str, used_for: Purpose) -> Result<Purposes, Referrer> {
        let inner = self.0.lock();
        let unlisted = referrers_that_exclude(used_for).iter().find(|referrer| !inner.listed.contains(referrer));
        if let Some(referrer) = unlisted {
            return Err(*referrer);
        }
        let named = inner.namespaces.get(namespace).and_then(|of| of.secrets.get(secret));
        let operators = inner.everywhere.get(secret).into_iter().flatten();
        Ok(named.into_iter().flat_map(BTreeMap::keys).chain(operators).copied().chain(by_name(secret)).collect())
    }

    /// Returns kind and name of the first object of a namespace that uses a Secret for a purpose.
    pub(super) fn user(&self, namespace: &str, secret: &str, purpose: Purpose) -> Option<String> {
        let inner = self.0.lock();
        let mut objects = inner.namespaces.get(namespace)?.objects.iter();
        let uses = |named: &[(String, Purpose)]| named.iter().any(|(name, of)| name == secret && *of == purpose);
        let ((referrer, name), _) = objects.find(|(_, named)| uses(named))?;
        Some(format!("{} {name}", referrer.singular()))
    }

    /// Returns the purposes of all Secrets that the operator configured or that objects of a namespace refer to.
    pub(super) fn all_of(&self, namespace: &str) -> BTreeMap<String, Purposes> {
        let inner = self.0.lock();
        let mut all = inner.everywhere.clone();
        for (secret, purposes) in inner.namespaces.get(namespace).into_iter().flat_map(|of| &of.secrets) {
            all.entry(secret.clone()).or_default().extend(purposes.keys());
        }
        all
    }
}

/// Returns the kinds whose references may exclude this use.
const fn referrers_that_exclude(used_for: Purpose) -> &'static [Referrer] {
    match used_for {
        // The repository of a Function excludes these uses, too.
        Purpose::Code | Purpose::Provider | Purpose::Artifact | Purpose::Signing => &Referrer::ALL,
        Purpose::FunctionRepository | Purpose::Repository | Purpose::Values | Purpose::Proxy => &[
            Referrer::GitRepository,
            Referrer::GitSync,
            Referrer::Receiver,
            Referrer::Provider,
            Referrer::OciRepository,
            Referrer::HelmChart,
            Referrer::ImageRepository,
            Referrer::ImageUpdateAutomation,
        ],
        Purpose::Receiver => &[
            Referrer::GitSync,
            Referrer::Provider,
            Referrer::OciRepository,
            Referrer::HelmChart,
            Referrer::ImageRepository,
        ],
        Purpose::Decryption | Purpose::BuilderImage | Purpose::PackageRegistry | Purpose::ImageRegistry => {
            &[Referrer::GitSync]
        }
        Purpose::SignatureKeys
        | Purpose::KubeConfig
        | Purpose::GeneratedKey
        | Purpose::Nats
        | Purpose::AllNamespaces
        | Purpose::ServiceAccount
        | Purpose::BootstrapToken => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> Register {
        let register = Register::default();
        for referrer in Referrer::ALL {
            assert!(register.set_listed(referrer));
        }
        register
    }

    fn named(secret: &str, purpose: Purpose) -> Vec<(String, Purpose)> {
        vec![(secret.to_owned(), purpose)]
    }

    #[test]
    fn knows_no_purpose_before_the_kinds_that_exclude_a_use_are_listed() {
        let register = Register::default();
        let of = |used_for| register.purposes("shop", "token", used_for);
        register.set("shop", (Referrer::Receiver, "hook"), named("token", Purpose::Receiver));
        assert_eq!(of(Purpose::Code), Err(Referrer::GitRepository));
        assert_eq!(of(Purpose::KubeConfig), Ok(Purposes::from([Purpose::Receiver])));
        for referrer in Referrer::ALL {
            assert_eq!(of(Purpose::Code), Err(referrer));
            register.set_listed(referrer);
        }
        assert_eq!(of(Purpose::Code), Ok(Purposes::from([Purpose::Receiver])));
        assert_eq!(register.purposes("other", "token", Purpose::Code), Ok(Purposes::new()));
    }

    /// The login and the CA of a Provider may be in one Secret.
    #[test]
    fn a_secret_that_an_object_names_twice_counts_once() {
        let register = listed();
        let of = || register.purposes("shop", "login", Purpose::Code).unwrap();
        let [once, twice] = [1, 2].map(|times| vec![("login".to_owned(), Purpose::Provider); times]);
        register.set("shop", (Referrer::Provider, "first"), once.clone());
        for names in [&once, &twice, &once, &twice] {
            register.set("shop", (Referrer::Provider, "second"), names.clone());
            assert_eq!(of(), Purposes::from([Purpose::Provider]));
        }
        register.set("shop", (Referrer::Provider, "second"), Vec::new());
        assert_eq!(of(), Purposes::from([Purpose::Provider]), "the first one still names it");
        register.set("shop", (Referrer::Provider, "first"), Vec::new());
        assert_eq!(of(), Purposes::new());
    }

    #[test]
    fn knows_no_purpose_while_a_kind_is_listed_again() {
        let register = listed();
        let of = |used_for| register.purposes("shop", "token", used_for);
        register.set_unlisted(Referrer::Receiver);
        assert_eq!((of(Purpose::Code), of(Purpose::KubeConfig)), (Err(Referrer::Receiver), Ok(Purposes::new())));
        assert_eq!(register.unlisted(), Some(Referrer::Receiver));
        register.set("shop", (Referrer::Receiver, "hook"), named("token", Purpose::Receiver));
        assert!(register.set_listed(Referrer::Receiver), "listeners are woken");
        assert_eq!(of(Purpose::Code), Ok(Purposes::from([Purpose::Receiver])));
    }

    #[test]
    fn forgets_a_purpose_with_the_last_object_that_gives_it() {
        let register = listed();
        let of = || register.purposes("shop", "git", Purpose::Code).unwrap().into_iter().collect::<Vec<_>>();
        for repository in ["a", "b"] {
            register.set("shop", (Referrer::GitRepository, repository), named("git", Purpose::Repository));
        }
        assert!(register.set("shop", (Referrer::GitRepository, "a"), named("git", Purpose::Repository)).is_empty());
        assert_eq!(register.set("shop", (Referrer::GitRepository, "a"), vec![]), ["git"]);
        assert_eq!(of(), [Purpose::Repository], "the other one still names it");
        register.set("shop", (Referrer::GitRepository, "b"), named("other", Purpose::Proxy));
        assert_eq!(of(), []);
        register.set("shop", (Referrer::GitRepository, "b"), vec![]);
        assert!(register.0.lock().namespaces.is_empty());
    }

    #[test]
    fn names_the_object_that_gives_a_secret_its_purpose() {
        let register = listed();
        register.set("shop", (Referrer::GitRepository, "a"), named("key", Purpose::Repository));
        register.set("shop", (Referrer::ImageUpdateAutomation, "web"), named("key", Purpose::Signing));
        let user = |namespace: &str, secret: &str| register.user(namespace, secret, Purpose::Signing);
        assert_eq!(user("shop", "key").as_deref(), Some("ImageUpdateAutomation web"));
        assert_eq!((user("shop", "other"), user("other", "key")), (None, None));
    }

    #[test]
    fn wakes_only_listeners_of_the_namespace() {
        let register = listed();
        let (mut shop, mut other) = (register.listen("shop"), register.listen("other"));
        register.set("shop", (Referrer::Receiver, "hook"), named("token", Purpose::Receiver));
        assert!(shop.has_changed().unwrap() && !other.has_changed().unwrap());
        shop.mark_unchanged();
        register.set("shop", (Referrer::Receiver, "hook"), named("token", Purpose::Receiver));
        assert!(!shop.has_changed().unwrap(), "an update of something else");
        assert!(register.set_everywhere([("login".to_owned(), Purpose::ImageRegistry)]));
        assert!(other.has_changed().unwrap());
        other.mark_unchanged();
        assert!(!register.set_everywhere([("login".to_owned(), Purpose::ImageRegistry)]));
        assert!(!other.has_changed().unwrap());
        let all = register.all_of("shop");
        assert_eq!(all["login"], Purposes::from([Purpose::ImageRegistry]));
        assert_eq!(all["token"], Purposes::from([Purpose::Receiver]));
    }
}
