//! The desired state of an object: its document, and how it is changed before an apply.
//!
//! Invariant: only the namespace and one label are added. The body changes only with the document or with its ignored
//! fields.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::Fields;
use super::ignored::Ignored;
use super::reserved::Reserved;
use mainstay_api::names::{ANNOTATION_PREFIX, RERUN, SYNC_LABEL};
use mainstay_cluster::Kind;
use mainstay_object::{Digest, Ended, Key, Object, can_end, ended};

/// The mark that identifies the owner of a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// [`SYNC_LABEL`] with this value. Every apply sets it, and the watch selects it.
    Label(Arc<str>),
    /// A controller reference in the document. The owner watches the objects by a label in the document, and passes the
    /// events to the drift loop.
    Controller {
        /// The UID of the controller.
        uid: Arc<str>,
        /// The name of the label.
        watched_by: &'static str,
        /// Fields that only the owner may set.
        reserved: Reserved,
    },
}

impl Mark {
    /// Returns the UID of the required controller. An object that is marked by a label has none.
    pub(crate) fn controller(&self) -> Option<&str> {
        match self {
            Self::Label(_) => None,
            Self::Controller { uid, .. } => Some(uid),
        }
    }

    /// Returns the fields that only the owner may set.
    pub(crate) fn reserved(&self) -> Reserved {
        match self {
            Self::Label(_) => Reserved::NOTHING,
            Self::Controller { reserved, .. } => *reserved,
        }
    }

    /// Whether a live object has the label of its watch.
    pub(crate) fn is_on(&self, live: &Value) -> bool {
        let label = match self {
            Self::Label(_) => SYNC_LABEL,
            Self::Controller { watched_by, .. } => watched_by,
        };
        live.pointer("/metadata/labels").and_then(|labels| labels.get(label)).is_some()
    }
}

/// A desired object with its identity in the cluster.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Identity in the cluster, with the target namespace.
    pub key: Key,
    /// The kind, in the version of the document.
    pub kind: Arc<Kind>,
    /// The document.
    pub object: Arc<Object>,
    /// The mark of its owner.
    pub mark: Mark,
    /// The ignored fields, if there are any.
    pub ignored: Option<Box<Ignored>>,
}

impl Desired {
    /// Returns the body of an apply to an existing object, without ignored fields.
    pub fn body(&self) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.strip(&mut body);
        }
        body
    }

    /// Returns the body that creates the object.
    pub fn whole_body(&self) -> Value {
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
        if let Mark::Label(label) = &self.mark {
            child(metadata, "labels").insert(SYNC_LABEL.into(), Value::from(&**label));
        }
        body
    }

    /// Returns the body of an apply to this live object.
    pub(crate) fn body_over(&self, live: &Value) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.leave_out(&self.object.value(), live, &mut body);
        }
        body
    }

    /// Returns the body that replaces this live object. Ignored fields keep their live values.
    pub fn body_in_place_of(&self, live: &Value) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.follow_all(&self.object.value(), live, &mut body);
        }
        body
    }

    /// Whether the apply to this live object sends some of its live values.
    pub(crate) fn follows(&self, live: &Value) -> bool {
        self.ignored.as_ref().is_some_and(|ignored| ignored.follows(&self.object.value(), live))
    }

    /// Returns a sent body without ignored fields.
    pub(crate) fn without_ignored<'v>(&self, sent: &'v Value) -> Cow<'v, Value> {
        let Some(ignored) = &self.ignored else { return Cow::Borrowed(sent) };
        let mut sent = sent.clone();
        ignored.strip(&mut sent);
        Cow::Owned(sent)
    }

    /// Returns a live object without ignored fields and without Mainstay's ownership of them.
    pub fn view<'v>(&self, live: &'v Value) -> Cow<'v, Value> {
        match &self.ignored {
            Some(ignored) => Cow::Owned(ignored.view(&self.object.value(), live)),
            None => Cow::Borrowed(live),
        }
    }

    /// Returns `managedFields` without Mainstay's ownership of ignored fields; `None` if Mainstay owns none.
    pub(crate) fn given_up(&self, live: &Value) -> Option<Value> {
        self.ignored.as_ref()?.given_up(&self.object.value(), live)
    }

    /// Removes ignored fields from a field set.
    pub(crate) fn leave_ignored(&self, fields: &mut Fields) {
        if let Some(ignored) = &self.ignored {
            ignored.leave(&self.object.value(), fields);
        }
    }

    /// Whether the replica count is ignored.
    pub(crate) fn ignores_replicas(&self) -> bool {
        self.ignored.as_ref().is_some_and(|ignored| ignored.covers(&["spec", "replicas"]))
    }

    /// Returns the value of the label that marks the owner, if there is one.
    pub fn label(&self) -> Option<&str> {
        match &self.mark {
            Mark::Label(label) => Some(label),
            Mark::Controller { .. } => None,
        }
    }

    /// Returns the digest of the document without ignored fields. The digest changes if an apply would send different
    /// content.
    pub fn source(&self) -> Digest {
        self.ignored.as_ref().map_or(self.object.digest, |ignored| ignored.source())
    }

    /// Returns how a live object ended, if it did. Returns `None` for an object with a controller, whose owner decides
    /// about another run.
    pub(crate) fn ended(&self, live: &Value) -> Option<Ended> {
        self.label().and_then(|_| ended(&self.key, live))
    }

    /// Returns the value in the document that requests another run of an ended object.
    pub(crate) fn rerun(&self) -> Option<String> {
        let body = can_end(&self.key).then(|| self.object.value())?;
        body.pointer("/metadata/annotations")?.get(RERUN)?.as_str().map(str::to_owned)
    }

    /// Whether an autoscaler can scale the kind.
    pub fn is_scalable(&self) -> bool {
        let kinds = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Function"];
        kinds.contains(&&*self.key.kind)
    }

    /// Whether `body` sets `spec.replicas` of a kind that an autoscaler can scale.
    pub(crate) fn sets_replicas(&self, body: &Value) -> bool {
        self.is_scalable() && body.pointer("/spec/replicas").is_some_and(|v| !v.is_null())
    }
}

/// Removes `spec.replicas` from a body, for an autoscaled workload.
pub(crate) fn without_replicas(body: &mut Value) {
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
    }
}

/// Sets the annotations `mainstay.dev/…` to their values in `live`, or removes them: users' values are never reverted.
pub(crate) fn yield_to_people(body: &mut Value, live: &Value) {
    let Some(annotations) = body.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    let theirs = live.pointer("/metadata/annotations");
    annotations.retain(|name, value| {
        if !name.starts_with(ANNOTATION_PREFIX) {
            return true;
        }
        let live = theirs.and_then(|annotations| annotations.get(name));
        // An apply that omits a live annotation that Mainstay owns would remove it.
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
    slot.as_object_mut().expect("the lines above make it an object")
}
