//! Reads the files of `manifests/` with the namespace and the image of an [`Installation`].

use serde::Deserialize as _;
use serde_json::Value;

use super::request::{IMAGE, Installation};
use crate::cli::{Error, connection::DEFAULT_NAMESPACE};

pub(super) const RBAC: &str = include_str!("../../../../manifests/rbac.yaml");
pub(super) const WEBHOOKS: &str = include_str!("../../../../manifests/webhooks.yaml");
/// The namespace in `manifests/`.
pub(super) const MANIFEST_NAMESPACE: &str = DEFAULT_NAMESPACE;

pub(super) fn value(what: &str, object: &impl serde::Serialize) -> Result<Value, Error> {
    serde_json::to_value(object).map_err(|cause| Error::Understand { what: what.to_owned(), cause })
}

/// Returns the documents of a manifest, with the namespace and the image of the installation.
pub(super) fn manifest(text: &str, installation: &Installation) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(document).map_err(Error::WriteYaml)?;
        substitute(&mut object, installation);
        objects.push(object);
    }
    Ok(objects)
}

/// Replaces the namespace and the image of `manifests/` in all values.
pub(super) fn substitute(value: &mut Value, installation: &Installation) {
    match value {
        Value::String(text) if *text == MANIFEST_NAMESPACE => text.clone_from(&installation.namespace),
        Value::String(text) if *text == IMAGE => text.clone_from(&installation.image),
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, installation)),
        Value::Object(fields) => fields.values_mut().for_each(|field| substitute(field, installation)),
        _ => {}
    }
}
