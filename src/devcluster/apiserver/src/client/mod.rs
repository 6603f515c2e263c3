//! How controllers and kubelets read and write the cluster, in this process.
//!
//! Refusals are part of a controller's life (someone wrote first, the namespace is going away, the object is gone); the
//! methods answer with what a controller can use. Whoever wrote first made an event that brings the next reconcile.
//! What belongs together is found in an index of the event log (`index`).

mod index;
mod subject;

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub use self::subject::Subject;

use self::index::{Group, Index};
use crate::access::User;
use crate::call::{Action, Call, Caller};
use crate::kinds::table::Kind;
use crate::object::{count, text};
use crate::server::{Server, stamp};
use crate::status::{GroupResource, Status};
use crate::store::{Key, Stored};
use crate::verbs::delete::{DeleteOptions, Propagation};
use crate::verbs::patch::Form;

/// Access to the cluster.
#[derive(Debug)]
pub struct Client {
    server: Server,
    index: Mutex<Index>,
    reported: Mutex<HashMap<Reported, String>>,
}

/// What makes two events one: the UID of what they are about, who says it, the type, the reason and the message.
type Reported = [String; 5];

/// The manager of most controllers.
pub const CONTROLLER: &str = "kube-controller-manager";

/// Events beyond which controllers keep silent; a real cluster forgets them after an hour.
const MOST_EVENTS: usize = 20_000;
/// Events that are remembered, so that the same one is counted and not told again.
const MOST_REPORTED: usize = 4096;

impl Client {
    /// A client of a server.
    pub fn new(server: &Server) -> Self {
        Self { server: server.clone(), index: Mutex::default(), reported: Mutex::default() }
    }

    /// The cluster itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.server.now()
    }

    /// The time as objects carry it.
    pub fn stamp(&self) -> Value {
        stamp(self.now()).into()
    }

    /// One kind per storage.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        self.server.table().storages()
    }

    /// The kind of a storage.
    pub fn kind_of(&self, storage: &str) -> Option<Arc<Kind>> {
        let table = self.server.table();
        table.iter().find(|k| &*k.storage == storage && !k.converts()).cloned()
    }

    /// The kind that an owner reference names.
    pub fn kind_named(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.server.table().find_kind(api_version, kind).cloned()
    }

    /// All objects of a storage as they are stored.
    pub fn stored(&self, storage: &str) -> Vec<(Key, Arc<Stored>)> {
        let snapshot = self.server.store().snapshot(storage);
        snapshot.from(None, None).map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }

    /// An object.
    pub fn get(&self, subject: &Subject) -> Option<Arc<Value>> {
        self.server.store().get(&subject.storage, &subject.key).map(|stored| stored.value())
    }

    /// The objects of a storage in a namespace.
    pub fn list(&self, storage: &str, namespace: &str) -> Vec<Arc<Value>> {
        let snapshot = self.server.store().snapshot(storage);
        snapshot.from(Some(namespace), None).map(|(_, stored)| stored.value()).collect()
    }

    /// The objects in a namespace that `owner` controls.
    pub fn controlled(&self, storage: &str, namespace: &str, owner: &Value) -> Vec<Arc<Value>> {
        self.members(&Group::ControlledBy(text(owner, "/metadata/uid").to_owned()), storage, namespace)
    }

    /// The objects in a namespace that a controller may adopt and that have none.
    pub fn orphans(&self, storage: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.members(&Group::Orphans, storage, namespace)
    }

    /// The pods in a namespace that have a label with this value.
    pub fn pods_labelled(&self, namespace: &str, label: &str, value: &str) -> Vec<Arc<Value>> {
        self.members(&Group::Labelled(label.to_owned(), value.to_owned()), "pods", namespace)
    }

    fn members(&self, group: &Group, storage: &str, namespace: &str) -> Vec<Arc<Value>> {
        let mut index = self.index.lock();
        let keys = index.members(&self.server, group, storage, namespace);
        drop(index);
        let store = self.server.store();
        keys.iter().filter_map(|key| store.get(storage, key)).map(|stored| stored.value()).collect()
    }

    fn call(&self, manager: &str, subject: &Subject, subresource: &str, action: Action) -> Result<Arc<Value>, Status> {
        let kind = self.kind_of(&subject.storage).ok_or_else(|| Status::new(404, "NotFound", "not served"))?;
        let (namespace, name) = (subject.key.namespace(), subject.key.name());
        let call = Call::new(&kind.api_version, &kind.plural, namespace, name, action).on(subresource);
        let user = User { name: "system:kube-controller-manager".to_owned(), ..User::default() };
        self.server.shared(&Caller { user, ..Caller::new(manager) }, call)
    }

    /// Creates an object; pods only while the simulated machines have room for them and no injected fault refuses them.
    pub fn create(&self, manager: &str, storage: &str, namespace: &str, object: Value) -> Result<Arc<Value>, Status> {
        if storage == "pods"
            && let Some(fault) = self.server.faults().refused_pod(namespace)
        {
            return Err(Status::new(fault.code, &fault.reason, fault.message));
        }
        let most = self.server.options().most_pods;
        if storage == "pods" && self.server.store().count(storage) >= most {
            let why = format!("this cluster has room for {most} pods");
            let pods = GroupResource { group: String::new(), resource: storage.to_owned() };
            return Err(Status::forbidden(&pods, "", &why));
        }
        self.call(manager, &Subject::new(storage, namespace, ""), "", Action::Create(object))
    }

    /// Replaces an object, based on the version it carries; whether that was done.
    pub fn update(&self, manager: &str, subject: &Subject, object: Value) -> bool {
        self.call(manager, subject, "", Action::Update(object)).is_ok()
    }

    /// Replaces a subresource, based on the version it carries; whether that was done.
    pub fn update_on(&self, manager: &str, subject: &Subject, subresource: &str, object: Value) -> bool {
        self.call(manager, subject, subresource, Action::Update(object)).is_ok()
    }

    /// Places a pod on a node; whether that was done.
    pub fn bind(&self, manager: &str, pod: &Subject, seen: &Value, node: &str) -> bool {
        let metadata = json!({"name": pod.key.name(), "uid": seen["metadata"]["uid"]});
        let binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": node}});
        self.call(manager, pod, "binding", Action::Create(binding)).is_ok()
    }

    /// Replaces `status` when it differs; whether the stored status is now this one.
    pub fn set_status(&self, manager: &str, subject: &Subject, object: &Value, status: Value) -> bool {
        if object["status"] == status {
            return true;
        }
        let mut object = object.clone();
        object["status"] = status;
        self.update_on(manager, subject, "status", object)
    }

    /// Merges a patch into an object; whether that was done.
    pub fn merge(&self, manager: &str, subject: &Subject, patch: Value) -> bool {
        self.call(manager, subject, "", Action::Patch(Form::Merge, patch)).is_ok()
    }

    /// Deletes the object that was seen, not another of its name.
    pub fn delete(&self, subject: &Subject, seen: &Value, propagation: Option<Propagation>, grace: Option<i64>) {
        let uid = seen["metadata"]["uid"].as_str().map(str::to_owned);
        let options = DeleteOptions { propagation, grace, uid, ..DeleteOptions::default() };
        // An object that is deleted or replaced needs no deletion.
        let _ = self.call(CONTROLLER, subject, "", Action::Delete(options));
    }

    /// Reports what was done about an object; the same again is counted.
    pub fn report(&self, about: &Value, source: &str, kind: &str, reason: &str, message: &str) {
        if self.server.store().count("events") >= MOST_EVENTS {
            return;
        }
        let metadata = &about["metadata"];
        let owned = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = metadata["name"].as_str().unwrap_or_default();
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        let now = self.now();
        let same = [owned(&metadata["uid"]), source.to_owned(), kind.to_owned(), reason.to_owned(), message.to_owned()];
        let mut reported = self.reported.lock();
        if let Some(known) = reported.get(&same).map(|known| Subject::new("events", namespace, known))
            && let Some(event) = self.get(&known)
        {
            let again = json!({"count": count(&event, "/count") + 1, "lastTimestamp": stamp(now)});
            self.merge(CONTROLLER, &known, again);
            return;
        }
        if reported.len() >= MOST_REPORTED {
            reported.clear();
        }
        let event_name = format!("{name}.{:x}", now.as_nanosecond());
        reported.insert(same, event_name.clone());
        drop(reported);
        let event = json!({
            "metadata": {"name": event_name, "namespace": namespace},
            "involvedObject": reference(about),
            "reason": reason, "message": message, "type": kind, "count": 1,
            "source": {"component": source}, "reportingComponent": source,
            "firstTimestamp": stamp(now), "lastTimestamp": stamp(now),
        });
        // An event that cannot be told (the namespace is going away) is lost on a real cluster as well.
        let _ = self.create(CONTROLLER, "events", namespace, event);
    }
}

impl Client {
    /// Reports what was done about an object in the newer form of events, which says when and by which action.
    pub fn report_action(&self, about: &Value, source: &str, action: &str, reason: &str, message: &str) {
        if self.server.store().count("events") >= MOST_EVENTS {
            return;
        }
        let metadata = &about["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("default");
        let now = self.now();
        let name = format!("{}.{:x}", metadata["name"].as_str().unwrap_or_default(), now.as_nanosecond());
        let event = json!({
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": reference(about), "reason": reason, "message": message, "type": "Normal",
            "action": action, "eventTime": format!("{now:.6}"),
            "reportingComponent": source, "reportingInstance": format!("{source}-{}", crate::kubelet::NODE), "source": {},
        });
        // An event that cannot be told (the namespace is going away) is lost on a real cluster as well.
        let _ = self.create(CONTROLLER, "events", namespace, event);
    }
}

/// The object of an event.
fn reference(about: &Value) -> Value {
    let metadata = &about["metadata"];
    json!({
        "apiVersion": about["apiVersion"], "kind": about["kind"], "name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
    })
}

/// The object's subject in a storage.
pub fn subject(storage: &str, object: &Value) -> Subject {
    Subject::new(storage, text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
