//! Whether a live object is healthy, as defined by kstatus and `kubectl wait`.
//!
//! Where kstatus and Flux differ, Flux is followed: a Job is healthy when it is complete, not when it has started.
//!
//! Deliberately absent: time. kstatus reports a Pod that was not scheduled for 15 s as failed; here it is progressing,
//! and waiting has its own timeout.

use serde_json::Value;

use super::redact::{redact_server_text, withhold_server_text};
use super::{Key, Object};

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Healthy,
    /// Not yet healthy; with the reason.
    Progressing(String),
    /// It reports a failure; with the reason.
    Failed(String),
}

use Health::{Failed, Healthy, Progressing};

/// The health of a live object.
pub fn health(key: &Key, live: &Value) -> Health {
    of(&Live { key, value: live, is_confidential: false })
}

/// The health of the live object that a desired one, which is called `key` in the cluster, has become.
pub fn health_of(key: &Key, desired: &Object, live: &Value) -> Health {
    of(&Live { key, value: live, is_confidential: desired.is_confidential() })
}

fn of(object: &Live<'_>) -> Health {
    // Rules for every kind come first; the first rule that does not say "healthy" decides.
    let rules: [fn(&Live<'_>) -> Health; 2] = [general, rule_of(object.key)];
    rules.iter().map(|rule| rule(object)).find(|health| *health != Healthy).unwrap_or(Healthy)
}

/// The rules of a kind.
fn rule_of(key: &Key) -> fn(&Live<'_>) -> Health {
    match (&*key.group, &*key.kind) {
        ("apps", "Deployment") => deployment,
        ("apps", "StatefulSet") => stateful_set,
        ("apps", "DaemonSet") => daemon_set,
        ("apps", "ReplicaSet") => replica_set,
        ("", "Pod") => pod,
        ("batch", "Job") => job,
        ("", "PersistentVolumeClaim") => claim,
        ("", "Service") => service,
        ("", "Namespace") => namespace,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition,
        ("apiregistration.k8s.io", "APIService") => api_service,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler,
        ("serverless.kyma-project.io", "Function") => function,
        _ => ready,
    }
}

struct Live<'v> {
    key: &'v Key,
    value: &'v Value,
    /// What is said of it may quote values that may not be shown.
    is_confidential: bool,
}

struct Condition<'v> {
    value: &'v Value,
}

impl<'v> Live<'v> {
    fn at(&self, pointer: &str) -> Option<&'v Value> {
        self.value.pointer(pointer)
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(Value::as_i64)
    }

    fn text(&self, pointer: &str) -> &'v str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// A number in the status; 0 if it is missing.
    fn count(&self, field: &str) -> i64 {
        self.at("/status").and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
    }

    fn replicas(&self) -> i64 {
        self.number("/spec/replicas").unwrap_or(1)
    }

    fn condition(&self, kind: &str) -> Option<Condition<'v>> {
        let conditions = self.at("/status/conditions")?.as_array()?;
        conditions.iter().find(|condition| condition["type"] == kind).map(|value| Condition { value })
    }

    fn is(&self, kind: &str, status: &str) -> Option<Condition<'v>> {
        self.condition(kind).filter(|condition| condition.value["status"] == status)
    }

    /// A condition as text, without values in its message.
    fn words(&self, condition: &Condition<'_>) -> String {
        let text = |field: &str| condition.value[field].as_str().unwrap_or_default();
        let mut words = format!("{} is {}", text("type"), text("status"));
        let message = if self.is_confidential {
            withhold_server_text(text("message")).to_owned()
        } else {
            redact_server_text(self.key, text("message"))
        };
        for part in [text("reason"), &message] {
            if !part.is_empty() {
                words.push_str(": ");
                words.push_str(part);
            }
        }
        words
    }

    /// Progressing if fewer than `desired` replicas have this `state`.
    fn at_least(&self, desired: i64, field: &str, state: &str) -> Health {
        let have = self.count(field);
        if have < desired { Progressing(format!("{have} of {desired} replicas are {state}")) } else { Healthy }
    }

    fn at_most(&self, most: i64) -> Health {
        let more = self.count("replicas") - most;
        if more > 0 { Progressing(format!("{more} old replicas are still there")) } else { Healthy }
    }
}

impl Condition<'_> {
    fn reason(&self) -> &str {
        self.value["reason"].as_str().unwrap_or_default()
    }
}

/// The first result that is not healthy.
fn first(checks: impl IntoIterator<Item = Health>) -> Health {
    checks.into_iter().find(|health| *health != Healthy).unwrap_or(Healthy)
}

fn general(object: &Live<'_>) -> Health {
    if object.at("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Progressing("it is being deleted".into());
    }
    let generation = object.number("/metadata/generation");
    let observed = object.number("/status/observedGeneration");
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed != generation
    {
        return Progressing(format!("its controller has not seen generation {generation}"));
    }
    if let Some(condition) = object.is("Stalled", "True") {
        return Failed(object.words(&condition));
    }
    object.is("Reconciling", "True").map_or(Healthy, |condition| Progressing(object.words(&condition)))
}

fn deployment(object: &Live<'_>) -> Health {
    let progressing = object.condition("Progressing");
    if let Some(condition) = progressing.filter(|condition| condition.reason() == "ProgressDeadlineExceeded") {
        return Failed(object.words(&condition));
    }
    let desired = object.replicas();
    let updated = object.count("updatedReplicas");
    let counts = first([
        object.at_least(desired, "replicas", "created"),
        object.at_least(desired, "updatedReplicas", "updated"),
        object.at_most(updated),
        object.at_least(updated, "availableReplicas", "available"),
        object.at_least(desired, "readyReplicas", "ready"),
    ]);
    match (counts, object.is("ReplicaFailure", "True")) {
        (Healthy, _) if object.is("Available", "True").is_none() => Progressing("it is not available".into()),
        (Progressing(what), Some(condition)) => Progressing(format!("{what}; {}", object.words(&condition))),
        (health, _) => health,
    }
}

fn stateful_set(object: &Live<'_>) -> Health {
    if object.text("/spec/updateStrategy/type") == "OnDelete" {
        return Healthy;
    }
    let desired = object.replicas();
    let counts = first([
        object.at_least(desired, "replicas", "created"),
        object.at_least(desired, "readyReplicas", "ready"),
        object.at_most(desired),
    ]);
    if counts != Healthy {
        return counts;
    }
    if let Some(partition) = object.number("/spec/updateStrategy/rollingUpdate/partition") {
        return object.at_least(desired - partition, "updatedReplicas", "updated");
    }
    if object.text("/status/currentRevision") != object.text("/status/updateRevision") {
        return Progressing("it is rolling out".into());
    }
    object.at_least(desired, "currentReplicas", "of the current revision")
}

fn daemon_set(object: &Live<'_>) -> Health {
    if object.number("/status/observedGeneration").is_none() {
        return Progressing("its controller has not seen it".into());
    }
    let Some(desired) = object.number("/status/desiredNumberScheduled") else {
        return Progressing("its controller has not counted the nodes".into());
    };
    let updated = if object.text("/spec/updateStrategy/type") == "OnDelete" {
        Healthy
    } else {
        object.at_least(desired, "updatedNumberScheduled", "updated")
    };
    first([
        object.at_least(desired, "currentNumberScheduled", "created"),
        updated,
        object.at_least(desired, "numberAvailable", "available"),
        object.at_least(desired, "numberReady", "ready"),
    ])
}

fn replica_set(object: &Live<'_>) -> Health {
    if let Some(condition) = object.is("ReplicaFailure", "True") {
        return Progressing(object.words(&condition));
    }
    let desired = object.replicas();
    first([
        object.at_least(desired, "replicas", "created"),
        object.at_least(desired, "fullyLabeledReplicas", "labelled"),
        object.at_least(desired, "availableReplicas", "available"),
        object.at_least(desired, "readyReplicas", "ready"),
        object.at_most(desired),
    ])
}

fn pod(object: &Live<'_>) -> Health {
    let reason = || match object.text("/status/reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    match object.text("/status/phase") {
        "Succeeded" => Healthy,
        "Failed" => Failed(format!("the pod failed{}", reason())),
        "Running" if object.is("Ready", "True").is_some() => Healthy,
        "Running" => match crash_looping(object) {
            Some(name) => Failed(format!("container {name} crashes again and again")),
            None => Progressing("the pod is not ready".into()),
        },
        _ => match object.is("PodScheduled", "False") {
            Some(condition) => Progressing(object.words(&condition)),
            None => Progressing("the pod is not running".into()),
        },
    }
}

fn crash_looping<'v>(object: &Live<'v>) -> Option<&'v str> {
    ["/status/initContainerStatuses", "/status/containerStatuses"]
        .iter()
        .filter_map(|pointer| object.at(pointer)?.as_array())
        .flatten()
        .find(|status| status["state"]["waiting"]["reason"] == "CrashLoopBackOff")
        .map(|status| status["name"].as_str().unwrap_or_default())
}

fn job(object: &Live<'_>) -> Health {
    if let Some(condition) = object.is("Failed", "True") {
        return Failed(object.words(&condition));
    }
    let suspended = object.at("/spec/suspend") == Some(&Value::Bool(true));
    if suspended || object.is("Complete", "True").is_some() {
        return Healthy;
    }
    Progressing(format!(
        "{} of {} pods succeeded",
        object.count("succeeded"),
        object.number("/spec/completions").unwrap_or(1)
    ))
}

fn claim(object: &Live<'_>) -> Health {
    match object.text("/status/phase") {
        "Bound" => Healthy,
        "Lost" => Failed("the volume of the claim is lost".into()),
        _ => Progressing("the claim is not bound".into()),
    }
}

fn service(object: &Live<'_>) -> Health {
    // Whether a load balancer gets an address depends on the environment.
    if object.text("/spec/type") == "LoadBalancer" && object.text("/spec/clusterIP").is_empty() {
        return Progressing("the service has no address".into());
    }
    Healthy
}

fn namespace(object: &Live<'_>) -> Health {
    if object.text("/status/phase") == "Terminating" {
        return Progressing("it is being deleted".into());
    }
    Healthy
}

/// Whether a live CustomResourceDefinition is served.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

fn definition(object: &Live<'_>) -> Health {
    if let Some(condition) = object.is("NamesAccepted", "False") {
        return Failed(object.words(&condition));
    }
    match object.condition("Established") {
        Some(condition) if condition.value["status"] == "True" => Healthy,
        Some(condition) if condition.value["status"] == "False" && condition.reason() != "Installing" => {
            Failed(object.words(&condition))
        }
        _ => Progressing("it is not established".into()),
    }
}

fn api_service(object: &Live<'_>) -> Health {
    match object.condition("Available") {
        Some(condition) if condition.value["status"] == "True" => Healthy,
        Some(condition) => Progressing(object.words(&condition)),
        None => Progressing("it is not available".into()),
    }
}

fn autoscaler(object: &Live<'_>) -> Health {
    // Whether there are metrics depends on what else is installed; whether the target can be scaled does not.
    object.is("AbleToScale", "False").map_or(Healthy, |condition| Progressing(object.words(&condition)))
}

/// A Function is retried for ever, so it never fails for good.
fn function(object: &Live<'_>) -> Health {
    first(["ConfigurationReady", "BuildReady", "Running"].map(|kind| match object.condition(kind) {
        Some(condition) if condition.value["status"] == "True" => Healthy,
        Some(condition) => Progressing(object.words(&condition)),
        None => Progressing(format!("{kind} is not known yet")),
    }))
}

fn ready(object: &Live<'_>) -> Health {
    let Some(condition) = object.condition("Ready") else { return Healthy };
    let generation = object.number("/metadata/generation");
    let observed = condition.value["observedGeneration"].as_i64();
    if let (Some(generation), Some(observed)) = (generation, observed)
        && observed < generation
    {
        return Progressing(format!("its controller has not seen generation {generation}"));
    }
    if condition.value["status"] == "True" { Healthy } else { Progressing(object.words(&condition)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(api_version: &str, kind: &str, live: &str, expected: &str) {
        let (group, _) = super::super::split_api_version(api_version);
        let key = Key::new(group, kind, Some("shop"), "web");
        let live: Value = serde_yaml::from_str(live).unwrap();
        let shown = match health(&key, &live) {
            Healthy => "healthy".to_owned(),
            Progressing(what) => format!("progressing: {what}"),
            Failed(what) => format!("failed: {what}"),
        };
        assert_eq!(shown, expected, "{kind} {live}");
    }

    #[test]
    fn every_kind_waits_for_its_controller_and_its_deletion() {
        check(
            "x/v1",
            "X",
            "{metadata: {generation: 2}, status: {observedGeneration: 1}}",
            "progressing: its controller has not seen generation 2",
        );
        check("x/v1", "X", "{metadata: {deletionTimestamp: now}}", "progressing: it is being deleted");
        check("v1", "ConfigMap", "{data: {a: b}}", "healthy");
        check("x/v1", "X", "{}", "healthy");
        check("x/v1", "X", "{status: 7, metadata: [], spec: null}", "healthy");
    }

    #[test]
    fn custom_resources_say_it_with_conditions() {
        let with =
            |conditions: &str| format!("{{metadata: {{generation: 3}}, status: {{conditions: [{conditions}]}}}}");
        check("x/v1", "X", &with("{type: Ready, status: 'True'}"), "healthy");
        check(
            "x/v1",
            "X",
            &with("{type: Ready, status: 'True', observedGeneration: 2}"),
            "progressing: its controller has not seen generation 3",
        );
        check(
            "x/v1",
            "X",
            &with("{type: Ready, status: 'False', reason: Nope, message: not yet}"),
            "progressing: Ready is False: Nope: not yet",
        );
        check("x/v1", "X", &with("{type: Ready, status: Unknown}"), "progressing: Ready is Unknown");
        check("x/v1", "X", &with("{type: Stalled, status: 'True', reason: Bad}"), "failed: Stalled is True: Bad");
        check(
            "x/v1",
            "X",
            &with("{type: Reconciling, status: 'True'}, {type: Ready, status: 'True'}"),
            "progressing: Reconciling is True",
        );
        check(
            "x/v1",
            "X",
            &with("{type: Ready, status: 'False', message: 'a.password: Invalid value: \"hunter2\": no'}"),
            "progressing: Ready is False: a.password: Invalid value: …: no",
        );
    }

    #[test]
    fn deployments_are_healthy_when_the_last_replica_is() {
        let with = |replicas: i64, status: &str| format!("{{spec: {{replicas: {replicas}}}, status: {{{status}}}}}");
        let available = "conditions: [{type: Available, status: 'True'}, {type: Progressing, status: 'True', reason: NewReplicaSetAvailable}]";
        let counts = |all: i64, updated: i64, available: i64, ready: i64| {
            format!(
                "replicas: {all}, updatedReplicas: {updated}, availableReplicas: {available}, readyReplicas: {ready}, "
            )
        };
        let deployment = |live: String, expected: &str| check("apps/v1", "Deployment", &live, expected);
        deployment(with(2, &(counts(2, 2, 2, 2) + available)), "healthy");
        deployment(with(2, ""), "progressing: 0 of 2 replicas are created");
        deployment(with(2, &(counts(2, 1, 2, 2) + available)), "progressing: 1 of 2 replicas are updated");
        deployment(with(2, &(counts(3, 2, 2, 2) + available)), "progressing: 1 old replicas are still there");
        deployment(with(2, &(counts(2, 2, 1, 2) + available)), "progressing: 1 of 2 replicas are available");
        deployment(with(2, &(counts(2, 2, 2, 1) + available)), "progressing: 1 of 2 replicas are ready");
        deployment(with(2, &counts(2, 2, 2, 2)), "progressing: it is not available");
        deployment(with(0, available), "healthy");
        deployment(
            with(2, "conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded}]"),
            "failed: Progressing is False: ProgressDeadlineExceeded",
        );
        deployment(
            with(1, "conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate}]"),
            "progressing: 0 of 1 replicas are created; ReplicaFailure is True: FailedCreate",
        );
    }

    #[test]
    fn other_workloads_count_likewise() {
        let set = |live: &str, expected: &str| check("apps/v1", "StatefulSet", live, expected);
        set(
            "{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: a}}",
            "healthy",
        );
        set(
            "{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 1, currentRevision: a, updateRevision: b}}",
            "progressing: it is rolling out",
        );
        set("{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 1}}", "progressing: 1 of 2 replicas are ready");
        set(
            "{spec: {replicas: 2, updateStrategy: {rollingUpdate: {partition: 1}}}, status: {replicas: 2, readyReplicas: 2, updatedReplicas: 1}}",
            "healthy",
        );
        set("{spec: {updateStrategy: {type: OnDelete}}}", "healthy");

        let daemon = |live: &str, expected: &str| check("apps/v1", "DaemonSet", live, expected);
        daemon("{}", "progressing: its controller has not seen it");
        daemon(
            "{status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2}}",
            "healthy",
        );
        daemon(
            "{status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1, numberReady: 2}}",
            "progressing: 1 of 2 replicas are available",
        );
        daemon("{status: {observedGeneration: 1, desiredNumberScheduled: 0}}", "healthy");

        check(
            "apps/v1",
            "ReplicaSet",
            "{status: {replicas: 1, fullyLabeledReplicas: 1, availableReplicas: 1, readyReplicas: 1}}",
            "healthy",
        );
        check(
            "apps/v1",
            "ReplicaSet",
            "{status: {conditions: [{type: ReplicaFailure, status: 'True', reason: FailedCreate}]}}",
            "progressing: ReplicaFailure is True: FailedCreate",
        );
    }

    #[test]
    fn pods_and_jobs_end_well_or_badly() {
        let pod = |live: &str, expected: &str| check("v1", "Pod", live, expected);
        pod("{status: {phase: Succeeded}}", "healthy");
        pod("{status: {phase: Failed, reason: Evicted}}", "failed: the pod failed: Evicted");
        pod("{status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}", "healthy");
        pod(
            "{status: {phase: Running, conditions: [{type: Ready, status: 'False'}]}}",
            "progressing: the pod is not ready",
        );
        pod(
            "{status: {phase: Running, containerStatuses: [{name: a, state: {waiting: {reason: CrashLoopBackOff}}}]}}",
            "failed: container a crashes again and again",
        );
        pod(
            "{status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}}",
            "progressing: PodScheduled is False: Unschedulable",
        );
        pod("{}", "progressing: the pod is not running");

        let job = |live: &str, expected: &str| check("batch/v1", "Job", live, expected);
        job("{status: {conditions: [{type: Complete, status: 'True'}]}}", "healthy");
        job(
            "{status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded}]}}",
            "failed: Failed is True: BackoffLimitExceeded",
        );
        job("{spec: {completions: 3}, status: {succeeded: 1}}", "progressing: 1 of 3 pods succeeded");
        job("{spec: {suspend: true}}", "healthy");
    }

    #[test]
    fn other_kinds_have_rules_of_their_own() {
        let claim = |live: &str, expected: &str| check("v1", "PersistentVolumeClaim", live, expected);
        claim("{status: {phase: Bound}}", "healthy");
        claim("{status: {phase: Pending}}", "progressing: the claim is not bound");
        claim("{status: {phase: Lost}}", "failed: the volume of the claim is lost");
        check("v1", "Service", "{spec: {type: LoadBalancer}}", "progressing: the service has no address");
        check("v1", "Service", "{spec: {type: LoadBalancer, clusterIP: 10.0.0.1}}", "healthy");
        check("v1", "Service", "{spec: {type: ClusterIP}}", "healthy");
        check("v1", "Namespace", "{status: {phase: Active}}", "healthy");
        check("v1", "Namespace", "{status: {phase: Terminating}}", "progressing: it is being deleted");
        let definition =
            |live: &str, expected: &str| check("apiextensions.k8s.io/v1", "CustomResourceDefinition", live, expected);
        definition("{}", "progressing: it is not established");
        definition("{status: {conditions: [{type: Established, status: 'True'}]}}", "healthy");
        definition(
            "{status: {conditions: [{type: Established, status: 'False', reason: Installing}]}}",
            "progressing: it is not established",
        );
        definition(
            "{status: {conditions: [{type: NamesAccepted, status: 'False', reason: PluralConflict}]}}",
            "failed: NamesAccepted is False: PluralConflict",
        );
        check(
            "apiregistration.k8s.io/v1",
            "APIService",
            "{status: {conditions: [{type: Available, status: 'False', reason: MissingEndpoints}]}}",
            "progressing: Available is False: MissingEndpoints",
        );
        check(
            "apiregistration.k8s.io/v1",
            "APIService",
            "{status: {conditions: [{type: Available, status: 'True'}]}}",
            "healthy",
        );
        let function =
            |live: &str, expected: &str| check("serverless.kyma-project.io/v1alpha1", "Function", live, expected);
        function("{}", "progressing: ConfigurationReady is not known yet");
        function(
            "{status: {conditions: [{type: ConfigurationReady, status: 'True'}, {type: Running, status: 'True'},
              {type: BuildReady, status: 'False', reason: JobFailed}]}}",
            "progressing: BuildReady is False: JobFailed",
        );
        function(
            "{status: {conditions: [{type: ConfigurationReady, status: 'True'}, {type: BuildReady, status: 'True'},
              {type: Running, status: 'True'}]}}",
            "healthy",
        );
        function(
            "{metadata: {generation: 2}, status: {observedGeneration: 1, conditions: []}}",
            "progressing: its controller has not seen generation 2",
        );
        check(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "{status: {conditions: [{type: ScalingActive, status: 'False'}]}}",
            "healthy",
        );
        check(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "{status: {conditions: [{type: AbleToScale, status: 'False', reason: FailedGetScale}]}}",
            "progressing: AbleToScale is False: FailedGetScale",
        );
    }
}
