//! A Provider or an Alert as expressions see it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

/// The names of a Provider or an Alert.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity<'o> {
    /// Its namespace.
    pub namespace: &'o str,
    /// Its name.
    pub name: &'o str,
    /// Its uid.
    pub uid: &'o str,
    /// Its labels, if they are known.
    pub labels: Option<&'o BTreeMap<String, String>>,
}

impl Identity<'_> {
    /// Returns the object of a kind, without a status. A spec that cannot be written as JSON is `null`.
    pub(crate) fn object<S: Serialize>(&self, kind: &str, spec: &S) -> Value {
        let mut metadata = json!({"namespace": self.namespace, "name": self.name, "uid": self.uid});
        if let Some(labels) = self.labels.filter(|labels| !labels.is_empty()) {
            metadata["labels"] = json!(labels);
        }
        let spec = serde_json::to_value(spec).unwrap_or_default();
        json!({"apiVersion": "mainstay.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    }
}
