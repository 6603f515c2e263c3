//! The state of bases, namespaces and copies, and the next step of a copy.
//!
//! Invariant: a copy is deleted only if the list of bases is complete. A copy is created only if the list of objects
//! with its name is complete.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::copy::{Base, Found, Propagated, Whose, version, whose};
use crate::apply::Version;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mainstay_api::names::{DISABLED, PROPAGATE, REGISTRY_FINALIZER};
use mainstay_cluster::WatchEvent;
use mainstay_cluster::reflector::{Cache, Change};

/// Delay before the copies of a removed base are deleted, because `kubectl replace --force` deletes and recreates a
/// base.
const LINGER: SignedDuration = SignedDuration::from_secs(5);

/// The place of a copy: a namespace and the name of a base.
pub(super) type Place = (String, String);

/// The state of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// The namespace gets copies, unless it is excluded.
    Open,
    /// The label of the namespace opts out of copies.
    OptedOut,
    /// The namespace is being deleted and accepts no new objects.
    Terminating,
}

impl Namespace {
    fn read(live: &Value) -> Self {
        if !live["metadata"]["deletionTimestamp"].is_null() {
            Self::Terminating
        } else if live["metadata"]["labels"][PROPAGATE] == DISABLED {
            Self::OptedOut
        } else {
            Self::Open
        }
    }
}

/// The next step of a copy. A step does not contain the content, which may be large.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// No step before this time.
    Later(Timestamp),
    Create,
    /// An apply at this version. `created`: see [`Found::created`].
    Apply {
        version: Version,
        created: Option<usize>,
    },
    /// A deletion and a creation, because an immutable field differs.
    Replace(Version),
    Delete(Version),
    /// Removes Kyma's finalizer from a base. Without Kyma, it would block the deletion of the base forever.
    TakeOffFinalizer(Finalizers),
}

/// The finalizers of a base except Kyma's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finalizers {
    pub(super) resource_version: String,
    pub(super) others: Vec<String>,
}

impl Finalizers {
    /// Reads the finalizers of a base; `None` if Kyma's is not among them.
    fn read(live: &Value) -> Option<Self> {
        let all = live["metadata"]["finalizers"].as_array()?;
        let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        all.contains(&REGISTRY_FINALIZER).then(|| Self {
            resource_version: live["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            others: all.into_iter().filter(|one| *one != REGISTRY_FINALIZER).map(str::to_owned).collect(),
        })
    }
}

/// A copy made by Mainstay.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copied {
    pub(super) version: Version,
    pub(super) whose: Whose,
}

/// Places that may need a step.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) seen: BTreeSet<Place>,
    /// Places whose desired content changed, so that their backoff is reset.
    pub(super) renewed: BTreeSet<Place>,
}

/// An object with the label of bases.
#[derive(Clone, Debug, PartialEq)]
struct Labelled {
    base: Option<Arc<Base>>,
    finalizers: Option<Finalizers>,
}

#[derive(Debug)]
pub(super) struct State {
    propagated: Propagated,
    home: String,
    /// Namespaces without copies; `None` until they are known.
    excluded: Option<HashSet<String>>,
    bases: Cache<Labelled>,
    /// Removed bases, and the time until which their copies stay.
    gone: HashMap<String, Timestamp>,
    namespaces: Cache<Namespace>,
    /// Copies made by Mainstay, including those of removed bases.
    copies: Cache<Copied>,
    /// Objects with the name of a base, by that name.
    named: HashMap<String, Cache<Found>>,
    due: Due,
}

impl State {
    pub(super) fn new(propagated: Propagated, home: &str) -> Self {
        Self {
            propagated,
            home: home.to_owned(),
            excluded: None,
            bases: Cache::default(),
            gone: HashMap::new(),
            namespaces: Cache::default(),
            copies: Cache::default(),
            named: HashMap::new(),
            due: Due::default(),
        }
    }

    /// Takes the places that may need a step.
    pub(super) fn take_due(&mut self) -> Due {
        std::mem::take(&mut self.due)
    }

    /// All bases, including those that are refused.
    fn bases(&self) -> impl Iterator<Item = (&String, &Arc<Base>)> {
        self.bases.iter().filter_map(|((_, name), labelled)| Some((name, labelled.base.as_ref()?)))
    }

    /// The bases that are copied.
    pub(super) fn copied(&self) -> impl Iterator<Item = (&String, &Arc<Base>)> {
        self.bases().filter(|(_, base)| base.refused.is_none())
    }

    /// A base, even if it is refused.
    pub(super) fn any_base(&self, name: &str) -> Option<&Arc<Base>> {
        self.bases.get(&self.home, name)?.base.as_ref()
    }

    /// A base that is copied.
    pub(super) fn base(&self, name: &str) -> Option<&Arc<Base>> {
        self.any_base(name).filter(|base| base.refused.is_none())
    }

    /// Whether the list of namespaces is complete.
    pub(super) fn knows_namespaces(&self) -> bool {
        self.namespaces.is_complete()
    }

    /// Records an event of the watch of bases. Returns the bases that are new or changed.
    pub(super) fn take_base(&mut self, event: WatchEvent, now: Timestamp) -> Vec<String> {
        let (propagated, home) = (&self.propagated, &self.home);
        let changes = self.bases.take(event, |live| {
            let base = Base::read(propagated, home, live).map(Arc::new);
            Ok(Some(Labelled { base, finalizers: Finalizers::read(live) }))
        });
        let mut differing = Vec::new();
        for change in changes {
            match change {
                Change::Changed { name: (_, name), before, .. } => {
                    let before = before.and_then(|before| before.base);
                    if self.bases.get(&self.home, &name).is_some_and(|labelled| labelled.finalizers.is_some()) {
                        self.due.seen.insert((self.home.clone(), name.clone()));
                    }
                    if before.as_ref() == self.any_base(&name) {
                        continue;
                    }
                    if self.any_base(&name).is_none() {
                        self.lose_base(&name, now);
                    } else {
                        self.gone.remove(&name);
                        self.renew_all(&name);
                        differing.push(name);
                    }
                }
                Change::Gone { name: (_, name), before, .. } if before.base.is_some() => self.lose_base(&name, now),
                Change::Complete { .. } => {
                    let copies = self.copies.iter().map(|(place, _)| place.clone());
                    self.due.seen.extend(copies);
                }
                // The last known state stays valid.
                Change::Gone { .. } | Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => {}
            }
        }
        differing
    }

    /// Handles a base that was deleted or lost its label.
    fn lose_base(&mut self, name: &str, now: Timestamp) {
        self.gone.retain(|_, end| *end > now);
        self.gone.insert(name.to_owned(), now + LINGER);
        self.renew_all(name);
    }

    /// Records an event of the watch of copies. Keeps only copies made by Mainstay, because any client can set the
    /// label.
    pub(super) fn take_copy(&mut self, event: WatchEvent, now: Timestamp) {
        let home = &self.home;
        let copied = |live: &Value| {
            let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).ok()?;
            let whose = whose(home, &meta, now);
            let is_ours = whose != Whose::Theirs && meta.deletion_timestamp.is_none();
            is_ours.then(|| Copied { version: version(&meta), whose })
        };
        for change in self.copies.take(event.by_metadata(), |live| Ok(copied(live))) {
            match change {
                // The watch of the base's name shows this copy.
                Change::Changed { name: place, .. } if self.base(&place.1).is_some() => {}
                Change::Changed { name: place, .. } | Change::Gone { name: place, .. } => {
                    self.due.seen.insert(place);
                }
                Change::Unreadable { .. } | Change::Complete { .. } | Change::Failed(_) | Change::Resumed => {}
            }
        }
    }

    /// All places of a base.
    fn all(&self, name: &str) -> Vec<Place> {
        let at = |namespace: &String| (namespace.clone(), name.to_owned());
        let copies = self.copies.iter().map(|(place, _)| place).filter(|place| place.1 == name);
        self.namespaces.iter().map(|((_, namespace), _)| at(namespace)).chain(copies.cloned()).collect()
    }

    fn set_all_due(&mut self, name: &str) {
        let all = self.all(name);
        self.due.seen.extend(all);
    }

    fn renew_all(&mut self, name: &str) {
        let all = self.all(name);
        self.due.renewed.extend(all);
    }

    /// Sets the namespaces without copies.
    pub(super) fn set_excluded(&mut self, excluded: Vec<String>) {
        self.excluded = Some(excluded.into_iter().collect());
        self.set_bases_due();
    }

    /// Makes all places of all bases due.
    fn set_bases_due(&mut self) {
        let bases: Vec<String> = self.bases().map(|(name, _)| name.clone()).collect();
        for name in &bases {
            self.set_all_due(name);
        }
    }

    /// Records an event of the watch of namespaces.
    pub(super) fn take_namespace(&mut self, event: WatchEvent) {
        for change in self.namespaces.take(event.by_metadata(), |live| Ok(Some(Namespace::read(live)))) {
            match change {
                Change::Changed { name: (_, name), .. } => {
                    let bases: Vec<Place> = self.bases().map(|(base, _)| (name.clone(), base.clone())).collect();
                    self.due.renewed.extend(bases);
                }
                Change::Complete { .. } => self.set_bases_due(),
                Change::Gone { .. } | Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => {}
            }
        }
    }

    /// Starts or stops recording the objects with the name of a base.
    pub(super) fn set_watched(&mut self, name: &str, is_watched: bool) {
        if is_watched {
            self.named.insert(name.to_owned(), Cache::default());
        } else {
            self.named.remove(name);
        }
    }

    /// Records an event of the watch of a base's name.
    pub(super) fn take_named(&mut self, name: &str, event: WatchEvent, now: Timestamp) {
        let base = self.bases.get(&self.home, name).and_then(|labelled| labelled.base.as_deref());
        let Some(known) = self.named.get_mut(name) else { return };
        let home = &self.home;
        let changes = known.take(event.by_metadata(), |live| Ok(Some(Found::read(home, base, live, now))));
        for change in changes {
            match change {
                Change::Changed { name: place, .. } | Change::Gone { name: place, .. } => {
                    self.due.seen.insert(place);
                }
                Change::Complete { .. } => self.set_all_due(name),
                Change::Unreadable { .. } | Change::Failed(_) | Change::Resumed => {}
            }
        }
    }

    /// Returns the next step of a copy, or of a base if the place is in the agent's namespace.
    pub(super) fn step(&self, place: &Place, now: Timestamp) -> Step {
        let (namespace, name) = place;
        if *namespace == self.home {
            let finalizers = self.bases.get(&self.home, name).and_then(|labelled| labelled.finalizers.clone());
            return finalizers.map_or(Step::Nothing, Step::TakeOffFinalizer);
        }
        if !self.bases.is_complete() {
            return Step::Nothing;
        }
        let Some(base) = self.base(name) else {
            let Some(copied) = self.copies.get(namespace, name) else { return Step::Nothing };
            return match self.gone.get(name) {
                Some(end) if *end > now => Step::Later(*end),
                _ => unless_paused(copied.whose, now, || Step::Delete(copied.version.clone())),
            };
        };
        let Some(named) = self.named.get(name).filter(|named| named.is_complete()) else { return Step::Nothing };
        let Some(excluded) = self.excluded.as_ref().filter(|_| self.namespaces.is_complete()) else {
            return Step::Nothing;
        };
        let gets_it = match self.namespaces.get("", namespace) {
            None | Some(Namespace::Terminating) => return Step::Nothing,
            Some(Namespace::Open) => !excluded.contains(namespace),
            Some(Namespace::OptedOut) => false,
        };
        match named.get(namespace, name) {
            None if gets_it => Step::Create,
            Some(found) if found.is_terminating => Step::Nothing,
            Some(found) if gets_it => wanted(base, found, now),
            Some(found) => unless_paused(found.whose, now, || Step::Delete(found.version.clone())),
            None => Step::Nothing,
        }
    }
}

/// Returns a step of a copy made by Mainstay, unless the copy is paused.
fn unless_paused(whose: Whose, now: Timestamp, step: impl FnOnce() -> Step) -> Step {
    match whose {
        Whose::Theirs => Step::Nothing,
        Whose::Paused(end) if end > now => Step::Later(end),
        Whose::Ours | Whose::Paused(_) => step(),
    }
}

/// Returns the step for an object that exists where a copy has to be.
fn wanted(base: &Base, found: &Found, now: Timestamp) -> Step {
    if found.copy_of.as_ref() == Some(&base.digest) {
        return Step::Nothing;
    }
    unless_paused(found.whose, now, || {
        // The type of a Secret is immutable, and so is the content of an immutable Secret.
        if found.is_immutable || found.of_type.as_deref() != base.of_type() {
            Step::Replace(found.version.clone())
        } else {
            Step::Apply { version: found.version.clone(), created: found.created }
        }
    })
}
