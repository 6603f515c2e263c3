//! The ReplicaSets of a Deployment: the current one and the old ones.

use std::sync::Arc;

use serde_json::Value;

use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{conditions, count, text};

/// Storage of ReplicaSets.
pub(super) const SETS: &str = "replicasets.apps";
/// Source of Events about Deployments.
pub(super) const SOURCE: &str = "deployment-controller";
/// Label that separates the pods of different templates.
pub(super) const HASH: &str = "pod-template-hash";
/// Annotation with the number of a revision.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";

/// The ReplicaSets of a Deployment.
pub(super) struct Sets {
    /// The ReplicaSet of the current template.
    pub(super) current: Option<Arc<Value>>,
    /// The ReplicaSets of earlier templates, oldest first.
    pub(super) old: Vec<Arc<Value>>,
}

impl Sets {
    /// Reads the ReplicaSets that the Deployment controls.
    pub(super) fn of(client: &Client, subject: &Subject, deployment: &Value) -> Self {
        let mut all = client.controlled(SETS, subject.key.namespace(), deployment);
        all.sort_by_key(|set| (revision(set), text(set, "/metadata/creationTimestamp").to_owned()));
        let wanted = &deployment["spec"]["template"];
        let place = all.iter().position(|set| without_hash(&set["spec"]["template"]) == *wanted);
        let current = place.map(|place| all.remove(place));
        Self { current, old: all }
    }

    /// Iterates over the current ReplicaSet, then the old ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Value>> {
        self.current.iter().chain(&self.old)
    }

    /// Returns the first ReplicaFailure condition as a condition of the Deployment.
    pub(super) fn failure(&self) -> Option<Value> {
        let failed = |set: &Arc<Value>| conditions(set).iter().find(|c| c["type"] == "ReplicaFailure").cloned();
        let mut failure = self.all().find_map(failed)?;
        failure["lastUpdateTime"] = failure["lastTransitionTime"].clone();
        Some(failure)
    }

    /// Sums a number over all ReplicaSets.
    pub(super) fn sum(&self, pointer: &str) -> i64 {
        self.all().map(|set| count(set, pointer)).sum()
    }
}

/// Returns the revision of an object; 0 if it has none.
pub(super) fn revision(object: &Value) -> i64 {
    object["metadata"]["annotations"][REVISION].as_str().and_then(|r| r.parse().ok()).unwrap_or(0)
}

pub(super) fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}
