//! An index of related objects. A reconcile then costs as much as its own objects, not as much as the namespace.
//!
//! Invariant: a query reads the event log first, so its result is current.
//! Invariant: a write costs one step per group of the object, and none if no group changes.
//!
//! Not here: the objects, which are in the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::subject::Subject;
use crate::server::Server;
use crate::store::{Key, Stored};

/// Storage of the objects that controllers adopt if they have no controller.
const ADOPTED: &str = "replicasets.apps";
/// Storage of the objects that are found by label.
const LABELLED: &str = "pods";
/// Maximum number of events per read of the log.
const BATCH: usize = 1024;

/// A property that groups objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// Objects controlled by an owner with this UID.
    ControlledBy(String),
    /// Adoptable objects without a controller.
    Orphans,
    /// Pods that have a label with this value.
    Labelled(String, String),
}

/// The groups of all objects.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The last event that was read; `None` before the first query.
    read: Option<u64>,
    groups: HashMap<Group, BTreeSet<Subject>>,
}

impl Index {
    /// Returns the keys of a group's objects in a storage and namespace, ordered by name.
    pub(super) fn members(&mut self, server: &Server, group: &Group, storage: &str, namespace: &str) -> Vec<Key> {
        self.catch_up(server);
        let Some(subjects) = self.groups.get(group) else { return Vec::new() };
        let from = subjects.range(Subject::new(storage, namespace, "")..);
        let here = from.take_while(|subject| &*subject.storage == storage && subject.key.namespace() == namespace);
        here.map(|subject| subject.key.clone()).collect()
    }

    fn catch_up(&mut self, server: &Server) {
        loop {
            let Some(read) = self.read else {
                self.begin(server);
                continue;
            };
            let Ok((events, _)) = server.store().events_after(None, read, BATCH) else {
                *self = Self::default();
                continue;
            };
            let Some(last) = events.last() else { return };
            self.read = Some(last.rv);
            for event in &events {
                self.learn(&event.storage, &event.key, event.old.as_deref(), event.new.as_deref());
            }
        }
    }

    /// Indexes all stored objects. Writes during that time are in the log, too, and indexing them twice is harmless.
    fn begin(&mut self, server: &Server) {
        self.read = Some(server.store().version());
        for kind in server.table().storages() {
            for (key, stored) in &server.store().snapshot(&kind.storage).objects {
                self.learn(&kind.storage, key, None, Some(stored));
            }
        }
    }

    fn learn(&mut self, storage: &Arc<str>, key: &Key, old: Option<&Stored>, new: Option<&Stored>) {
        if let (Some(old), Some(new)) = (old, new)
            && uid_of_controller(old) == uid_of_controller(new)
            && (&**storage != LABELLED || old.labels == new.labels)
        {
            return;
        }
        let subject = Subject { storage: storage.clone(), key: key.clone() };
        for group in old.into_iter().flat_map(|old| groups(storage, old)) {
            if let Some(subjects) = self.groups.get_mut(&group) {
                subjects.remove(&subject);
                if subjects.is_empty() {
                    self.groups.remove(&group);
                }
            }
        }
        for group in new.into_iter().flat_map(|new| groups(storage, new)) {
            self.groups.entry(group).or_default().insert(subject.clone());
        }
    }
}

fn uid_of_controller(stored: &Stored) -> Option<&str> {
    stored.controller().map(|owner| owner.uid.as_str())
}

fn groups<'a>(storage: &str, stored: &'a Stored) -> impl Iterator<Item = Group> + use<'a> {
    let controlled = match uid_of_controller(stored) {
        Some(uid) => Some(Group::ControlledBy(uid.to_owned())),
        None => (storage == ADOPTED).then_some(Group::Orphans),
    };
    let labels = if storage == LABELLED { stored.labels.as_slice() } else { &[] };
    controlled.into_iter().chain(labels.iter().map(|(label, value)| Group::Labelled(label.clone(), value.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Action, Call, Caller};
    use crate::patch::merge;
    use crate::verbs::delete::DeleteOptions;
    use crate::verbs::patch::Form;
    use serde_json::{Value, json};

    struct Written {
        server: Server,
        index: Index,
    }

    impl Written {
        fn new() -> Self {
            Self { server: Server::new(crate::server::Options::default()), index: Index::default() }
        }

        fn act(&self, resource: &str, name: &str, action: Action) {
            let version = if resource == "pods" { "v1" } else { "apps/v1" };
            self.server.call(&Caller::new("test"), Call::new(version, resource, "default", name, action)).unwrap();
        }

        fn pod(&self, name: &str, more: &Value) {
            let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
            self.act("pods", name, Action::Create(merge(&pod, &json!({ "metadata": more }))));
        }

        fn change(&self, resource: &str, name: &str, metadata: Value) {
            self.act(resource, name, Action::Patch(Form::Merge, json!({ "metadata": metadata })));
        }

        fn members(&mut self, group: &Group, storage: &str) -> String {
            let keys = self.index.members(&self.server, group, storage, "default");
            keys.iter().map(Key::name).collect::<Vec<_>>().join(" ")
        }
    }

    fn owned_by(uid: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": uid, "controller": true});
        json!({"ownerReferences": [owner]})
    }

    #[test]
    fn finds_what_was_there_before_the_first_question_and_what_was_written_since() {
        let (mut written, ours) = (Written::new(), Group::ControlledBy("u1".into()));
        written.pod("b", &owned_by("u1"));
        written.pod("x", &owned_by("u2"));
        assert_eq!(written.members(&ours, "pods"), "b");
        written.pod("a", &owned_by("u1"));
        written.pod("y", &json!({}));
        assert_eq!(written.members(&ours, "pods"), "a b");
        assert_eq!(written.members(&ours, "configmaps"), "");
        written.change("pods", "b", json!({"ownerReferences": null}));
        written.act("pods", "a", Action::Delete(DeleteOptions { grace: Some(0), ..DeleteOptions::default() }));
        assert_eq!(written.members(&ours, "pods"), "");
    }

    #[test]
    fn loses_nothing_when_the_log_was_forgotten() {
        let (mut written, ours) = (Written::new(), Group::ControlledBy("u1".into()));
        assert_eq!(written.members(&ours, "pods"), "");
        written.pod("a", &owned_by("u1"));
        written.server.store().compact();
        written.pod("b", &owned_by("u1"));
        assert_eq!(written.members(&ours, "pods"), "a b");
    }

    #[test]
    fn follows_labels_of_pods_and_what_could_be_adopted() {
        let (mut written, red) = (Written::new(), Group::Labelled("colour".into(), "red".into()));
        written.pod("a", &json!({"labels": {"colour": "red", "size": "1"}}));
        written.pod("b", &json!({"labels": {"colour": "blue"}}));
        assert_eq!(written.members(&red, "pods"), "a");
        written.change("pods", "a", json!({"labels": {"colour": "blue"}}));
        written.change("pods", "b", json!({"labels": {"colour": "red"}}));
        assert_eq!(written.members(&red, "pods"), "b");
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        written.act("replicasets", "set", Action::Create(json!({"metadata": {"name": "set"}, "spec": spec})));
        assert_eq!(written.members(&Group::Orphans, ADOPTED), "set");
        written.change("replicasets", "set", owned_by("u1"));
        assert_eq!(written.members(&Group::Orphans, ADOPTED), "");
    }
}
