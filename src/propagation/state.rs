//! What is known of bases, namespaces and copies, and what is to be done about a copy.
//!
//! Invariant: nothing is deleted for a base that may be there, and nothing is created where something may be.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use serde_json::Value;

use super::copy::{Base, Found, Propagated, Whose};
use super::listing::Listing;
use crate::api::names::{DISABLED, PROPAGATE};

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

/// What is to be done about a copy.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    Create(Value),
    /// Applies, if the object still has this UID and resource version.
    Apply {
        body: Value,
        uid: String,
        version: String,
    },
    Delete,
}

/// What is known.
#[derive(Debug)]
pub(super) struct State {
    propagated: Propagated,
    home: String,
    /// Namespaces that get no copies; `None` while that is not known.
    excluded: Option<HashSet<String>>,
    pub(super) bases: Listing<String, Base>,
    pub(super) namespaces: Listing<String, Namespace>,
    /// Those that say that they are copies, also of bases that are gone.
    pub(super) copies: Listing<Place, ()>,
    /// What has the name of a base, by that name and by namespace.
    named: HashMap<String, Listing<String, Found>>,
    due: BTreeSet<Place>,
}

impl State {
    pub(super) fn new(propagated: Propagated, home: &str) -> Self {
        Self {
            propagated,
            home: home.to_owned(),
            excluded: None,
            bases: Listing::default(),
            namespaces: Listing::default(),
            copies: Listing::default(),
            named: HashMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// The copies about which something may have to be done.
    pub(super) fn take_due(&mut self) -> BTreeSet<Place> {
        std::mem::take(&mut self.due)
    }

    /// Something may have to be done about a copy.
    pub(super) fn set_due(&mut self, place: Place) {
        self.due.insert(place);
    }

    /// The bases that are copied.
    pub(super) fn copied(&self) -> impl Iterator<Item = (&String, &Base)> {
        self.bases.iter().filter(|(_, base)| base.refused.is_none())
    }

    /// A base is there.
    pub(super) fn set_base(&mut self, name: &str, live: &Value) {
        match Base::read(&self.propagated, &self.home, live) {
            None => self.remove_base(name),
            Some(base) if self.bases.get(name) == Some(&base) => self.bases.keep(name.to_owned()),
            Some(base) => {
                self.bases.insert(name.to_owned(), base);
                self.set_all_due(name);
            }
        }
    }

    /// A base is gone, or has lost its label.
    pub(super) fn remove_base(&mut self, name: &str) {
        if self.bases.remove(&name.to_owned()).is_some() {
            self.set_all_due(name);
        }
    }

    /// All bases have been listed.
    pub(super) fn bases_complete(&mut self) {
        let gone = self.bases.complete();
        for (name, _) in &gone {
            self.set_all_due(name);
        }
        let copies = self.copies.iter().map(|(place, ())| place.clone());
        self.due.extend(copies);
    }

    /// All copies of a base.
    fn set_all_due(&mut self, name: &str) {
        let at = |namespace: &String| (namespace.clone(), name.to_owned());
        let copies = self.copies.iter().map(|(place, ())| place).filter(|place| place.1 == name);
        let all: Vec<Place> =
            self.namespaces.iter().map(|(namespace, _)| at(namespace)).chain(copies.cloned()).collect();
        self.due.extend(all);
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
            self.due.extend(bases);
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
        let found = Found::read(&self.home, self.bases.get(name), live, now);
        if let Some(listing) = self.named.get_mut(name) {
            listing.insert(namespace.to_owned(), found);
            self.due.insert((namespace.to_owned(), name.to_owned()));
        }
    }

    /// Every object with the name of a base has been listed.
    pub(super) fn named_complete(&mut self, name: &str) {
        if let Some(listing) = self.named.get_mut(name) {
            listing.complete();
            self.set_all_due(name);
        }
    }

    /// What is to be done about a copy.
    pub(super) fn step(&self, (namespace, name): &Place) -> Step {
        if !self.bases.is_complete() || *namespace == self.home {
            return Step::Nothing;
        }
        let base = self.bases.get(name).filter(|base| base.refused.is_none());
        let Some(base) = base else {
            let is_copy = self.copies.get(&(namespace.clone(), name.clone())).is_some();
            return if is_copy { Step::Delete } else { Step::Nothing };
        };
        let Some(named) = self.named.get(name).filter(|named| named.is_complete()) else { return Step::Nothing };
        let Some(excluded) = self.excluded.as_ref().filter(|_| self.namespaces.is_complete()) else {
            return Step::Nothing;
        };
        let found = named.get(namespace);
        let gets_it = match self.namespaces.get(namespace) {
            None | Some(Namespace::Terminating) => return Step::Nothing,
            Some(Namespace::Open) => !excluded.contains(namespace),
            Some(Namespace::OptedOut) => false,
        };
        match found {
            None if gets_it => Step::Create(base.copy(namespace)),
            Some(found) if gets_it => wanted(base, namespace, found),
            Some(found) if found.whose == Whose::Ours && !found.is_terminating => Step::Delete,
            _ => Step::Nothing,
        }
    }
}

/// What is to be done about what is where a copy is wanted.
fn wanted(base: &Base, namespace: &str, found: &Found) -> Step {
    let is_faithful = found.copy_of.as_ref() == Some(&base.digest);
    match found.whose {
        _ if found.is_terminating => Step::Nothing,
        Whose::Ours if is_faithful => Step::Nothing,
        // The type of a Secret cannot change.
        Whose::Ours if found.of_type.as_deref() != base.of_type() => Step::Delete,
        // Created by an agent that ended before it was ours: there is nothing in it that we did not write.
        Whose::Unproven if !is_faithful => Step::Nothing,
        Whose::Theirs => Step::Nothing,
        Whose::Ours | Whose::Unproven => {
            Step::Apply { body: base.copy(namespace), uid: found.uid.clone(), version: found.version.clone() }
        }
    }
}
