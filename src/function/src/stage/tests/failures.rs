//! Failed builds: reported, and retried after a backoff or a change.

use mainstay_api::function_failure::is_lasting;

use super::*;

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
fn a_failed_job_that_is_deleted_is_retried_at_once() {
    let mut case = Case::new();
    case.status.building = Some(case.tag());
    case.status.builds = Some(2);
    case.status.retry_at =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(case.now + Duration::from_secs(9)));
    assert_eq!(case.decide().record.building.map(|(_, attempt)| attempt), Some(3));
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
