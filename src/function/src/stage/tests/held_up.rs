//! Builds whose pod cannot start: reported, suspended, resumed and replaced.

use super::*;

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
