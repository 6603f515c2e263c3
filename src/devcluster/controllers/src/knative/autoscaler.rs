//! The autoscaler of a Revision: scales its Deployment by concurrent requests, to zero and back.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::children;
use super::conditions::Conditions;
use super::kinds::{AUTOSCALERS, DEPLOYMENTS, MANAGER, SERVERLESS};
use super::revisions::{INITIALIZED, first_replicas};
use super::scale::{self, Facts, Reach, Scale, Seen, State};
use super::settings::Settings;
use super::{names, pod};
use crate::controller::Queue;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{count, is_terminating, text};

const SCALER: &str = "autoscaler";
const ACTIVE: &str = "Active";
const SERVICES_READY: &str = "SKSReady";
/// Time after the Deployment's progress deadline until the Revision fails, too.
const AFTER_DEADLINE: Duration = Duration::from_secs(30);
const NO_TRAFFIC: (&str, &str) = ("NoTraffic", "The target is not receiving traffic.");
const QUEUED: (&str, &str) = ("Queued", "Requests to the target are being buffered as resources are provisioned.");
const TIMED_OUT: (&str, &str) = ("TimedOut", "The target could not be activated.");

/// Scales the Deployment and sets the status.
pub(super) fn reconcile(
    client: &Client,
    subject: &Subject,
    autoscaler: &Value,
    seen: &mut Seen,
    queue: &mut Queue<'_>,
) {
    let (namespace, name) = super::kinds::place(autoscaler);
    let target = Subject::new(DEPLOYMENTS, namespace, text(autoscaler, "/spec/scaleTargetRef/name"));
    if is_terminating(autoscaler) {
        return;
    }
    // The creation of the Deployment triggers the next reconcile.
    let Some(deployment) = client.get(&target) else { return };
    let settings = Settings::read(client);
    let now = Instant::now();
    let load = client.server().requests().load(&subject.key, now);
    seen.observe(now, load, settings.stable_window);
    let mut conditions = Conditions::of(autoscaler, &[ACTIVE, INITIALIZED, SERVICES_READY], client.stamp());
    let facts = facts(client, autoscaler, &deployment, &conditions, load.under_way, &settings);
    let Scale { replicas, state } = scale::decide(&facts, seen, load, now, &settings);
    if replicas != facts.replicas {
        client.merge(SCALER, &target, json!({"spec": {"replicas": replicas}}));
        if facts.replicas == 0 {
            seen.restart(now);
        }
    }
    conditions.is_true(SERVICES_READY);
    match state {
        State::Active => {
            if !facts.is_initialized {
                seen.restart(now);
            }
            conditions.is_true(INITIALIZED);
            conditions.is_true(ACTIVE);
        }
        State::Activating => conditions.is_unknown(ACTIVE, QUEUED.0, QUEUED.1),
        State::Inactive => conditions.is_false(ACTIVE, NO_TRAFFIC.0, NO_TRAFFIC.1),
        State::TimedOut => conditions.is_false(ACTIVE, TIMED_OUT.0, TIMED_OUT.1),
    }
    let status = json!({
        "observedGeneration": autoscaler["metadata"]["generation"], "conditions": conditions.list(),
        "desiredScale": replicas, "actualScale": facts.ready,
        "serviceName": name, "metricsServiceName": names::child(name, "-private"),
    });
    client.set_status(SCALER, subject, autoscaler, status);
    services(client, autoscaler, state == State::Active);
    let is_fixed = facts.is_initialized && facts.min == facts.max && facts.max > 0 && facts.reach == Reach::Reachable;
    if (replicas > 0 || facts.replicas > 0) && !(is_fixed && replicas == facts.replicas && state == State::Active) {
        queue.add_after(subject.clone(), settings.tick);
    }
}

fn facts(
    client: &Client,
    autoscaler: &Value,
    deployment: &Value,
    conditions: &Conditions,
    under_way: u64,
    settings: &Settings,
) -> Facts {
    let number = |name: &str| names::autoscaling(autoscaler, name).and_then(|text| text.parse::<i64>().ok());
    let since = |condition: &Value| text(condition, "/lastTransitionTime").parse::<jiff::Timestamp>().ok();
    let active = conditions.get(ACTIVE);
    let waited = active.filter(|active| active["status"] == "Unknown").and_then(since);
    let waited = waited.map_or(0, |since| client.now().as_second() - since.as_second());
    let patience = settings.progress_deadline + AFTER_DEADLINE;
    let gave_up = active.is_some_and(|active| active["reason"] == TIMED_OUT.0) && under_way == 0;
    let is_late = u64::try_from(waited).is_ok_and(|waited| waited > patience.as_secs());
    Facts {
        min: number("min-scale").unwrap_or(0),
        max: number("max-scale").unwrap_or(0),
        first: first_replicas(autoscaler, settings),
        is_initialized: conditions.is(INITIALIZED, "True"),
        reach: if autoscaler["spec"]["reachability"] == "Unreachable" { Reach::Unreachable } else { Reach::Reachable },
        replicas: count(deployment, "/spec/replicas"),
        ready: count(deployment, "/status/readyReplicas"),
        timed_out: gave_up || is_late,
        concurrency: count(autoscaler, "/spec/containerConcurrency"),
    }
}

/// Creates the ServerlessService of a Revision, its public Service and the private Service of its pods.
fn services(client: &Client, autoscaler: &Value, is_active: bool) {
    let name = text(autoscaler, "/metadata/name");
    let labels = &autoscaler["metadata"]["labels"];
    let mut desired =
        children::built(autoscaler, "networking.internal.knative.dev/v1alpha1", "ServerlessService", name);
    desired["metadata"]["labels"] = labels.clone();
    desired["spec"] = json!({
        "mode": if is_active { "Serve" } else { "Proxy" }, "objectRef": autoscaler["spec"]["scaleTargetRef"],
        "protocolType": "http1", "numActivators": 1,
    });
    // The Revision can be reached without the ServerlessService.
    let Ok(made) = children::ensure(client, SERVERLESS, autoscaler, desired, &[]) else { return };
    let private = names::child(name, "-private");
    let mut own = children::built(&made.object, "v1", "Service", name);
    own["metadata"]["labels"] = labels.clone();
    own["spec"] = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8012}]});
    let mut of_pods = children::built(&made.object, "v1", "Service", &private);
    of_pods["metadata"]["labels"] = labels.clone();
    of_pods["spec"] = json!({
        "selector": {names::REVISION_UID: labels[names::REVISION_UID]},
        "ports": [{"name": "http", "port": 80, "targetPort": pod::PROXY_PORT}],
    });
    for service in [&own, &of_pods] {
        // Ignored for the same reason.
        let _ = children::create(client, "services", &made.object, service);
    }
    let mut conditions = Conditions::of(&made.object, &["EndpointsPopulated"], client.stamp());
    conditions.is_true("EndpointsPopulated");
    let status = json!({
        "observedGeneration": made.object["metadata"]["generation"], "conditions": conditions.list(),
        "serviceName": name, "privateServiceName": private,
    });
    let subject = devcluster_apiserver::client::subject(SERVERLESS, &made.object);
    client.set_status(MANAGER, &subject, &made.object, status);
}

/// Returns the autoscaler of a Revision.
pub(super) fn of(revision: &devcluster_apiserver::store::Key) -> Subject {
    Subject { storage: AUTOSCALERS.into(), key: revision.clone() }
}
