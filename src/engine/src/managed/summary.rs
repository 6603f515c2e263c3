//! The summary of an owner's objects for its status: counts, and the first few objects of each category.
//!
//! Invariant: the time for which the store is locked does not grow with the number of objects or their problems. So a
//! status never delays reverts.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::object::Managed;
use super::objects::{Tally, Topic};
use super::pause_end::PauseEnd;
use super::store::Store;
use mainstay_api::git_sync::{Decision, Drifted, Failure, Replacement, Revert};
use mainstay_object::{Health, Key, Owner, unserved};

/// Maximum number of objects that the status lists for each category (failed, drifted, …). The counts include the
/// others.
pub const SHOWN: usize = 20;

/// Maximum number of expired backoffs that one summary removes. The next summary removes more.
const EXPIRED_AT_ONCE: usize = 256;

/// The first items of a list, with its length.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<T> {
    /// The length of the list.
    pub count: usize,
    /// The first [`SHOWN`] items.
    pub first: Vec<T>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { count: 0, first: Vec::new() }
    }
}

impl<T> From<Vec<T>> for Listed<T> {
    fn from(mut all: Vec<T>) -> Self {
        let count = all.len();
        all.truncate(SHOWN);
        Self { count, first: all }
    }
}

/// The summary of a GitSync's objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of applied objects in the store.
    pub objects: usize,
    /// Number of applied objects that are healthy.
    pub healthy: usize,
    /// Objects that report a permanent failure, with the reason.
    pub broken: Listed<(Key, String)>,
    /// Objects that are not healthy yet, with the reason.
    pub progressing: Listed<(Key, String)>,
    /// Objects that drifted and are not reverted immediately.
    pub drifted: Listed<Drifted>,
    /// The drifted objects that are missing.
    pub absent: Listed<Key>,
    /// Failed reverts and reports.
    pub failures: Listed<Failure>,
    /// Objects whose revert failed repeatedly, with the fields and the cause.
    pub not_put_back: Listed<(Key, String)>,
    /// Whether the first of these objects are all of kinds of Flux that the cluster does not serve. No retry helps until
    /// a user removes their manifests.
    pub needs_removal: bool,
    /// Paused objects, with the end of the pause.
    pub paused: Listed<(Key, PauseEnd)>,
    /// Contended objects, with the fields and the other manager.
    pub contended: Listed<(Key, Vec<String>, String)>,
    /// Number of objects with a revert backoff, which were reverted recently.
    pub backing_off: usize,
    /// Kinds of the owner's objects that cannot be watched, with the cause.
    pub unwatched: Vec<(String, String)>,
    /// Reverts so far.
    pub reverted: i64,
    /// The last reverts, newest first.
    pub last_reverts: Vec<Revert>,
    /// Replacements so far.
    pub replaced: i64,
    /// The last replacements, newest first.
    pub last_replacements: Vec<Replacement>,
    /// The last other decisions about objects, newest first.
    pub last_decisions: Vec<Decision>,
    /// Objects that are exempt from reverts, with the start of the exemption: the owner needs them to read its
    /// repository, and that read fails.
    pub unread: Vec<(Key, Timestamp)>,
}

impl Summary {
    /// Whether existing objects are not healthy yet, so that the status waits for them.
    pub fn waits_for_health(&self) -> bool {
        self.broken.count + self.progressing.count > 0
    }
}

impl Store {
    /// Returns the summary for an owner's status.
    pub(crate) fn summary(&mut self, owner: &Owner, clock: f64) -> Summary {
        self.expire_backoffs(clock);
        let mut summary = Summary::default();
        if let Some(account) = self.accounts.get(owner) {
            summary.reverted = account.reverted;
            summary.last_reverts = account.last_reverts.iter().cloned().collect();
            summary.replaced = account.replaced;
            summary.last_replacements = account.last_replacements.iter().cloned().collect();
            summary.unread = account.unread.iter().map(|(key, since)| (key.clone(), *since)).collect();
        }
        summary.last_decisions = self.decisions.of(owner);
        summary.unwatched = self.unwatched(owner);
        let Some(tally) = self.objects.tally(owner) else { return summary };
        (summary.objects, summary.healthy, summary.backing_off) = (tally.applied, tally.healthy, tally.backing_off);
        summary.broken = self.listed(tally, Topic::Broken, health);
        summary.progressing = self.listed(tally, Topic::Progressing, health);
        summary.failures = self.listed(tally, Topic::Failed, failure);
        summary.not_put_back = self.listed(tally, Topic::NotPutBack, not_put_back);
        let mut lacking = tally.about(Topic::NotPutBack).iter().take(SHOWN).peekable();
        summary.needs_removal = lacking.peek().is_some()
            && lacking.all(|key| unserved::is_of_flux(&key.group) && self.get(key).is_some_and(is_kind_unserved));
        summary.paused =
            self.listed(tally, Topic::Paused, |key, managed| Some((key.clone(), managed.phase.pause()?.until)));
        summary.contended = self.listed(tally, Topic::Contended, contended);
        let by_account = self.acts_as(owner).flatten().is_some();
        summary.drifted = self.listed(tally, Topic::Drifted, |_, managed| match &managed.drift {
            Some(drift) if by_account => Some(drift.shown_to_account()),
            _ => managed.drift().cloned(),
        });
        summary.absent = self.listed(tally, Topic::Absent, |key, _| Some(key.clone()));
        summary
    }

    /// Whether watches have not yet shown all objects of an owner, but will do so.
    pub fn awaits_first_look(&self, owner: &Owner) -> bool {
        let Some(tally) = self.objects.tally(owner) else { return false };
        let mut progressing = tally.about(Topic::Progressing).iter();
        self.unwatched(owner).is_empty() && progressing.any(|key| self.get(key).is_some_and(Managed::is_unseen))
    }

    fn listed<T>(&self, tally: &Tally, topic: Topic, what: impl Fn(&Key, &Managed) -> Option<T>) -> Listed<T> {
        let keys: &BTreeSet<Key> = tally.about(topic);
        let first = keys.iter().take(SHOWN).filter_map(|key| what(key, self.get(key)?)).collect();
        Listed { count: keys.len(), first }
    }

    /// Removes expired revert backoffs.
    fn expire_backoffs(&mut self, clock: f64) {
        for _ in 0..EXPIRED_AT_ONCE {
            let Some(key) = self.expiry.due(clock) else { return };
            let next = self.objects.get_mut(&key).and_then(|mut managed| managed.expire_backoff(clock));
            if let Some(next) = next {
                self.expiry.expect(&key, next);
            }
        }
    }
}

fn health(key: &Key, managed: &Managed) -> Option<(Key, String)> {
    match &managed.health {
        Health::Healthy => None,
        Health::Progressing(why) | Health::Failed(why) => Some((key.clone(), why.clone())),
    }
}

fn failure(key: &Key, managed: &Managed) -> Option<Failure> {
    let (_, message) = not_put_back(key, managed)?;
    let reports = managed.failure()?.reports;
    let reason = if reports { "ReportFailed" } else { "RevertFailed" }.to_owned();
    Some(Failure { object: key.to_string(), reason, message })
}

fn not_put_back(key: &Key, managed: &Managed) -> Option<(Key, String)> {
    let failure = managed.failure()?;
    Some((key.clone(), format!("{}: {}", failure.fields.join(", "), failure.text())))
}

fn is_kind_unserved(managed: &Managed) -> bool {
    managed.failure().is_some_and(|failure| failure.ground.is_kind_unserved)
}

fn contended(key: &Key, managed: &Managed) -> Option<(Key, Vec<String>, String)> {
    let (fields, who) = managed.damping.as_ref()?.contended.as_ref()?;
    Some((key.clone(), fields.clone(), who.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::managed::verdict::LastApplied;
    use crate::managed::{Desired, Mark};
    use mainstay_cluster::{Kind, Scope};
    use mainstay_object::{Object, Place};

    const WHO: &str = "kubectl-edit";

    /// Returns a store with this number of healthy objects of one owner.
    fn kept(count: usize) -> (Store, Owner, Vec<Key>) {
        let (mut store, owner) = (Store::default(), Owner::git_sync("shop", "demo"));
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let keep = |number: usize| {
            let name = format!("o{number:06}");
            let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
            let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
            let key = kind.key(Some("shop"), &name);
            let mark = Mark::Label("shop.demo".into());
            let desired = Arc::new(Desired { key: key.clone(), kind: Arc::clone(&kind), object, mark, ignored: None });
            store.hold(&owner, desired, LastApplied { resource_version: "5".into(), ..LastApplied::default() });
            store.get_mut(&key).unwrap().health = Health::Healthy;
            key
        };
        let keys = (0..count).map(keep).collect();
        (store, owner, keys)
    }

    #[test]
    fn reverted_objects_are_counted_until_their_backoff_ends() {
        let count = EXPIRED_AT_ONCE + 44;
        let (mut store, owner, keys) = kept(count);
        for key in &keys {
            store.count_change(key, 0.0, &["data.a".into()], WHO);
        }
        let summary = store.summary(&owner, 1.0);
        assert_eq!((summary.backing_off, summary.contended.count), (count, 0));
        assert_eq!(store.expiry.due(60.0), None, "nothing is to be looked at for hours");
        assert_eq!(store.summary(&owner, 10_000.0).backing_off, count - EXPIRED_AT_ONCE);
        assert_eq!(store.summary(&owner, 10_000.0).backing_off, 0);
    }

    #[test]
    fn an_object_is_contended_until_it_was_unchanged_for_a_while() {
        let (mut store, owner, keys) = kept(2);
        let fight = |store: &mut Store, clock: f64| {
            for _ in 0..6 {
                store.count_change(&keys[0], clock, &["data.a".into()], WHO);
            }
        };
        fight(&mut store, 0.0);
        let contended = vec![(keys[0].clone(), vec!["data.a".to_owned()], WHO.to_owned())];
        assert_eq!(store.summary(&owner, 60.0).contended, contended.clone().into());
        fight(&mut store, 100.0);
        assert_eq!(store.summary(&owner, 150.0).contended, contended.clone().into(), "it went on");
        assert_eq!(store.summary(&owner, 300.0).contended.count, 0);
        fight(&mut store, 400.0);
        assert_eq!(store.summary(&owner, 401.0).contended, contended.into(), "it begins again");
        assert_eq!((store.summary(&owner, 600.0).contended.count, store.summary(&owner, 600.0).backing_off), (0, 1));
        assert_eq!(store.summary(&owner, 20_000.0).backing_off, 0);
    }

    #[test]
    fn a_summary_names_the_first_objects_and_counts_all() {
        let (mut store, owner, keys) = kept(1000);
        for key in &keys {
            let mut managed = store.get_mut(key).unwrap();
            managed.health = Health::Progressing("0 of 1".into());
            managed.phase.begin_pause(PauseEnd::Open);
        }
        let summary = store.summary(&owner, 0.0);
        assert_eq!((summary.objects, summary.healthy), (1000, 0));
        assert_eq!((summary.progressing.count, summary.paused.count), (1000, 1000));
        let named = summary.progressing.first.iter().map(|(key, _)| key);
        assert!(named.eq(&keys[..SHOWN]));
    }
}
