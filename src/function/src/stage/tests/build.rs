//! Builds: queued, followed, and their images.

use super::*;

#[test]
fn a_queued_function_reports_its_position_and_updates_it_only_now_and_then() {
    let mut case = Case::new();
    case.admission = Admission::Queued { position: 3 };
    let decision = case.decide();
    assert!(words(&decision).contains(&"Unknown JobQueued".to_owned()), "{:?}", words(&decision));
    assert!(message(&decision, Reason::JobQueued).ends_with("position 3"));
    assert_eq!((decision.record.queue, decision.requeue_after), (Some(3), Some(Duration::from_secs(5))));
    let mut conditions = Vec::new();
    let (kind, reason) = (Type::BuildReady, Reason::JobQueued);
    function_conditions::set(&mut conditions, kind, Status::Unknown, reason, "position 3", Some(1), case.now);
    case.status = FunctionStatus { conditions, queue: Some(3), ..FunctionStatus::default() };
    case.state.queue_reported = Some(case.now - jiff::SignedDuration::from_secs(2));
    case.admission = Admission::Queued { position: 2 };
    let decision = case.decide();
    assert_eq!((decision.record.queue, decision.requeue_after), (Some(3), Some(Duration::from_secs(3))));
}

#[test]
fn a_function_that_is_not_queued_asks_for_a_place_and_writes_no_job() {
    let mut case = Case::new();
    case.admission = Admission::Absent;
    let decision = case.decide();
    assert!(decision.in_queue);
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated"]);
    case.admission = Admission::Admitted;
    let decision = case.decide();
    assert!(decision.in_queue && words(&decision).contains(&"put Job".to_owned()), "{:?}", words(&decision));
}

#[test]
fn a_complete_job_without_a_report_counts_as_failed_after_a_while() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    let decision = case.decide();
    assert!(words(&decision).contains(&"Unknown JobRunning".to_owned()));
    assert_eq!(decision.record.built, None);
    case.state = decision.state;
    case.now += jiff::SignedDuration::from_secs(20);
    assert!(message(&case.decide(), Reason::JobFailed).contains("the build's pod is gone"));
    // The report counts only if it contains a digest.
    case.pod("j", terminated("push", 0, r#"{"digest":"latest"}"#));
    assert!(message(&case.decide(), Reason::JobFailed).contains("the build reported no image"));
}

#[test]
fn a_reported_image_is_recorded_and_rolled_out_by_its_digest() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST, "seconds": 0.84}).to_string()));
    let decision = case.decide();
    assert_eq!(message(&decision, Reason::JobFinished), "Job j finished (0.8 s: SOURCE)");
    assert_eq!(words(&decision)[3..], ["put Deployment", "put Service"]);
    let built = decision.record.built.unwrap();
    assert_eq!((built.repository.as_str(), built.digest.as_str()), ("r/default-hello", DIGEST));
    let document = decision.steps.iter().find_map(|step| match step {
        Step::Put(put) if put.child_kind == ChildKind::Deployment => Some(put.desired.body()),
        _ => None,
    });
    let image = format!("p/default-hello:{}@{DIGEST}", case.tag());
    assert_eq!(document.unwrap()["spec"]["template"]["spec"]["containers"][0]["image"], image);
    // The image is known without the Job, so there is no build.
    case.status.built = Some(built);
    (case.children.jobs, case.children.pods) = (vec![], vec![]);
    assert!(!words(&case.decide()).contains(&"put Job".to_owned()));
}

#[test]
fn an_image_is_rolled_out_as_soon_as_it_is_reported_and_its_job_runs_to_its_end() {
    let mut case = Case::new();
    case.job("j", 1, json!({"active": 1}));
    // The kubelet still reports the pod as running after its last container has ended.
    let mut status = terminated("push", 0, &json!({"digest": DIGEST, "seconds": 0.84}).to_string());
    status["phase"] = "Running".into();
    case.pod("j", status);
    let decision = case.decide();
    assert_eq!(words(&decision)[2..], ["True JobFinished", "put Deployment", "put Service"]);
    assert_eq!(decision.reported.as_ref().map(|[name, _]| &**name), Some("j"), "its deletion does not build again");
    case.status.built = decision.record.built;
    let later = words(&case.decide());
    assert!(!later.iter().any(|word| word.starts_with("delete Job")), "{later:?}");
    // A report without a digest is ignored.
    case.status.built = None;
    case.children.pods.clear();
    case.pod("j", terminated("push", 0, r#"{"digest":"latest"}"#));
    assert!(words(&case.decide()).contains(&"Unknown JobRunning".to_owned()));
}

#[test]
fn the_report_of_another_owners_pod_is_ignored() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("another", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    assert_eq!(case.decide().record.built, None);
}

#[test]
fn a_job_has_failed_only_when_its_condition_says_so() {
    let mut case = Case::new();
    let mut status = json!({"failed": 1, "active": 0});
    case.job("j", 1, status.clone());
    assert!(words(&case.decide()).contains(&"Unknown JobRunning".to_owned()), "it may have another pod yet");
    let condition = |kind: &str, value: &str| json!([{"type": kind, "status": value, "reason": "DeadlineExceeded", "message": "it took too long"}]);
    // These conditions announce the end of the Job, but pods may still run.
    for (kind, value) in [("FailureTarget", "True"), ("Suspended", "True"), ("Failed", "False"), ("Failed", "Unknown")]
    {
        status["conditions"] = condition(kind, value);
        case.children.jobs.clear();
        case.job("j", 1, status.clone());
        assert!(words(&case.decide()).contains(&"Unknown JobRunning".to_owned()), "{kind} {value}");
    }
    case.children.jobs.clear();
    case.job("j", 1, json!({"failed": 0, "conditions": condition("Failed", "True")}));
    let message = message(&case.decide(), Reason::JobFailed);
    assert!(
        message.starts_with("Job j failed, it will be re-run: DeadlineExceeded: it took too long (attempt 1"),
        "{message}"
    );
}

#[test]
fn a_refused_job_leaves_the_queue_and_is_not_an_attempt() {
    let mut case = Case::new();
    case.state.refused = Some(refused(&case, ChildKind::Job, "no"));
    let decision = case.decide();
    assert_eq!(words(&decision), ["put ConfigMap", "True ConfigMapUpdated", "refused"]);
    assert!(!decision.in_queue && decision.requeue_after == Some(Duration::from_secs(60)));
    assert_eq!(decision.record.building, None);
    // A retry is not created either, and stays due.
    let mut case = Case::new();
    case.job("one", 1, ended("Failed", "BackoffLimitExceeded"));
    let due: Timestamp = "2026-01-01T00:09:00Z".parse().unwrap();
    case.status.building = Some(case.tag());
    (case.status.builds, case.status.retry_at) =
        (Some(1), Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due)));
    case.state.refused = Some(refused(&case, ChildKind::Job, "no"));
    let decision = case.decide();
    assert_eq!(words(&decision).last().map(String::as_str), Some("refused"));
    assert_eq!((decision.record.building, decision.record.retry_at), (Some((case.tag(), 1)), Some(due)));
    // Different inputs get a new Job.
    case.function.spec.source = "2".into();
    assert!(words(&case.decide()).contains(&"put Job".to_owned()));
}
