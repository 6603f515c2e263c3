//! Webhooks of a claim: their selectors, and waiting until they take effect.

use std::time::Duration;

use serde_json::{Value, json};

use crate::webhook::Hooks;
use crate::world::World;

impl Hooks {
    /// Builds the webhook `<name>.example.io` at `/<name>` for labelled ConfigMaps of the claim's namespace.
    pub(crate) fn hook(&self, w: &World, name: &str) -> Value {
        json!({
            "name": format!("{name}.example.io"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 2, "clientConfig": {"url": format!("{}/{name}", self.url()), "caBundle": self.bundle()},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": w.ns}},
            "objectSelector": {"matchLabels": {"wh": "1"}},
        })
    }
}

/// Creates a configuration of the claim; `kind` is `mutating` or `validating`.
pub(crate) async fn configure(w: &World, kind: &str, name: &str, webhooks: Value) {
    let plural = format!("{kind}webhookconfigurations");
    let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
    let name = format!("{}-{name}", w.ns);
    w.forget_later(&format!("{path}/{name}"));
    w.post(&path, json!({"metadata": {"name": name}, "webhooks": webhooks})).await.code(201);
}

/// A ConfigMap that the claim's webhooks select.
pub(crate) fn labelled(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"wh": "1"}}, "data": data})
}

/// Waits until a configuration takes effect, about a second on a real server. Creates objects by a dry run until the
/// response or the received calls show the effect.
pub(crate) async fn settled(w: &World, hooks: &Hooks, done: impl Fn(&crate::world::Answer) -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let answer = w.post(&w.maps("?dryRun=All"), labelled("settling", json!({}))).await;
        if done(&answer) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the configuration counts: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    hooks.forget();
}
