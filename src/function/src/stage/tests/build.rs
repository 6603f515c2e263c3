//! Builds: started, watched, reported, retried.

use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;
use crate::Builder;
use mainstay_api::function_failure::is_lasting;
use mainstay_object::cron::Cron;

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
    case.status.built = decision.record.built;
    let later = words(&case.decide());
    assert!(!later.iter().any(|word| word.starts_with("delete Job")), "{later:?}");
    // A report without a digest is ignored.
    case.status.built = None;
    case.children.pods.clear();
    case.pod("j", terminated("push", 0, r#"{"digest":"latest"}"#));
    assert!(words(&case.decide()).contains(&"Unknown JobRunning".to_owned()));
}

/// Returns a case with a build whose image cannot be pulled.
fn held_up() -> Case {
    let mut case = Case::new();
    case.job("j", 1, json!({"active": 1}));
    let waiting =
        json!({"name": "install", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}});
    case.pod("j", json!({"phase": "Pending", "initContainerStatuses": [waiting]}));
    case
}

#[test]
fn a_held_up_build_is_suspended_for_others_and_resumed_in_its_turn() {
    let mut case = held_up();
    assert!(!words(&case.decide()).contains(&"suspend j".to_owned()), "nobody waits for its place");
    case.must_yield = true;
    let decision = case.decide();
    let said = message(&decision, Reason::JobQueued);
    let why = "ImagePullBackOff: container install: no such host";
    assert_eq!(
        said,
        format!(
            "Job j is suspended, because its pod cannot start and other builds wait for its place: {why} (tried again at \
             2026-01-01T00:10:10Z)"
        )
    );
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(10)));
    let suspension = decision.steps.iter().find_map(|step| match step {
        Step::Suspend { suspension: Some(suspension), .. } => Some(suspension.clone()),
        _ => None,
    });
    let (count, suspension) = suspension.unwrap();
    assert_eq!((count, suspension.why.as_str()), (1, why));
    // The watch delivers the suspended Job. The condition is unchanged.
    case.children.pods.clear();
    let job = case.children.jobs.last_mut().unwrap();
    (job.suspension, job.suspensions) = (Some(suspension), count);
    case.now += jiff::SignedDuration::from_secs(3);
    let decision = case.decide();
    assert_eq!((message(&decision, Reason::JobQueued), decision.in_queue), (said, false));
    assert_eq!((decision.without_pod, decision.requeue_after), (None, Some(Duration::from_secs(7))));
    // The retry time has come, and the build waits for its turn in the queue.
    case.now += jiff::SignedDuration::from_secs(7);
    case.admission = Admission::Queued { position: 2 };
    let decision = case.decide();
    assert!(
        decision.in_queue
            && message(&decision, Reason::JobQueued).ends_with(&format!("position 2; Job j is suspended: {why}"))
    );
    case.admission = Admission::Admitted;
    let decision = case.decide();
    assert!(words(&decision).contains(&"resume j".to_owned()), "{:?}", words(&decision));
    assert_eq!(message(&decision, Reason::JobRunning), "Job j is still in progress; it was suspended");
}

#[test]
fn a_build_that_is_suspended_again_waits_longer_and_never_for_ever() {
    let wait = |suspensions| {
        let mut case = held_up();
        case.must_yield = true;
        case.children.jobs.last_mut().unwrap().suspensions = suspensions;
        case.decide().requeue_after.unwrap().as_secs()
    };
    assert_eq!([0, 1, 2, 5, 40, u32::MAX].map(wait), [10, 20, 40, 300, 300, 300]);
}

#[test]
fn a_suspended_build_whose_inputs_changed_is_replaced_and_one_that_others_suspended_is_resumed() {
    let mut case = Case::new();
    case.job("j", 1, json!({}));
    case.children.jobs.last_mut().unwrap().suspension = Some(child_state::Suspension::default());
    assert!(words(&case.decide()).contains(&"resume j".to_owned()));
    let until = Some(case.now + Duration::from_secs(60));
    case.children.jobs.last_mut().unwrap().suspension = Some(child_state::Suspension { until, why: String::new() });
    case.state.retry_now = Some(retry("j", RetryCause::Credentials));
    let all = words(&case.decide());
    assert!(all.contains(&"delete Job j".to_owned()) && all.contains(&"put Job".to_owned()), "{all:?}");
}

#[test]
fn a_build_that_the_registry_refused_waits_for_the_registry_and_is_retried_when_that_changes() {
    let mut case = Case::new();
    case.job("j", 1, ended("Failed", "BackoffLimitExceeded"));
    let full = json!({"reason": "Registry", "message": "it is full", "retry": true, "waitsForRegistry": true});
    case.pod("j", terminated("push", 1, &full.to_string()));
    assert_eq!(case.decide().waits_for_registry.as_deref(), Some("j"));
    case.state.retry_now = Some(retry("j", RetryCause::Credentials));
    let decision = case.decide();
    assert_eq!(decision.waits_for_registry, None);
    assert!(words(&decision).contains(&"put Job".to_owned()));
    // Code from packages cannot make the agent probe a registry.
    case.children.pods.clear();
    case.pod("j", terminated("fetch", 1, &full.to_string()));
    assert_eq!(case.decide().waits_for_registry, None);
}

#[test]
fn the_report_of_another_owners_pod_is_ignored() {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("another", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    assert_eq!(case.decide().record.built, None);
}

#[test]
fn a_failed_build_is_retried_with_backoff() {
    let mut case = Case::new();
    case.job("j", 3, ended("Failed", "BackoffLimitExceeded"));
    case.pod("j", terminated("fetch", 1, r#"{"reason":"Git","message":"503","retry":true}"#));
    let decision = case.decide();
    let due = case.now + Duration::from_secs(240);
    assert_eq!(decision.record.retry_at, Some(due));
    assert!(message(&decision, Reason::JobFailed).starts_with("Job j failed, it will be re-run: Git: 503 (attempt 3"));
    case.status.building = Some(case.tag());
    case.status.builds = Some(3);
    case.status.retry_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due));
    case.now = due;
    let decision = case.decide();
    assert!(words(&decision).contains(&"put Job".to_owned()));
    assert_eq!(decision.record.building.map(|(_, attempt)| attempt), Some(4));
}

#[test]
fn the_backoff_is_capped_and_the_attempt_is_reported() {
    let after = |attempt: i64, retry: bool| {
        let mut case = Case::new();
        case.job("j", attempt, ended("Failed", "BackoffLimitExceeded"));
        let failure = json!({"reason": "Registry", "message": "503", "retry": retry});
        case.pod("j", terminated("push", 1, &failure.to_string()));
        let decision = case.decide();
        assert_eq!(decision.record.building.as_ref().map(|(_, attempt)| *attempt), Some(attempt));
        let message = message(&decision, Reason::JobFailed);
        assert!(message.contains(&format!("(attempt {attempt}, the next one at 2026-01-01T")), "{message}");
        let wait = decision.record.retry_at.unwrap().duration_since(case.now);
        assert_eq!(decision.requeue_after, Some(wait.unsigned_abs()), "attempt {attempt}");
        wait.as_secs()
    };
    assert_eq!([1, 2, 6, 7, 8].map(|attempt| after(attempt, true)), [60, 120, 1920, 3600, 3600]);
    assert_eq!([19, 20, 21, 1_000_000].map(|attempt| after(attempt, true)), [3600; 4], "twenty and more");
    assert_eq!(after(1, false), 3600, "nothing but another input helps");
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
fn a_failed_job_that_is_deleted_is_retried_at_once() {
    let mut case = Case::new();
    case.status.building = Some(case.tag());
    case.status.builds = Some(2);
    case.status.retry_at =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(case.now + Duration::from_secs(9)));
    assert_eq!(case.decide().record.building.map(|(_, attempt)| attempt), Some(3));
}

#[test]
fn the_problem_of_a_job_without_a_pod_is_reported() {
    let mut case = Case::new();
    case.job("j", 1, json!({"active": 1}));
    assert_eq!(case.decide().without_pod, None);
    case.now += jiff::SignedDuration::from_secs(10);
    assert_eq!(case.decide().without_pod.map(|job| job.identity.name), Some("j".to_owned()));
    case.state.problem = Some(("j".into(), "FailedCreate: exceeded quota".into()));
    assert_eq!(message(&case.decide(), Reason::JobRunning), "Job j is still in progress: FailedCreate: exceeded quota");
    let unplaced = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"});
    case.pod("j", json!({"phase": "Pending", "conditions": [unplaced]}));
    assert_eq!(message(&case.decide(), Reason::JobRunning), "Job j is still in progress: Unschedulable: no room");
}

#[test]
fn the_reason_of_an_evicted_build_pod_is_reported() {
    let mut case = Case::new();
    case.job("j", 1, ended("Failed", "BackoffLimitExceeded"));
    let mut status = terminated("install", 137, "npm went on");
    let full = "Usage of EmptyDir volume \"tmp\" exceeds the limit \"2Gi\". ";
    (status["phase"], status["reason"], status["message"]) = (json!("Failed"), json!("Evicted"), json!(full));
    case.pod("j", status);
    let message = message(&case.decide(), Reason::JobFailed);
    assert!(
        message.starts_with("Job j failed, it will be re-run: Evicted: Usage of EmptyDir volume \"tmp\" exceeds"),
        "{message}"
    );
}

#[test]
fn a_failing_image_pull_is_reported_with_a_stable_text() {
    let message = |reason: &str, text: &str| {
        let mut case = Case::new();
        case.job("j", 1, json!({"active": 1}));
        let waiting = json!({"name": "fetch", "state": {"waiting": {"reason": reason, "message": text}}});
        case.pod("j", json!({"phase": "Pending", "initContainerStatuses": [waiting]}));
        message(&case.decide(), Reason::JobRunning)
    };
    let tried = message("ErrImagePull", "not found");
    assert_eq!(tried, "Job j is still in progress: ImagePullBackOff: container fetch: not found");
    assert_eq!(message("ImagePullBackOff", "Back-off pulling image \"r.example/a:1\": ErrImagePull: not found"), tried);
}

#[test]
fn the_cause_of_a_failed_build_is_reported_until_the_next_one_has_ended() {
    let mut case = Case::new();
    let due = "2026-01-01T00:09:00Z".parse().unwrap();
    case.job("one", 1, ended("Failed", "BackoffLimitExceeded"));
    case.pod("one", terminated("push", 1, &json!({"reason": "Registry", "message": "503", "retry": true}).to_string()));
    case.status.building = Some(case.tag());
    (case.status.builds, case.status.retry_at) =
        (Some(1), Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(due)));
    let cause = "; attempt 1 failed: Registry: 503";
    // The cause is reported while the build is queued, created and running, and after the failed Job is gone.
    case.admission = Admission::Queued { position: 1 };
    assert!(message(&case.decide(), Reason::JobQueued).ends_with(cause));
    case.admission = Admission::Admitted;
    let decision = case.decide();
    let put = decision.steps.iter().find_map(|step| match step {
        Step::Put(put) if put.child_kind == ChildKind::Job => Some(put.note.clone()),
        _ => None,
    });
    assert_eq!(put.as_deref(), Some(cause));
    case.job("two", 2, json!({"active": 1}));
    let decision = case.decide();
    assert_eq!(message(&decision, Reason::JobRunning), format!("Job two is still in progress{cause}"));
    case.state = decision.state;
    case.children.jobs.remove(0);
    case.children.pods.clear();
    assert!(message(&case.decide(), Reason::JobRunning).ends_with(cause));
    case.state.failed = Some(("another".into(), "; it is not said of these inputs".into()));
    assert!(!message(&case.decide(), Reason::JobRunning).contains("inputs"));
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

fn retry(job: &str, cause: RetryCause) -> RetryNow {
    RetryNow { job: job.to_owned(), cause }
}

#[test]
fn a_build_that_only_other_code_mends_is_not_retried_when_another_field_changes() {
    for (code, cause, retried) in [
        ("SourceInvalid", RetryCause::Spec, false),
        ("SourceInvalid", RetryCause::Credentials, true),
        ("InstallFailed", RetryCause::Spec, true),
    ] {
        let mut case = Case::new();
        case.job("j", 1, ended("Failed", "BackoffLimitExceeded"));
        let report = json!({"reason": code, "message": "no", "retry": code != "SourceInvalid"});
        case.pod("j", terminated("fetch", 1, &report.to_string()));
        case.state.retry_now = Some(retry("j", cause));
        let all = words(&case.decide());
        assert_eq!(all.contains(&"put Job".to_owned()), retried, "{code} {cause:?}: {all:?}");
    }
}

#[test]
fn a_held_up_build_is_replaced_once_when_its_credentials_changed() {
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
        case.state.retry_now = retry_now.map(|job| retry(job, RetryCause::Spec));
        let decision = case.decide();
        let message = words(&decision);
        assert_eq!(message.contains(&"delete Job j".to_owned()), replaced, "{message:?}");
        assert_eq!(message.contains(&"put Job".to_owned()), replaced, "{message:?}");
        assert_eq!(decision.record.building, Some((case.tag(), if replaced { 2 } else { 1 })));
    }
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

/// Returns a Function that was built on an empty base image. The base image of its runtime has changed; the schedule is
/// daily.
fn on_an_older_base() -> Case {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    let Decision { record, image, .. } = case.decide();
    assert_eq!(record.moves_at, None);
    (case.status.built, case.status.image) = (record.built, image.map(|image| image.name));
    (case.children.jobs, case.children.pods) = (vec![], vec![]);
    case.settings.base_images.clear();
    case.settings.base_schedule = Some(Cron::parse("30 2 * * *", TimeZone::UTC).unwrap());
    case
}

#[test]
fn another_base_image_of_the_runtime_is_built_at_the_time_of_the_schedule_and_the_old_image_serves_until_then() {
    let mut case = on_an_older_base();
    let due: Timestamp = "2026-01-01T02:30:00Z".parse().unwrap();
    let decision = case.decide();
    assert_eq!((decision.record.moves_at, decision.requeue_after), (Some(due), Some(Duration::from_secs(8400))));
    assert!(
        message(&decision, Reason::JobFinished)
            .ends_with("it will be rebuilt on the new base image at 2026-01-01T02:30:00Z")
    );
    assert!(!words(&decision).contains(&"put Job".to_owned()));
    assert_eq!(decision.image.map(|image| image.name), case.status.image);

    // A restart or another reconcile keeps the time. An earlier schedule changes it.
    case.status.moves_at = Some(Time(due));
    case.now = due - jiff::SignedDuration::from_secs(60);
    assert_eq!(case.decide().record.moves_at, Some(due));
    let sooner = Cron::parse("* * * * *", TimeZone::UTC).unwrap();
    let daily = case.settings.base_schedule.replace(sooner);
    case.now -= jiff::SignedDuration::from_secs(600);
    assert_eq!(case.decide().record.moves_at, Some(case.now + jiff::SignedDuration::from_secs(60)));
    case.settings.base_schedule = daily;

    // A restarted agent builds an overdue image, even before the Function is queued.
    case.now = due + jiff::SignedDuration::from_secs(3600);
    case.admission = Admission::Absent;
    let decision = case.decide();
    assert_eq!((decision.in_queue, decision.record.moves_at), (true, Some(due)));
    case.admission = Admission::Admitted;
    let decision = case.decide();
    assert!(words(&decision).contains(&"put Job".to_owned()), "{:?}", words(&decision));
    case.job("k", 1, ended("Complete", "CompletionsReached"));
    case.pod("k", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    let decision = case.decide();
    assert_eq!(decision.record.moves_at, None);
    assert_eq!(decision.record.built.unwrap().tag, case.tag());
    assert_eq!(
        decision.image.map(|image| image.name),
        case.status.image,
        "it is the same image, and no pod is replaced"
    );
}

#[test]
fn changes_by_a_user_do_not_wait_for_the_schedule() {
    for change in [json!({"source": "2"}), json!({"runtimeImageOverride": format!("a/b@{DIGEST}")})] {
        let mut case = on_an_older_base();
        let mut spec = serde_json::to_value(&case.function.spec).unwrap();
        json_patch::merge(&mut spec, &change);
        case.function.spec = serde_json::from_value(spec).unwrap();
        let decision = case.decide();
        assert!(words(&decision).contains(&"put Job".to_owned()), "{change}: {:?}", words(&decision));
    }
    let mut case = on_an_older_base();
    case.settings.base_schedule = None;
    assert!(words(&case.decide()).contains(&"put Job".to_owned()), "without a schedule it is built at once");
}

#[test]
fn a_tag_is_resolved_again_at_each_time_of_the_schedule() {
    let mut case = on_an_older_base();
    case.function.spec.runtime_image_override = Some("a/b:1".to_owned());
    let first = case.tag();
    case.status.built.as_mut().unwrap().tag.clone_from(&first);
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    case.status.built = case.decide().record.built;
    let decision = case.decide();
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(8400)));
    assert!(!words(&decision).contains(&"put Job".to_owned()));
    case.now = "2026-01-01T02:29:59Z".parse().unwrap();
    assert_eq!(case.tag(), first);
    case.now = "2026-01-01T02:30:00Z".parse().unwrap();
    assert_ne!(case.tag(), first);
    assert!(words(&case.decide()).contains(&"put Job".to_owned()));
    case.settings.base_schedule = None;
    assert_eq!(
        case.tag(),
        {
            case.now += jiff::SignedDuration::from_hours(48);
            case.tag()
        },
        "without one it is never asked"
    );
}

impl Case {
    /// Returns the same case with Kaniko as the builder.
    fn with_kaniko(mut self) -> Self {
        let base = format!("h.io/node@sha256:{}", "0".repeat(64));
        self.settings.base_images = [("*".to_owned(), crate::BaseImage::Image(base))].into();
        self.settings.builder = Builder::Kaniko;
        self.settings.executor_image = Some("h.io/kaniko:1".into());
        self
    }

    fn job_of_kaniko(&mut self, name: &str, image: &str, status: Value) {
        let destination = format!("--destination=r/default-hello:{}", self.tag());
        let container = json!({"name": "executor", "image": image, "args": ["--cache=true", destination]});
        let job = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "creationTimestamp": "2026-01-01T00:09:00Z",
                "annotations": {"mainstay.dev/build-tag": self.tag(), "mainstay.dev/build-cause": "SOURCE"},
            },
            "spec": {"template": {"spec": {"containers": [container]}}},
            "status": status,
        });
        self.children.jobs.push(child_state::job(&job));
    }
}

#[test]
fn the_digest_that_kaniko_leaves_is_recorded_and_the_image_outlives_the_builder() {
    let mut case = Case::new().with_kaniko();
    case.job_of_kaniko("j", "h.io/kaniko:1", ended("Complete", "CompletionsReached"));
    let mut status = terminated("executor", 0, &format!("{DIGEST}\n"));
    status["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = json!("2026-01-01T00:09:21Z");
    let fetch =
        json!({"exitCode": 0, "startedAt": "2026-01-01T00:09:01Z", "message": r#"{"dependencies":"","reused":false}"#});
    status["initContainerStatuses"] = json!([{"name": "fetch", "state": {"terminated": fetch}}]);
    case.pod("j", status);
    let decision = case.decide();
    assert_eq!(message(&decision, Reason::JobFinished), "Job j finished (20.0 s: SOURCE)");
    let built = decision.record.built.unwrap();
    assert_eq!((built.digest.as_str(), built.dependencies.as_str()), (DIGEST, ""));
    // A change of the builder causes no build, and the new builder does not reuse dependencies from the other builder.
    (case.status.built, case.children.jobs, case.children.pods) = (Some(built), vec![], vec![]);
    case.settings.builder = Builder::Own;
    assert!(!words(&case.decide()).contains(&"put Job".to_owned()));
    case.function.spec.source = "2".into();
    let decision = case.decide();
    let put = |step: &Step| matches!(step, Step::Put(put) if put.child_kind == ChildKind::Job && put.desired.body().to_string().contains("--image="));
    assert!(decision.steps.iter().any(put), "{:?}", words(&decision));
}

#[test]
fn a_syntax_error_is_named_with_its_place_and_awaits_another_source() {
    let mut case = Case::new();
    case.job("j", 1, ended("Failed", "BackoffLimitExceeded"));
    let log =
        "/workspace/src/handler.js:2\n\n\nSyntaxError: Unexpected end of input\n    at wrapSafe\n\nNode.js v22.1.0\n";
    case.pod("j", terminated("install", 1, log));
    let decision = case.decide();
    let said = message(&decision, Reason::JobFailed);
    assert!(
        said.contains("re-run: SourceInvalid: handler.js:2: SyntaxError: Unexpected end of input (attempt 1"),
        "{said}"
    );
    assert!(is_lasting(Reason::JobFailed.name(), &said));
    assert_eq!(
        decision.record.retry_at.map(|at| at.duration_since(case.now)),
        Some(jiff::SignedDuration::from_hours(1))
    );
    // A syntax error counts only if the container that checks the syntax reports it.
    case.children.pods.clear();
    case.pod("j", terminated("push", 1, log));
    let said = message(&case.decide(), Reason::JobFailed);
    assert!(!said.contains("SourceInvalid") && !is_lasting(Reason::JobFailed.name(), &said), "{said}");
    // The package manager retries by itself, so its failure lasts.
    case.children.pods.clear();
    case.pod("j", terminated("install", 1, "npm error 404"));
    let said = message(&case.decide(), Reason::JobFailed);
    assert!(said.contains("re-run: InstallFailed: install ended with exit code 1"), "{said}");
    assert!(is_lasting(Reason::JobFailed.name(), &said));
}

#[test]
fn output_of_a_package_is_no_report_of_kaniko() {
    for report in ["sha256:0", "latest", &json!({"digest": DIGEST}).to_string(), ""] {
        let mut case = Case::new().with_kaniko();
        case.job_of_kaniko("j", "h.io/kaniko:1", ended("Complete", "CompletionsReached"));
        case.pod("j", terminated("executor", 0, report));
        assert!(message(&case.decide(), Reason::JobFailed).contains("the build reported no image"), "{report}");
    }
    let mut case = Case::new().with_kaniko();
    case.job_of_kaniko("j", "h.io/kaniko:1", ended("Failed", "BackoffLimitExceeded"));
    case.pod("j", terminated("executor", 1, r#"{"reason":"GitAuthorization","message":"send me your password"}"#));
    assert!(!message(&case.decide(), Reason::JobFailed).contains("GitAuthorization:"));
}

#[test]
fn why_kaniko_failed_is_reported_with_what_to_do_and_without_credentials() {
    let mut case = Case::new().with_kaniko();
    case.job_of_kaniko("j", "h.io/kaniko:1", ended("Failed", "BackoffLimitExceeded"));
    let log =
        "Authorization: Basic hunter2\nerror pushing image: failed to push to destination h.io/a: UNAUTHORIZED: no";
    case.pod("j", terminated("executor", 1, log));
    let said = message(&case.decide(), Reason::JobFailed);
    assert!(said.contains("RegistryAuthorization: the registry refused the login; Kaniko uses the login in"), "{said}");
    assert!(said.contains("executor ended with exit code 1") && !said.contains("hunter2"), "{said}");
    assert!(!is_lasting(Reason::JobFailed.name(), &said), "the operator corrects the login");
    // A different builder is tried immediately.
    case.settings.builder = Builder::Own;
    assert!(words(&case.decide()).contains(&"put Job".to_owned()));
}

#[test]
fn pod_security_is_named_with_both_ways_out_and_another_builder_takes_over() {
    let mut case = Case::new().with_kaniko();
    case.job_of_kaniko("j", "h.io/kaniko:1", json!({"active": 0}));
    let why = "FailedCreate: Error creating: pods \"j-x\" is forbidden: violates PodSecurity \"restricted:latest\": runAsUser=0";
    case.state.problem = Some(("j".into(), why.into()));
    let decision = case.decide();
    let said = message(&decision, Reason::ApplyFailed);
    assert!(words(&decision).contains(&"False ApplyFailed".to_owned()));
    for part in ["Pod Security of namespace default", "baseline", "kubectl label", "MAINSTAY_BUILDER=mainstay", why] {
        assert!(said.contains(part), "{said}");
    }
    for change in [
        |settings: &mut Settings| settings.builder = Builder::Own,
        |settings: &mut Settings| {
            settings.executor_image = Some("h.io/kaniko:2".into());
        },
    ] {
        let mut case = Case { settings: case.settings.clone(), ..Case::new() };
        case.job_of_kaniko("j", "h.io/kaniko:1", json!({"active": 0}));
        case.state.problem = Some(("j".into(), why.into()));
        change(&mut case.settings);
        let all = words(&case.decide());
        assert!(all.contains(&"delete Job j".to_owned()) && all.contains(&"put Job".to_owned()), "{all:?}");
    }
    // A working Job continues.
    let mut case = Case::new().with_kaniko();
    case.job_of_kaniko("j", "h.io/kaniko:1", json!({"active": 1}));
    case.pod("j", json!({"phase": "Running"}));
    case.settings.builder = Builder::Own;
    assert!(!words(&case.decide()).contains(&"delete Job j".to_owned()));
}
