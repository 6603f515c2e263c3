//! In-process access to the cluster for controllers and kubelets.
//!
//! Controllers expect failed writes: a conflict, a terminating namespace, a missing object. Most methods therefore
//! return a `bool` instead of an error. If a write conflicts, the event of the other write causes the next reconcile.
//! Related objects are found in an index of the event log (`index`).

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

/// The key of event aggregation: UID of the object, source, type, reason and message.
type Reported = [String; 5];

/// The field manager of most controllers.
pub const CONTROLLER: &str = "kube-controller-manager";

/// Maximum number of stored events. At this number, [`Client`] writes no more. Events do not expire here; on a real
/// cluster they expire after an hour.
const MOST_EVENTS: usize = 20_000;
/// Maximum number of events kept for aggregation. A repeated event increments a count instead of creating a new one.
const MOST_REPORTED: usize = 4096;

impl Client {
    /// Creates a client of a server.
    pub fn new(server: &Server) -> Self {
        Self { server: server.clone(), index: Mutex::default(), reported: Mutex::default() }
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.server.now()
    }

    /// Returns the current time as objects store it.
    pub fn stamp(&self) -> Value {
        stamp(self.now()).into()
    }

    /// Returns one kind per storage.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        self.server.table().storages()
    }

    /// Returns the kind of a storage.
    pub fn kind_of(&self, storage: &str) -> Option<Arc<Kind>> {
        let table = self.server.table();
        table.iter().find(|k| &*k.storage == storage && !k.converts()).cloned()
    }

    /// Returns the kind that an owner reference names.
    pub fn kind_named(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.server.table().find_kind(api_version, kind).cloned()
    }

    /// Returns all objects of a storage as stored.
    pub fn stored(&self, storage: &str) -> Vec<(Key, Arc<Stored>)> {
        let snapshot = self.server.store().snapshot(storage);
        snapshot.from(None, None).map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }

    /// Returns an object.
    pub fn get(&self, subject: &Subject) -> Option<Arc<Value>> {
        self.server.store().get(&subject.storage, &subject.key).map(|stored| stored.value())
    }

    /// Returns the objects of a storage in a namespace.
    pub fn list(&self, storage: &str, namespace: &str) -> Vec<Arc<Value>> {
        let snapshot = self.server.store().snapshot(storage);
        snapshot.from(Some(namespace), None).map(|(_, stored)| stored.value()).collect()
    }

    /// Returns the objects in a namespace that `owner` controls.
    pub fn controlled(&self, storage: &str, namespace: &str, owner: &Value) -> Vec<Arc<Value>> {
        self.members(&Group::ControlledBy(text(owner, "/metadata/uid").to_owned()), storage, namespace)
    }

    /// Returns the adoptable objects in a namespace that have no controller.
    pub fn orphans(&self, storage: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.members(&Group::Orphans, storage, namespace)
    }

    /// Returns the pods in a namespace that have a label with this value.
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

    /// Creates an object. A pod is refused at the maximum number of pods, or by an injected fault.
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

    /// Replaces an object if the resource version in `object` is current. Returns whether it succeeded.
    pub fn update(&self, manager: &str, subject: &Subject, object: Value) -> bool {
        self.call(manager, subject, "", Action::Update(object)).is_ok()
    }

    /// Replaces a subresource if the resource version in `object` is current. Returns whether it succeeded.
    pub fn update_on(&self, manager: &str, subject: &Subject, subresource: &str, object: Value) -> bool {
        self.call(manager, subject, subresource, Action::Update(object)).is_ok()
    }

    /// Binds a pod to a node. Returns whether it succeeded.
    pub fn bind(&self, manager: &str, pod: &Subject, seen: &Value, node: &str) -> bool {
        let metadata = json!({"name": pod.key.name(), "uid": seen["metadata"]["uid"]});
        let binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": node}});
        self.call(manager, pod, "binding", Action::Create(binding)).is_ok()
    }

    /// Replaces `status` if it differs. Returns whether the stored status now equals `status`.
    pub fn set_status(&self, manager: &str, subject: &Subject, object: &Value, status: Value) -> bool {
        if object["status"] == status {
            return true;
        }
        let mut object = object.clone();
        object["status"] = status;
        self.update_on(manager, subject, "status", object)
    }

    /// Merges a patch into an object. Returns whether it succeeded.
    pub fn merge(&self, manager: &str, subject: &Subject, patch: Value) -> bool {
        self.call(manager, subject, "", Action::Patch(Form::Merge, patch)).is_ok()
    }

    /// Deletes exactly the object in `seen`, not a later object of the same name.
    pub fn delete(&self, subject: &Subject, seen: &Value, propagation: Option<Propagation>, grace: Option<i64>) {
        let uid = seen["metadata"]["uid"].as_str().map(str::to_owned);
        let options = DeleteOptions { propagation, grace, uid, ..DeleteOptions::default() };
        // A failure means that the object is already deleted or replaced.
        let _ = self.call(CONTROLLER, subject, "", Action::Delete(options));
    }

    /// Reports an event about an object. A repeated event increments the count of the existing event.
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
        // A real cluster loses such an event, too, for example in a terminating namespace.
        let _ = self.create(CONTROLLER, "events", namespace, event);
    }
}

impl Client {
    /// Reports an event about an object in the newer form, with a time and an action.
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
        // A real cluster loses such an event, too, for example in a terminating namespace.
        let _ = self.create(CONTROLLER, "events", namespace, event);
    }
}

/// Returns the `involvedObject` of an event.
fn reference(about: &Value) -> Value {
    let metadata = &about["metadata"];
    json!({
        "apiVersion": about["apiVersion"], "kind": about["kind"], "name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
    })
}

/// Returns the subject of an object in a storage.
pub fn subject(storage: &str, object: &Value) -> Subject {
    Subject::new(storage, text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
