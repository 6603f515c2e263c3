//! Tests of the stages: what is decided for what was observed, without a cluster.

use std::cell::Cell;

use serde_json::{Value, json};

use super::*;
use crate::api::Function;
use crate::function::facts;
use crate::function::refusals::Cause;
use crate::function::{resolve, tag};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One Function in one situation.
struct Case {
    function: Function,
    family: Family,
    status: FunctionStatus,
    memory: Memory,
    turn: Turn,
    now: Timestamp,
}

impl Case {
    fn new() -> Self {
        let function = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "hello", "namespace": "default", "uid": "u1", "generation": 1},
            "spec": {"source": "1", "runtime": "nodejs22", "minReplicas": 1, "maxReplicas": 1},
        });
        Self {
            function: serde_json::from_value(function).unwrap(),
            family: Family::default(),
            status: FunctionStatus::default(),
            memory: Memory::default(),
            turn: Turn::Now,
            now: "2026-01-01T00:10:00Z".parse().unwrap(),
        }
    }

    /// The children that are there are kept at any document.
    fn drive(&self) -> Decision {
        let settings = Settings {
            base_images: [("*".to_owned(), crate::function::BaseImage::Scratch)].into(),
            ..Settings::default()
        };
        let resolved = resolve(&self.function, &settings).unwrap();
        let recipe = tag::recipe(&resolved, None, &settings.platform);
        let repository =
            Repository { push: "r/default-hello".into(), pull: "p/default-hello".into(), secret: "s".into() };
        let wanted =
            Wanted { function: &resolved, recipe: &recipe, repository: &repository, git: None, settings: &settings };
        let asked = Cell::new(0);
        let turn = || {
            asked.set(asked.get() + 1);
            self.turn
        };
        let observed =
            Observed { family: &self.family, status: &self.status, kept: &|_| None, turn: &turn, memory: &self.memory };
        let decision = drive(&wanted, &observed, self.now);
        assert_eq!(decision.in_queue, asked.get() > 0, "who asks for a turn takes part in the queue");
        decision
    }

    fn tag(&self) -> String {
        let settings = Settings {
            base_images: [("*".to_owned(), crate::function::BaseImage::Scratch)].into(),
            ..Settings::default()
        };
        let resolved = resolve(&self.function, &settings).unwrap();
        tag::recipe(&resolved, None, &settings.platform).tag
    }

    fn job(&mut self, name: &str, attempt: i64, status: Value) -> &mut Self {
        let image = format!("--image=r/default-hello:{}", self.tag());
        let job = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": "5",
                "creationTimestamp": "2026-01-01T00:09:59Z",
                "annotations": {
                    "mainstay.dev/build-tag": self.tag(), "mainstay.dev/build-attempt": attempt.to_string(),
                    "mainstay.dev/build-cause": "SOURCE",
                },
            },
            "spec": {"template": {"spec": {"containers": [{"name": "push", "args": [image]}]}}},
            "status": status,
        });
        self.family.jobs.push(facts::job(&job));
        self
    }

    fn pod(&mut self, job: &str, status: Value) -> &mut Self {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "uid": job, "controller": true});
        let pod = json!({"metadata": {"name": format!("{job}-x"), "ownerReferences": [owner]}, "status": status});
        self.family.pods.push(facts::pod(&pod));
        self
    }

    fn deployment(&mut self, generation: i64, observed: i64, conditions: Value) -> &mut Self {
        let deployment = json!({
            "metadata": {"name": "hello-abcde", "uid": "d", "generation": generation},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"image": "p/default-hello:t@sha256:1"}]}}},
            "status": {"observedGeneration": observed, "conditions": conditions},
        });
        self.family.deployments.push(facts::deployment(&deployment));
        self
    }
}

/// The decision as short words.
fn words(decision: &Decision) -> Vec<String> {
    let word = |step: &Step| match step {
        Step::Say(said) | Step::SayUnlessChanged(said) => format!("{:?} {:?}", said.status, said.reason),
        Step::Affirm(kind) => format!("affirm {kind:?}"),
        Step::Put(put) => format!("put {:?}", put.what),
        Step::Refused(_) => "refused".to_owned(),
        Step::Delete { what, identity } => format!("delete {what:?} {}", identity.name),
        Step::HandOver { replicas, .. } => format!("hand over {replicas}"),
    };
    decision.steps.iter().map(word).collect()
}

fn message(decision: &Decision, reason: Reason) -> String {
    let said = decision.steps.iter().find_map(|step| match step {
        Step::Say(said) | Step::SayUnlessChanged(said) if said.reason == reason => Some(said.message.clone()),
        _ => None,
    });
    said.unwrap_or_else(|| panic!("{reason:?} is not said: {:?}", words(decision)))
}

fn ended(kind: &str, reason: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "m"}]})
}

fn terminated(container: &str, code: i64, said: &str) -> Value {
    let terminated = json!({"exitCode": code, "reason": "Error", "message": said});
    let statuses = json!([{"name": container, "state": {"terminated": terminated}}]);
    json!({"phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": statuses})
}

#[test]
fn a_new_function_gets_a_config_map_and_a_job_and_nothing_that_serves() {
    let decision = Case::new().drive();
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated", "put Job"]);
    assert_eq!(decision.record.building.as_ref().map(|(_, attempt)| *attempt), Some(1));
}

#[test]
fn a_function_that_waits_says_its_place_and_says_it_again_only_now_and_then() {
    let mut case = Case::new();
    case.turn = Turn::Wait { position: 3 };
    let decision = case.drive();
    assert!(words(&decision).contains(&"Unknown JobQueued".to_owned()), "{:?}", words(&decision));
    assert!(message(&decision, Reason::JobQueued).ends_with("position 3"));
    assert_eq!((decision.record.queue, decision.look_again), (Some(3), Some(Duration::from_secs(5))));
    let mut conditions = Vec::new();
    let (kind, reason) = (Type::BuildReady, Reason::JobQueued);
    function_conditions::set(&mut conditions, kind, Status::Unknown, reason, "position 3", Some(1), case.now);
    case.status = FunctionStatus { conditions, queue: Some(3), ..FunctionStatus::default() };
    case.memory.queue_told = Some(case.now - jiff::SignedDuration::from_secs(2));
    case.turn = Turn::Wait { position: 2 };
    let decision = case.drive();
    assert_eq!((decision.record.queue, decision.look_again), (Some(3), Some(Duration::from_secs(3))));
}

#[test]
fn a_complete_job_is_nothing_without_its_report_and_is_waited_for_only_so_long() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    let decision = case.drive();
    assert!(words(&decision).contains(&"Unknown JobRunning".to_owned()));
    assert_eq!(decision.record.built, None);
    case.memory = decision.memory;
    case.now += jiff::SignedDuration::from_secs(20);
    assert!(message(&case.drive(), Reason::JobFailed).contains("the build's pod is gone"));
    // What is reported must be a digest.
    case.pod("j", terminated("push", 0, r#"{"digest":"latest"}"#));
    assert!(message(&case.drive(), Reason::JobFailed).contains("the build reported no image"));
}

#[test]
fn a_reported_image_is_recorded_and_rolled_out_by_its_digest() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST, "seconds": 0.84}).to_string()));
    let decision = case.drive();
    assert_eq!(message(&decision, Reason::JobFinished), "Job j finished (0.8 s: SOURCE)");
    assert_eq!(words(&decision)[3..], ["put Deployment", "put Service"]);
    let built = decision.record.built.unwrap();
    assert_eq!((built.repository.as_str(), built.digest.as_str()), ("r/default-hello", DIGEST));
    let document = decision.steps.iter().find_map(|step| match step {
        Step::Put(put) if put.what == What::Deployment => Some(put.desired.body()),
        _ => None,
    });
    let image = format!("p/default-hello:{}@{DIGEST}", case.tag());
    assert_eq!(document.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"], image);
    // Without the Job it is still known, and nothing is built.
    case.status.built = Some(built);
    (case.family.jobs, case.family.pods) = (vec![], vec![]);
    assert!(!words(&case.drive()).contains(&"put Job".to_owned()));
}

#[test]
fn a_pod_of_another_owner_reports_nothing() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("another", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    assert_eq!(case.drive().record.built, None);
}

#[test]
fn a_failed_build_waits_longer_each_time_and_is_made_again_when_its_time_has_come() {
    let mut case = Case::new();
    case.job("j", 3, ended("Failed", "BackoffLimitExceeded"));
    case.pod("j", terminated("fetch", 1, r#"{"reason":"Git","message":"503","retry":true}"#));
    let decision = case.drive();
    let due = case.now + Duration::from_secs(240);
    assert_eq!(decision.record.retry_at, Some(due));
    assert!(message(&decision, Reason::JobFailed).starts_with("Job j failed, it will be re-run: Git: 503 (attempt 3"));
    case.status.building = Some(case.tag());
    case.status.builds = Some(3);
    case.status.retry_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due));
    case.now = due;
    let decision = case.drive();
    assert!(words(&decision).contains(&"put Job".to_owned()));
    assert_eq!(decision.record.building.map(|(_, attempt)| attempt), Some(4));
}

#[test]
fn the_wait_after_many_failures_is_exactly_the_longest_one_and_their_number_is_told() {
    let after = |attempt: i64, retry: bool| {
        let mut case = Case::new();
        case.job("j", attempt, ended("Failed", "BackoffLimitExceeded"));
        let failure = json!({"reason": "Registry", "message": "503", "retry": retry});
        case.pod("j", terminated("push", 1, &failure.to_string()));
        let decision = case.drive();
        assert_eq!(decision.record.building.as_ref().map(|(_, attempt)| *attempt), Some(attempt));
        let said = message(&decision, Reason::JobFailed);
        assert!(said.contains(&format!("(attempt {attempt}, the next one at 2026-01-01T")), "{said}");
        let wait = decision.record.retry_at.unwrap().duration_since(case.now);
        assert_eq!(decision.look_again, Some(wait.unsigned_abs()), "attempt {attempt}");
        wait.as_secs()
    };
    assert_eq!([1, 2, 6, 7, 8].map(|attempt| after(attempt, true)), [60, 120, 1920, 3600, 3600]);
    assert_eq!([19, 20, 21, 1_000_000].map(|attempt| after(attempt, true)), [3600; 4], "twenty and more");
    assert_eq!(after(1, false), 3600, "nothing but another input helps");
}

#[test]
fn a_job_has_failed_when_its_condition_says_so_whatever_it_counts() {
    let mut case = Case::new();
    let mut status = json!({"failed": 1, "active": 0});
    case.job("j", 1, status.clone());
    assert!(words(&case.drive()).contains(&"Unknown JobRunning".to_owned()), "it may have another pod yet");
    let condition = |kind: &str, value: &str| json!([{"type": kind, "status": value, "reason": "DeadlineExceeded", "message": "it took too long"}]);
    // What announces the end is not the end: its pods may still run.
    for (kind, value) in [("FailureTarget", "True"), ("Suspended", "True"), ("Failed", "False"), ("Failed", "Unknown")]
    {
        status["conditions"] = condition(kind, value);
        case.family.jobs.clear();
        case.job("j", 1, status.clone());
        assert!(words(&case.drive()).contains(&"Unknown JobRunning".to_owned()), "{kind} {value}");
    }
    case.family.jobs.clear();
    case.job("j", 1, json!({"failed": 0, "conditions": condition("Failed", "True")}));
    let said = message(&case.drive(), Reason::JobFailed);
    assert!(
        said.starts_with("Job j failed, it will be re-run: DeadlineExceeded: it took too long (attempt 1"),
        "{said}"
    );
}

#[test]
fn a_failed_job_that_somebody_deletes_is_made_again_at_once() {
    let mut case = Case::new();
    case.status.building = Some(case.tag());
    case.status.builds = Some(2);
    case.status.retry_at =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(case.now + Duration::from_secs(9)));
    assert_eq!(case.drive().record.building.map(|(_, attempt)| attempt), Some(3));
}

#[test]
fn a_job_without_a_pod_is_asked_about_and_its_pods_trouble_is_told() {
    let mut case = Case::new();
    case.job("j", 1, json!({"active": 1}));
    assert_eq!(case.drive().podless, None);
    case.now += jiff::SignedDuration::from_secs(10);
    assert_eq!(case.drive().podless.map(|job| job.identity.name), Some("j".to_owned()));
    case.memory.trouble = Some(("j".into(), "FailedCreate: exceeded quota".into()));
    assert_eq!(message(&case.drive(), Reason::JobRunning), "Job j is still in progress: FailedCreate: exceeded quota");
    let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
    case.pod("j", json!({"phase": "Pending", "conditions": [unplaced]}));
    assert_eq!(message(&case.drive(), Reason::JobRunning), "Job j is still in progress: Unschedulable: no room");
}

#[test]
fn a_build_whose_pod_the_cluster_has_ended_says_why() {
    let mut case = Case::new();
    case.job("j", 1, ended("Failed", "BackoffLimitExceeded"));
    let mut status = terminated("install", 137, "npm went on");
    let full = "Usage of EmptyDir volume \"tmp\" exceeds the limit \"2Gi\". ";
    (status["phase"], status["reason"], status["message"]) = (json!("Failed"), json!("Evicted"), json!(full));
    case.pod("j", status);
    let said = message(&case.drive(), Reason::JobFailed);
    assert!(
        said.starts_with("Job j failed, it will be re-run: Evicted: Usage of EmptyDir volume \"tmp\" exceeds"),
        "{said}"
    );
}

#[test]
fn an_image_that_cannot_be_pulled_is_told_the_same_while_it_is_tried_again() {
    let said = |reason: &str, text: &str| {
        let mut case = Case::new();
        case.job("j", 1, json!({"active": 1}));
        let waiting = json!({"name": "fetch", "state": {"waiting": {"reason": reason, "message": text}}});
        case.pod("j", json!({"phase": "Pending", "initContainerStatuses": [waiting]}));
        message(&case.drive(), Reason::JobRunning)
    };
    let tried = said("ErrImagePull", "not found");
    assert_eq!(tried, "Job j is still in progress: ImagePullBackOff: container fetch: not found");
    assert_eq!(said("ImagePullBackOff", "Back-off pulling image \"r.example/a:1\": ErrImagePull: not found"), tried);
}

#[test]
fn a_deployment_is_ready_only_when_its_status_speaks_of_its_newest_generation() {
    let ready = json!([
        {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
    ]);
    let said = |generation, observed, conditions: Value| {
        let mut case = Case::new();
        case.deployment(generation, observed, conditions);
        words(&case.drive()).pop().unwrap()
    };
    assert_eq!(said(2, 2, ready.clone()), "True DeploymentReady");
    assert_eq!(said(2, 1, ready), "Unknown DeploymentWaiting");
    assert_eq!(said(1, 1, json!([])), "Unknown DeploymentWaiting", "no condition says nothing");
    let of = |available: &str, progressing: &str, reason: &str| {
        json!([
            {"type": "Available", "status": available, "reason": "x"},
            {"type": "Progressing", "status": progressing, "reason": reason},
        ])
    };
    assert_eq!(said(1, 1, of("False", "True", "ReplicaSetUpdated")), "Unknown DeploymentWaiting");
    assert_eq!(said(1, 1, of("False", "False", "ProgressDeadlineExceeded")), "False DeploymentFailed");
    assert_eq!(said(1, 1, of("False", "True", "NewReplicaSetAvailable")), "Unknown MinReplicasNotAvailable");
    let refused = json!([
        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetCreated"},
        {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"},
    ]);
    assert_eq!(said(1, 1, refused), "False DeploymentFailed");
}

#[test]
fn the_number_of_pods_is_handed_over_before_it_is_dropped() {
    let mut case = Case::new();
    case.function.spec.max_replicas = Some(5);
    let inputs = case.drive().record;
    assert_eq!(inputs.built, None);
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    case.deployment(1, 1, json!([]));
    case.family.deployments[0].owns_replicas_alone = true;
    let all = words(&case.drive());
    let at = |word: &str| all.iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}: {all:?}"));
    assert!(at("hand over 2") < at("put Deployment") && at("put Deployment") < at("put Autoscaler"));
    case.family.deployments[0].owns_replicas_alone = false;
    assert!(!words(&case.drive()).contains(&"hand over 2".to_owned()));
}

#[test]
fn what_is_obsolete_goes_and_an_older_child_is_adopted() {
    let mut case = Case::new();
    let identity = |name: &str| Identity { name: name.into(), uid: name.into(), ..Identity::default() };
    case.family.config_maps = vec![identity("hello-old1"), identity("hello-old2")];
    case.family.services = vec![identity("other")];
    case.family.autoscalers = vec![identity("hello-hpa")];
    let all = words(&case.drive());
    assert_eq!(all[0], "delete ConfigMap hello-old2", "one is kept under the name that it has");
    assert!(all.contains(&"delete Service other".to_owned()), "{all:?}");
    assert!(all.contains(&"delete Autoscaler hello-hpa".to_owned()), "{all:?}");
}

/// A write that is refused at every try, as the server's text has it.
fn refused(case: &Case, what: What, text: &str) -> Refused {
    let decision = case.drive();
    let step = decision.steps.iter().find(|step| matches!(step, Step::Put(put) if put.what == what)).unwrap();
    let write = Write::of(step, "default").unwrap();
    let said = Said::new(Type::BuildReady, Status::False, Reason::ApplyFailed, text);
    Refused::after(None, write, Cause::anothers(), Some(said), (case.now, Duration::from_secs(60), 0.5))
}

#[test]
fn a_refused_job_waits_out_of_the_queue_and_is_no_attempt() {
    let mut case = Case::new();
    case.memory.refused = Some(refused(&case, What::Job, "no"));
    let decision = case.drive();
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated", "refused"]);
    assert!(!decision.in_queue && decision.look_again == Some(Duration::from_secs(60)));
    assert_eq!(decision.record.building, None);
    // A retry is not made either, and is due as it was.
    let mut case = Case::new();
    case.job("one", 1, ended("Failed", "BackoffLimitExceeded"));
    let due: Timestamp = "2026-01-01T00:09:00Z".parse().unwrap();
    case.status.building = Some(case.tag());
    (case.status.builds, case.status.retry_at) =
        (Some(1), Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due)));
    case.memory.refused = Some(refused(&case, What::Job, "no"));
    let decision = case.drive();
    assert_eq!(words(&decision).last().map(String::as_str), Some("refused"));
    assert_eq!((decision.record.building, decision.record.retry_at), (Some((case.tag(), 1)), Some(due)));
    // Other inputs are another Job.
    case.function.spec.source = "2".into();
    assert!(words(&case.drive()).contains(&"put Job".to_owned()));
}

#[test]
fn nothing_follows_a_refused_config_map_and_nothing_is_recorded_of_what_would_have() {
    let mut case = Case::new();
    case.memory.refused = Some(refused(&case, What::ConfigMap, "no"));
    let decision = case.drive();
    assert_eq!(words(&decision), ["refused"]);
    assert_eq!(decision.record.building, None);
}

/// A Function that has run before.
fn ran(case: &mut Case) {
    let running = Said::new(Type::Running, Status::True, Reason::DeploymentReady, "m");
    let pass = crate::function::status::Pass { said: vec![running], ..Default::default() };
    (case.status, _) = crate::function::status::after(&case.status, &case.function, &pass, case.now);
}

#[test]
fn a_function_goes_on_running_while_another_version_is_rolled_out_and_the_one_before_serves() {
    let of = |available: bool, progressing: &str, reason: &str| {
        let available = if available { ("True", "MinimumReplicasAvailable") } else { ("False", "x") };
        json!([
            {"type": "Available", "status": available.0, "reason": available.1},
            {"type": "Progressing", "status": progressing, "reason": reason},
        ])
    };
    let check = |observed: i64, conditions: &Value, expected: [&str; 2]| {
        for (has_run, expected) in [false, true].into_iter().zip(expected) {
            let mut case = Case::new();
            case.deployment(2, observed, conditions.clone());
            if has_run {
                ran(&mut case);
            }
            let decision = case.drive();
            assert_eq!(words(&decision).pop().unwrap(), expected, "{conditions} {has_run}");
        }
    };
    let (waits, runs) = ("Unknown DeploymentWaiting", "True DeploymentWaiting");
    check(1, &of(true, "True", "NewReplicaSetAvailable"), [waits, runs]);
    check(2, &of(true, "True", "ReplicaSetUpdated"), [waits, runs]);
    check(2, &of(false, "True", "ReplicaSetUpdated"), [waits; 2]);
    check(2, &of(true, "False", "ProgressDeadlineExceeded"), ["False DeploymentFailed"; 2]);
    let mut refused = of(true, "True", "ReplicaSetUpdated");
    let failure = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"});
    refused.as_array_mut().unwrap().push(failure);
    check(2, &refused, [waits, runs]);
}

#[test]
fn another_child_of_a_function_that_runs_is_no_reason_to_doubt_it() {
    let mut case = Case::new();
    case.function.spec.max_replicas = Some(3);
    case.deployment(
        1,
        1,
        json!([
            {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
        ]),
    );
    let serves = |case: &Case| {
        let decision = case.drive();
        let put = decision.steps.iter().find_map(|step| match step {
            Step::Put(put) if put.what == What::Autoscaler => Some(put.serves && put.outdated),
            _ => None,
        });
        put.unwrap()
    };
    assert!(!serves(&case), "it has never run");
    ran(&mut case);
    assert!(serves(&case));
    case.family.deployments[0].conditions.clear();
    assert!(!serves(&case));
}

#[test]
fn the_cause_of_a_failed_build_is_told_until_the_next_one_has_ended() {
    let mut case = Case::new();
    let due = "2026-01-01T00:09:00Z".parse().unwrap();
    case.job("one", 1, ended("Failed", "BackoffLimitExceeded"));
    case.pod("one", terminated("push", 1, &json!({"reason": "Registry", "message": "503", "retry": true}).to_string()));
    case.status.building = Some(case.tag());
    (case.status.builds, case.status.retry_at) =
        (Some(1), Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due)));
    let cause = "; attempt 1 failed: Registry: 503";
    // While it waits, when it is created, while it runs, and when the failed Job is gone.
    case.turn = Turn::Wait { position: 1 };
    assert!(message(&case.drive(), Reason::JobQueued).ends_with(cause));
    case.turn = Turn::Now;
    let decision = case.drive();
    let put = decision.steps.iter().find_map(|step| match step {
        Step::Put(put) if put.what == What::Job => Some(put.note.clone()),
        _ => None,
    });
    assert_eq!(put.as_deref(), Some(cause));
    case.job("two", 2, json!({"active": 1}));
    let decision = case.drive();
    assert_eq!(message(&decision, Reason::JobRunning), format!("Job two is still in progress{cause}"));
    case.memory = decision.memory;
    case.family.jobs.remove(0);
    case.family.pods.clear();
    assert!(message(&case.drive(), Reason::JobRunning).ends_with(cause));
    case.memory.failed = Some(("another".into(), "; it is not said of these inputs".into()));
    assert!(!message(&case.drive(), Reason::JobRunning).contains("inputs"));
}
