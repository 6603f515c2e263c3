//! Builds: begun, watched, reported, tried again.

use super::*;

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
fn a_build_that_is_held_up_is_replaced_once_when_its_credentials_changed_and_one_that_works_is_not() {
    let waiting = json!({"containerStatuses": [{"name": "push", "state": {"waiting": {
        "reason": "ImagePullBackOff", "message": "no"}}}]});
    for (status, retry_now, replaced) in [
        (&waiting, Some("j"), true),
        (&waiting, None, false),
        (&waiting, Some("another"), false),
        (&json!({"phase": "Running"}), Some("j"), false),
    ] {
        let mut case = Case::new();
        case.job("j", 1, json!({})).pod("j", status.clone());
        case.memory.retry_now = retry_now.map(str::to_owned);
        let decision = case.drive();
        let said = words(&decision);
        assert_eq!(said.contains(&"delete Job j".to_owned()), replaced, "{said:?}");
        assert_eq!(said.contains(&"put Job".to_owned()), replaced, "{said:?}");
        assert_eq!(decision.record.building, Some((case.tag(), if replaced { 2 } else { 1 })));
    }
}
