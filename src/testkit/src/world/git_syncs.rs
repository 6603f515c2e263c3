//! The GitSyncs of a world: requests, statuses, and waits for them.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{NAMESPACE, World};

impl World {
    /// Creates a GitSync for the repository; `spec` is merged over the defaults.
    pub fn sync(&self, name: &str, spec: Value) {
        let mut whole = json!({"gitRepository": "repo", "interval": "1h"});
        json_patch::merge(&mut whole, &spec);
        self.create(
            "mainstay.dev/v1alpha1",
            "gitsyncs",
            NAMESPACE,
            json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": name, "namespace": NAMESPACE}, "spec": whole,
            }),
        );
    }

    /// Annotates a GitSync.
    #[track_caller]
    pub fn annotate_sync(&self, name: &str, annotation: &str, value: &str) {
        self.edit("mainstay.dev/v1alpha1", "gitsyncs", name, json!({"metadata": {"annotations": {annotation: value}}}));
    }

    /// Returns the status of a GitSync; null without a status.
    pub fn status(&self, sync: &str) -> Value {
        self.get("mainstay.dev/v1alpha1", "gitsyncs", sync).map(|sync| sync["status"].clone()).unwrap_or_default()
    }

    /// Returns `<status> <reason>: <message>` of a condition; `absent` without it.
    pub fn condition(&self, sync: &str, kind: &str) -> String {
        condition_of(&self.status(sync), kind)
    }

    /// Waits until a condition of a GitSync begins with a string.
    pub async fn condition_is(&self, sync: &str, kind: &str, beginning: &str) {
        let what = format!("{kind} of {sync} to begin with {beginning:?}");
        self.until(&what, |w| w.condition(sync, kind).starts_with(beginning)).await;
    }

    /// Returns the failure of an object in the status; empty if it is not listed.
    pub fn failure(&self, sync: &str, object: &str) -> String {
        let status = self.status(sync);
        let all = status["failures"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|failure| failure["object"] == object);
        found.map_or_else(String::new, |f| {
            format!("{}: {}", f["reason"].as_str().unwrap(), f["message"].as_str().unwrap())
        })
    }

    /// Waits until a GitSync is Ready at the newest commit of the repository.
    pub async fn ready(&self, sync: &str) {
        self.ready_at(sync, &self.remote.head()).await;
    }

    /// Waits until a GitSync is Ready at a commit.
    pub async fn ready_at(&self, sync: &str, commit: &str) {
        self.until(&format!("{sync} ready at {commit}"), |w| {
            w.condition(sync, "Ready").starts_with("True") && w.status(sync)["appliedCommit"] == commit
        })
        .await;
    }

    /// Commits the staged files, requests a sync, and waits until the commit is applied.
    pub async fn commit(&mut self, sync: &str, message: &str) {
        self.remote.commit(message);
        self.ask(sync).await;
        self.ready(sync).await;
    }

    /// Commits the staged files, requests a sync, and waits until the commit is handled. Returns the commit.
    pub async fn try_commit(&mut self, sync: &str, message: &str) -> String {
        let commit = self.remote.commit(message);
        self.ask(sync).await;
        commit
    }

    /// Requests a sync like `mainstay sync`, and waits until the status acknowledges it.
    pub async fn ask(&self, sync: &str) {
        let request = self.request(sync);
        self.until(&format!("{sync} to answer {request}"), |w| w.status(sync)["lastHandledRequest"] == *request).await;
    }

    /// Requests a sync like `mainstay sync`, without waiting.
    pub fn request(&self, sync: &str) -> String {
        let request = format!("request {}", self.asked.fetch_add(1, Ordering::Relaxed));
        self.annotate_sync(sync, "mainstay.dev/requestedAt", &request);
        request
    }

    /// Allows a commit to exceed the prune guards, and waits for the result.
    pub async fn allow_prune(&self, sync: &str, commit: &str) {
        self.annotate_sync(sync, "mainstay.dev/allow-prune", commit);
        self.ask(sync).await;
    }

    /// Changes the spec of a GitSync and waits until the change is handled.
    pub async fn change(&self, sync: &str, spec: Value) {
        let changed = self.edit("mainstay.dev/v1alpha1", "gitsyncs", sync, json!({"spec": spec}));
        let generation = changed["metadata"]["generation"].clone();
        self.ask(sync).await;
        self.until("the change is acted on", |w| w.status(sync)["observedGeneration"] == generation).await;
    }
}

/// Returns `<status> <reason>: <message>` of a condition in a status; `absent` without it.
pub fn condition_of(status: &Value, kind: &str) -> String {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    found.map_or_else(
        || "absent".to_owned(),
        |c| format!("{} {}: {}", text(c, "status"), text(c, "reason"), text(c, "message")),
    )
}
