//! What is known of bases, namespaces and copies, and what is to be done about a copy.
//!
//! Invariant: nothing is deleted for a base that may be there, and nothing is created where something may be.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::copy::{Base, Found, Propagated, Whose};
use super::listing::Listing;
use crate::apply::Version;
use mainstay_api::names::{DISABLED, PROPAGATE, REGISTRY_FINALIZER};

/// How long the copies of a base that is gone stay: it may be about to be replaced (`kubectl replace --force`).
const LINGER: SignedDuration = SignedDuration::from_secs(5);

/// A place for a copy: a namespace, and the name of a base.
pub(super) type Place = (String, String);

/// What a namespace is to copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// It gets them, unless it is excluded.
    Open,
    /// It says that it is to have none.
    OptedOut,
    /// Nothing can be created there, and everything goes.
    Terminating,
}

/// What is to be done about a copy. What it is to have is not in it: that may be large, and many may be due.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// Nothing until then.
    Later(Timestamp),
    Create,
    /// Applies, if it still has this version. `created`: see [`Found::created`].
    Apply {
        version: Version,
        created: Option<usize>,
    },
    /// Deletes and creates: what cannot be changed is to be another.
    Replace(Version),
    Delete(Version),
    /// Takes Kyma's finalizer off a base: it would hold the base for ever where Kyma is not, and here nothing waits for its
    /// copies to go.
    TakeOffFinalizer(Finalizers),
}

/// The finalizers of a base besides Kyma's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finalizers {
    pub(super) resource_version: String,
    pub(super) others: Vec<String>,
}

impl Finalizers {
    /// Those of a base that has Kyma's.
    fn read(live: &Value) -> Option<Self> {
        let all = live["metadata"]["finalizers"].as_array()?;
        let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        all.contains(&REGISTRY_FINALIZER).then(|| Self {
            resource_version: live["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            others: all.into_iter().filter(|one| *one != REGISTRY_FINALIZER).map(str::to_owned).collect(),
        })
    }
}

/// A copy that is ours, or will be.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) version: Version,
    pub(super) whose: Whose,
}

/// Places about which something may have to be done.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) seen: BTreeSet<Place>,
    /// Something else is wanted there than before: what was tried before counts no more.
    pub(super) renewed: BTreeSet<Place>,
}

/// What is known.
#[derive(Debug)]
pub(super) struct State {
    propagated: Propagated,
    home: String,
    /// Namespaces that get no copies; `None` while that is not known.
    excluded: Option<HashSet<String>>,
    pub(super) bases: Listing<String, Arc<Base>>,
    /// Bases that are gone, and until when their copies stay.
    gone: HashMap<String, Timestamp>,
    finalizers: HashMap<String, Finalizers>,
    pub(super) namespaces: Listing<String, Namespace>,
    /// Those that are ours, also of bases that are gone.
    copies: Listing<Place, Copied>,
    /// What has the name of a base, by that name and by namespace.
    named: HashMap<String, Listing<String, Found>>,
    due: Due,
}

impl State {
    pub(super) fn new(propagated: Propagated, home: &str) -> Self {
        Self {
            propagated,
            home: home.to_owned(),
            excluded: None,
            bases: Listing::default(),
            gone: HashMap::new(),
            finalizers: HashMap::new(),
            namespaces: Listing::default(),
            copies: Listing::default(),
            named: HashMap::new(),
            due: Due::default(),
        }
    }

    /// The places about which something may have to be done.
    pub(super) fn take_due(&mut self) -> Due {
        std::mem::take(&mut self.due)
    }

    /// The bases that are copied.
    pub(super) fn copied(&self) -> impl Iterator<Item = (&String, &Arc<Base>)> {
        self.bases.iter().filter(|(_, base)| base.refused.is_none())
    }

    /// A base that is copied.
    pub(super) fn base(&self, name: &str) -> Option<&Arc<Base>> {
        self.bases.get(name).filter(|base| base.refused.is_none())
    }

    /// A base is there.
    pub(super) fn set_base(&mut self, name: &str, live: &Value, now: Timestamp) {
        match Finalizers::read(live) {
            Some(finalizers) => {
                self.finalizers.insert(name.to_owned(), finalizers);
                self.due.seen.insert((self.home.clone(), name.to_owned()));
            }
            None => _ = self.finalizers.remove(name),
        }
        match Base::read(&self.propagated, &self.home, live) {
            None => self.lose_base(name, now),
            Some(base) if self.bases.get(name).is_some_and(|known| **known == base) => self.bases.keep(name.to_owned()),
            Some(base) => {
                self.gone.remove(name);
                self.bases.insert(name.to_owned(), Arc::new(base));
                self.renew_all(name);
            }
        }
    }

    /// A base is gone, or has lost its label.
    pub(super) fn remove_base(&mut self, name: &str, now: Timestamp) {
        self.finalizers.remove(name);
        self.lose_base(name, now);
    }

    fn lose_base(&mut self, name: &str, now: Timestamp) {
        if self.bases.remove(&name.to_owned()).is_some() {
            self.gone.retain(|_, end| *end > now);
            self.gone.insert(name.to_owned(), now + LINGER);
            self.renew_all(name);
        }
    }

    /// All bases have been listed.
    pub(super) fn bases_complete(&mut self, now: Timestamp) {
        for (name, _) in self.bases.complete() {
            self.finalizers.remove(&name);
            self.gone.insert(name.clone(), now + LINGER);
            self.renew_all(&name);
        }
        let copies = self.copies.iter().map(|(place, _)| place.clone());
        self.due.seen.extend(copies);
    }

    /// A copy by its label is there; only those that are ours are kept, for anybody can set a label.
    pub(super) fn set_copy(&mut self, place: Place, copied: Option<Copied>) {
        let Some(copied) = copied else { return self.remove_copy(&place) };
        self.copies.insert(place.clone(), copied);
        // Of others their names are watched.
        if self.base(&place.1).is_none() {
            self.due.seen.insert(place);
        }
    }

    /// A list of copies begins.
    pub(super) fn copies_begin(&mut self) {
        self.copies.begin();
    }

    /// All copies have been listed.
    pub(super) fn copies_complete(&mut self) {
        self.copies.complete();
    }

    /// A copy is gone, or is ours no more.
    pub(super) fn remove_copy(&mut self, place: &Place) {
        if self.copies.remove(place).is_some() {
            self.due.seen.insert(place.clone());
        }
    }

    /// All copies of a base.
    fn all(&self, name: &str) -> Vec<Place> {
        let at = |namespace: &String| (namespace.clone(), name.to_owned());
        let copies = self.copies.iter().map(|(place, _)| place).filter(|place| place.1 == name);
        self.namespaces.iter().map(|(namespace, _)| at(namespace)).chain(copies.cloned()).collect()
    }

    fn set_all_due(&mut self, name: &str) {
        let all = self.all(name);
        self.due.seen.extend(all);
    }

    fn renew_all(&mut self, name: &str) {
        let all = self.all(name);
        self.due.renewed.extend(all);
    }

    /// These namespaces get no copies.
    pub(super) fn set_excluded(&mut self, excluded: Vec<String>) {
        self.excluded = Some(excluded.into_iter().collect());
        self.set_bases_due();
    }

    /// All copies of all bases.
    fn set_bases_due(&mut self) {
        let bases: Vec<String> = self.bases.iter().map(|(name, _)| name.clone()).collect();
        for name in &bases {
            self.set_all_due(name);
        }
    }

    /// A namespace is there.
    pub(super) fn set_namespace(&mut self, name: &str, live: &Value) {
        let namespace = if !live["metadata"]["deletionTimestamp"].is_null() {
            Namespace::Terminating
        } else if live["metadata"]["labels"][PROPAGATE] == DISABLED {
            Namespace::OptedOut
        } else {
            Namespace::Open
        };
        let is_same = self.namespaces.get(name) == Some(&namespace);
        self.namespaces.insert(name.to_owned(), namespace);
        if !is_same {
            let bases: Vec<Place> = self.bases.iter().map(|(base, _)| (name.to_owned(), base.clone())).collect();
            self.due.renewed.extend(bases);
        }
    }

    /// All namespaces have been listed.
    pub(super) fn namespaces_complete(&mut self) {
        self.namespaces.complete();
        self.set_bases_due();
    }

    /// Objects with the name of a base are watched from now on, or (`false`) no more.
    pub(super) fn set_watched(&mut self, name: &str, is_watched: bool) {
        if is_watched {
            self.named.insert(name.to_owned(), Listing::default());
        } else {
            self.named.remove(name);
        }
    }

    /// What has the name of a base; `None` while that is not watched.
    pub(super) fn named(&mut self, name: &str) -> Option<&mut Listing<String, Found>> {
        self.named.get_mut(name)
    }

    /// An object with the name of a base is there.
    pub(super) fn set_named(&mut self, name: &str, namespace: &str, live: &Value, now: Timestamp) {
        let found = Found::read(&self.home, self.bases.get(name).map(|base| &**base), live, now);
        if let Some(listing) = self.named.get_mut(name) {
            listing.insert(namespace.to_owned(), found);
            self.due.seen.insert((namespace.to_owned(), name.to_owned()));
        }
    }

    /// An object with the name of a base is gone.
    pub(super) fn remove_named(&mut self, name: &str, namespace: &str) {
        if let Some(listing) = self.named.get_mut(name) {
            listing.remove(&namespace.to_owned());
            self.due.seen.insert((namespace.to_owned(), name.to_owned()));
        }
    }

    /// Every object with the name of a base has been listed.
    pub(super) fn named_complete(&mut self, name: &str) {
        if let Some(listing) = self.named.get_mut(name) {
            listing.complete();
            self.set_all_due(name);
        }
    }

    /// What is to be done about a copy; in the agent's namespace, about a base.
    pub(super) fn step(&self, place: &Place, now: Timestamp) -> Step {
        let (namespace, name) = place;
        if *namespace == self.home {
            return self.finalizers.get(name).cloned().map_or(Step::Nothing, Step::TakeOffFinalizer);
        }
        if !self.bases.is_complete() {
            return Step::Nothing;
        }
        let Some(base) = self.base(name) else {
            let Some(copied) = self.copies.get(place) else { return Step::Nothing };
            return match self.gone.get(name) {
                Some(end) if *end > now => Step::Later(*end),
                _ => unless_paused(copied.whose, now, || Step::Delete(copied.version.clone())),
            };
        };
        let Some(named) = self.named.get(name).filter(|named| named.is_complete()) else { return Step::Nothing };
        let Some(excluded) = self.excluded.as_ref().filter(|_| self.namespaces.is_complete()) else {
            return Step::Nothing;
        };
        let gets_it = match self.namespaces.get(namespace) {
            None | Some(Namespace::Terminating) => return Step::Nothing,
            Some(Namespace::Open) => !excluded.contains(namespace),
            Some(Namespace::OptedOut) => false,
        };
        match named.get(namespace) {
            None if gets_it => Step::Create,
            Some(found) if found.is_terminating => Step::Nothing,
            Some(found) if gets_it => wanted(base, found, now),
            Some(found) => unless_paused(found.whose, now, || Step::Delete(found.version.clone())),
            None => Step::Nothing,
        }
    }
}

/// A step about an object of ours, which somebody may have asked to leave alone for a while.
fn unless_paused(whose: Whose, now: Timestamp, step: impl FnOnce() -> Step) -> Step {
    match whose {
        Whose::Theirs => Step::Nothing,
        Whose::Paused(end) if end > now => Step::Later(end),
        Whose::Ours | Whose::Paused(_) => step(),
    }
}

/// What is to be done about what is where a copy is wanted.
fn wanted(base: &Base, found: &Found, now: Timestamp) -> Step {
    if found.copy_of.as_ref() == Some(&base.digest) {
        return Step::Nothing;
    }
    unless_paused(found.whose, now, || {
        // Neither the type of a Secret can change, nor what is in one that somebody has made immutable.
        if found.is_immutable || found.of_type.as_deref() != base.of_type() {
            Step::Replace(found.version.clone())
        } else {
            Step::Apply { version: found.version.clone(), created: found.created }
        }
    })
}
