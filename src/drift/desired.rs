//! What an object must be: the document from the repository, and what is set in it before it is applied.
//!
//! Invariant: nothing but the namespace and one label is added, so the body changes from commit to commit only when
//! the document does.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::api::names::{ANNOTATION_PREFIX, SYNC_LABEL};
use crate::cluster::Kind;
use crate::object::{Digest, Key, Object};

/// Who an object is managed for: `namespace/name` of a GitSync.
pub type Owner = Arc<str>;

/// A desired object, placed in the cluster.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Identity in the cluster, with the namespace that it goes to.
    pub key: Key,
    /// The kind, in the version as Git wrote it.
    pub kind: Arc<Kind>,
    /// The document.
    pub object: Arc<Object>,
    /// Value of the label that says whose it is.
    pub label: Arc<str>,
}

impl Desired {
    /// What is applied.
    pub fn body(&self) -> Value {
        let mut body = self.object.value();
        let Some(root) = body.as_object_mut() else { return body };
        if self.kind.has_status {
            root.remove("status");
        }
        let metadata = child(root, "metadata");
        match &self.key.namespace {
            Some(namespace) => metadata.insert("namespace".into(), Value::from(&**namespace)),
            None => metadata.remove("namespace"),
        };
        child(metadata, "labels").insert(SYNC_LABEL.into(), Value::from(&*self.label));
        body
    }

    /// Digest of the document: the same for as long as applying it again would send the same.
    pub fn source(&self) -> Digest {
        self.object.digest
    }

    /// Whether the document sets `spec.replicas` of something that an autoscaler can scale.
    pub fn sets_replicas(&self, body: &Value) -> bool {
        matches!(&*self.key.kind, "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController")
            && body.pointer("/spec/replicas").is_some_and(|v| !v.is_null())
    }
}

/// Takes `spec.replicas` out of a body, for a workload that an autoscaler scales.
pub(super) fn without_replicas(body: &mut Value) {
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
    }
}

/// Sets the annotations for people to what they are in `live`, or leaves them out: they are never reverted.
pub(super) fn yield_to_people(body: &mut Value, live: &Value) {
    let Some(annotations) = body.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    let theirs = live.pointer("/metadata/annotations");
    annotations.retain(|name, value| {
        if !name.starts_with(ANNOTATION_PREFIX) {
            return true;
        }
        let live = theirs.and_then(|annotations| annotations.get(name));
        // Leaving out what is still there and ours would take it away.
        if let Some(live) = live {
            *value = live.clone();
        }
        live.is_some()
    });
}

fn child<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut().expect("it was made an object in the line above")
}
