//! Reads objects, Events and permissions with the connection of a session.

use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::watched::said;
use crate::page::Right;
use crate::row::FleetKind;
use crate::shown::{EventRow, event_row, newest_first};
use mainstay_cluster::{Cluster, Error, FieldSelector, Kind, Persistence, Scope, Selection};
use mainstay_object::Key;

/// Maximum number of Events of an object that are read.
const EVENTS: usize = 500;

/// An object that was found, or the reason why it was not found.
pub(super) enum Found {
    There(Value),
    Missing(String),
    Forbidden(String),
    Failed(String),
}

/// Returns why an object was not read.
fn failed(error: &Error) -> Found {
    if error.is_forbidden() { Found::Forbidden(said(error)) } else { Found::Failed(said(error)) }
}

/// Reads an object in the version that the server prefers.
pub(super) async fn object(cluster: &Cluster, key: &Key) -> Found {
    let kind = match cluster.preferred_kind(&key.group, &key.kind).await {
        Ok(Some(kind)) => kind,
        Ok(None) => return Found::Missing(format!("The kind {} is not installed in this cluster.", key.kind)),
        Err(error) => return failed(&error),
    };
    of_kind(cluster, &kind, key).await
}

/// Reads an object of a served kind.
pub(super) async fn of_kind(cluster: &Cluster, kind: &Kind, key: &Key) -> Found {
    match cluster.get(kind, key.namespace.as_deref(), &key.name).await {
        Ok(Some(live)) => Found::There(live),
        Ok(None) => Found::Missing("The object does not exist, or was deleted.".to_owned()),
        Err(error) => failed(&error),
    }
}

/// Reads the Events of an object.
pub(super) async fn events_of(cluster: &Cluster, key: &Key) -> Result<Vec<EventRow>, String> {
    let kind = std::sync::Arc::new(Kind::fixed("v1", "Event", "events", Scope::Namespaced));
    let fields = FieldSelector::equals("involvedObject.name", &key.name)
        .and(&FieldSelector::equals("involvedObject.kind", &key.kind));
    // Events of cluster-wide objects are in the namespace `default`.
    let namespace = key.namespace.as_deref().unwrap_or("default");
    let found = cluster.list(&kind, Selection::by_fields(fields).within(namespace)).take(EVENTS);
    // Each Event is reduced as soon as it was read, because others may make it large.
    let rows: Vec<EventRow> =
        found.map_ok(|event| event_row(&event)).try_collect().await.map_err(|error| said(&error))?;
    Ok(newest_first(rows))
}

/// Reads an object in the version that the pages understand, which need not be the one that the server prefers.
pub(super) async fn of_version(cluster: &Cluster, kind: FleetKind, key: &Key) -> Found {
    match cluster.kind(kind.api_version(), kind.name()).await {
        Ok(Some(served)) => of_kind(cluster, &served, key).await,
        Ok(None) => Found::Missing(format!("The kind {} is not installed in this cluster.", kind.name())),
        Err(error) => Found::Failed(said(&error)),
    }
}

/// Asks whether the user may patch an object.
pub(super) async fn may_patch(cluster: &Cluster, key: &Key) -> Right {
    may_do(cluster, key, ("patch", "change")).await
}

/// Asks whether the user may delete an object.
pub(super) async fn may_delete(cluster: &Cluster, key: &Key) -> Right {
    may_do(cluster, key, ("delete", "delete")).await
}

/// Asks whether the user has the permission for a verb on an object. `word` is the verb in a sentence.
async fn may_do(cluster: &Cluster, key: &Key, (verb, word): (&str, &str)) -> Right {
    let kind = match cluster.preferred_kind(&key.group, &key.kind).await {
        Ok(Some(kind)) => kind,
        Ok(None) => return Err(format!("The kind {} is not installed in this cluster.", key.kind)),
        Err(error) => return Err(said(&error)),
    };
    let attributes = json!({
        "verb": verb, "group": &*kind.group, "resource": &*kind.plural,
        "namespace": key.namespace.as_deref().unwrap_or_default(), "name": &*key.name,
    });
    match may(cluster, attributes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("You may not {word} this object: that needs the verb `{verb}` on {}.", kind.resource)),
        Err(error) => Err(said(&error)),
    }
}

/// Asks whether the user has a permission.
pub(super) async fn may(cluster: &Cluster, attributes: Value) -> Result<bool, Error> {
    let reviews =
        Kind::fixed("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", Scope::Cluster);
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes},
    });
    let answer = cluster.create(&reviews, None, "self", &review, Persistence::Kept).await?;
    Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}
