//! Labels Revisions and Configurations with the Routes that use them.
//!
//! Invariant: a Revision with traffic is `active`, and `reserve` after it lost its traffic.

use serde_json::{Value, json};

use super::kinds::{CONFIGURATIONS, MANAGER, REVISIONS};
use super::names;
use super::traffic::Target;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::text;

/// Labels the Revisions of a Route according to its targets.
pub(super) fn label(client: &Client, route: &Value, targets: &[Target]) {
    let (namespace, name) = super::kinds::place(route);
    let is_routed = |revision: &str| targets.iter().any(|target| target.revision == revision);
    let mut configurations = Vec::new();
    for revision in client.list(REVISIONS, namespace) {
        let own = text(&revision, "/metadata/name");
        let wanted = is_routed(own);
        if wanted {
            configurations.extend(revision["metadata"]["labels"][names::CONFIGURATION].as_str().map(str::to_owned));
        }
        mark(client, &Subject::new(REVISIONS, namespace, own), &revision, name, wanted);
    }
    configurations.sort();
    configurations.dedup();
    for configuration in configurations {
        let subject = Subject::new(CONFIGURATIONS, namespace, &configuration);
        if let Some(known) = client.get(&subject)
            && let Some(routes) = routes(&known, name, true)
        {
            client.merge(MANAGER, &subject, json!({"metadata": {"annotations": {names::ROUTES: routes}}}));
        }
    }
}

/// Removes a Route from all Revisions.
pub(super) fn released(client: &Client, route: &Value) {
    label(client, route, &[]);
}

fn mark(client: &Client, subject: &Subject, revision: &Value, route: &str, wanted: bool) {
    let state = revision["metadata"]["labels"][names::ROUTING_STATE].as_str().unwrap_or_default();
    let Some(routes) = routes(revision, route, wanted) else {
        return;
    };
    let next = if routes.is_null() { "reserve" } else { "active" };
    let mut metadata = json!({"annotations": {names::ROUTES: routes}});
    if state != next {
        metadata["labels"] = json!({names::ROUTING_STATE: next});
        metadata["annotations"][names::ROUTING_SINCE] = client.stamp();
    }
    client.merge(MANAGER, subject, json!({"metadata": metadata}));
}

/// Returns the new value of the Routes annotation; `None` if it is unchanged.
fn routes(object: &Value, route: &str, wanted: bool) -> Option<Value> {
    let text = object["metadata"]["annotations"][names::ROUTES].as_str().unwrap_or_default();
    let mut all: Vec<&str> = text.split(',').filter(|one| !one.is_empty()).collect();
    let is_known = all.contains(&route);
    if is_known == wanted {
        return None;
    }
    if wanted {
        all.push(route);
    } else {
        all.retain(|one| *one != route);
    }
    Some(if all.is_empty() { Value::Null } else { all.join(",").into() })
}
