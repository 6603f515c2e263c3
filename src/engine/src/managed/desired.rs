//! What an object must be: the document, and what is set in it before it is applied.
//!
//! Invariant: nothing but the namespace and one label is added, so the body changes only when the document does, or what is
//! ignored of it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::fields::Fields;
use super::ignored::Ignored;
use super::reserved::Reserved;
use mainstay_api::names::{ANNOTATION_PREFIX, RERUN, SYNC_LABEL};
use mainstay_cluster::Kind;
use mainstay_object::{Digest, Ended, Key, Object, can_end, ended};

/// By what a live object is known to be its owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// By [`SYNC_LABEL`] with this value, which is set at every apply and by which the objects are watched.
    Label(Arc<str>),
    /// By a controller reference, which is in the document, as is a label by which the owner watches the objects; the
    /// owner hands the events of its watch to the drift loop.
    Controller {
        /// UID of the controller.
        uid: Arc<str>,
        /// Name of the label.
        watched_by: &'static str,
        /// Fields that nobody else may set.
        reserved: Reserved,
    },
}

impl Mark {
    /// The UID that a controller of the object must have; an object that is marked by a label has no controller.
    pub(crate) fn controller(&self) -> Option<&str> {
        match self {
            Self::Label(_) => None,
            Self::Controller { uid, .. } => Some(uid),
        }
    }

    /// Fields that nobody but the owner may set.
    pub(crate) fn reserved(&self) -> Reserved {
        match self {
            Self::Label(_) => Reserved::NOTHING,
            Self::Controller { reserved, .. } => *reserved,
        }
    }

    /// Whether a live object has the label by which it is watched.
    pub(crate) fn is_on(&self, live: &Value) -> bool {
        let label = match self {
            Self::Label(_) => SYNC_LABEL,
            Self::Controller { watched_by, .. } => watched_by,
        };
        live.pointer("/metadata/labels").and_then(|labels| labels.get(label)).is_some()
    }
}

/// A desired object, placed in the cluster.
#[derive(Clone, Debug)]
pub struct Desired {
    /// Identity in the cluster, with the namespace that it goes to.
    pub key: Key,
    /// The kind, in the version as Git wrote it.
    pub kind: Arc<Kind>,
    /// The document.
    pub object: Arc<Object>,
    /// What says whose it is.
    pub mark: Mark,
    /// Its fields that are left to others, if any are.
    pub ignored: Option<Box<Ignored>>,
}

impl Desired {
    /// What is applied to an object that is there: without what is ignored of it.
    pub fn body(&self) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.strip(&mut body);
        }
        body
    }

    /// What a new object is created as.
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

    /// What is applied to this live object.
    pub(crate) fn body_over(&self, live: &Value) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.leave_out(&self.object.value(), live, &mut body);
        }
        body
    }

    /// What replaces this live object: what is ignored is as it is in it.
    pub fn body_in_place_of(&self, live: &Value) -> Value {
        let mut body = self.whole_body();
        if let Some(ignored) = &self.ignored {
            ignored.follow_all(&self.object.value(), live, &mut body);
        }
        body
    }

    /// Whether something of what is applied to this live object is sent as it is in it.
    pub(crate) fn follows(&self, live: &Value) -> bool {
        self.ignored.as_ref().is_some_and(|ignored| ignored.follows(&self.object.value(), live))
    }

    /// What was sent, without what is ignored.
    pub(crate) fn without_ignored<'v>(&self, sent: &'v Value) -> Cow<'v, Value> {
        let Some(ignored) = &self.ignored else { return Cow::Borrowed(sent) };
        let mut sent = sent.clone();
        ignored.strip(&mut sent);
        Cow::Owned(sent)
    }

    /// A live object as far as it matters here: without what is ignored, and without our ownership of that.
    pub fn view<'v>(&self, live: &'v Value) -> Cow<'v, Value> {
        match &self.ignored {
            Some(ignored) => Cow::Owned(ignored.view(&self.object.value(), live)),
            None => Cow::Borrowed(live),
        }
    }

    /// `managedFields` of a live object in which nothing ignored is ours any more; `None` if nothing is.
    pub(crate) fn given_up(&self, live: &Value) -> Option<Value> {
        self.ignored.as_ref()?.given_up(&self.object.value(), live)
    }

    /// Takes what is ignored out of a field set.
    pub(crate) fn leave_ignored(&self, fields: &mut Fields) {
        if let Some(ignored) = &self.ignored {
            ignored.leave(&self.object.value(), fields);
        }
    }

    /// Whether the count of a workload is left to others.
    pub(crate) fn ignores_replicas(&self) -> bool {
        self.ignored.as_ref().is_some_and(|ignored| ignored.covers(&["spec", "replicas"]))
    }

    /// Value of the label that says whose it is, if one does.
    pub fn label(&self) -> Option<&str> {
        match &self.mark {
            Mark::Label(label) => Some(label),
            Mark::Controller { .. } => None,
        }
    }

    /// Digest of the document: the same for as long as applying it again would send the same.
    pub fn source(&self) -> Digest {
        self.ignored.as_ref().map_or(self.object.digest, |ignored| ignored.source())
    }

    /// How a live object ended, if it did. What a controller owns is run again as its owner says.
    pub(crate) fn ended(&self, live: &Value) -> Option<Ended> {
        self.label().and_then(|_| ended(&self.key, live))
    }

    /// The value that asks for another run of what ended, where the document has one.
    pub(crate) fn rerun(&self) -> Option<String> {
        let body = can_end(&self.key).then(|| self.object.value())?;
        body.pointer("/metadata/annotations")?.get(RERUN)?.as_str().map(str::to_owned)
    }

    /// Whether an autoscaler can scale it.
    pub fn is_scalable(&self) -> bool {
        let kinds = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "Function"];
        kinds.contains(&&*self.key.kind)
    }

    /// Whether the document sets `spec.replicas` of something that an autoscaler can scale.
    pub(crate) fn sets_replicas(&self, body: &Value) -> bool {
        self.is_scalable() && body.pointer("/spec/replicas").is_some_and(|v| !v.is_null())
    }
}

/// Takes `spec.replicas` out of a body, for a workload that an autoscaler scales.
pub(crate) fn without_replicas(body: &mut Value) {
    if let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("replicas");
    }
}

/// Sets the annotations for people to what they are in `live`, or leaves them out: they are never reverted.
pub(crate) fn yield_to_people(body: &mut Value, live: &Value) {
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
