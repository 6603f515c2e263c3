//! Configurations: creates a Revision per template and tracks the latest created and the latest ready one.

use serde_json::{Map, Value, json};

use super::children::{self, Missing};
use super::conditions::{Conditions, READY, ready};
use super::kinds::{MANAGER, REVISIONS};
use super::settings::Settings;
use super::{gc, names};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{is_terminating, text};

const SOURCE: &str = "configuration-controller";

/// Creates the Revision of the current template and writes the status.
pub(super) fn reconcile(client: &Client, subject: &Subject, configuration: &Value) {
    if is_terminating(configuration) {
        return;
    }
    let mut status = configuration["status"].as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), configuration["metadata"]["generation"].clone());
    // Ready has no dependents: its value is copied from the newest Revision.
    let mut conditions = Conditions::of(configuration, &[], client.stamp());
    let name = revision_name(configuration);
    let before = text(configuration, "/status/latestCreatedRevisionName").to_owned();
    match children::create(client, REVISIONS, configuration, &revision(configuration, &name, client.stamp())) {
        Ok(child) => {
            if child.is_new {
                let message = format!("Created Revision \"{name}\"");
                client.report(configuration, SOURCE, "Normal", "Created", &message);
            }
            status.insert("latestCreatedRevisionName".to_owned(), name.clone().into());
            if before != name || child.is_new {
                conditions.is_unknown(READY, "", "");
            }
            observe(client, configuration, &child.object, &mut status, &mut conditions);
        }
        Err(Missing::NotOwned) => {
            let message = format!("There is an existing Revision \"{name}\" that we do not own.");
            conditions.is_false(READY, "NotOwned", &message);
        }
        Err(Missing::Refused(why)) => {
            let message = format!("Revision creation failed with message: {why}.");
            conditions.is_false(READY, "RevisionFailed", &message);
            client.report(
                configuration,
                SOURCE,
                "Warning",
                "CreationFailed",
                &format!("Failed to create Revision: {why}"),
            );
        }
        Err(Missing::Leaving) => conditions.is_unknown(READY, "", ""),
    }
    status.insert("conditions".to_owned(), conditions.list());
    client.set_status(MANAGER, subject, configuration, status.into());
    gc::collect(client, configuration, &Settings::read(client).retention);
}

/// Applies the newest Revision's state to the Configuration's status.
fn observe(
    client: &Client,
    configuration: &Value,
    newest: &Value,
    status: &mut Map<String, Value>,
    conditions: &mut Conditions,
) {
    let name = text(newest, "/metadata/name");
    let known = text(configuration, "/status/latestReadyRevisionName");
    match ready(newest).map_or("Unknown", |ready| text(ready, "/status")) {
        "True" => {
            let first = known.is_empty();
            if known != name {
                if first {
                    client.report(configuration, SOURCE, "Normal", "ConfigurationReady", "Configuration becomes ready");
                }
                let message = format!("LatestReadyRevisionName updated to \"{name}\"");
                client.report(configuration, SOURCE, "Normal", "LatestReadyUpdate", &message);
            }
            status.insert("latestReadyRevisionName".to_owned(), name.into());
            conditions.is_true(READY);
        }
        "False" => {
            let why = ready(newest).map_or("", |ready| text(ready, "/message"));
            let message = format!("Revision \"{name}\" failed with message: {why}.");
            if !conditions.is(READY, "False") {
                let message = format!("Latest created revision \"{name}\" has failed");
                client.report(configuration, SOURCE, "Warning", "LatestCreatedFailed", &message);
            }
            conditions.is_false(READY, "RevisionFailed", &message);
            older(client, configuration, status);
        }
        _ => {
            if conditions.is(READY, "False") || known != name && conditions.is(READY, "True") {
                conditions.is_unknown(READY, "", "");
            }
            older(client, configuration, status);
        }
    }
}

/// Finds the newest ready Revision while the newest Revision is not ready.
fn older(client: &Client, configuration: &Value, status: &mut Map<String, Value>) {
    let (namespace, _) = super::kinds::place(configuration);
    let generation = |revision: &Value| names::number(revision);
    let all = client.controlled(REVISIONS, namespace, configuration);
    let is_ready = |revision: &Value| ready(revision).is_some_and(|ready| ready["status"] == "True");
    let known = text(configuration, "/status/latestReadyRevisionName");
    let last = all.iter().find(|revision| text(revision, "/metadata/name") == known).map_or(0, |one| generation(one));
    let newest = all.iter().filter(|one| is_ready(one) && generation(one) > last).max_by_key(|one| generation(one));
    if let Some(newest) = newest {
        status.insert("latestReadyRevisionName".to_owned(), newest["metadata"]["name"].clone());
    }
}

fn revision_name(configuration: &Value) -> String {
    let given = text(configuration, "/spec/template/metadata/name");
    if !given.is_empty() {
        return given.to_owned();
    }
    let generation = configuration["metadata"]["generation"].as_i64().unwrap_or(1);
    names::child(text(configuration, "/metadata/name"), &format!("-{generation:05}"))
}

/// Builds the Revision of a Configuration's template.
fn revision(configuration: &Value, name: &str, now: Value) -> Value {
    let mut object = children::built(configuration, "serving.knative.dev/v1", "Revision", name);
    let template = &configuration["spec"]["template"];
    let mut labels = names::map(template, "/metadata/labels");
    let own = &configuration["metadata"];
    let generation = own["generation"].as_i64().unwrap_or(1).to_string();
    labels.insert(names::CONFIGURATION.to_owned(), own["name"].clone());
    labels.insert(names::CONFIGURATION_UID.to_owned(), own["uid"].clone());
    labels.insert(names::GENERATION.to_owned(), generation.into());
    labels.insert(names::ROUTING_STATE.to_owned(), "pending".into());
    for label in [names::SERVICE, names::SERVICE_UID] {
        if let Some(value) = own["labels"].get(label) {
            labels.insert(label.to_owned(), value.clone());
        }
    }
    let mut annotations = names::map(template, "/metadata/annotations");
    if let Some(creator) = own["annotations"].get(names::MODIFIER).or_else(|| own["annotations"].get(names::CREATOR)) {
        annotations.insert(names::CREATOR.to_owned(), creator.clone());
    }
    annotations.insert(names::ROUTING_SINCE.to_owned(), now);
    object["metadata"]["labels"] = labels.into();
    object["metadata"]["annotations"] = annotations.into();
    object["spec"] = json!(template["spec"]);
    object
}
