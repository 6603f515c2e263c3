//! The objects that a conversion creates.

use serde_json::{Map, Value, json};

use mainstay_api::names::{DELETE_OBJECTS, ON_DELETE};
use mainstay_api::{
    Alert, GitRepository, GitSync, HelmChart, ImagePolicy, ImageRepository, ImageUpdateAutomation, OciRepository,
    Provider, Receiver,
};

use super::comments::Comments;
use super::document::Document;

/// API version of GitSyncs, Receivers, Providers and Alerts.
pub(super) const OURS: &str = "mainstay.dev/v1alpha1";
/// API version of GitRepositories.
pub(super) const SERVERLESS: &str = "serverless.kyma-project.io/v1alpha1";

/// An object, with the comments of the fields that it replaces.
#[derive(Clone, Debug)]
pub(super) struct Converted {
    pub(super) object: Value,
    comments: Comments,
}

impl Converted {
    pub(super) fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {}});
        Self { object, comments: Comments::default() }
    }

    /// Returns an object that replaces another one. It gets the comments at the head of the replaced object.
    pub(super) fn in_place_of(document: &Document, api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let mut converted = Self::new(api_version, kind, namespace, name);
        for field in ["apiVersion", "kind", "metadata"] {
            converted.comments.carry(field, &document.comments, field);
        }
        converted
    }

    /// Sets a field of `spec`. The comments of the document's field `from` move to the new field.
    pub(super) fn set(&mut self, field: &str, value: impl Into<Value>, document: &Document, from: &str) {
        self.comments.carry(&format!("spec.{field}"), &document.comments, from);
        self.put(field, value);
    }

    /// Sets a field of `spec`.
    pub(super) fn put(&mut self, field: &str, value: impl Into<Value>) {
        let mut at = &mut self.object["spec"];
        for key in field.split('.') {
            at = &mut at[key];
        }
        *at = value.into();
    }

    /// Sets labels or annotations, if there are any.
    pub(super) fn put_metadata(&mut self, which: &str, entries: Map<String, Value>) {
        if !entries.is_empty() {
            self.object["metadata"][which] = Value::Object(entries);
        }
    }

    /// Requests that the objects of the GitSync are deleted together with it.
    pub(super) fn prune_on_delete(&mut self) {
        self.object["metadata"]["annotations"][ON_DELETE] = DELETE_OBJECTS.into();
    }

    /// Returns the reason why the API server would refuse the object, if any.
    pub(super) fn problem(&self) -> Option<String> {
        let object = self.object.clone();
        let read = match self.object["kind"].as_str() {
            Some("GitSync") => serde_json::from_value::<GitSync>(object).map(drop),
            Some("GitRepository") => serde_json::from_value::<GitRepository>(object).map(drop),
            Some("OCIRepository") => serde_json::from_value::<OciRepository>(object).map(drop),
            Some("HelmChart") => serde_json::from_value::<HelmChart>(object).map(drop),
            Some("ImageRepository") => serde_json::from_value::<ImageRepository>(object).map(drop),
            Some("ImagePolicy") => serde_json::from_value::<ImagePolicy>(object).map(drop),
            Some("ImageUpdateAutomation") => serde_json::from_value::<ImageUpdateAutomation>(object).map(drop),
            Some("Provider") => serde_json::from_value::<Provider>(object).map(drop),
            Some("Alert") => serde_json::from_value::<Alert>(object).map(drop),
            _ => serde_json::from_value::<Receiver>(object).map(drop),
        };
        read.err().map(|error| error.to_string())
    }

    /// Returns the object as YAML, with comments.
    pub(super) fn yaml(&self) -> Result<String, serde_yaml::Error> {
        Ok(self.comments.write(&serde_yaml::to_string(&self.object)?))
    }
}
