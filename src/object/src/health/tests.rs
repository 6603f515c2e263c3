//! Tests of health by kind.

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
    let with = |conditions: &str| format!("{{metadata: {{generation: 3}}, status: {{conditions: [{conditions}]}}}}");
    check("x/v1", "X", &with("{type: Ready, status: 'True'}"), "healthy");
    check(
        "x/v1",
        "X",
        &with("{type: Ready, status: 'True', observedGeneration: 2}"),
        "progressing: its controller has not seen generation 3",
    );
    let suspended = |status: &str| {
        with(status).replace("metadata: {generation: 3}", "metadata: {generation: 3}, spec: {suspend: true}")
    };
    check("x/v1", "X", &suspended("{type: Ready, status: 'True', observedGeneration: 2}"), "healthy");
    check("x/v1", "X", &suspended("{type: Ready, status: 'True'}], observedGeneration: 2, x: ["), "healthy");
    let until = "{type: Ready, status: 'True', observedGeneration: 2}, {type: Suspended, status: 'True', observedGeneration: 3}";
    check("mainstay.dev/v1alpha1", "GitSync", &with(until), "healthy");
    let changed = with(until).replace("generation: 3}, status: {", "generation: 4}, status: {observedGeneration: 3, ");
    check("mainstay.dev/v1alpha1", "GitSync", &changed, "progressing: its controller has not seen generation 4");
    check(
        "x/v1",
        "X",
        &suspended("{type: Ready, status: 'False', observedGeneration: 2}"),
        "progressing: Ready is False",
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
        format!("replicas: {all}, updatedReplicas: {updated}, availableReplicas: {available}, readyReplicas: {ready}, ")
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
    let deadline = |reason: &str| {
        format!(
            "{{spec: {{replicas: 1, progressDeadlineSeconds: 600}}, status: {{{}conditions: [{{type: Available, status: 'True'}}, {{type: Progressing, status: 'True', reason: {reason}}}]}}}}",
            counts(1, 1, 1, 1)
        )
    };
    deployment(deadline("NewReplicaSetAvailable"), "healthy");
    deployment(deadline("ReplicaSetUpdated"), "progressing: its new replicas are not all available");
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
        "{spec: {replicas: 2}, status: {replicas: 2, readyReplicas: 2, currentReplicas: 2, currentRevision: a, updateRevision: b}}",
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
        "{metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 2, numberReady: 2}}",
        "healthy",
    );
    daemon(
        "{metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1, numberReady: 2}}",
        "progressing: 1 of 2 replicas are available",
    );
    daemon("{metadata: {generation: 1}, status: {observedGeneration: 1, desiredNumberScheduled: 0}}", "healthy");

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
        "failed: container a is in a crash loop",
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
    check("v1", "Namespace", "{metadata: {deletionTimestamp: now}}", "progressing: it is being deleted");
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

#[test]
fn a_function_has_failed_if_a_user_must_change_it_and_progresses_otherwise() {
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
        "{status: {conditions: [{type: ConfigurationReady, status: 'True'}, {type: BuildReady, status: 'True'},
          {type: Running, status: 'True', reason: DeploymentWaiting, message: 'x; the previous version serves'}]}}",
        "progressing: Running is True: DeploymentWaiting: x; the previous version serves",
    );
    function(
        "{status: {conditions: [{type: ConfigurationReady, status: 'True'}, {type: BuildReady, status: 'True'},
          {type: Running, status: 'True', reason: DeploymentUpdated, message: 'Deployment a updated'}]}}",
        "progressing: Running is True: DeploymentUpdated: Deployment a updated",
    );
    function(
        "{metadata: {generation: 2}, status: {observedGeneration: 1, conditions: []}}",
        "progressing: its controller has not seen generation 2",
    );
    let built = |reason: &str, message: &str| {
        format!(
            "{{metadata: {{generation: 3}}, status: {{observedGeneration: 3, conditions: [
              {{type: ConfigurationReady, status: 'True', observedGeneration: 3}},
              {{type: Running, status: 'True', observedGeneration: 2}},
              {{type: BuildReady, status: 'False', reason: {reason}, message: '{message}', observedGeneration: 3}}]}}}}"
        )
    };
    let syntax = "Job a failed, it will be re-run: SourceInvalid: handler.js:3: SyntaxError (attempt 1)";
    function(&built("JobFailed", syntax), &format!("failed: BuildReady is False: JobFailed: {syntax}"));
    let old = built("JobFailed", syntax).replace("observedGeneration: 3}]", "observedGeneration: 2}]");
    function(&old, &format!("progressing: BuildReady is False: JobFailed: {syntax}"));
    let away = "Job a failed, it will be re-run: Registry: it answered 503 (attempt 1)";
    function(&built("JobFailed", away), &format!("progressing: BuildReady is False: JobFailed: {away}"));
    function(
        "{status: {conditions: [{type: ConfigurationReady, status: 'False', reason: SpecInvalid, message: x}]}}",
        "failed: ConfigurationReady is False: SpecInvalid: x",
    );
    // The condition of a rollout belongs to the generation that serves.
    let runs = |status: &str, config: i64, message: &str| {
        format!(
            "{{metadata: {{generation: 3}}, status: {{observedGeneration: 3, conditions: [
              {{type: ConfigurationReady, status: 'True', observedGeneration: {config}}},
              {{type: BuildReady, status: 'True', observedGeneration: 3}},
              {{type: Running, status: '{status}', reason: DeploymentWaiting, message: '{message}', observedGeneration: 2}}]}}}}"
        )
    };
    let crash = "Deployment a is not ready yet: CrashLoopBackOff: container function: handler.js:1: Error";
    function(&runs("Unknown", 3, crash), &format!("failed: Running is Unknown: DeploymentWaiting: {crash}"));
    let serves = format!("{crash}; the previous version serves");
    function(&runs("True", 3, &serves), &format!("failed: Running is True: DeploymentWaiting: {serves}"));
    function(&runs("True", 2, &serves), &format!("progressing: Running is True: DeploymentWaiting: {serves}"));
    let pull = "Deployment a is not ready yet: ImagePullBackOff: container function: denied";
    function(&runs("Unknown", 3, pull), &format!("progressing: Running is Unknown: DeploymentWaiting: {pull}"));
}

#[test]
fn an_api_rule_is_healthy_once_it_is_served() {
    let rule = |status: &str, expected: &str| {
        for version in ["v1alpha1", "v1beta1", "v2"] {
            check(&format!("gateway.kyma-project.io/{version}"), "APIRule", &format!("{{status: {status}}}"), expected);
        }
    };
    rule("{}", "progressing: no controller has served it yet");
    let ok = "APIRuleStatus: {code: OK}, virtualServiceStatus: {code: OK}, accessRuleStatus: {code: OK}";
    rule(&format!("{{{ok}}}"), "healthy");
    rule("{APIRuleStatus: {code: ERROR, desc: hunter2}}", "progressing: APIRuleStatus is ERROR");
    rule("{APIRuleStatus: {code: hunter2}}", "progressing: APIRuleStatus is not known");
    rule("{APIRuleStatus: {code: OK}, accessRuleStatus: {code: SKIPPED}}", "progressing: accessRuleStatus is SKIPPED");
    let exposed = |reason: &str| format!("conditions: [{{type: Exposed, status: 'False', reason: {reason}}}]");
    rule(
        &format!("{{APIRuleStatus: {{code: ERROR}}, {}}}", exposed("Invalid")),
        "progressing: Exposed is False: Invalid",
    );
    rule(&format!("{{{ok}, {}}}", exposed("ServiceNotFound")), "progressing: Exposed is False: ServiceNotFound");
    rule(&format!("{{{ok}, conditions: [{{type: Exposed, status: Unknown}}]}}"), "healthy");
    rule("{state: Ready}", "healthy");
    rule("{state: Processing}", "progressing: its state is Processing");
}

#[test]
fn a_subscriber_of_events_is_healthy_once_it_can_deliver() {
    let nobody = "progressing: no controller delivers its events: install Mainstay's component eventing, or the eventing \
                  of Knative or Kyma";
    let trigger = |status: &str, expected: &str| {
        check("eventing.knative.dev/v1alpha1", "Trigger", &format!("{{status: {status}}}"), expected);
    };
    trigger("{}", nobody);
    trigger("{conditions: [{type: Ready, status: 'True'}]}", "healthy");
    trigger(
        "{conditions: [{type: Ready, status: 'False', reason: DoesNotExist, message: Broker does not exist}]}",
        "progressing: Ready is False: DoesNotExist: Broker does not exist",
    );
    let subscription = |status: &str, expected: &str| {
        for version in ["v1alpha1", "v1alpha2"] {
            let version = format!("eventing.kyma-project.io/{version}");
            check(&version, "Subscription", &format!("{{status: {status}}}"), expected);
        }
    };
    subscription("{}", nobody);
    subscription("{ready: true}", "healthy");
    subscription("{ready: false}", "progressing: it is not ready");
    let ignored = "{type: Fields supported, status: 'False', reason: Fields not supported, message: x}";
    let failing = "{type: Subscription active, status: 'False', reason: NATS Subscription active, message: no sink}";
    subscription(&format!("{{ready: true, conditions: [{ignored}]}}"), "healthy");
    subscription(
        &format!("{{ready: false, conditions: [{ignored}, {failing}]}}"),
        "progressing: Subscription active is False: NATS Subscription active: no sink",
    );
    // Other kinds of these groups keep the rule for custom resources.
    check("eventing.knative.dev/v1alpha1", "Broker", "{status: {}}", "healthy");
}

#[test]
fn a_provider_whose_service_is_away_keeps_no_commit_waiting() {
    let with = |reason: &str| {
        format!("{{status: {{conditions: [{{type: Ready, status: 'False', reason: {reason}, message: no}}]}}}}")
    };
    check("mainstay.dev/v1alpha1", "Provider", &with("NotDelivered"), "healthy");
    check(
        "mainstay.dev/v1alpha1",
        "Provider",
        &with("SecretNotFound"),
        "progressing: Ready is False: SecretNotFound: no",
    );
}

#[test]
fn a_certificate_is_healthy_once_it_is_issued() {
    let certificate = |conditions: &str, expected: &str| {
        let live = format!("{{metadata: {{generation: 2}}, status: {{conditions: [{conditions}]}}}}");
        check("cert-manager.io/v1", "Certificate", &live, expected);
    };
    check("cert-manager.io/v1", "Certificate", "{}", "progressing: cert-manager has not issued it yet");
    let ready = "{type: Ready, status: 'True', observedGeneration: 2}";
    let missing = "{type: Ready, status: 'False', observedGeneration: 2, reason: DoesNotExist, message: no Secret}";
    let issuing = "{type: Issuing, status: 'True', observedGeneration: 2, reason: DoesNotExist}";
    let failed = |generation: i64| {
        format!(
            "{{type: Issuing, status: 'False', observedGeneration: {generation}, reason: Failed, message: retried}}"
        )
    };
    certificate(ready, "healthy");
    certificate(issuing, "progressing: cert-manager has not issued it yet");
    certificate(&format!("{missing}, {issuing}"), "progressing: Ready is False: DoesNotExist: no Secret");
    certificate(
        "{type: Ready, status: 'True', observedGeneration: 1}",
        "progressing: its controller has not seen generation 2",
    );
    // A valid certificate is healthy during its renewal, also if the renewal fails.
    certificate(&format!("{ready}, {issuing}"), "healthy");
    certificate(&format!("{ready}, {}", failed(2)), "healthy");
    certificate(&format!("{missing}, {}", failed(2)), "failed: Issuing is False: Failed: retried");
    certificate(&failed(2), "failed: Issuing is False: Failed: retried");
    certificate(&format!("{missing}, {}", failed(1)), "progressing: Ready is False: DoesNotExist: no Secret");
}

#[test]
fn a_rollout_has_the_health_of_its_phase() {
    let rollout = |status: &str, expected: &str| {
        let live = format!("{{metadata: {{generation: 2}}, status: {{{status}}}}}");
        check("argoproj.io/v1alpha1", "Rollout", &live, expected);
    };
    rollout("", "progressing: no controller has seen it yet");
    rollout("observedGeneration: '2', phase: Healthy", "healthy");
    for phase in ["Healthy", "Degraded"] {
        let old = format!("observedGeneration: '1', phase: {phase}");
        rollout(&old, "progressing: its controller has not seen generation 2");
    }
    let with = |phase: &str, condition: &str| {
        format!(
            "observedGeneration: '2', phase: {phase}, conditions: [{{type: Available, status: 'True'}}, {{{condition}}}]"
        )
    };
    rollout(
        &with(
            "Progressing",
            "type: Progressing, status: 'True', reason: ReplicaSetUpdated, message: web-5d8 is progressing",
        ),
        "progressing: Progressing is True: ReplicaSetUpdated: web-5d8 is progressing",
    );
    rollout(
        &with("Paused", "type: Progressing, status: Unknown, reason: RolloutPaused, message: Rollout is paused"),
        "healthy",
    );
    rollout(
        &with("Degraded", "type: Progressing, status: 'False', reason: RolloutAborted, message: aborted at step 1"),
        "failed: Progressing is False: RolloutAborted: aborted at step 1",
    );
    rollout(
        &with(
            "Degraded",
            "type: InvalidSpec, status: 'True', reason: InvalidSpec, message: 'spec.password: Invalid value: \"hunter2\": no'",
        ),
        "failed: InvalidSpec is True: InvalidSpec: spec.password: Invalid value: …: no",
    );
    rollout("phase: Degraded", "failed: its phase is Degraded");
    rollout("phase: hunter2", "progressing: its phase is not known");
}
