//! The objects that a conversion creates.

use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use mainstay_api::names::{DELETE_OBJECTS, ON_DELETE};
use mainstay_api::{
    Alert, GitRepository, GitSync, HelmChart, ImagePolicy, ImageRepository, ImageUpdateAutomation, OciRepository,
    Provider, Receiver,
};

use super::comments::Comments;
use super::document::Document;

/// The kinds that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Printed {
    GitRepository,
    OciRepository,
    HelmChart,
    GitSync,
    Receiver,
    Provider,
    Alert,
    ImageRepository,
    ImagePolicy,
    ImageUpdateAutomation,
}

impl Printed {
    /// Returns the API version and the name of the kind.
    fn names(self) -> (String, String) {
        fn of<T: Resource<DynamicType = ()>>() -> (String, String) {
            (T::api_version(&()).into_owned(), T::kind(&()).into_owned())
        }
        match self {
            Self::GitRepository => of::<GitRepository>(),
            Self::OciRepository => of::<OciRepository>(),
            Self::HelmChart => of::<HelmChart>(),
            Self::GitSync => of::<GitSync>(),
            Self::Receiver => of::<Receiver>(),
            Self::Provider => of::<Provider>(),
            Self::Alert => of::<Alert>(),
            Self::ImageRepository => of::<ImageRepository>(),
            Self::ImagePolicy => of::<ImagePolicy>(),
            Self::ImageUpdateAutomation => of::<ImageUpdateAutomation>(),
        }
    }
}

/// An object, with the comments of the fields that it replaces.
#[derive(Clone, Debug)]
pub(super) struct Converted {
    pub(super) kind: Printed,
    pub(super) object: Value,
    comments: Comments,
}

impl Converted {
    pub(super) fn new(kind: Printed, namespace: &str, name: &str) -> Self {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        let (api_version, kind_name) = kind.names();
        let object = json!({"apiVersion": api_version, "kind": kind_name, "metadata": metadata, "spec": {}});
        Self { kind, object, comments: Comments::default() }
    }

    /// Returns an object that replaces another one. It gets the comments at the head of the replaced object.
    pub(super) fn in_place_of(document: &Document, kind: Printed, namespace: &str, name: &str) -> Self {
        let mut converted = Self::new(kind, namespace, name);
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
        fn of<T: DeserializeOwned>(object: &Value) -> Option<String> {
            serde_json::from_value::<T>(object.clone()).err().map(|error| error.to_string())
        }
        let object = &self.object;
        match self.kind {
            Printed::GitRepository => of::<GitRepository>(object),
            Printed::OciRepository => of::<OciRepository>(object),
            Printed::HelmChart => of::<HelmChart>(object),
            Printed::GitSync => of::<GitSync>(object),
            Printed::Receiver => of::<Receiver>(object),
            Printed::Provider => of::<Provider>(object),
            Printed::Alert => of::<Alert>(object),
            Printed::ImageRepository => of::<ImageRepository>(object),
            Printed::ImagePolicy => of::<ImagePolicy>(object),
            Printed::ImageUpdateAutomation => of::<ImageUpdateAutomation>(object),
        }
    }

    /// Returns the object as YAML, with comments.
    pub(super) fn yaml(&self) -> Result<String, serde_yaml::Error> {
        Ok(self.comments.write(&serde_yaml::to_string(&self.object)?))
    }
}
