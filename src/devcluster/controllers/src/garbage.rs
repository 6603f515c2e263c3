//! Garbage collection by owner references: background, foreground and orphan.
//!
//! A dependent is deleted when all its owners, identified by UID, are gone. An owner deleted in the foreground waits
//! for its blocking dependents. An owner deleted with orphaning waits until its dependents no longer refer to it.
//!
//! Invariant: an object with an owner's name and another UID is not that owner.
//! Invariant: an owner of an unserved kind counts as existing, because its absence cannot be proven.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::object::{finalizers_without, has_finalizer, is_terminating, owners};
use devcluster_apiserver::store::Stored;
use devcluster_apiserver::verbs::delete::Propagation;

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The graph of owners and dependents.
#[derive(Default)]
pub(super) struct Garbage {
    dependents: HashMap<String, HashSet<Subject>>,
    /// Owners that wait for their dependents, by UID.
    waiting: HashMap<String, Subject>,
}

fn uids(object: &Value) -> impl Iterator<Item = &str> {
    owners(object).iter().filter_map(|owner| owner["uid"].as_str())
}

impl Controller for Garbage {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        let (old, new) = (event.old.as_deref(), event.new.as_deref());
        let owners = |stored: Option<&Stored>| stored.map_or_else(Vec::new, |stored| stored.owners.clone());
        let (before, after) = (owners(old), owners(new));
        if before != after {
            for owner in &before {
                if let Some(known) = self.dependents.get_mut(&owner.uid) {
                    known.remove(&Subject::of(event));
                }
                if let Some(owner) = self.waiting.get(&owner.uid) {
                    queue.add(owner.clone());
                }
            }
            for owner in &after {
                self.dependents.entry(owner.uid.clone()).or_default().insert(Subject::of(event));
            }
            if !after.is_empty() {
                queue.add(Subject::of(event));
            }
        }
        match (old, new) {
            (Some(old), None) => {
                for dependent in self.dependents.remove(&old.uid).unwrap_or_default() {
                    queue.add(dependent);
                }
                self.waiting.remove(&old.uid);
            }
            (_, Some(new)) if new.going => {
                let object = new.value();
                if has_finalizer(&object, ORPHAN) || has_finalizer(&object, FOREGROUND) {
                    queue.add(Subject::of(event));
                }
            }
            _ => {}
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(object) = client.get(subject) else { return };
        if is_terminating(&object) {
            if has_finalizer(&object, ORPHAN) {
                self.orphan(client, subject, &object);
            } else if has_finalizer(&object, FOREGROUND) {
                self.foreground(client, subject, &object, queue);
            }
            return;
        }
        collect(client, subject, &object, self.has_dependents(&object));
    }
}

impl Garbage {
    fn has_dependents(&self, object: &Value) -> bool {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        self.dependents.get(uid).is_some_and(|known| !known.is_empty())
    }

    /// Existing objects that refer to an owner.
    fn dependents_of(&self, client: &Client, owner: &Value) -> Vec<(Subject, Arc<Value>)> {
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        let known = self.dependents.get(uid).into_iter().flatten();
        let live = known.filter_map(|subject| Some((subject.clone(), client.get(subject)?)));
        live.filter(|(_, object)| uids(object).any(|u| u == uid)).collect()
    }

    fn orphan(&self, client: &Client, subject: &Subject, owner: &Value) {
        for (dependent, object) in self.dependents_of(client, owner) {
            let kept = references_without(&object, &[&owner["metadata"]["uid"]]);
            client.merge(CONTROLLER, &dependent, json!({"metadata": {"ownerReferences": kept}}));
        }
        let patch = json!({"metadata": {"finalizers": finalizers_without(owner, ORPHAN)}});
        client.merge(CONTROLLER, subject, patch);
    }

    fn foreground(&mut self, client: &Client, subject: &Subject, owner: &Value, queue: &mut Queue<'_>) {
        let uid = &owner["metadata"]["uid"];
        let blocks =
            |object: &Value| owners(object).iter().any(|o| o["uid"] == *uid && o["blockOwnerDeletion"] == true);
        let blocking: Vec<(Subject, Arc<Value>)> =
            self.dependents_of(client, owner).into_iter().filter(|(_, object)| blocks(object)).collect();
        if blocking.is_empty() {
            let patch = json!({"metadata": {"finalizers": finalizers_without(owner, FOREGROUND)}});
            client.merge(CONTROLLER, subject, patch);
            return;
        }
        self.waiting.insert(uid.as_str().unwrap_or_default().to_owned(), subject.clone());
        for (dependent, object) in blocking {
            if !is_terminating(&object) {
                queue.add(dependent);
            }
        }
    }
}

/// Returns the owner references except those with these UIDs; null if none remains.
fn references_without(object: &Value, uids: &[&Value]) -> Value {
    let kept: Vec<Value> = owners(object).iter().filter(|o| !uids.contains(&&o["uid"])).cloned().collect();
    if kept.is_empty() { Value::Null } else { kept.into() }
}

fn kind_of(client: &Client, reference: &Value) -> Option<Arc<devcluster_apiserver::kinds::table::Kind>> {
    client.kind_named(reference["apiVersion"].as_str()?, reference["kind"].as_str()?)
}

/// The known state of an owner.
#[derive(PartialEq, Eq)]
enum Owner {
    /// Exists, or its absence cannot be proven.
    Solid,
    /// Waits for its dependents (foreground deletion).
    Waiting,
    /// Does not exist.
    Dangling,
}

fn owner(client: &Client, dependent: &Value, reference: &Value) -> Owner {
    let Some(kind) = kind_of(client, reference) else { return Owner::Solid };
    let home = dependent["metadata"]["namespace"].as_str().unwrap_or_default();
    if kind.namespaced && home.is_empty() {
        return Owner::Solid;
    }
    let namespace = if kind.namespaced { home } else { "" };
    let name = reference["name"].as_str().unwrap_or_default();
    match client.get(&Subject::new(&kind.storage, namespace, name)) {
        Some(found) if found["metadata"]["uid"] == reference["uid"] => {
            let waits = is_terminating(&found) && has_finalizer(&found, FOREGROUND);
            if waits && reference["blockOwnerDeletion"] == true { Owner::Waiting } else { Owner::Solid }
        }
        _ => Owner::Dangling,
    }
}

/// Deletes a dependent without owners, or removes its dangling references.
fn collect(client: &Client, subject: &Subject, object: &Value, has_dependents: bool) {
    let states: Vec<(&Value, Owner)> = owners(object).iter().map(|r| (r, owner(client, object, r))).collect();
    if states.is_empty() {
        return;
    }
    let lost: Vec<&Value> = states.iter().filter(|(_, s)| *s != Owner::Solid).map(|(r, _)| &r["uid"]).collect();
    if lost.len() < states.len() {
        if !lost.is_empty() {
            let patch = json!({"metadata": {
                "resourceVersion": object["metadata"]["resourceVersion"],
                "ownerReferences": references_without(object, &lost),
            }});
            client.merge(CONTROLLER, subject, patch);
        }
        return;
    }
    let waiting = states.iter().any(|(_, s)| *s == Owner::Waiting);
    let policy = if waiting && has_dependents { Propagation::Foreground } else { Propagation::Background };
    client.delete(subject, object, Some(policy), None);
}
