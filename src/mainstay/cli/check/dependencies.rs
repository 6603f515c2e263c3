//! Finds dependencies (`spec.dependsOn`) for which a GitSync waits for ever: GitSyncs that do not exist or cannot be read.
//!
//! Not here: dependencies that exist and are not ready. They have findings of their own (`states`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::Value;

use mainstay_api::GitSync;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_cluster::{Cluster, Kind};
use mainstay_object::printable;

/// Namespace and name of a GitSync.
type Name = (String, String);

/// The GitSyncs that were read, as dependencies of others.
pub(super) struct GitSyncs<'c> {
    cluster: &'c Cluster,
    kind: Arc<Kind>,
    known: BTreeMap<Name, State>,
}

/// The state of a GitSync as a dependency.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// It exists, and it may become ready.
    Readable,
    Absent,
    /// The agent cannot read its fields.
    Invalid,
    /// The command cannot read it. Contains the reason.
    Unreadable(String),
}

impl State {
    /// Returns the remedy if dependants wait for ever.
    fn remedy(&self, (namespace, name): &Name) -> Option<String> {
        let subject = format!("GitSync {}/{}", printable(namespace), printable(name));
        match self {
            Self::Readable => None,
            Self::Absent => Some(format!("create {subject}, or remove it from spec.dependsOn")),
            Self::Invalid => Some(format!("correct {subject}: a field does not match the schema of the CRD")),
            Self::Unreadable(why) => Some(format!(
                "check {subject} of spec.dependsOn as a user who may read it: it cannot be read: {}",
                printable(why)
            )),
        }
    }
}

impl<'c> GitSyncs<'c> {
    pub(super) fn new(cluster: &'c Cluster, kind: &Arc<Kind>) -> Self {
        Self { cluster, kind: Arc::clone(kind), known: BTreeMap::new() }
    }

    /// Adds a listed GitSync. Returns its dependencies if it waits for them.
    pub(super) fn add(&mut self, namespace: &str, object: &Value) -> Option<Vec<Name>> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let sync = GitSync::deserialize(object).ok();
        let state = if sync.is_some() { State::Readable } else { State::Invalid };
        self.known.insert((namespace.to_owned(), name), state);
        waits_for(namespace, &sync?)
    }

    /// Returns the remedy for the first of these dependencies that does not exist or cannot be read.
    pub(super) async fn remedy(&mut self, depends_on: Vec<Name>) -> Option<String> {
        for name in depends_on {
            let state = match self.known.get(&name) {
                Some(state) => state.clone(),
                None => self.read(&name).await,
            };
            let remedy = state.remedy(&name);
            self.known.insert(name, state);
            if remedy.is_some() {
                return remedy;
            }
        }
        None
    }

    /// Reads a GitSync that was not listed, such as one of another namespace.
    async fn read(&self, (namespace, name): &Name) -> State {
        match self.cluster.get(&self.kind, Some(namespace.as_str()), name).await {
            Ok(Some(object)) if GitSync::deserialize(&object).is_ok() => State::Readable,
            Ok(Some(_)) => State::Invalid,
            Ok(None) => State::Absent,
            Err(error) => State::Unreadable(error.cause_text()),
        }
    }
}

/// Returns the dependencies of a GitSync that waits for them.
fn waits_for(namespace: &str, sync: &GitSync) -> Option<Vec<Name>> {
    let ready = conditions::status(&sync.status.as_ref()?.conditions, Type::Ready)?;
    let named = sync.spec.depends_on.iter().map(|other| {
        let namespace = other.namespace.as_deref().unwrap_or(namespace);
        (namespace.to_owned(), other.name.clone())
    });
    (ready.reason == Reason::DependencyNotReady.name()).then(|| named.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(namespace: &str, name: &str) -> Name {
        (namespace.to_owned(), name.to_owned())
    }

    fn waits(reason: &str) -> Option<Vec<Name>> {
        let depends_on = json!([{"name": "first"}, {"name": "platform", "namespace": "infra"}]);
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "message": "why",
            "lastTransitionTime": "2026-03-02T08:00:00Z",
        });
        let object = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"gitRepository": "web", "dependsOn": depends_on}, "status": {"conditions": [ready]},
        });
        waits_for("shop", &serde_json::from_value(object).unwrap())
    }

    #[test]
    fn only_a_waiting_git_sync_has_dependencies_to_check() {
        let expected = vec![name("shop", "first"), name("infra", "platform")];
        assert_eq!(waits("DependencyNotReady"), Some(expected));
        assert_eq!(waits("WindowClosed"), None);
    }

    #[test]
    fn each_dependency_that_cannot_become_ready_has_a_remedy() {
        let remedy = |state: State| state.remedy(&name("infra", "platform"));
        assert_eq!(remedy(State::Readable), None);
        let expected = "create GitSync infra/platform, or remove it from spec.dependsOn";
        assert_eq!(remedy(State::Absent).as_deref(), Some(expected));
        let expected = "correct GitSync infra/platform: a field does not match the schema of the CRD";
        assert_eq!(remedy(State::Invalid).as_deref(), Some(expected));
        let said = remedy(State::Unreadable("forbidden".to_owned())).unwrap();
        assert!(said.starts_with("check GitSync infra/platform ") && said.ends_with(": forbidden"), "{said}");
    }
}
