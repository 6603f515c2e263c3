//! Revisions: creates the Deployment and its autoscaler, and derives the status from both.

use serde_json::{Map, Value, json};

use super::children::{self, Missing};
use super::conditions::{Conditions, READY, ready};
use super::kinds::{AUTOSCALERS, DEPLOYMENTS, IMAGES, MANAGER};
use super::settings::Settings;
use super::{names, pod};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::kubelet::image_id;
use devcluster_apiserver::object::{conditions as conditions_of, count, is_terminating, text};

const SOURCE: &str = "revision-controller";
const ACTIVE: &str = "Active";
const HEALTHY: &str = "ContainerHealthy";
const AVAILABLE: &str = "ResourcesAvailable";
/// Condition of an autoscaler: the Revision has reached its initial size.
pub(super) const INITIALIZED: &str = "ScaleTargetInitialized";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Creates the children of a Revision and writes its status.
pub(super) fn reconcile(client: &Client, subject: &Subject, revision: &Value) {
    if is_terminating(revision) {
        return;
    }
    let settings = Settings::read(client);
    let mut conditions = Conditions::of(revision, &[HEALTHY, AVAILABLE], client.stamp());
    let mut status = revision["status"].as_object().cloned().unwrap_or_default();
    let is_new = status.get("observedGeneration").is_none();
    status.insert("observedGeneration".to_owned(), revision["metadata"]["generation"].clone());
    if is_new {
        for kind in [HEALTHY, AVAILABLE] {
            conditions.is_unknown(kind, "ResolvingDigests", "");
        }
        write(client, subject, revision, status, conditions);
        return;
    }
    let image = text(revision, "/spec/containers/0/image");
    let digest = if image.contains('@') { image.to_owned() } else { image_id(image) };
    status.insert(
        "containerStatuses".to_owned(),
        json!([{"name": pod::container_name(revision), "imageDigest": digest}]),
    );
    let made = children(client, revision, &settings);
    match made {
        Err((kind, name, Missing::NotOwned)) => {
            let message = format!("There is an existing {kind} \"{name}\" that we do not own.");
            conditions.is_false(AVAILABLE, "NotOwned", &message);
        }
        Err((kind, _, Missing::Refused(why))) => {
            conditions.is_false(AVAILABLE, &format!("{kind}CreationFailed"), &why);
        }
        Err((_, _, Missing::Leaving)) => deploying(&mut conditions),
        Ok((deployment, autoscaler)) => {
            if conditions.get(AVAILABLE).is_some_and(|one| one["reason"] == "ResolvingDigests") {
                deploying(&mut conditions);
            }
            observe_deployment(client, revision, &deployment, &mut conditions);
            observe_autoscaler(&autoscaler, &mut status, &mut conditions);
        }
    }
    let was_ready = ready(revision).is_some_and(|ready| ready["status"] == "True");
    if conditions.is(READY, "True") && !was_ready {
        let message = "Revision becomes ready upon all resources being ready";
        client.report(revision, SOURCE, "Normal", "RevisionReady", message);
    }
    write(client, subject, revision, status, conditions);
}

fn write(client: &Client, subject: &Subject, revision: &Value, mut status: Map<String, Value>, conditions: Conditions) {
    status.insert("conditions".to_owned(), conditions.list());
    client.set_status(MANAGER, subject, revision, status.into());
}

fn deploying(conditions: &mut Conditions) {
    for kind in [HEALTHY, AVAILABLE] {
        conditions.is_unknown(kind, "Deploying", "");
    }
}

type Made = (std::sync::Arc<Value>, std::sync::Arc<Value>);

/// Creates the Deployment and the autoscaler.
fn children(client: &Client, revision: &Value, settings: &Settings) -> Result<Made, (&'static str, String, Missing)> {
    let name = text(revision, "/metadata/name");
    let replicas = first_replicas(revision, settings);
    let desired = pod::deployment(revision, replicas, settings);
    let deployment_name = pod::deployment_name(revision);
    let deployment = children::create(client, DEPLOYMENTS, revision, &desired)
        .map_err(|missing| ("Deployment", deployment_name.clone(), missing))?;
    let container = pod::container_name(revision);
    let cache = names::child(name, &format!("-cache-{container}"));
    let mut image = children::built(revision, "caching.internal.knative.dev/v1alpha1", "Image", &cache);
    image["metadata"]["labels"] = names::of_revision(revision).into();
    image["spec"] = json!({"image": revision["spec"]["containers"][0]["image"]});
    children::create(client, IMAGES, revision, &image).map_err(|missing| ("Image", cache, missing))?;
    let mut autoscaler = children::built(revision, "autoscaling.internal.knative.dev/v1alpha1", "PodAutoscaler", name);
    autoscaler["metadata"]["labels"] = names::of_revision(revision).into();
    autoscaler["metadata"]["annotations"] = names::annotations(revision).into();
    autoscaler["spec"] = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment_name},
        "containerConcurrency": count(revision, "/spec/containerConcurrency"),
        "protocolType": "http1",
        "reachability": reachability(revision),
    });
    let autoscaler = children::ensure(client, AUTOSCALERS, revision, autoscaler, &[])
        .map_err(|missing| ("PodAutoscaler", name.to_owned(), missing))?;
    Ok((deployment.object, autoscaler.object))
}

fn reachability(revision: &Value) -> &'static str {
    match revision["metadata"]["labels"][names::ROUTING_STATE].as_str() {
        Some("active") => "Reachable",
        Some("reserve") => "Unreachable",
        _ => "Unknown",
    }
}

/// Returns the initial size of a Revision.
pub(super) fn first_replicas(object: &Value, settings: &Settings) -> i64 {
    let number = |name: &str| names::autoscaling(object, name).and_then(|text| text.parse::<i64>().ok());
    let initial = number("initial-scale").unwrap_or(settings.initial_scale);
    initial.max(number("min-scale").unwrap_or(0)).max(1)
}

/// Applies the state of the Deployment and its first pod to the conditions.
fn observe_deployment(client: &Client, revision: &Value, deployment: &Value, conditions: &mut Conditions) {
    let said = |kind: &str| conditions_of(deployment).iter().find(|condition| condition["type"] == kind);
    let failure = said("ReplicaFailure").filter(|one| one["status"] == "True");
    let timed_out = said("Progressing").filter(|one| one["status"] == "False");
    if let Some(failed) = failure.or(timed_out) {
        conditions.is_false(AVAILABLE, text(failed, "/reason"), text(failed, "/message"));
    } else if conditions.is(AVAILABLE, "False") {
        conditions.is_unknown(AVAILABLE, "Deploying", "");
    }
    if count(deployment, "/spec/replicas") == 0 || count(deployment, "/status/availableReplicas") > 0 {
        return;
    }
    let uid = text(revision, "/metadata/uid");
    let pods = client.pods_labelled(text(revision, "/metadata/namespace"), names::REVISION_UID, uid);
    let Some(pod) = pods.iter().find(|pod| !is_terminating(pod)) else { return };
    let unschedulable = conditions_of(pod).iter().find(|one| one["type"] == "PodScheduled" && one["status"] == "False");
    if let Some(why) = unschedulable {
        conditions.is_false(AVAILABLE, text(why, "/reason"), text(why, "/message"));
    }
    let name = pod::container_name(revision);
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    for container in containers.filter(|container| container["name"] == name) {
        let ended = [&container["lastState"]["terminated"], &container["state"]["terminated"]];
        if let Some(ended) = ended.into_iter().find(|ended| ended.is_object()) {
            let reason = format!("ExitCode{}", count(ended, "/exitCode"));
            let message = format!("Container failed with: {}", text(ended, "/message"));
            conditions.is_false(HEALTHY, &reason, &message);
        } else if timed_out.is_some() && container["state"]["waiting"].is_object() {
            let waiting = &container["state"]["waiting"];
            conditions.is_false(AVAILABLE, text(waiting, "/reason"), text(waiting, "/message"));
        }
    }
}

/// Applies the state of the autoscaler to status and conditions.
fn observe_autoscaler(autoscaler: &Value, status: &mut Map<String, Value>, conditions: &mut Conditions) {
    for (field, from) in [("actualReplicas", "actualScale"), ("desiredReplicas", "desiredScale")] {
        match autoscaler["status"][from].as_i64() {
            Some(scale) if scale >= 0 => status.insert(field.to_owned(), scale.into()),
            _ => status.remove(field),
        };
    }
    let said = |kind: &str| conditions_of(autoscaler).iter().find(|condition| condition["type"] == kind);
    let is_initialized = said(INITIALIZED).is_some_and(|one| one["status"] == "True");
    if is_initialized && !conditions.is(AVAILABLE, "False") {
        conditions.is_true(AVAILABLE);
        conditions.is_true(HEALTHY);
    }
    let Some(active) = said(ACTIVE) else {
        conditions.is_unknown(ACTIVE, "Deploying", "");
        return;
    };
    conditions.mirror(ACTIVE, Some(active));
    if active["status"] == "False" && !is_initialized && !conditions.is(AVAILABLE, "False") {
        conditions.is_false(AVAILABLE, TIMED_OUT, "Initial scale was never achieved");
    }
}
