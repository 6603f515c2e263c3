//! Builds by Kaniko: their images, their failures, and Pod Security.

use crate::Builder;
use mainstay_api::function_failure::is_lasting;

use super::*;

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
