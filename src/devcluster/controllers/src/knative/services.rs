//! Knative Services: creates the Configuration and the Route, and derives the status from both.

use serde_json::{Value, json};

use super::children::{self, Child, Missing};
use super::conditions::{Conditions, is_current, ready};
use super::kinds::{CONFIGURATIONS, MANAGER, ROUTES};
use super::names;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{is_terminating, text};

const CONFIGURATIONS_READY: &str = "ConfigurationsReady";
const ROUTES_READY: &str = "RoutesReady";
const SOURCE: &str = "service-controller";

/// Writes the children of a Service and its status.
pub(super) fn reconcile(client: &Client, subject: &Subject, service: &Value) {
    if is_terminating(service) {
        return;
    }
    let mut conditions = Conditions::of(service, &[CONFIGURATIONS_READY, ROUTES_READY], client.stamp());
    let mut status = service["status"].as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), service["metadata"]["generation"].clone());
    let name = text(service, "/metadata/name");
    let configuration = children::ensure(client, CONFIGURATIONS, service, configuration(service), &[names::ROUTES]);
    reported(client, service, "Configuration", name, &configuration);
    match &configuration {
        Err(missing) => missed(&mut conditions, CONFIGURATIONS_READY, "Configuration", name, missing),
        Ok(child) => {
            let configuration = &child.object;
            if is_current(configuration) {
                conditions.mirror(CONFIGURATIONS_READY, ready(configuration));
            } else {
                outdated(&mut conditions, CONFIGURATIONS_READY, "Configuration");
            }
            for field in ["latestCreatedRevisionName", "latestReadyRevisionName"] {
                copy(&mut status, field, &configuration["status"]);
            }
        }
    }
    let route = children::ensure(client, ROUTES, service, route(service), &[]);
    reported(client, service, "Route", name, &route);
    match &route {
        Err(missing) => missed(&mut conditions, ROUTES_READY, "Route", name, missing),
        Ok(child) => {
            let route = &child.object;
            if is_current(route) {
                conditions.mirror(ROUTES_READY, ready(route));
            } else {
                outdated(&mut conditions, ROUTES_READY, "Route");
            }
            for field in ["url", "address", "traffic"] {
                copy(&mut status, field, &route["status"]);
            }
            if conditions.is(CONFIGURATIONS_READY, "True") && conditions.is(ROUTES_READY, "True") && is_behind(&status)
            {
                let message = "Traffic is not yet migrated to the latest revision.";
                conditions.is_unknown(ROUTES_READY, "TrafficNotMigrated", message);
            }
        }
    }
    status.insert("conditions".to_owned(), conditions.list());
    client.set_status(MANAGER, subject, service, status.into());
}

/// Builds the Configuration of a Service.
fn configuration(service: &Value) -> Value {
    let (name, uid) = (text(service, "/metadata/name"), text(service, "/metadata/uid"));
    let mut object = children::built(service, "serving.knative.dev/v1", "Configuration", name);
    let labels = names::labels(service, &[(names::SERVICE, name), (names::SERVICE_UID, uid)]);
    object["metadata"]["labels"] = labels.into();
    object["metadata"]["annotations"] = names::annotations(service).into();
    object["spec"] = json!({"template": service["spec"]["template"]});
    object
}

/// Builds the Route of a Service. By default all requests go to the latest Revision.
fn route(service: &Value) -> Value {
    let name = text(service, "/metadata/name");
    let mut object = children::built(service, "serving.knative.dev/v1", "Route", name);
    object["metadata"]["labels"] = names::labels(service, &[(names::SERVICE, name)]).into();
    object["metadata"]["annotations"] = names::annotations(service).into();
    let mut traffic = service["spec"]["traffic"].as_array().cloned().unwrap_or_default();
    if traffic.is_empty() {
        traffic.push(json!({"latestRevision": true, "percent": 100}));
    }
    for target in &mut traffic {
        if text(target, "/revisionName").is_empty() {
            target["configurationName"] = name.into();
            target["latestRevision"] = true.into();
        } else {
            target["latestRevision"] = false.into();
        }
    }
    object["spec"] = json!({"traffic": traffic});
    object
}

/// Whether requests for the latest Revision still go to an older one.
fn is_behind(status: &serde_json::Map<String, Value>) -> bool {
    let latest = status.get("latestReadyRevisionName");
    let traffic = status.get("traffic").and_then(Value::as_array).into_iter().flatten();
    traffic.filter(|target| target["latestRevision"] == true).any(|target| Some(&target["revisionName"]) != latest)
}

fn copy(status: &mut serde_json::Map<String, Value>, field: &str, from: &Value) {
    match from.get(field) {
        Some(value) => status.insert(field.to_owned(), value.clone()),
        None => status.remove(field),
    };
}

fn outdated(conditions: &mut Conditions, kind: &str, child: &str) {
    let message = format!("The {child} is still working to reflect the latest desired specification.");
    conditions.is_unknown(kind, "OutOfDate", &message);
}

fn missed(conditions: &mut Conditions, kind: &str, child: &str, name: &str, missing: &Missing) {
    match missing {
        Missing::NotOwned => {
            let message = format!("There is an existing {child} \"{name}\" that we do not own.");
            conditions.is_false(kind, "NotOwned", &message);
        }
        Missing::Refused(message) => conditions.is_unknown(kind, "CreationFailed", message),
        Missing::Leaving => outdated(conditions, kind, child),
    }
}

fn reported(client: &Client, service: &Value, kind: &str, name: &str, child: &Result<Child, Missing>) {
    match child {
        Ok(child) if child.is_new => {
            let message = format!("Created {kind} \"{name}\"");
            client.report(service, SOURCE, "Normal", "Created", &message);
        }
        Err(Missing::Refused(why)) => {
            let message = format!("Failed to create {kind} \"{name}\": {why}");
            client.report(service, SOURCE, "Warning", "CreationFailed", &message);
        }
        _ => {}
    }
}
