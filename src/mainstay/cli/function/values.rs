//! Reads values of variables from ConfigMaps and Secrets of a cluster.
//!
//! Invariant: only a cluster that the command line specifies is used, and only objects that the configuration
//! references are read. Invariant: no value is written or shown.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::Value;

use super::{
    environment::{Found, holders},
    project::Project,
};
use crate::cli::{Error, connection::ClusterArguments};
use mainstay_cluster::Cluster;

/// Returns the cluster if a flag specifies one. This sends no request yet.
pub(super) async fn source(cluster: &ClusterArguments) -> Result<Option<Cluster>, Error> {
    if cluster.origin().names_cluster() { cluster.connect().await.map(Some) } else { Ok(None) }
}

/// Reads from a cluster the values that a project lacks.
pub(super) async fn fetch(cluster: &Cluster, project: &Project) -> Result<Found, Error> {
    let mut all = Found::new();
    for (kind, name) in holders(&project.config, &project.given) {
        // The kind is never missing, because every cluster has ConfigMaps and Secrets.
        let Some(served) = cluster.kind("v1", kind).await? else { continue };
        let object = cluster.get(&served, Some(&project.config.namespace), &name).await?;
        all.insert((kind, name), object.map(|object| entries(kind, &object)).unwrap_or_default());
    }
    Ok(all)
}

/// Returns the entries of an object that can be values of variables.
fn entries(kind: &str, object: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| {
        let text = value.as_str()?;
        let text = match kind {
            "Secret" => String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()?,
            _ => text.to_owned(),
        };
        (!text.contains('\0')).then_some(text)
    };
    let data = object["data"].as_object().into_iter().flatten();
    data.filter_map(|(key, value)| Some((key.clone(), text(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_texts_are_values_of_variables() {
        let map = json!({"data": {"a": "x", "b": "\0", "c": 1}});
        assert_eq!(entries("ConfigMap", &map), BTreeMap::from([("a".to_owned(), "x".to_owned())]));
        let secret = json!({"data": {"a": "eA==", "b": "AA==", "c": "/w==", "d": "no base64"}});
        assert_eq!(entries("Secret", &secret), BTreeMap::from([("a".to_owned(), "x".to_owned())]));
        assert_eq!(entries("Secret", &json!({})), BTreeMap::new());
    }
}
