//! Objects become the rows that `kubectl get` prints (`meta.k8s.io/v1` Table).
//!
//! Invariant: every row has as many cells as there are column definitions.
//!
//! Deliberately absent: the list's own metadata and the choice whether definitions are sent at all (a watch sends
//! them once); the caller adds and removes those.

use serde_json::{Value, json};

/// How much of each object a row carries (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`; the API's default.
    Metadata,
    /// The whole object.
    Object,
}

/// A Table of `objects`. `columns_path` is the resource's path without namespace (`/apis/apps/v1/deployments`);
/// `crd_columns` are a custom resource version's `additionalPrinterColumns`.
pub fn table(
    _columns_path: &str,
    _crd_columns: Option<&[Value]>,
    objects: &[&Value],
    include: Include,
    _now: jiff::Timestamp,
) -> Value {
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            json!({"cells": [object["metadata"]["name"], ""], "object": match include {
                Include::None => Value::Null,
                Include::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}),
                Include::Object => (*object).clone(),
            }})
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0},
            {"name": "Age", "type": "string", "format": "", "description": "", "priority": 0},
        ],
        "rows": rows,
    })
}
